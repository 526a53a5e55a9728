/* products.c - reference kernels of products and attention */
#include <math.h>

#include "base/random.h"
#include "accelerators/reference/kernels.h"

/* ---- matmul and linear ---- */

static double at(const double *m, int64_t row, int64_t column, pl_shape_t shape,
                 bool transposed)
{
    const int64_t columns = shape.dim[shape.rank - 1];
    return transposed ? m[column * columns + row] : m[row * columns + column];
}

static pl_shape_t leading(pl_shape_t shape)
{
    shape.rank -= 2;
    return shape;
}

static void compute_matmul(pl_reference_call_t *c)
{
    const pl_shape_t a = c->in_shape[0], b = c->in_shape[1], y = c->out_shape[0];
    const bool ta = c->attr->transpose_a, tb = c->attr->transpose_b;
    const int64_t m = y.dim[y.rank - 2], n = y.dim[y.rank - 1],
                  depth = a.dim[a.rank - 1 - ta];
    for (int64_t batch = 0; batch < pl_elements(leading(y)); batch++) {
        const double *pa =
            c->in[0] + pl_reference_source(leading(y), batch, leading(a)) * m * depth;
        const double *pb =
            c->in[1] + pl_reference_source(leading(y), batch, leading(b)) * depth * n;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t k = 0; k < depth; k++)
                    c->out[0][(batch * m + i) * n + j] += at(pa, i, k, a, ta)
                                                          * at(pb, k, j, b, tb);
    }
}

static void compute_linear(pl_reference_call_t *c)
{
    const int64_t rows = c->in_shape[0].dim[0], depth = c->in_shape[0].dim[1],
                  units = c->in_shape[1].dim[0];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < units; j++) {
            double sum = c->op->input_count == 3 ? c->in[2][j] : 0;
            for (int64_t k = 0; k < depth; k++)
                sum += c->in[0][i * depth + k] * c->in[1][j * depth + k];
            c->out[0][i * units + j] = sum;
        }
}

/* ---- attention ---- */

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Number e of a row that the turns of `row` of the last input turn, backwards with a sign
 * of -1; without turns the number itself. */
static double turned(const pl_reference_call_t *c, const double *x, int64_t row,
                     int64_t e, double sign)
{
    const int64_t apart = c->attr->axis;
    if (!apart)
        return x[e];
    const int last = c->op->input_count - 1;
    const int64_t width = c->in_shape[last].dim[1], half = width / 2,
                  pair = apart == 1 ? e / 2 : e % half,
                  first = apart == 1 ? 2 * pair : pair;
    const double *turns = c->in[last] + row * width;
    return x[e] * turns[pair]
           + (e == first ? -x[first + apart] : x[first]) * sign * turns[half + pair];
}

/* Turns the rows of a gradient back: each of `heads` has so many of them, whose turns
 * begin at row `from`. */
static void turn_back(const pl_reference_call_t *c, double *x, int64_t heads,
                      int64_t rows, int64_t width, int64_t from)
{
    const int64_t apart = c->attr->axis;
    for (int64_t i = 0; i < heads * rows && apart; i++)
        for (int64_t p = 0; p < width / 2; p++) {
            double *row = x + i * width;
            const int64_t e = apart == 1 ? 2 * p : p;
            const double first = turned(c, row, from + i % rows, e, -1),
                         second = turned(c, row, from + i % rows, e + apart, -1);
            row[e] = first;
            row[e + apart] = second;
        }
}

/* The sizes of an attention with q, k, v from input `first` on and its mask or bias as
 * input `last`, if there is one. */
typedef struct attention_sizes {
    const pl_reference_call_t *c;
    int64_t T, S, d, rows;
    int first, last;
} attention_sizes_t;

static attention_sizes_t attention_of(const pl_reference_call_t *c, int first, int last)
{
    const pl_shape_t q = c->in_shape[first];
    return (attention_sizes_t){.c = c,
                               .T = q.dim[2],
                               .S = c->in_shape[first + 1].dim[2],
                               .d = q.dim[3],
                               .rows = q.dim[0] * q.dim[1] * q.dim[2],
                               .first = first,
                               .last = last};
}

/* 1 / (1 - p) if dropout keeps the weight of a row for key j, else 0. */
static double attention_mask(const attention_sizes_t *a, int64_t row, int64_t j)
{
    const pl_reference_call_t *c = a->c;
    if (c->attr->b == 0)
        return 1;
    const pl_dropout_t d = pl_dropout_init(c->replay->seed, c->replay->step,
                                           c->replay->micro_batch, c->attr->stream,
                                           c->attr->b);
    return pl_dropout_keep(&d, (uint64_t)(row * a->S + j)) ? 1 / (1 - d.p) : 0;
}

