/* first_weights.c - checks of the weights that a run starts with */
#include "actors/worker/parts.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"

const char *pl_first_weights_path(const pl_job_t *job)
{
    const char *first = job->module->init_from;
    return job->checkpoint || job->stage != PL_TRAIN || !*first ? job->checkpoint : first;
}

bool pl_first_weights_partly(const pl_job_t *job)
{
    return job->stage == PL_TRAIN && !job->checkpoint && *job->module->init_from
           && !job->module->init_strict;
}

/* Files of other programs do not name a module. */
static int module_check(const pl_job_t *job, const pl_weights_t *weights, pl_error_t *err)
{
    const char *path = pl_first_weights_path(job);
    const char *text = weights->module && !pl_first_weights_partly(job) ? weights->module
                                                                        : "";
    json_t *module = *text ? pl_json_parse_lenient(text, NULL) : NULL;
    const char *theirs = module ? pl_component_name(module) : NULL,
               *ours = pl_options_component_name(job->options, "module");
    int code = PL_OK;
    if (theirs && ours && strcmp(theirs, "auto") && strcmp(theirs, ours))
        code =
            pl_fail(err, PL_EINVAL,
                    "%s: the weights are of module \"%s\", but the run has module \"%s\"",
                    path, theirs, ours);
    json_decref(module);
    return code;
}

static bool is_finite(const pl_output_t *tensor)
{
    const int64_t count = pl_elements(tensor->shape);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(tensor->dtype == PL_F64 ? tensor->wide[i]
                                              : (double)tensor->data[i]))
            return false;
    return true;
}

/* A prediction from such weights is no error, but hardly intended. */
static void finite_check(void *worker, const char *path, const pl_weights_t *weights)
{
    for (int k = 0; k < weights->count; k++)
        if (!is_finite(&weights->tensor[k])) {
            pl_log_line(PL_LOG_WARNING, pl_actor_rank(worker), pl_actor_name(worker),
                        "%s: tensor \"%s\" has values that are not finite, so results "
                        "computed with it are not valid",
                        path, weights->tensor[k].name);
            return;
        }
}

void pl_first_weights_made(const pl_weights_t *weights, char options[64])
{
    snprintf(options, 64, "{\"global_step\": %llu, \"epoch\": %u}",
             (unsigned long long)weights->global_step, weights->epoch);
}

int pl_first_weights_check(void *worker, const pl_job_t *job, const pl_weights_t *weights,
                           pl_error_t *err)
{
    finite_check(worker, pl_first_weights_path(job), weights);
    return module_check(job, weights, err);
}
