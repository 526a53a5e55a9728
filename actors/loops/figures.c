/* figures.c - sums of a pass: what loops add up from batches and say as metrics */
#include "actors/loops/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"

void pl_figures_name(pl_figures_t *figures, const char *prefix, const char *names)
{
    figures->count = 0;
    while (*names && figures->count < PL_FIGURES_MOST) {
        pl_figure_t *f = &figures->figure[figures->count++];
        size_t length = strcspn(names, "\n");
        f->on_step = length && names[length - 1] == '*';
        snprintf(f->name, sizeof f->name, "%s%.*s", prefix, (int)(length - f->on_step),
                 names);
        names += length + (names[length] == '\n');
    }
    pl_figures_clear(figures);
}

void pl_figures_clear(pl_figures_t *figures)
{
    for (int k = 0; k < figures->count; k++)
        figures->figure[k].sum = figures->figure[k].weight = 0;
}

void pl_figures_add(pl_figures_t *figures, pl_bytes_t pairs)
{
    const char *at = pairs.data;
    int count = (int)(pairs.size / (2 * sizeof(double)));
    for (int k = 0; k < count && k < figures->count; k++) {
        double pair[2];
        memcpy(pair, at + (size_t)k * sizeof pair, sizeof pair);
        figures->figure[k].sum += pair[0];
        figures->figure[k].weight += pair[1];
    }
}

int pl_metric_put(json_t *into, const char *name, double value, pl_error_t *err)
{
    json_t *number = isfinite(value) ? json_real(value) : json_null();
    return json_object_set_new(into, name, number) == 0 ? PL_OK : pl_no_memory(err);
}

static bool is_wanted(const pl_figure_t *figure, pl_figures_of_t of)
{
    return figure->weight != 0 && (figure->on_step || of != PL_FIGURES_OF_STEPS);
}

int pl_figures_put(const pl_figures_t *figures, pl_figures_of_t of, json_t *into,
                   pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < figures->count && code == PL_OK; k++) {
        const pl_figure_t *f = &figures->figure[k];
        char name[sizeof f->name + sizeof "_epoch"];
        snprintf(name, sizeof name, "%s%s", f->name,
                 f->on_step && of == PL_FIGURES_OF_EPOCH ? "_epoch" : "");
        if (is_wanted(f, of))
            code = pl_metric_put(into, name, f->sum / f->weight, err);
    }
    return code;
}

char *pl_metrics_text(const json_t *metrics, pl_error_t *err)
{
    char *text = pl_json_write(metrics, PL_JSON_COMPACT);
    if (!text)
        pl_no_memory(err);
    return text;
}

int pl_metrics_merge(json_t *into, const char *text, pl_error_t *err)
{
    json_t *from = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!from)
        return *text ? pl_fail(err, PL_EPROTOCOL, "metrics that are no JSON object")
                     : PL_OK;
    int failed = json_object_update(into, from);
    json_decref(from);
    return failed ? pl_no_memory(err) : PL_OK;
}

uint32_t pl_amount_of(pl_amount_t amount, uint32_t batches)
{
    double allowed = amount.is_share ? floor(amount.value * batches) : amount.value;
    return allowed < batches ? (uint32_t)allowed : batches;
}
