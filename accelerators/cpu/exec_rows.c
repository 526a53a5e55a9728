/* exec_rows.c - operators along rows: softmax, norms, embedding, cross-entropy, and
 * counts for metrics
 *
 * Indices come from data: they are checked before anything is written, and a wrong index
 * ends the replay with an error that names the operation.  Sums over all rows are added
 * in the order of the rows. */
#include <math.h>
#include <string.h>

#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/exec_op.h"
#include "base/alloc.h"
#include "base/error.h"

static int threads_for(const pl_exec_context_t *f, int64_t elements)
{
    return elements < PL_PARALLEL_MIN ? 1 : f->threads;
}

/* ---- Indices ---- */

static int64_t index_at(const void *indices, pl_dtype_t dtype, int64_t i)
{
    return dtype == PL_I64 ? ((const int64_t *)indices)[i]
                           : ((const int32_t *)indices)[i];
}

static bool is_ignored(const pl_exec_op_t *s, int64_t target)
{
    return s->op.attr.has_ignore && target == s->op.attr.from;
}

int pl_check_indices(const pl_exec_op_t *s, const void *indices, int64_t n, int64_t below,
                     pl_error_t *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t index = index_at(indices, s->dtype, i);
        if ((index < 0 || index >= below) && !is_ignored(s, index))
            return pl_index_fail(&s->op, index, below, err);
    }
    return PL_OK;
}

/* ---- softmax: size is rows, width ---- */

static int run_softmax(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_softmax_grad;
    const pl_softmax_job_t job = {.width = s->size[1],
                                  .x = pl_in(s, f, grad),
                                  .dy = grad ? pl_in(s, f, 0) : NULL,
                                  .to = pl_out(s, f, 0)};
    pl_parallel_run(f->pool, threads_for(f, s->size[0] * s->size[1]), s->size[0], 1,
                    grad ? f->kernels->softmax_grad : f->kernels->softmax, &job);
    return PL_OK;
}

static int prepare_softmax(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const pl_shape_t x = pl_exec_op_in(b, s, 0);
    s->size[1] = x.dim[x.rank - 1];
    s->size[0] = pl_elements(x) / s->size[1];
    s->run = run_softmax;
    return PL_OK;
}

/* ---- layer_norm: size is rows, width, weights, sets of weights, axes of w and of b;
 * scratch begins with weights and biases that are one number for all ---- */

/* The weights of input k, one for each channel. */
static const float *spread(const pl_exec_op_t *s, const pl_exec_context_t *f, int k,
                           int64_t axes, float *to)
{
    const float *w = pl_in(s, f, k);
    for (int64_t i = 0; i < s->size[2] && !axes; i++)
        to[i] = w[0];
    return axes ? w : to;
}

/* x and w are inputs k and the next. */
static pl_layer_norm_job_t layer_norm_start(const pl_exec_op_t *s,
                                            const pl_exec_context_t *f, int k)
{
    const int64_t channels = s->size[2] / s->size[3];
    return (
        pl_layer_norm_job_t){.width = s->size[1],
                             .channels = channels,
                             .run = s->size[1] / channels,
                             .sets = s->size[3],
                             .epsilon = (float)s->op.attr.a,
                             .is_rms = s->op.attr.is_rms,
                             .x = pl_in(s, f, k),
                             .w = spread(s, f, k + 1, s->size[4], (float *)f->scratch)};
}

static int run_layer_norm(const pl_exec_op_t *s, const pl_exec_context_t *f,
                          pl_error_t *err)
{
    (void)err;
    float *scratch = (float *)f->scratch + s->size[2];
    pl_layer_norm_job_t job = layer_norm_start(s, f, 0);
    job.b = spread(s, f, 2, s->size[5], scratch);
    job.y = pl_out(s, f, 0);
    job.mean = pl_out(s, f, 1);
    job.rstd = pl_out(s, f, 2);
    if (!job.y)
        job.y = scratch + s->size[2];
    pl_parallel_run(f->pool, threads_for(f, s->size[0] * s->size[1]), s->size[0], 1,
                    f->kernels->layer_norm, &job);
    return PL_OK;
}

