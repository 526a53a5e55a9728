/* resume.c - the checkpoint that a run resumes from, or the weights that it starts from
 *
 * A checkpoint must share everything with the run that changes arithmetic or order, and
 * it has the states of the components. Weights must be of the run's module. */
#include "actors/worker/parts.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/option.h"
#include "base/options.h"
#include "base/run.h"
#include "base/resume_keys.h"
#include "runtime/actor.h"

/* All ranks resume from the same checkpoint: rank 0 logs it. */
static bool logs(void *worker)
{
    return pl_actor_rank(worker) <= 0;
}

/* Whether the strategy gives the results of one rank with the global batch. "auto" always
 * chooses such a strategy. */
static bool is_global(const char *strategy)
{
    const pl_actor_ops_t *ops = strcmp(strategy, "auto")
                                    ? pl_component_find("strategy", strategy, NULL)
                                    : NULL;
    return ops ? ops->global_batch_semantics : !strcmp(strategy, "auto");
}

static const char *strategy_of(const json_t *run)
{
    const json_t *component = json_object_get(json_object_get(run, "trainer"),
                                              "strategy");
    const char *name = json_string_value(component);
    name = name ? name : json_string_value(json_object_get(component, "name"));
    return name ? name : "auto";
}

/* The checkpoint counts global batches of the epoch, which another number of ranks may
 * have changed. The run continues after a whole optimizer step: the samples before it
 * have been trained on. */
static int same_check(json_t *manifest, const pl_job_t *job, void *worker,
                      const char *path, pl_error_t *err)
{
    const json_t *then = json_object_get(manifest, "run");
    char *text = pl_options_print(job->options, err);
    json_t *now = text ? pl_json_read(text, strlen(text), "run", err) : NULL;
    const bool by_content = json_object_get(manifest, "data") != NULL;
    int code = now ? pl_resume_check(then, now, by_content, err) : err->code;
    const char *was = strategy_of(then), *is = strategy_of(now);
    if (code == PL_OK && strcmp(was, is) && !(is_global(was) && is_global(is)))
        code = pl_fail(err, PL_EINVAL,
                       "the checkpoint is of strategy \"%s\", which trains differently "
                       "from \"%s\": set \"trainer.strategy\" to \"%s\"",
                       was, is, was);
    json_t *progress = json_object_get(manifest, "progress"),
           *epoch = json_object_get(progress, "epoch");
    const int64_t had = pl_run_batch(then), has = pl_run_batch(now);
    if (code == PL_OK && had != has && had >= 1 && has >= 1) {
        if (logs(worker))
            pl_log_line(
                PL_LOG_WARNING, pl_actor_rank(worker), pl_actor_name(worker),
                "the global batch has %lld sample%s from here on, and had %lld before: "
                "the results differ from those of an uninterrupted run",
                (long long)has, pl_plural(has), (long long)had);
        const int64_t batches = json_integer_value(json_object_get(epoch, "batch")),
                      kept = json_integer_value(json_object_get(progress, "accumulate")),
                      per_step = kept ? kept : job->trainer->accumulate_grad_batches,
                      batch = batches * had / has;
        if (json_object_set_new(epoch, "batch", json_integer(batch - batch % per_step)))
            code = pl_no_memory(err);
    }
    pl_text_free(text);
    json_decref(now);
    if (code != PL_EINVAL)
        return code;
    const char *last = strrchr(path, '/');               /* where the whole has no room */
    const bool is_long = strlen(path) + strlen(": ") + strlen(err->text) >= PL_ERROR_TEXT;
    return pl_error_prefix(err, "%s", is_long && last ? last + 1 : path);
}

/* The runs that led to this one, the newest last, for its own manifests. */
static int origin_add(json_t *manifest, pl_error_t *err)
{
    json_t *origins = json_object_get(manifest, "resumed");
    json_t *origin = json_pack("{s:O?, s:O?}", "run_id",
                               json_object_get(manifest, "run_id"), "global_step",
                               json_object_get(manifest, "global_step"));
    int failed = 0;
    if (!origins)
        failed = json_object_set_new(manifest, "resumed", origins = json_array());
    if (!failed && !json_array_append_new(origins, origin))
        return PL_OK;
    return pl_no_memory(err);
}

static json_t *rollback_read(const char *back, pl_error_t *err)
{
    return pl_json_read(back, strlen(back), "the state for the rollback", err);
}

