/* exec_counts.c - what metrics count: classes against each other, scores in bins
 *
 * Both are a pass over the rows by one thread: little beside what made the rows. */
#include <math.h>
#include <string.h>

#include "accelerators/cpu/exec_op.h"

static bool is_ignored(const pl_exec_op_t *s, int64_t target)
{
    return s->op.attr.has_ignore && target == s->op.attr.from;
}

/* A NaN is larger than anything, as in PyTorch. */
static int64_t first_largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n && !isnan(x[best]); i++)
        if (x[i] > x[best] || isnan(x[i]))
            best = i;
    return best;
}

int pl_run_confusion(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    const int64_t rows = s->size[0], classes = s->size[1];
    const float *x = pl_in(s, f, 0);
    const void *targets = pl_in(s, f, 1);
    float *count = pl_out(s, f, 0);
    int code = pl_check_indices(s, targets, rows, classes, err);
    if (code != PL_OK)
        return code;
    memset(count, 0, (size_t)(classes * classes) * sizeof *count);
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = pl_index_at(targets, s->dtype, r);
        if (!is_ignored(s, target))
            count[target * classes + first_largest(x + r * classes, classes)]++;
    }
    return PL_OK;
}

/* What is no number is the least. */
static int64_t bin_of(float score, int64_t bins)
{
    float at = score * (float)(bins - 1);
    if (!(at > 0))
        return 0;
    return at < (float)(bins - 1) ? (int64_t)at : bins - 1;
}

int pl_run_score_bins(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    const int64_t rows = s->size[0], classes = s->size[1], bins = s->size[2];
    const float *x = pl_in(s, f, 0);
    const void *targets = pl_in(s, f, 1);
    float *count = pl_out(s, f, 0);
    int code = pl_check_indices(s, targets, rows, classes == 1 ? 2 : classes, err);
    if (code != PL_OK)
        return code;
    memset(count, 0, (size_t)(classes * 2 * bins) * sizeof *count);
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = pl_index_at(targets, s->dtype, r);
        for (int64_t c = 0; c < classes && !is_ignored(s, target); c++) {
            bool is_it = target == (classes == 1 ? 1 : c);
            count[(c * 2 + is_it) * bins + bin_of(x[r * classes + c], bins)]++;
        }
    }
    return PL_OK;
}