typedef struct layer_norm_call {
    pl_kernel_run_t *kernel;
    pl_layer_norm_job_t job;
    float *sums;                                    /* [parts][2][weights] of dw and db */
} layer_norm_call_t;

static void layer_norm_grad_piece(void *user, int64_t from, int64_t to, int part)
{
    const layer_norm_call_t *c = user;
    pl_layer_norm_job_t job = c->job;
    const int64_t weights = job.channels * job.sets;
    job.dw = c->sums + 2 * part * weights;
    job.db = job.dw + weights;
    memset(job.dw, 0, 2 * (size_t)weights * sizeof(float));
    c->kernel(&job, from, to);
}

static int run_layer_norm_grad(const pl_exec_op_t *s, const pl_exec_context_t *f,
                               pl_error_t *err)
{
    (void)err;
    const int64_t rows = s->size[0], weights = s->size[2];
    layer_norm_call_t c = {.kernel = f->kernels->layer_norm_grad,
                           .sums = (float *)f->scratch + weights,
                           .job = layer_norm_start(s, f, 1)};
    c.job.dy = pl_in(s, f, 0);
    c.job.mean = pl_in(s, f, 3);
    c.job.rstd = pl_in(s, f, 4);
    c.job.dx = pl_out(s, f, 0);
    const int threads = threads_for(f, rows * s->size[1]);
    pl_parallel_for(f->pool, threads, rows, 1, layer_norm_grad_piece, &c);
    const int64_t piece = pl_parallel_piece(threads, rows, 1);
    for (int64_t part = 1; part * piece < rows; part++)
        f->kernels->add(c.sums, c.sums + 2 * part * weights, 2 * weights);
    for (int k = 0; k < 2; k++)
        if (pl_out(s, f, 1 + k))
            memcpy(pl_out(s, f, 1 + k), c.sums + k * weights,
                   (size_t)weights * sizeof(float));
    return PL_OK;
}

static int prepare_layer_norm(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_layer_norm_grad;
    const pl_shape_t x = pl_exec_op_in(b, s, grad), w = pl_exec_op_in(b, s, 1 + grad);
    s->size[1] = x.dim[x.rank - 1];
    s->size[0] = pl_elements(x) / s->size[1];
    s->size[3] = s->op.attr.to ? s->op.attr.to : 1;
    s->size[2] = w.rank ? w.dim[0] : s->size[3];
    s->size[4] = w.rank;
    s->size[5] = grad ? 0 : pl_exec_op_in(b, s, 2).rank;
    s->scratch = (size_t)(1 + (grad ? 2 * b->threads : 1)) * (size_t)s->size[2]
                 * sizeof(float);
    if (!grad && b->allocation[s->op.output[0]].kind == PL_ALLOCATION_NONE)
        s->scratch += (size_t)pl_elements(x) * sizeof(float);
    s->run = grad ? run_layer_norm_grad : run_layer_norm;
    return PL_OK;
}

/* ---- batch_norm: size is batch, channels, inner; scratch is seven rows of [channels]
 * ---- */

static pl_batch_norm_job_t batch_norm_start(const pl_exec_op_t *s)
{
    return (pl_batch_norm_job_t){.batch = s->size[0],
                                 .channels = s->size[1],
                                 .inner = s->size[2],
                                 .epsilon = (float)s->op.attr.a};
}

static void batch_norm_run(const pl_batch_norm_job_t *job, const pl_exec_context_t *f,
                           int64_t n, int64_t grain, pl_kernel_run_t *kernel)
{
    pl_parallel_run(f->pool, threads_for(f, job->batch * job->channels * job->inner), n,
                    grain, kernel, job);
}