int pl_resume_is_requested(const pl_job_t *job, const char *agreed,
                           pl_find_checkpoint_t *wanted, pl_error_t *err)
{
    const bool is_rollback = job->rollback && !agreed;
    json_t *back = is_rollback ? rollback_read(job->rollback, err) : NULL;
    if (is_rollback && !back)
        return err->code;
    const json_int_t serial = json_integer_value(json_object_get(back, "serial"));
    *wanted = (pl_find_checkpoint_t){.root = job->trainer->default_root_dir,
                                     .run_name = job->trainer->run_name,
                                     .from = agreed        ? agreed
                                             : job->resume ? job->resume
                                                           : "",
                                     .first = !agreed && job->again ? job->again : "",
                                     .only_first = !agreed && !job->resumes,
                                     .rollback_serial = (uint64_t)serial};
    json_decref(back);
    return PL_OK;
}

/* ---- The run directory in which it continues ---- */

/* Whether "run_name" or "default_root_dir" is given and names another directory than the
 * checkpoint's. */
static bool is_requested_elsewhere(const pl_job_t *job, const char *run_dir)
{
    char whole[PATH_MAX];
    struct stat given, parent;
    const char *name = job->trainer->run_name, *root = job->trainer->default_root_dir;
    char *slash = realpath(run_dir, whole) ? strrchr(whole, '/') : NULL;
    if (!slash)
        return false;
    if (*name && strcmp(name, slash + 1) != 0)
        return true;
    *slash = '\0';
    return pl_options_value(job->options, "trainer.default_root_dir")
           && !(stat(*root ? root : ".", &given) == 0
                && stat(*whole ? whole : "/", &parent) == 0
                && given.st_dev == parent.st_dev && given.st_ino == parent.st_ino);
}

/* A new directory has none of the checkpoints that callbacks keep, and new log files. */
static int state_for_new_dir(json_t *manifest, pl_error_t *err)
{
    json_t *entry, *callbacks = json_object_get(manifest, "callbacks");
    size_t at;
    int failed = json_object_set_new(manifest, "loggers", json_null());
    json_array_foreach(callbacks, at, entry) {
        const char *text = json_string_value(json_object_get(entry, "state"));
        json_t *state = text ? json_loads(text, 0, NULL) : NULL;
        char *changed = NULL;
        if (json_object_get(state, "kept")) {
            json_object_set_new(state, "kept", json_array());
            changed = pl_json_write(state, PL_JSON_COMPACT);
            failed |= !changed
                      || json_object_set_new(entry, "state", json_string(changed));
        }
        pl_text_free(changed);
        json_decref(state);
    }
    return failed ? pl_no_memory(err) : PL_OK;
}

/* ---- The checkpoint ---- */

int pl_resume_take(pl_resume_t *resume, const pl_job_t *job, void *worker,
                   const pl_find_checkpoint_reply_t *found, pl_error_t *err)
{
    for (const char *line = found->rejected; *line && logs(worker);) {
        const size_t length = strcspn(line, "\n");
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(worker), pl_actor_name(worker),
                    "skipped: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (!*found->path) {
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(worker), pl_actor_name(worker),
                    "there is no checkpoint to resume from%s%s: the run starts from the "
                    "beginning",
                    *found->run_dir ? " in " : "", found->run_dir);
        return PL_OK;
    }
    const char *text = found->manifest;
    resume->manifest = pl_json_read(text, strlen(text), found->path, err);
    if (!resume->manifest)
        return err->code;
    resume->elsewhere = *found->run_dir && is_requested_elsewhere(job, found->run_dir);
    const bool stays = *found->run_dir && !resume->elsewhere;
    if (!(resume->path = pl_strdup(found->path))
        || (stays && !(resume->run_dir = pl_strdup(found->run_dir))))
        return pl_no_memory(err);
    int code = same_check(resume->manifest, job, worker, found->path, err);
    if (code == PL_OK && job->rollback) {          /* it changes the state of the loops */
        json_t *more = rollback_read(job->rollback, err);
        if (!more)
            code = err->code;
        else if (json_object_update(json_object_get(resume->manifest, "progress"), more))
            code = pl_no_memory(err);
        json_decref(more);
    }
    if (code == PL_OK)
        code = origin_add(resume->manifest, err);
    if (code == PL_OK && !resume->run_dir)
        code = state_for_new_dir(resume->manifest, err);
    if (code == PL_OK && logs(worker))
        pl_log_line(PL_LOG_INFO, pl_actor_rank(worker), pl_actor_name(worker),
                    "resuming after step %lld: %s",
                    (long long)json_integer_value(
                        json_object_get(resume->manifest, "global_step")),
                    found->path);
    return code;
}

/* ---- The data ---- */

