/* rows.c - reference kernels along rows: softmax, normalization, embedding, cross
 * entropy, connectionist temporal classification */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "accelerators/reference/kernels.h"

static int64_t last(pl_shape_t shape)
{
    return shape.dim[shape.rank - 1];
}

/* The largest element of a row and the sum of e^(x - largest), separately: their combined
 * logarithm would lose the digits of the other elements.  A NaN makes the sum NaN. */
typedef struct exponentials {
    double largest, sum;
} exponentials_t;

static exponentials_t exponentials_of(const double *x, int64_t n)
{
    exponentials_t e = {-INFINITY, 0};
    for (int64_t i = 0; i < n; i++)
        e.largest = fmax(e.largest, x[i]);
    for (int64_t i = 0; i < n; i++)
        e.sum += exp(x[i] - e.largest);
    return e;
}

/* ---- softmax ---- */

static void compute_softmax(pl_reference_call_t *c)
{
    const int64_t n = last(c->in_shape[0]);
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e += n) {
        const exponentials_t row = exponentials_of(c->in[0] + e, n);
        for (int64_t i = 0; i < n; i++)
            c->out[0][e + i] = exp(c->in[0][e + i] - row.largest) / row.sum;
    }
}

static void compute_softmax_grad(pl_reference_call_t *c)
{
    const int64_t n = last(c->in_shape[0]);
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e += n) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += c->in[0][e + i] * c->in[1][e + i];
        for (int64_t i = 0; i < n; i++)
            c->out[0][e + i] = c->in[1][e + i] * (c->in[0][e + i] - sum);
    }
}

/* ---- Normalization: a group is a row (layer) or a channel (batch) ---- */

typedef struct groups {
    bool rows;                             /* layer_norm */
    int64_t count, size;                   /* groups, elements of one */
    int64_t channels, space;               /* of rows: weights of one, elements of each */
    int64_t sets;                          /* rows with weights of their own */
} groups_t;

/* x and w are inputs k and the next. */
static groups_t groups_of(const pl_reference_call_t *c, int k, bool rows)
{
    const pl_shape_t x = c->in_shape[k], w = c->in_shape[k + 1];
    groups_t s = {.rows = rows, .sets = c->attr->to ? c->attr->to : 1};
    if (rows) {
        s.size = last(x);
        s.count = pl_elements(x) / s.size;
        s.channels = w.rank ? w.dim[0] / s.sets : 0;
        s.space = w.rank ? s.size / s.channels : s.size;
        return s;
    }
    s.count = s.channels = x.dim[1];
    s.size = pl_elements(x) / s.count;
    s.space = s.size / x.dim[0];
    return s;
}

/* Index in x of element i of group k; *channel is the index of its weight. */
static int64_t member(const groups_t *s, int64_t k, int64_t i, int64_t *channel)
{
    *channel = s->rows ? k % s->sets * s->channels + i / s->space : k;
    return s->rows ? k * s->size + i
                   : (i / s->space * s->channels + k) * s->space + i % s->space;
}

static void compute_norm(pl_reference_call_t *c)
{
    const bool rows = c->op->code == PL_OP_layer_norm;
    const groups_t s = groups_of(c, 0, rows);
    int64_t channel;
    for (int64_t k = 0; k < s.count; k++) {
        const double first = c->in[0][member(&s, k, 0, &channel)];
        double mean = first, var = 0;                       /* exact if all are equal */
        for (int64_t i = 0; i < s.size; i++)
            mean += (c->in[0][member(&s, k, i, &channel)] - first) / (double)s.size;
        mean = c->attr->is_rms ? 0 : mean;
        for (int64_t i = 0; i < s.size; i++)
            var += pow(c->in[0][member(&s, k, i, &channel)] - mean, 2) / (double)s.size;
        const double rstd = 1 / sqrt(var + c->attr->a);
        for (int64_t i = 0; i < s.size; i++) {
            int64_t e = member(&s, k, i, &channel);
            c->out[0][e] = (c->in[0][e] - mean) * rstd * c->in[1][channel]
                           + c->in[2][c->in_shape[2].rank ? channel : 0];
        }
        c->out[1][k] = mean;
        c->out[2][k] = rows ? rstd : var;
    }
}

/* n = (x - mean) rstd: dx = rstd (dn - mean(dn) - n mean(dn n)), dn = dy w; dw =
 * sum(dy n), db = sum(dy). */