static float *scratch_row(const pl_exec_op_t *s, const pl_exec_context_t *f, int row)
{
    return (float *)f->scratch + row * s->size[1];
}

static void *or_scratch(void *output, const pl_exec_op_t *s, const pl_exec_context_t *f,
                        int row)
{
    return output ? output : scratch_row(s, f, row);
}

/* y = p (x - mean) + q. */
static int run_batch_norm(const pl_exec_op_t *s, const pl_exec_context_t *f,
                          pl_error_t *err)
{
    (void)err;
    const bool given = s->op.code == PL_OP_batch_norm_with;
    pl_batch_norm_job_t job = batch_norm_start(s);
    job.x = pl_in(s, f, 0);
    job.w = pl_in(s, f, 1);
    job.b = pl_in(s, f, 2);
    job.y = pl_out(s, f, 0);
    job.mean = given ? pl_in(s, f, 3) : or_scratch(pl_out(s, f, 1), s, f, 3);
    job.var = given ? pl_in(s, f, 4) : or_scratch(pl_out(s, f, 2), s, f, 4);
    if (!given)
        batch_norm_run(&job, f, s->size[1], 16, f->kernels->batch_norm_statistics);
    if (!job.y)
        return PL_OK;
    float *p = scratch_row(s, f, 0), *q = scratch_row(s, f, 1);
    for (int64_t k = 0; k < s->size[1]; k++) {
        p[k] = job.w[k] / sqrtf(job.var[k] + job.epsilon);
        q[k] = job.b[k];
    }
    job.p = p, job.q = q;
    batch_norm_run(&job, f, s->size[0], 1, f->kernels->batch_norm);
    return PL_OK;
}

/* dx = w rstd (dy - db / n - (x - mean) rstd dw / n).  Terms that cancel are subtracted
 * before they are scaled: if a channel hardly varies, w rstd is large.  With eight inputs
 * the sums dw and db are inputs, because they are sums over more than this x. */
static int run_batch_norm_grad(const pl_exec_op_t *s, const pl_exec_context_t *f,
                               pl_error_t *err)
{
    (void)err;
    pl_batch_norm_job_t job = batch_norm_start(s);
    job.dy = pl_in(s, f, 0);
    job.x = pl_in(s, f, 1);
    job.w = pl_in(s, f, 2);
    job.mean = pl_in(s, f, 3);
    job.var = pl_in(s, f, 4);
    job.dx = pl_out(s, f, 0);
    const bool given = s->op.input_count == 8;
    job.dw = given ? pl_in(s, f, 5) : or_scratch(pl_out(s, f, 1), s, f, 5);
    job.db = given ? pl_in(s, f, 6) : or_scratch(pl_out(s, f, 2), s, f, 6);
    if (!given)
        batch_norm_run(&job, f, s->size[1], 16, f->kernels->batch_norm_sums);
    if (!job.dx)
        return PL_OK;
    float *p = scratch_row(s, f, 0), *q = scratch_row(s, f, 1), *r = scratch_row(s, f, 2);
    const float n = given ? *(const float *)pl_in(s, f, 7)
                          : (float)(s->size[0] * s->size[2]);
    for (int64_t k = 0; k < s->size[1]; k++) {
        const float rstd = 1.0f / sqrtf(job.var[k] + job.epsilon);
        r[k] = job.w[k] * rstd;
        p[k] = rstd * job.dw[k] / n;
        q[k] = job.db[k] / n;
    }
    job.p = p, job.q = q, job.r = r;
    batch_norm_run(&job, f, s->size[0], 1, f->kernels->batch_norm_grad);
    return PL_OK;
}

static int prepare_batch_norm(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_batch_norm_grad;
    const pl_shape_t x = pl_exec_op_in(b, s, grad);
    s->size[0] = x.dim[0];
    s->size[1] = x.dim[1];
    s->size[2] = pl_elements(x) / (x.dim[0] * x.dim[1]);
    s->scratch = 7 * (size_t)s->size[1] * sizeof(float);
    s->run = grad ? run_batch_norm_grad : run_batch_norm;
    return PL_OK;
}

