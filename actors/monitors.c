/* monitors.c - the metrics that callbacks and schedules follow, by their names
 *
 * At the first validation, perhaps hours after the start, a wrong name would be noticed
 * too late.  The names of the module's metrics are known once its steps are compiled. */
#include "actors/monitors.h"

#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "actors/loops/metrics.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/log.h"
#include "base/suggestion.h"
#include "base/options.h"
#include "base/run.h"

typedef int monitor_visit_t(const pl_job_t *job, const char *key, const char *monitor,
                            const void *context, pl_error_t *err);

static int monitor_visit(const pl_job_t *job, const char *component,
                         monitor_visit_t *visit, const void *context, pl_error_t *err)
{
    char key[128];
    snprintf(key, sizeof key, "%s.monitor", component);
    char *monitor = pl_options_get(job->options, key);
    const int code = monitor && *monitor ? visit(job, key, monitor, context, err) : PL_OK;
    pl_text_free(monitor);
    return code;
}

/* Visits the monitor of a schedule, and those of the schedules in it. */
static int schedule_visit(const pl_job_t *job, const char *schedule,
                          monitor_visit_t *visit, const void *context, pl_error_t *err)
{
    char part[96];
    const char *name = pl_options_component_name(job->options, schedule);
    const pl_scheduler_ops_t *ops = name ? pl_component_find("scheduler", name, NULL)
                                         : NULL;
    int code = monitor_visit(job, schedule, visit, context, err);
    for (const pl_option_t *o = ops ? ops->options : NULL; o && o->name; o++)
        for (int k = 0; k < PL_INSTANCES && o->type == PL_OPTION_COMPONENTS; k++) {
            snprintf(part, sizeof part, "%s.%s.%d", schedule, o->name, k);
            if (code == PL_OK && pl_options_value(job->options, part))
                code = schedule_visit(job, part, visit, context, err);
        }
    return code;
}

/* Visits the monitors of callbacks and schedules, until one fails. */
static int monitors_visit(const pl_job_t *job, monitor_visit_t *visit,
                          const void *context, pl_error_t *err)
{
    char component[96];
    const char *step;
    json_t *of_step;
    static const char *const sections[] = {"scheduler", "momentum_scheduler",
                                           "weight_decay_scheduler"};
    int code = PL_OK;
    const int count = pl_options_count(job->options, "callbacks");
    for (int k = 0; k < count && code == PL_OK; k++) {
        snprintf(component, sizeof component, "callbacks.%d", k);
        code = monitor_visit(job, component, visit, context, err);
    }
    for (size_t k = 0; k < sizeof sections / sizeof *sections && code == PL_OK; k++) {
        const json_t *scheduler = pl_options_value(job->options, sections[k]);
        if (!pl_is_by_objective(scheduler)) {
            code = schedule_visit(job, sections[k], visit, context, err);
            continue;
        }
        json_object_foreach((json_t *)scheduler, step, of_step) {
            snprintf(component, sizeof component, "%s.%s", sections[k], step);
            if (code == PL_OK)
                code = schedule_visit(job, component, visit, context, err);
        }
    }
    return code;
}

/* With several validation sources each has its own metrics; none is of all together. */
static int monitor_check(const pl_job_t *job, const char *key, const char *monitor,
                         const void *context, pl_error_t *err)
{
    (void)context;
    const uint32_t loaders = pl_options_loaders(job->options, PL_VALIDATE);
    if (loaders < 2 || strcmp(monitor, "val_loss") != 0)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, key,
                           "\"%s\": the run has %u validation sources and no metric "
                           "\"val_loss\": set it to one of \"val_loss/dataloader_idx_0\" "
                           "to \"val_loss/dataloader_idx_%u\"",
                           key, loaders, loaders - 1);
}

int pl_monitors_check(const pl_job_t *job, pl_error_t *err)
{
    return monitors_visit(job, monitor_check, NULL, err);
}

/* ---- Names of metrics ---- */

/* Puts the name as a key; for values of single classes, one key for each class. */
static bool name_put(json_t *known, const pl_logged_metric_t *f, const char *behind)
{
    char name[128];
    const bool is_area = f->kind == PL_METRIC_AUROC
                         || f->kind == PL_METRIC_AVERAGE_PRECISION;
    const size_t classes = f->average != PL_PER_CLASS ? 0
                           : is_area                  ? f->count / (2 * f->columns)
                                                      : f->columns;
    bool put = true;
    for (size_t k = 0; k < (classes ? classes : 1); k++) {
        if (classes)
            snprintf(name, sizeof name, "%s_%zu%s", f->name, k, behind);
        else
            snprintf(name, sizeof name, "%s%s", f->name, behind);
        put = json_object_set_new(known, name, json_true()) == 0 && put;
    }
    return put;
}

/* Puts the keys of all metrics of a stage. */
static bool names_put(json_t *known, pl_stage_t stage, const char *names,
                      uint32_t loaders)
{
    char behind[32] = "";
    pl_metrics_t metrics = {0};
    bool put = true;
    pl_metrics_name(&metrics, pl_stages[stage].prefix, names);
    for (uint32_t loader = 0; loader < loaders; loader++) {
        if (loaders > 1)
            snprintf(behind, sizeof behind, "/dataloader_idx_%u", loader);
        for (int k = 0; k < metrics.count; k++) {
            const pl_logged_metric_t *f = &metrics.metric[k];
            put = name_put(known, f, behind) && put;
            if (stage == PL_TRAIN && f->on_step && !f->is_newest)
                put = name_put(known, f, "_epoch") && put;
        }
    }
    pl_metrics_release(&metrics);
    return put;
}