static void compute_norm_grad(pl_reference_call_t *c)
{
    const bool rows = c->op->code == PL_OP_layer_norm_grad;
    const groups_t s = groups_of(c, 1, rows);
    const double *dy = c->in[0], *x = c->in[1], *w = c->in[2];
    int64_t channel;
    for (int64_t k = 0; k < s.count; k++) {
        const double mean = c->in[3][k],
                     rstd = rows ? c->in[4][k] : 1 / sqrt(c->in[4][k] + c->attr->a);
        double sum = 0, product = 0;
        for (int64_t i = 0; i < s.size; i++) {
            int64_t e = member(&s, k, i, &channel);
            const double n = (x[e] - mean) * rstd;
            sum += dy[e] * w[channel] / (double)s.size;
            product += dy[e] * w[channel] * n / (double)s.size;
            c->out[1][channel] += dy[e] * n;
            c->out[2][channel] += dy[e];
        }
        sum = c->attr->is_rms ? 0 : sum;
        if (c->op->input_count == 8) {                      /* sums over all ranks */
            sum = c->in[6][k] * w[k] / c->in[7][0];
            product = c->in[5][k] * w[k] / c->in[7][0];
        }
        for (int64_t i = 0; i < s.size; i++) {
            int64_t e = member(&s, k, i, &channel);
            c->out[0][e] = rstd
                           * (dy[e] * w[channel] - sum - (x[e] - mean) * rstd * product);
        }
    }
}

static void compute_batch_norm_with(pl_reference_call_t *c)
{
    const groups_t s = groups_of(c, 0, false);
    for (int64_t e = 0; e < pl_elements(c->in_shape[0]); e++) {
        int64_t k = e / s.space % s.channels;
        c->out[0][e] = (c->in[0][e] - c->in[3][k]) / sqrt(c->in[4][k] + c->attr->a)
                           * c->in[1][k]
                       + c->in[2][k];
    }
}

/* ---- embedding ---- */

bool pl_reference_index_is_good(pl_reference_call_t *c, double index, int64_t n)
{
    if (index >= 0 && index < (double)n)
        return true;
    c->code = pl_fail(c->err, PL_EINVAL, "%s: %s got index %.0f, outside [0, %lld)",
                      c->op->path, pl_operators[c->op->code].name, index, (long long)n);
    return false;
}

/* The gradient adds rows to those of the table from which the operator takes them. */
static void compute_embedding(pl_reference_call_t *c)
{
    const bool adds = c->op->code == PL_OP_embedding_grad;
    const pl_shape_t table = adds ? c->out_shape[0] : c->in_shape[1];
    const int64_t width = last(table);
    for (int64_t i = 0; i < pl_elements(c->in_shape[0]); i++) {
        if (!pl_reference_index_is_good(c, c->in[0][i], table.dim[0]))
            return;
        for (int64_t k = 0; k < width; k++) {
            const int64_t in_table = (int64_t)c->in[0][i] * width + k,
                          row = i * width + k;
            if (adds)
                c->out[0][in_table] += c->in[1][row];
            else
                c->out[0][row] = c->in[1][in_table];
        }
    }
}

/* ---- cross_entropy and correct ---- */

static bool ignored(const pl_reference_call_t *c, double target)
{
    return c->attr->has_ignore && target == (double)c->attr->from;
}

/* The weight of a row: inputs k and k + 1 are optional weights of classes and rows. */
static double row_weight(const pl_reference_call_t *c, int k, int64_t row, double target)
{
    if (!c->in[k])
        return 1;
    return c->in[k][c->in_shape[k].rank ? (int64_t)target : 0]
           * c->in[k + 1][c->in_shape[k + 1].rank ? row : 0];
}

/* The share of class i of a target, which counts `own` for its own class: weights of
 * classes and rows are inputs k and k + 1, if there are any. */
static double target_share(const pl_reference_call_t *c, int k, int64_t row,
                           double target, int64_t i, int64_t n)
{
    const double own = (double)i == target ? row_weight(c, k, row, target) : 0;
    return (1 - c->attr->a) * own
           + c->attr->a / (double)n * row_weight(c, k, row, (double)i);
}

static void compute_cross_entropy(pl_reference_call_t *c)
{
    const int64_t rows = c->in_shape[0].dim[0], n = c->in_shape[0].dim[1];
    for (int64_t r = 0; r < rows; r++) {
        const double target = c->in[1][r];
        exponentials_t row = exponentials_of(c->in[0] + r * n, n);
        if (c->attr->of_logs)
            row = (exponentials_t){0, 1};
        c->out[2][r] = row.largest;
        c->out[2][rows + r] = row.sum;
        if (ignored(c, target) || !pl_reference_index_is_good(c, target, n))
            continue;
        for (int64_t i = 0; i < n; i++)
            if (c->attr->a > 0 || (double)i == target)
                c->out[0][0] += target_share(c, 2, r, target, i, n)
                                * (log(row.sum) - (c->in[0][r * n + i] - row.largest));
        c->out[1][0] += row_weight(c, 2, r, target);
    }
}