int pl_resume_data(const pl_resume_t *resume, const pl_job_t *job, const char *content,
                   pl_error_t *err)
{
    json_t *then = json_object_get(resume->manifest, "data"), *saved;
    const char *source;
    char how[160];
    int code = PL_OK;
    if (!then || !*content || job->trainer->reload_dataloaders_every_n_epochs)
        return PL_OK;
    json_t *all = pl_json_value(content, strlen(content), err);
    if (!all)
        return err->code;
    json_object_foreach(then, source, saved) {
        const json_t *now = json_object_get(all, source),
                     *sum = json_object_get(saved, "crc32c"),
                     *other = json_object_get(now, "crc32c");
        const json_int_t was = json_integer_value(json_object_get(saved, "samples")),
                         is = json_integer_value(json_object_get(now, "samples"));
        if (now && was == is && (!sum || !other || json_equal(sum, other)))
            continue;
        if (!now)
            snprintf(how, sizeof how, "is missing now");
        else if (was != is)
            snprintf(how, sizeof how, "had %lld sample%s and has %lld", (long long)was,
                     pl_plural(was), (long long)is);
        else
            snprintf(how, sizeof how,
                     "has %lld sample%s as before, but with other values or in another "
                     "order",
                     (long long)is, pl_plural(is));
        code = pl_fail(err, PL_EINVAL,
                       "%s: cannot resume with other data than the run was trained on: "
                       "data.%s %s; give it the same data, or start a new run from these "
                       "weights with module.init_from",
                       resume->path, source, how);
        break;
    }
    json_decref(all);
    return code;
}

char *pl_resume_state(const pl_resume_t *resume, const char *component, pl_error_t *err)
{
    const json_t *state = json_object_get(resume->manifest, component);
    char *text = state && !json_is_null(state) ? pl_json_write(state, PL_JSON_COMPACT)
                                               : pl_text("%s", "");
    if (!text)
        pl_no_memory(err);
    return text;
}

void pl_resume_release(pl_resume_t *resume)
{
    json_decref(resume->manifest);
    pl_free(resume->path);
    pl_free(resume->run_dir);
}

/* ---- The first weights ---- */

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

/* Options that decide what the numbers of an answer mean, and its width: weights that
 * were trained with one value give no answer with another one. */
static int meaning_check(const json_t *theirs, const json_t *ours, const char *path,
                         pl_error_t *err)
{
    static const char *const keys[] = {"task", "loss", "classes", "outputs", "labels"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *then = json_object_get(theirs, keys[k]),
                     *now = json_object_get(ours, keys[k]);
        const char *text = json_string_value(then);
        if (!then || (text && !*text) || pl_is_auto(then) || json_equal(then, now))
            continue;
        char *was = pl_json_write(then, PL_JSON_COMPACT),
             *is = now ? pl_json_write(now, PL_JSON_COMPACT) : NULL;
        const int code =
            pl_fail(err, PL_EINVAL,
                    "%s: the weights were trained with module.%s %s, but the run %s%s: "
                    "set it as in training",
                    path, keys[k], was ? was : "?", now ? "has " : "leaves it out",
                    is ? is : "");
        pl_free(was);
        pl_free(is);
        return code;
    }
    return PL_OK;
}

/* Files of other programs do not name a module. */
int pl_first_weights_check(void *worker, const pl_job_t *job, const pl_weights_t *weights,
                           pl_error_t *err)
{
    const char *path = pl_first_weights_path(job),
               *text = weights->module && !pl_first_weights_partly(job) ? weights->module
                                                                        : "";
    int k = 0, code = PL_OK;
    for (bool finite = true; k < weights->count; k++) {
        const pl_output_t *tensor = &weights->tensor[k];
        const int64_t count = pl_elements(tensor->shape);
        for (int64_t i = 0; i < count && finite; i++)
            finite = isfinite(tensor->dtype == PL_F64 ? tensor->wide[i]
                                                      : (double)tensor->data[i]);
        if (!finite)
            break;
    }
    if (k < weights->count)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(worker), pl_actor_name(worker),
                    "%s: tensor \"%s\" has values that are not finite, so results "
                    "computed with it are not valid",
                    path, weights->tensor[k].name);
    json_t *module = *text ? pl_json_parse_lenient(text, NULL) : NULL;
    const char *theirs = module ? pl_component_name(module) : NULL,
               *ours = pl_options_component_name(job->options, "module");
    if (theirs && ours && strcmp(theirs, "auto") && strcmp(theirs, ours))
        code =
            pl_fail(err, PL_EINVAL,
                    "%s: the weights are of module \"%s\", but the run has module \"%s\"",
                    path, theirs, ours);
    else if (module && job->stage != PL_TRAIN)
        code = meaning_check(module, json_object_get(job->options->root, "module"), path,
                             err);
    json_decref(module);
    return code;
}