/* ---- embedding: size is indices, width, rows of the table ---- */

typedef struct embedding_call {
    const pl_exec_op_t *s;
    const void *indices;
    const float *from;
    float *to;
    const pl_kernels_t *kernels;
} embedding_call_t;

static void embedding_piece(void *user, int64_t from, int64_t to, int part)
{
    (void)part;
    const embedding_call_t *c = user;
    const int64_t width = c->s->size[1];
    for (int64_t i = from; i < to; i++)
        memcpy(c->to + i * width, c->from + index_at(c->indices, c->s->dtype, i) * width,
               (size_t)width * sizeof(float));
}

/* Rows [from, to) of the table: every piece reads all positions, in order. */
static void embedding_grad_piece(void *user, int64_t from, int64_t to, int part)
{
    (void)part;
    const embedding_call_t *c = user;
    const int64_t width = c->s->size[1];
    memset(c->to + from * width, 0, (size_t)((to - from) * width) * sizeof(float));
    for (int64_t i = 0; i < c->s->size[0]; i++) {
        int64_t row = index_at(c->indices, c->s->dtype, i);
        if (row >= from && row < to)
            c->kernels->add(c->to + row * width, c->from + i * width, width);
    }
}

static int run_embedding(const pl_exec_op_t *s, const pl_exec_context_t *f,
                         pl_error_t *err)
{
    const bool grad = s->op.code == PL_OP_embedding_grad;
    embedding_call_t c = {s, pl_in(s, f, 0), pl_in(s, f, 1), pl_out(s, f, 0), f->kernels};
    int code = pl_check_indices(s, c.indices, s->size[0], s->size[2], err);
    if (code == PL_OK)
        pl_parallel_for(f->pool, threads_for(f, s->size[0] * s->size[1]),
                        s->size[grad ? 2 : 0], 1,
                        grad ? embedding_grad_piece : embedding_piece, &c);
    return code;
}

static int prepare_embedding(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_embedding_grad;
    const pl_shape_t table = grad ? pl_exec_op_out(b, s, 0) : pl_exec_op_in(b, s, 1);
    s->dtype = b->lowered->graph.value[s->op.input[0]].dtype;
    s->size[0] = pl_elements(pl_exec_op_in(b, s, 0));
    s->size[1] = table.dim[1];
    s->size[2] = table.dim[0];
    s->run = run_embedding;
    return PL_OK;
}

/* ---- cross_entropy and correct: size is rows, classes, axes of both weights; scratch is
 * two numbers for each row ---- */

static float total(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return (float)sum;
}

/* The targets follow the input `logits`; the optional weights are the last two inputs. */
static pl_cross_entropy_job_t entropy_start(const pl_exec_op_t *s,
                                            const pl_exec_context_t *f, int logits,
                                            int weights)
{
    float *row = (float *)f->scratch;
    const bool weighted = s->op.input_count > weights;
    return (
        pl_cross_entropy_job_t){.classes = s->size[1],
                                .logits = pl_in(s, f, logits),
                                .targets = pl_in(s, f, logits + 1),
                                .class_weight = weighted ? pl_in(s, f, weights) : NULL,
                                .row_weight = weighted ? pl_in(s, f, weights + 1) : NULL,
                                .one_class_weight = !s->size[2],
                                .one_row_weight = !s->size[3],
                                .of_logs = s->op.attr.of_logs,
                                .smoothing = (float)s->op.attr.a,
                                .dtype = s->dtype,
                                .has_ignore = s->op.attr.has_ignore,
                                .ignore = s->op.attr.from,
                                .top = s->op.attr.to,
                                .row = row,
                                .counted = row + s->size[0]};
}