static void compute_cross_entropy_grad(pl_reference_call_t *c)
{
    const int64_t rows = c->in_shape[1].dim[0], n = c->in_shape[1].dim[1];
    for (int64_t r = 0; r < rows; r++) {
        double all = 0;
        for (int64_t i = 0; i < n && !ignored(c, c->in[2][r]); i++)
            all += target_share(c, 4, r, c->in[2][r], i, n);
        for (int64_t i = 0; i < n && !ignored(c, c->in[2][r]); i++) {
            const double p = c->attr->of_logs ? 0
                                              : exp(c->in[1][r * n + i] - c->in[3][r])
                                                    / c->in[3][rows + r];
            c->out[0][r * n + i] = c->in[0][0]
                                   * (p * all - target_share(c, 4, r, c->in[2][r], i, n));
        }
    }
}

static void compute_correct(pl_reference_call_t *c)
{
    const int64_t rows = c->in_shape[0].dim[0], n = c->in_shape[0].dim[1];
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in[0] + r * n;
        const int64_t target = (int64_t)c->in[1][r];
        int64_t before = 0;
        if (ignored(c, c->in[1][r]))
            continue;
        for (int64_t i = 0; i < n; i++)
            before += i < target ? !pl_reference_larger(x[target], x[i])
                                 : pl_reference_larger(x[i], x[target]);
        c->out[0][0] += before < c->attr->to;
        c->out[1][0] += 1;
    }
}

static void compute_confusion(pl_reference_call_t *c)
{
    const int64_t rows = c->in_shape[0].dim[0], n = c->in_shape[0].dim[1];
    for (int64_t r = 0; r < rows; r++) {
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++)
            if (pl_reference_larger(c->in[0][r * n + i], c->in[0][r * n + best]))
                best = i;
        if (!ignored(c, c->in[1][r]))
            c->out[0][(int64_t)c->in[1][r] * n + best] += 1;
    }
}

/* In float32, as devices compute it, so that a score on an edge is in the same bin. */
static void compute_score_bins(pl_reference_call_t *c)
{
    const int64_t rows = c->in_shape[0].dim[0], n = c->in_shape[0].dim[1],
                  bins = c->attr->to;
    for (int64_t k = 0; k < rows * n; k++) {
        const double target = c->in[1][k / n];
        const bool is_it = target == (n == 1 ? 1 : (double)(k % n));
        float at = floorf((float)c->in[0][k] * (float)(bins - 1));
        at = fminf(fmaxf(at, 0), (float)(bins - 1));
        if (!ignored(c, target))
            c->out[0][((k % n) * 2 + is_it) * bins + (int64_t)at] += 1;
    }
}

/* ---- ctc: Graves et al., 2006, in logarithms ---- */

typedef struct ctc_sample {
    const double *x, *targets;                              /* [T, C]; [S] */
    int64_t all, steps, classes, states;                    /* all: T, with unused ones */
    int64_t width, blank;
} ctc_sample_t;

static const double no_log = -1e30;

/* False: an index is wrong, and the call has its error. */
static bool ctc_sample_at(pl_reference_call_t *c, int k, int64_t b, ctc_sample_t *s)
{
    const pl_shape_t x = c->in_shape[k];
    const int64_t labels = c->in_shape[k + 1].dim[1];
    const double length = c->in[k + 3][b];
    *s = (ctc_sample_t){.x = c->in[k] + b * x.dim[1] * x.dim[2],
                        .targets = c->in[k + 1] + b * labels,
                        .all = x.dim[1],
                        .steps = (int64_t)c->in[k + 2][b],
                        .classes = x.dim[2],
                        .states = 2 * (int64_t)length + 1,
                        .width = 2 * labels + 1,
                        .blank = c->attr->from};
    bool is_good = pl_reference_index_is_good(c, c->in[k + 2][b], x.dim[1] + 1)
                   && pl_reference_index_is_good(c, length, labels + 1);
    for (int64_t i = 0; is_good && i < (int64_t)length; i++)
        is_good = pl_reference_index_is_good(c, s->targets[i], s->classes);
    return is_good;
}

static int64_t ctc_label(const ctc_sample_t *s, int64_t state)
{
    return state % 2 ? (int64_t)s->targets[state / 2] : s->blank;
}

static bool ctc_skips(const ctc_sample_t *s, int64_t state)
{
    return state % 2 && state > 1 && ctc_label(s, state) != ctc_label(s, state - 2);
}