/* The score of key j, not scaled; -infinity if the row does not see it. */
static double score_of(const attention_sizes_t *a, int64_t row, int64_t j)
{
    const pl_reference_call_t *c = a->c;
    const pl_shape_t q = c->in_shape[a->first];
    const int64_t head = row / a->T, i = row % a->T, window = c->attr->to;
    const bool has_mask = a->last < c->op->input_count - (c->attr->axis > 0);
    const double *mask = has_mask ? c->in[a->last] : NULL,
                 *query = c->in[a->first] + row * a->d,
                 *key = c->in[a->first + 1] + (head * a->S + j) * a->d;
    double bias = 0, product = 0;
    if ((c->attr->causal && j > i) || (window && (j > i ? j - i : i - j) >= window))
        return -INFINITY;
    if (mask && c->in_shape[a->last].rank == 4)
        bias = mask[pl_reference_source(PL_SHAPE(q.dim[0], q.dim[1], a->T, a->S),
                                        row * a->S + j, c->in_shape[a->last])];
    else if (mask && mask[head / q.dim[1] * a->S + j] == 0)
        return -INFINITY;
    for (int64_t e = 0; e < a->d; e++)
        product += turned(c, query, i, e, 1) * turned(c, key, a->T + j, e, 1);
    return product + bias / c->attr->a;
}

/* The largest score and the sum of exponentials are separate, as in cross entropy. */
static void compute_attention(pl_reference_call_t *c)
{
    const attention_sizes_t a = attention_of(c, 0, 3);
    for (int64_t row = 0; row < a.rows; row++) {
        const double *v = c->in[2] + row / a.T * a.S * a.d;
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < a.S; j++)
            largest = fmax(largest, score_of(&a, row, j));
        for (int64_t j = 0; j < a.S && largest > -INFINITY; j++)
            sum += exp(c->attr->a * (score_of(&a, row, j) - largest));
        for (int64_t j = 0; j < a.S && largest > -INFINITY; j++) {
            const double p = exp(c->attr->a * (score_of(&a, row, j) - largest)) / sum
                             * attention_mask(&a, row, j);
            for (int64_t e = 0; e < a.d; e++)
                c->out[0][row * a.d + e] += p * v[j * a.d + e];
        }
        c->out[1][row] = largest;
        c->out[1][a.rows + row] = sum;
    }
}

/* With P the weights and M the mask: dv = (P M)^T dy, dP = M (dy v^T), dS = P (dP -
 * sum(dP P)), where the sum over a row is dy . y; dq = a dS k, dk = a dS^T q. */
static void compute_attention_grad(pl_reference_call_t *c)
{
    const attention_sizes_t a = attention_of(c, 1, 6);
    const int64_t d = a.d;
    for (int64_t row = 0; row < a.rows; row++) {
        const int64_t first = row / a.T * a.S * d;
        const double *dy = c->in[0] + row * d, *query = c->in[1] + row * d;
        const double inner = dot(dy, c->in[4] + row * d, d);
        for (int64_t j = 0; j < a.S; j++) {
            const double *k = c->in[2] + first + j * d, *v = c->in[3] + first + j * d;
            const double score = score_of(&a, row, j);
            if (score == -INFINITY)
                continue;
            const double p = exp(c->attr->a * (score - c->in[5][row]))
                             / c->in[5][a.rows + row];
            const double mask = attention_mask(&a, row, j);
            const double ds = p * (mask * dot(dy, v, d) - inner) * c->attr->a;
            for (int64_t e = 0; e < d; e++) {
                c->out[0][row * d + e] += ds * turned(c, k, a.T + j, e, 1);
                c->out[1][first + j * d + e] += ds * turned(c, query, row % a.T, e, 1);
                c->out[2][first + j * d + e] += p * mask * dy[e];
            }
        }
    }
    turn_back(c, c->out[0], a.rows / a.T, a.T, d, 0);
    turn_back(c, c->out[1], a.rows / a.T, a.S, d, a.T);
}

const pl_reference_kernel_t pl_reference_products[PL_OPCODES] = {
    [PL_OP_matmul] = compute_matmul,
    [PL_OP_linear] = compute_linear,
    [PL_OP_attention] = compute_attention,
    [PL_OP_attention_grad] = compute_attention_grad,
};