static int run_cross_entropy(const pl_exec_op_t *s, const pl_exec_context_t *f,
                             pl_error_t *err)
{
    pl_cross_entropy_job_t job = entropy_start(s, f, 0, 2);
    int code = pl_check_indices(s, job.targets, s->size[0], s->size[1], err);
    if (code != PL_OK)
        return code;
    if (s->op.code == PL_OP_cross_entropy)
        job.row_max = pl_out(s, f, 2);
    if (job.row_max)
        job.sum = job.row_max + s->size[0];
    pl_parallel_run(f->pool, threads_for(f, s->size[0] * s->size[1]), s->size[0], 1,
                    s->op.code == PL_OP_correct ? f->kernels->correct
                                                : f->kernels->cross_entropy,
                    &job);
    if (pl_out(s, f, 0))
        *(float *)pl_out(s, f, 0) = total(job.row, s->size[0]);
    if (pl_out(s, f, 1))
        *(float *)pl_out(s, f, 1) = total(job.counted, s->size[0]);
    return PL_OK;
}

static int run_cross_entropy_grad(const pl_exec_op_t *s, const pl_exec_context_t *f,
                                  pl_error_t *err)
{
    pl_cross_entropy_job_t job = entropy_start(s, f, 1, 4);
    int code = pl_check_indices(s, job.targets, s->size[0], s->size[1], err);
    if (code != PL_OK)
        return code;
    job.dsum = pl_in(s, f, 0);
    job.row_max = pl_in(s, f, 3);
    job.sum = job.row_max + s->size[0];
    job.dlogits = pl_out(s, f, 0);
    pl_parallel_run(f->pool, threads_for(f, s->size[0] * s->size[1]), s->size[0], 1,
                    f->kernels->cross_entropy_grad, &job);
    return PL_OK;
}

static int prepare_cross_entropy(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_cross_entropy_grad;
    const pl_shape_t logits = pl_exec_op_in(b, s, grad);
    s->dtype = b->lowered->graph.value[s->op.input[1 + grad]].dtype;
    s->size[0] = logits.dim[0];
    s->size[1] = logits.dim[1];
    for (int k = 0, first = grad ? 4 : 2; k < 2 && s->op.input_count > first; k++)
        s->size[2 + k] = pl_exec_op_in(b, s, first + k).rank;
    s->scratch = 2 * (size_t)s->size[0] * sizeof(float);
    s->run = grad ? run_cross_entropy_grad : run_cross_entropy;
    return PL_OK;
}

/* ---- confusion and score_bins: size is rows, classes, bins ----
 *
 * One thread runs over the rows: that takes little time compared with computing them. */

/* A NaN is larger than all numbers, as in PyTorch. */
static int run_confusion(const pl_exec_op_t *s, const pl_exec_context_t *f,
                         pl_error_t *err)
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
        const int64_t target = index_at(targets, s->dtype, r);
        const float *row = x + r * classes;
        int64_t best = 0;
        for (int64_t i = 1; i < classes && !isnan(row[best]); i++)
            if (row[i] > row[best] || isnan(row[i]))
                best = i;
        if (!is_ignored(s, target))
            count[target * classes + best]++;
    }
    return PL_OK;
}

/* A NaN counts as the lowest score. */
static int run_score_bins(const pl_exec_op_t *s, const pl_exec_context_t *f,
                          pl_error_t *err)
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
        int64_t target = index_at(targets, s->dtype, r);
        for (int64_t c = 0; c < classes && !is_ignored(s, target); c++) {
            const bool is_it = target == (classes == 1 ? 1 : c);
            const float last = (float)(bins - 1), at = x[r * classes + c] * last;
            const int64_t bin = !(at > 0) ? 0 : at < last ? (int64_t)at : bins - 1;
            count[(c * 2 + is_it) * bins + bin]++;
        }
    }
    return PL_OK;
}