/* NaN stays, here and in log_sum(). */
static double at_least_no_log(double x)
{
    return x < no_log ? no_log : x;
}

static double log_sum(double a, double b, double c)
{
    const double top = fmax(a, fmax(b, c));
    return top <= no_log / 2 ? no_log + 0 * (a + b + c)
                             : top + log(exp(a - top) + exp(b - top) + exp(c - top));
}

static double ctc_total(const ctc_sample_t *s, const double *alphas)
{
    const double *last = alphas + (s->steps - 1) * s->width + s->states - 1;
    if (s->steps == 0)
        return s->states > 1 ? no_log : 0;
    return log_sum(last[0], s->states > 1 ? last[-1] : no_log, no_log);
}

static void compute_ctc(pl_reference_call_t *c)
{
    ctc_sample_t s;
    for (int64_t b = 0; b < c->in_shape[0].dim[0]; b++) {
        if (!ctc_sample_at(c, 0, b, &s))
            return;
        double *alphas = c->out[1] + b * s.all * s.width;
        for (int64_t i = 0; i < s.all * s.width; i++)
            alphas[i] = no_log;
        for (int64_t t = 0; t < s.steps; t++) {
            double *now = alphas + t * s.width, *past = now - s.width;
            for (int64_t k = 0; k < s.states; k++) {
                double sum = k < 2 ? 0 : no_log;
                if (t > 0)
                    sum = log_sum(past[k], k ? past[k - 1] : no_log,
                                  ctc_skips(&s, k) ? past[k - 2] : no_log);
                now[k] = at_least_no_log(sum + s.x[t * s.classes + ctc_label(&s, k)]);
            }
        }
        const double total = ctc_total(&s, alphas);
        c->out[0][b] = !(total <= no_log / 2) ? -total : c->attr->keep ? 0 : INFINITY;
    }
}

/* What follows a state of the last step, and of each step before it from those `after`
 * it, which include that step's probabilities. */
static void ctc_betas(const ctc_sample_t *s, const double *after, double *betas)
{
    for (int64_t k = 0; k < s->states; k++) {
        betas[k] = k + 2 < s->states ? no_log : 0;
        if (after)
            betas[k] = log_sum(
                after[k], k + 1 < s->states ? after[k + 1] : no_log,
                k + 2 < s->states && ctc_skips(s, k + 2) ? after[k + 2] : no_log);
    }
}

static void compute_ctc_grad(pl_reference_call_t *c)
{
    ctc_sample_t s;
    const int64_t width = 2 * c->in_shape[2].dim[1] + 1;
    double *betas = pl_alloc_array(2 * (size_t)width, sizeof *betas), *after;
    if (!betas) {
        c->code = pl_no_memory(c->err);
        return;
    }
    after = betas + width;
    for (int64_t b = 0; b < c->in_shape[1].dim[0] && ctc_sample_at(c, 1, b, &s); b++) {
        const double *alphas = c->in[5] + b * s.all * width,
                     total = ctc_total(&s, alphas);
        for (int64_t t = s.steps - 1; t >= 0 && !(total <= no_log / 2); t--) {
            const double *x = s.x + t * s.classes;
            double *dx = c->out[0] + (b * s.all + t) * s.classes;
            ctc_betas(&s, t + 1 < s.steps ? after : NULL, betas);
            for (int64_t k = 0; k < s.states; k++) {
                const int64_t label = ctc_label(&s, k);
                dx[label] -= c->in[0][b] * exp(alphas[t * width + k] + betas[k] - total);
                after[k] = at_least_no_log(betas[k] + x[label]);
            }
        }
    }
    pl_free(betas);
}

const pl_reference_kernel_t pl_reference_rows[PL_OPCODES] = {
    [PL_OP_softmax] = compute_softmax,
    [PL_OP_softmax_grad] = compute_softmax_grad,
    [PL_OP_layer_norm] = compute_norm,
    [PL_OP_layer_norm_grad] = compute_norm_grad,
    [PL_OP_batch_norm] = compute_norm,
    [PL_OP_batch_norm_with] = compute_batch_norm_with,
    [PL_OP_batch_norm_grad] = compute_norm_grad,
    [PL_OP_embedding] = compute_embedding,
    [PL_OP_embedding_grad] = compute_embedding,
    [PL_OP_cross_entropy] = compute_cross_entropy,
    [PL_OP_cross_entropy_grad] = compute_cross_entropy_grad,
    [PL_OP_ctc] = compute_ctc,
    [PL_OP_ctc_grad] = compute_ctc_grad,
    [PL_OP_correct] = compute_correct,
    [PL_OP_confusion] = compute_confusion,
    [PL_OP_score_bins] = compute_score_bins,
};
