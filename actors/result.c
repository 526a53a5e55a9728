/* result.c - the outcome of a run, for the program */
#include "actors/result.h"

#include <jansson.h>

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "tensor/graph.h"

/* Without memory the result has no such text. */
static void note_text(char **into, const char *text)
{
    pl_free(*into);
    *into = pl_strdup(text);
}

bool pl_report_has_begun(const pl_run_progress_t *report)
{
    return report->global_step || report->batch || report->event != PL_RUN_EVENT_ALIVE;
}

void pl_ending_note(pl_ending_t *ending, const pl_run_progress_t *report)
{
    ending->begun |= pl_report_has_begun(report);
    if (report->global_step > ending->global_step)
        ending->global_step = report->global_step;
    if (report->epoch > ending->epoch)
        ending->epoch = report->epoch;
    if (!ending->began && (*report->run_dir || report->event != PL_RUN_EVENT_ALIVE))
        ending->began = pl_now();
    if (*report->run_dir)
        note_text(&ending->run_dir, report->run_dir);
    if (*report->metrics == '{')                            /* not generated text */
        note_text(&ending->metrics, report->metrics);
}

void pl_ending_end(pl_ending_t *ending, pl_outcome_t *outcome, const pl_error_t *error)
{
    ending->outcome = pl_object_ref(outcome);
    if (ending->began)
        ending->seconds = (double)(pl_now() - ending->began) / 1e9;
    if (error)
        ending->error = *error;
}

void pl_ending_release(pl_ending_t *ending)
{
    pl_object_unref(ending->outcome);
    pl_free(ending->run_dir);
    pl_free(ending->metrics);
}

struct pl_kept_tensors {
    pl_outcome_t *outcome;                                  /* counted */
    pl_result_tensor_t *view;                               /* of weights, then outputs */
    int weights;
};

/* A result, at the address that the program gets, and its tensors. */
typedef struct told_result {
    pl_result_t result;
    pl_kept_tensors_t tensors;
    bool is_kept;
} told_result_t;

static void tensors_release(const pl_kept_tensors_t *tensors)
{
    if (tensors->view && tensors->weights)
        pl_tensors_release(tensors->outcome->weights->tensor, tensors->weights,
                           tensors->view);
    pl_free(tensors->view);
}

pl_kept_tensors_t *pl_result_keep(const pl_result_t *result, pl_error_t *err)
{
    told_result_t *told = (told_result_t *)result;
    if (!told || told->is_kept) {
        pl_fail(err, PL_EINVAL, "a result is kept once, from its notification");
        return NULL;
    }
    pl_kept_tensors_t *kept = pl_alloc(sizeof *kept);
    if (!kept) {
        pl_no_memory(err);
        return NULL;
    }
    told->is_kept = true;
    *kept = told->tensors;
    pl_object_ref(kept->outcome);
    return kept;
}

void pl_result_drop(pl_kept_tensors_t *kept)
{
    if (!kept)
        return;
    tensors_release(kept);
    pl_object_unref(kept->outcome);
    pl_free(kept);
}

void pl_result_tell(const pl_ending_t *ending, pl_trainer_t *trainer,
                    pl_on_done_t on_done, void *user)
{
    const pl_outcome_t *o = ending->outcome;
    int weights = o && o->weights ? o->weights->count : 0,
        outputs = o && o->outputs ? o->outputs->count : 0;
    pl_result_tensor_t *view = pl_alloc_array((size_t)(weights + outputs), sizeof *view);
    told_result_t told = {.tensors = {ending->outcome, view, view ? weights : 0}};
    pl_result_t *result = &told.result;
    *result = (pl_result_t){
        .status = pl_run_status_names[o ? pl_outcome_status(o) : PL_RUN_STATUS_FAILED],
        .reason = o ? o->reason : "",
        .error = ending->error,
        .global_step = ending->global_step,
        .epoch = ending->epoch,
        .seconds = ending->seconds,
        .metrics = ending->metrics ? ending->metrics : "{}",
        .run_dir = ending->run_dir ? ending->run_dir : "",
        .text = "",
        .best_checkpoint = "",
        .callbacks = "[]",
        .begun = ending->begun || o};
    if (o) {
        if (o->error.code != PL_OK)
            result->error = o->error;
        result->global_step = o->global_step;
        result->epoch = o->epoch;
        result->seconds = o->seconds;
        result->metrics = o->metrics ? o->metrics : "{}";
        result->run_dir = o->run_dir ? o->run_dir : "";
        result->text = o->text ? o->text : "";
        result->best_checkpoint = o->best ? o->best : "";
        result->callbacks = o->callbacks ? o->callbacks : "[]";
    }
    bool whole = view != NULL;
    if (view && weights)
        whole = pl_tensors_view(o->weights->tensor, result->weight_count = weights, view);
    if (view && outputs)
        pl_tensors_view(o->outputs->output, result->output_count = outputs,
                        view + weights);
    result->weight = view;
    result->output = view ? view + weights : NULL;
    if (!whole) {
        result->weight_count = 0;
        result->status = pl_run_status_names[PL_RUN_STATUS_FAILED];
        if (result->error.code == PL_OK)
            pl_no_memory(&result->error);
    }
    on_done(trainer, result, user);
    if (!told.is_kept)
        tensors_release(&told.tensors);
}

static bool metric_find(const char *text, const char *name, double *value)
{
    if (!name)
        return false;
    json_t *metrics = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *number = json_object_get(metrics, name);
    bool found = json_is_number(number);
    if (found && value)
        *value = json_number_value(number);
    json_decref(metrics);
    return found;
}

bool pl_result_metric(const pl_result_t *result, const char *name, double *value)
{
    return result && metric_find(result->metrics, name, value);
}

bool pl_hook_metric(const pl_hook_event_t *event, const char *name, double *value)
{
    return event && metric_find(event->metrics, name, value);
}

bool pl_loop_metric(const pl_loop_result_t *result, const char *name, double *value)
{
    return result && metric_find(result->metrics, name, value);
}
