/* recurrent.c - reference kernels of LSTM and GRU */
#include <math.h>

#include "accelerators/reference/kernels.h"

/* The sizes of a call with states [S, B, T + 1, H]; direction 1, or -1 from the last step
 * to the first. */
typedef struct recurrent_sizes {
    int64_t batch, steps, hidden;
    int gates;
    bool back;
} recurrent_sizes_t;

static recurrent_sizes_t sizes_of(const pl_reference_call_t *c, pl_shape_t states)
{
    const bool is_lstm = c->op->code == PL_OP_lstm || c->op->code == PL_OP_lstm_grad;
    return (recurrent_sizes_t){.batch = states.dim[1],
                               .steps = states.dim[2] - 1,
                               .hidden = states.dim[3],
                               .gates = is_lstm ? 4 : 3,
                               .back = c->attr->keep};
}

/* The steps of a row; -1 if its length is none. */
static int64_t length_of(pl_reference_call_t *c, const recurrent_sizes_t *s, int64_t row)
{
    if (c->op->input_count < 5)
        return s->steps;
    return pl_reference_index_is_good(c, c->in[4][row], s->steps + 1)
               ? (int64_t)c->in[4][row]
               : -1;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Element u of state k (h, c) of a row at a side of its steps. */
static double *state_at(const recurrent_sizes_t *s, const double *states, int k,
                        int64_t row, int64_t side)
{
    return (double *)states
           + ((k * s->batch + row) * (s->steps + 1) + side) * s->hidden;
}

/* Products of h and the weight for gate q of unit u, with the bias. */
static double recurrent_product(const pl_reference_call_t *c, const recurrent_sizes_t *s,
                                const double *h, int64_t q, int64_t u)
{
    const double *w = c->in[1] + (q * s->hidden + u) * s->hidden;
    double sum = c->in[2][q * s->hidden + u];
    for (int64_t k = 0; k < s->hidden; k++)
        sum += w[k] * h[k];
    return sum;
}

static void compute_recurrent(pl_reference_call_t *c)
{
    const recurrent_sizes_t s = sizes_of(c, c->out_shape[0]);
    const int64_t H = s.hidden;
    for (int64_t row = 0; row < s.batch; row++) {
        const int64_t length = length_of(c, &s, row);
        if (length < 0)
            return;
        for (int k = 0; k < c->in_shape[3].dim[0]; k++)
            for (int64_t u = 0; u < H; u++)
                state_at(&s, c->out[0], k, row, s.back ? length : 0)[u] =
                    c->in[3][(k * s.batch + row) * H + u];
        for (int64_t n = 0; n < length; n++) {
            const int64_t t = s.back ? length - 1 - n : n, to = s.back ? t : t + 1;
            const double *h = state_at(&s, c->out[0], 0, row, s.back ? t + 1 : t);
            const double *x = c->in[0] + (row * s.steps + t) * s.gates * H;
            double *kept = c->out[1] + (row * s.steps + t) * 4 * H;
            for (int64_t u = 0; u < H; u++) {
                double p[4];
                for (int q = 0; q < s.gates; q++)
                    p[q] = recurrent_product(c, &s, h, q, u);
                if (s.gates == 4) {
                    const double i = sigmoid(x[u] + p[0]), f = sigmoid(x[H + u] + p[1]),
                                 g = tanh(x[2 * H + u] + p[2]),
                                 o = sigmoid(x[3 * H + u] + p[3]),
                                 before = state_at(&s, c->out[0], 1, row,
                                                   s.back ? t + 1 : t)[u],
                                 next = f * before + i * g;
                    kept[u] = i, kept[H + u] = f, kept[2 * H + u] = g;
                    kept[3 * H + u] = o;
                    state_at(&s, c->out[0], 1, row, to)[u] = next;
                    state_at(&s, c->out[0], 0, row, to)[u] = o * tanh(next);
                } else {
                    const double r = sigmoid(x[u] + p[0]), z = sigmoid(x[H + u] + p[1]),
                                 fresh = tanh(x[2 * H + u] + r * p[2]);
                    kept[u] = r, kept[H + u] = z, kept[2 * H + u] = fresh;
                    kept[3 * H + u] = p[2];
                    state_at(&s, c->out[0], 0, row, to)[u] = (1 - z) * fresh + z * h[u];
                }
            }
        }
    }
}

/* Gradients of one step: of the gates dx, of the products with the weight dp, and of h
 * and c before the step in place of those behind it, but for the products' share. */
static void step_back(const recurrent_sizes_t *s, const double *kept, const double *h,
                      const double *c_before, const double *c_behind, double *dh,
                      double *dc, double *dx, double *dp)
{
    const int64_t H = s->hidden;
    for (int64_t u = 0; u < H; u++) {
        if (s->gates == 4) {
            const double i = kept[u], f = kept[H + u], g = kept[2 * H + u],
                         o = kept[3 * H + u], a = tanh(c_behind[u]),
                         d = dc[u] + dh[u] * o * (1 - a * a);
            dx[u] = dp[u] = d * g * i * (1 - i);
            dx[H + u] = dp[H + u] = d * c_before[u] * f * (1 - f);
            dx[2 * H + u] = dp[2 * H + u] = d * i * (1 - g * g);
            dx[3 * H + u] = dp[3 * H + u] = dh[u] * a * o * (1 - o);
            dc[u] = d * f;
            dh[u] = 0;
        } else {
            const double r = kept[u], z = kept[H + u], fresh = kept[2 * H + u],
                         d = dh[u] * (1 - z) * (1 - fresh * fresh);
            dx[u] = dp[u] = d * kept[3 * H + u] * r * (1 - r);
            dx[H + u] = dp[H + u] = dh[u] * (h[u] - fresh) * z * (1 - z);
            dx[2 * H + u] = d;
            dp[2 * H + u] = d * r;
            dh[u] *= z;
        }
    }
}

static void compute_recurrent_grad(pl_reference_call_t *c)
{
    const recurrent_sizes_t s = sizes_of(c, c->in_shape[2]);
    const int64_t H = s.hidden, wide = s.gates * H;
    const int states = (int)c->in_shape[2].dim[0];
    for (int64_t row = 0; row < s.batch; row++) {
        const int64_t length = length_of(c, &s, row);
        if (length < 0)
            return;
        double *dh = c->out[1] + row * H, *dc = c->out[1] + (s.batch + row) * H;
        for (int64_t n = length; n >= 0; n--) {
            const int64_t side = s.back ? length - n : n, t = s.back ? side : side - 1,
                          before = s.back ? side + 1 : t;
            for (int64_t u = 0; u < H; u++) {
                dh[u] += state_at(&s, c->in[0], 0, row, side)[u];
                if (states == 2)
                    dc[u] += state_at(&s, c->in[0], 1, row, side)[u];
            }
            if (n == 0)
                break;
            double *dx = c->out[0] + (row * s.steps + t) * wide,
                   *dp = states == 1 ? c->out[2] + (row * s.steps + t) * wide : dx;
            step_back(&s, c->in[3] + (row * s.steps + t) * 4 * H,
                      state_at(&s, c->in[2], 0, row, before),
                      state_at(&s, c->in[2], states - 1, row, before),
                      state_at(&s, c->in[2], states - 1, row, side), dh, dc, dx, dp);
            for (int64_t q = 0; q < wide; q++)
                for (int64_t u = 0; u < H; u++)
                    dh[u] += dp[q] * c->in[1][q * H + u];
        }
    }
}

const pl_reference_kernel_t pl_reference_steps[PL_OPCODES] = {
    [PL_OP_gru] = compute_recurrent,
    [PL_OP_gru_grad] = compute_recurrent_grad,
    [PL_OP_lstm] = compute_recurrent,
    [PL_OP_lstm_grad] = compute_recurrent_grad,
};
