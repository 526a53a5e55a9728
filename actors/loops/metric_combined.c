/* metric_combined.c - states of custom metrics: added, compared or gathered over batches
 * and ranks
 *
 * Sums are among the other sums of the metrics.  A state that is compared or gathered
 * comes in slots, one for each rank (engine/tensor/metrics_custom.c): a slot is the
 * number of its rows, then the rows.  What is gathered may have at most PL_GATHERED_MAX
 * numbers: an epoch of any size must not take all memory. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"

typedef struct combined_state {
    pl_combine_t combine;
    size_t from;          /* among the sums of the metric */
    size_t rows, columns; /* of a slot, at most */
    size_t count, capacity;
    double *value; /* [capacity]  [NULL: a sum] */
} combined_state_t;

struct pl_combined {
    const pl_metric_ops_t *ops;
    int slots, states;
    bool is_full, no_memory;
    combined_state_t state[PL_METRIC_STATES];
};

/* text: "\tname\tslots\tstates" and "\tcombine\trows\tcolumns" of each state. */
pl_combined_t *pl_combined_new(const char *text)
{
    pl_combined_t *c = pl_alloc(sizeof *c);
    char name[32];
    int length = 0;
    size_t from = 0;
    if (!c)
        return NULL;
    *c = (pl_combined_t){.ops = NULL};
    if (sscanf(text, " %31s %d %d%n", name, &c->slots, &c->states, &length) == 3)
        c->ops = pl_component_find("metric", name, NULL);
    for (int k = 0; c->ops && k < c->states && k < PL_METRIC_STATES; k++) {
        combined_state_t *s = &c->state[k];
        unsigned combine = 0;
        text += length;
        if (sscanf(text, " %u %zu %zu%n", &combine, &s->rows, &s->columns, &length) != 3)
            break;
        s->combine = (pl_combine_t)combine;
        s->from = from;
        from += s->combine == PL_COMBINE_SUM
                    ? s->rows * s->columns
                    : (size_t)c->slots * (1 + s->rows * s->columns);
    }
    return c;
}

void pl_combined_clear(pl_combined_t *c)
{
    for (int k = 0; k < PL_METRIC_STATES; k++)
        c->state[k].count = 0;
    c->is_full = c->no_memory = false;
}

void pl_combined_free(pl_combined_t *c)
{
    for (int k = 0; c && k < PL_METRIC_STATES; k++)
        pl_free(c->state[k].value);
    pl_free(c);
}

/* Memory for more numbers; false: there is none, or too many are there. */
static bool state_grow(pl_combined_t *c, combined_state_t *s, size_t more)
{
    size_t capacity = s->capacity ? s->capacity : 1024;
    if (more > PL_GATHERED_MAX - s->count) {
        c->is_full = true;
        return false;
    }
    while (capacity < s->count + more)
        capacity *= 2;
    if (capacity == s->capacity)
        return true;
    double *value = pl_alloc_array(capacity, sizeof *value);
    if (!value) {
        c->no_memory = true;
        return false;
    }
    if (s->count)
        memcpy(value, s->value, s->count * sizeof *value);
    pl_free(s->value);
    s->value = value;
    s->capacity = capacity;
    return true;
}

/* One slot, of memory that may lie anywhere. */
static void slot_add(pl_combined_t *c, combined_state_t *s, const char *slot)
{
    double rows;
    memcpy(&rows, slot, sizeof rows);
    const size_t count = rows > 0 ? (size_t)rows * s->columns : 0;
    const bool gathers = s->combine == PL_COMBINE_GATHER;
    if (!count || rows > (double)s->rows
        || ((gathers || !s->count) && !state_grow(c, s, count)))
        return;
    slot += sizeof rows;
    if (gathers || !s->count) {
        memcpy(s->value + s->count, slot, count * sizeof *s->value);
        s->count += count;
        return;
    }
    for (size_t k = 0; k < count; k++) {
        double one;
        memcpy(&one, slot + k * sizeof one, sizeof one);
        s->value[k] = s->combine == PL_COMBINE_MAX ? fmax(s->value[k], one)
                                                   : fmin(s->value[k], one);
    }
}

void pl_combined_add(pl_combined_t *c, pl_bytes_t sums)
{
    for (int k = 0; k < c->states; k++) {
        combined_state_t *s = &c->state[k];
        const size_t size = 1 + s->rows * s->columns;
        for (int slot = 0; slot < c->slots && s->combine != PL_COMBINE_SUM; slot++) {
            const size_t at = s->from + (size_t)slot * size;
            if ((at + size) * sizeof(double) <= sums.size)
                slot_add(c, s, (const char *)sums.data + at * sizeof(double));
        }
    }
}

int pl_combined_value(const pl_combined_t *c, const pl_logged_metric_t *metric,
                      const double *sum, json_t **value, pl_error_t *err)
{
    pl_gathered_t state[PL_METRIC_STATES];
    double result = NAN;
    bool counted = false;
    if (c->no_memory)
        return pl_no_memory(err);
    if (c->is_full)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "\"%s\" has gathered more than %d numbers, the most that it may: "
                       "evaluate fewer samples (trainer.limit_val_batches, "
                       "trainer.limit_test_batches), or log a metric of sums",
                       metric->name, PL_GATHERED_MAX);
    for (int k = 0; k < c->states; k++) {
        const combined_state_t *s = &c->state[k];
        const bool is_sum = s->combine == PL_COMBINE_SUM;
        state[k] = (pl_gathered_t){is_sum ? sum + s->from : s->value,
                                   is_sum ? s->rows * s->columns : s->count, s->columns};
        for (size_t i = 0; is_sum && i < state[k].count; i++)
            counted |= state[k].value[i] != 0;
        counted |= !is_sum && s->count;
    }
    if (!counted)
        return PL_OK;
    int code = c->ops ? c->ops->result(state, c->states, metric->parameter, &result, err)
                      : pl_fail(err, PL_EBUG, "\"%s\" has no metric", metric->name);
    if (code == PL_OK && !(*value = pl_json_number(result)))
        code = pl_no_memory(err);
    return code;
}