/* The option beside a "monitor", such as its "mode". */
static const char *beside(const char *key, const char *name, char other[128])
{
    snprintf(other, 128, "%.*s.%s", (int)(strrchr(key, '.') - key), key, name);
    return other;
}

static bool is_option(const pl_job_t *job, const char *key, const char *value)
{
    char *text = pl_options_get(job->options, key);
    const bool is = text && !strcmp(text, value);
    pl_text_free(text);
    return is;
}

/* A built-in callback adds no metric whose name has the prefix of a stage. */
static bool may_add(const char *callback, const char *monitor)
{
    static const char *const adding[] = {"device_stats_monitor", "lr_monitor",
                                         "throughput_monitor"};
    const void *ops = pl_component_find("callback", callback, NULL);
    const pl_registration_t *built_in = pl_callback_components;
    while (built_in->role && built_in->table != ops)
        built_in++;
    if (!built_in->role)
        return true;
    for (size_t k = 0; k < sizeof adding / sizeof *adding; k++)
        if (!strcmp(callback, adding[k]))
            return strncmp(monitor, "val_", 4) != 0 && strncmp(monitor, "train_", 6) != 0;
    return false;
}

typedef struct metrics {
    json_t *known;
    bool validates;               /* [components report a missing "val_…" themselves] */
} metrics_t;

static int monitor_find(const pl_job_t *job, const char *key, const char *monitor,
                        const void *context, pl_error_t *err)
{
    const metrics_t *metrics = context;
    const json_t *known = metrics->known;
    const char *name;
    json_t *value;
    char strict[128];
    pl_suggestion_t nearest;
    pl_error_t text = {0};
    const bool is_counter = !strcmp(monitor, "skipped_steps")
                            || !strcmp(monitor, "rollbacks"),
               is_known = json_object_get(known, monitor) || is_counter;
    if (is_known || (!metrics->validates && !strncmp(monitor, "val_", 4)))
        return PL_OK;
    pl_suggestion_init(&nearest, monitor);
    json_object_foreach((json_t *)known, name, value) {
        pl_suggestion_offer(&nearest, name);
    }
    const char *meant = pl_suggestion_is_sure(&nearest) ? nearest.name : NULL;
    char component[96];
    bool may_come = false;
    for (int k = pl_options_count(job->options, "callbacks"); k-- > 0 && !may_come;) {
        snprintf(component, sizeof component, "callbacks.%d", k);
        const char *callback = pl_options_component_name(job->options, component);
        may_come = callback && may_add(callback, monitor);
    }
    pl_options_fail(&text, PL_ENOTFOUND, job->options, key,
                    "\"%s\": the module computes no metric \"%.60s\"%s%s%s; the metrics "
                    "are: %s%s",
                    key, monitor, meant ? ", did you mean \"" : "", meant ? meant : "",
                    meant ? "\"" : "", nearest.known,
                    may_come ? "; only a callback could add it" : "");
    if (!may_come && !is_option(job, beside(key, "strict", strict), "false"))
        return pl_fail(err, text.code, "%s", text.text);
    pl_log_line(PL_LOG_WARNING, 0, "", "%s", text.text);
    return PL_OK;
}

/* ---- Metrics whose larger values are better ---- */

/* Decided by the words of a name such as "val_head_acc". */
static bool more_is_better(const char *monitor)
{
    static const char *const more[] = {"acc", "accuracy",  "auc",    "auroc",
                                       "f1",  "precision", "recall", "r2"};
    static const char *const less[] = {"loss", "error"};
    bool is = false;
    for (const char *word = monitor; *word;) {
        const size_t length = strcspn(word, "_/");
        for (size_t k = 0; k < sizeof more / sizeof *more; k++)
            is |= strlen(more[k]) == length && !strncmp(word, more[k], length);
        for (size_t k = 0; k < sizeof less / sizeof *less; k++)
            if (strlen(less[k]) == length && !strncmp(word, less[k], length))
                return false;
        word += length + (word[length] != '\0');
    }
    return is;
}

static int mode_warn(const pl_job_t *job, const char *key, const char *monitor,
                     const void *context, pl_error_t *err)
{
    char mode[128];
    pl_error_t text = {0};
    (void)context, (void)err;
    if (!more_is_better(monitor)
        || pl_options_value(job->options, beside(key, "mode", mode))
        || !is_option(job, mode, "min"))
        return PL_OK;
    pl_options_fail(&text, PL_EINVAL, job->options, key,
                    "\"%s\" is not set, so a lower \"%.60s\" counts as better: set it to "
                    "\"max\" or \"min\"",
                    mode, monitor);
    pl_log_line(PL_LOG_WARNING, 0, "", "%s", text.text);
    return PL_OK;
}

int pl_monitors_find(const pl_job_t *job, const char *train, const char *val,
                     pl_error_t *err)
{
    const metrics_t metrics = {.known = json_object(), .validates = *val};
    int code = monitors_visit(job, mode_warn, NULL, err);
    if (code == PL_OK && *train
        && names_put(metrics.known, PL_VALIDATE, val,
                     pl_options_loaders(job->options, PL_VALIDATE))
        && names_put(metrics.known, PL_TRAIN, train, 1))
        code = monitors_visit(job, monitor_find, &metrics, err);
    json_decref(metrics.known);
    return code;
}