static int prepare_counts(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    int code = prepare_cross_entropy(s, b, err);
    s->scratch = 0;
    s->size[2] = s->op.attr.to;
    s->run = s->op.code == PL_OP_confusion ? run_confusion : run_score_bins;
    return code;
}

/* ---- ctc: size is batch, steps, classes, labels ---- */

/* Labels behind the end of a target are not looked at. */
static int check_ctc(const pl_exec_op_t *s, const pl_ctc_job_t *job, pl_error_t *err)
{
    const int64_t batch = s->size[0];
    int code = pl_check_indices(s, job->lengths[0], batch, job->steps + 1, err);
    if (code == PL_OK)
        code = pl_check_indices(s, job->lengths[1], batch, job->labels + 1, err);
    for (int64_t b = 0; b < batch && code == PL_OK; b++)
        code = pl_check_indices(s, job->targets + b * job->labels, job->lengths[1][b],
                                job->classes, err);
    return code;
}

static int run_ctc(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    const bool grad = s->op.code == PL_OP_ctc_grad;
    pl_ctc_job_t job = {.steps = s->size[1],
                        .classes = s->size[2],
                        .labels = s->size[3],
                        .blank = s->op.attr.from,
                        .zero_infinity = s->op.attr.keep,
                        .x = pl_in(s, f, grad),
                        .targets = pl_in(s, f, grad + 1),
                        .lengths = {pl_in(s, f, grad + 2), pl_in(s, f, grad + 3)}};
    const int code = check_ctc(s, &job, err);
    if (code != PL_OK)
        return code;
    if (grad) {
        job.dy = pl_in(s, f, 0);
        job.alphas = (float *)pl_in(s, f, 5);
        job.dx = pl_out(s, f, 0);
        job.scratch = (float *)f->scratch;
    } else {
        job.losses = pl_out(s, f, 0);
        job.alphas = pl_out(s, f, 1) ? pl_out(s, f, 1) : (float *)f->scratch;
    }
    pl_parallel_run(f->pool, threads_for(f, s->size[0] * job.steps * job.labels * 16),
                    s->size[0], 1, grad ? f->kernels->ctc_grad : f->kernels->ctc, &job);
    return PL_OK;
}

static int prepare_ctc(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_ctc_grad;
    const pl_shape_t x = pl_exec_op_in(b, s, grad);
    for (int k = 0; k < 3; k++)
        s->size[k] = x.dim[k];
    s->size[3] = pl_exec_op_in(b, s, grad + 1).dim[1];
    s->dtype = PL_I32;
    /* Without a gradient the alphas are no value of the graph. */
    const int64_t alphas = s->size[0] * (grad ? 2 : s->size[1]) * (2 * s->size[3] + 1);
    s->scratch = (size_t)alphas * sizeof(float);
    s->run = run_ctc;
    return PL_OK;
}

const pl_prepare_t pl_prepare_rows[PL_OPCODES] = {
    [PL_OP_batch_norm] = prepare_batch_norm,
    [PL_OP_batch_norm_grad] = prepare_batch_norm,
    [PL_OP_batch_norm_with] = prepare_batch_norm,
    [PL_OP_confusion] = prepare_counts,
    [PL_OP_correct] = prepare_cross_entropy,
    [PL_OP_cross_entropy] = prepare_cross_entropy,
    [PL_OP_cross_entropy_grad] = prepare_cross_entropy,
    [PL_OP_ctc] = prepare_ctc,
    [PL_OP_ctc_grad] = prepare_ctc,
    [PL_OP_embedding] = prepare_embedding,
    [PL_OP_embedding_grad] = prepare_embedding,
    [PL_OP_layer_norm] = prepare_layer_norm,
    [PL_OP_layer_norm_grad] = prepare_layer_norm,
    [PL_OP_score_bins] = prepare_counts,
    [PL_OP_softmax] = prepare_softmax,
    [PL_OP_softmax_grad] = prepare_softmax,
};
