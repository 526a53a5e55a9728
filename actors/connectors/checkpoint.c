/* checkpoint.c - the checkpoint connector: saves checkpoints and the last weights
 *
 * It decides what a checkpoint contains and which older ones it replaces; the writers
 * below it access the disk.  Checkpoints are written on a thread of their own.  If one
 * cannot be written, training continues and the older ones stay.  A save that has
 * begun is waited for, also at the end of the run.  While the disk works the loop
 * receives progress; without progress the loop decides how long it waits, and a
 * connector that ends waits no longer. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "actors/checkpoint_requests.h"
#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/connectors.h"
#include "actors/connectors/weights.h"
#include "actors/connectors/writer.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"
#include "base/resume_keys.h"
#include "formats/checkpoint.h"
#include "formats/direct_io.h"
#include "runtime/payload.h"
#include "base/timeouts.h"

enum { LOOK_MS = 250 };                                /* between two looks at the disk */

typedef struct checkpoint {
    char *path;                      /* of the weights  [none] */
    char *folder;                    /* of the checkpoints  [none] */
    json_t *fixed;                   /* common to all manifests: run, seed, …  [none] */
    char *owed;                      /* names to remove after the next successful save,
                                        one a line  [none] */
    pl_log_level_t level;            /* of the lines about saves */
    bool sums_up;                    /* the end of the run says how many there were */
    uint64_t saved;                  /* checkpoints */
    int open;                        /* calls to the writers */
    struct saving *oldest;           /* saves in progress  [none] */
    pl_call_t *weights;              /* the save of the weights  [none] */
    int timeout_ms;                  /* trainer.step_timeout */
    uint64_t disk_progress;          /* pl_disk_progress() at the last look */
    int64_t moved_at;                /* pl_now() when that changed, or a save began */
    bool ending;
} checkpoint_t;

/* A checkpoint that is being saved. */
typedef struct saving {
    pl_call_t *call;
    uint64_t global_step;
    char *path;                                             /* under its first name */
    char *drop;                                             /* names, one a line */
    struct saving *next;                                    /* newer */
} saving_t;

/* ---- the start ---- */

/* Saves by the default callback are not worth a line. */
static void checkpoint_find_level(checkpoint_t *checkpoint, const pl_options_t *options)
{
    char key[48];
    checkpoint->level = PL_LOG_DEBUG;
    for (int k = 0; k < pl_options_count(options, "callbacks"); k++) {
        snprintf(key, sizeof key, "callbacks.%d", k);
        if (strcmp(pl_options_choice(options, key, ""), "model_checkpoint") != 0)
            continue;
        snprintf(key, sizeof key, "callbacks.%d.verbose", k);
        if (json_is_false(pl_options_value(options, key)))
            checkpoint->sums_up = true;
        else
            checkpoint->level = PL_LOG_INFO;
    }
}

/* All manifests of the run share a unique id of the run, and its configuration. */
static int checkpoint_on_start(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    (void)call;
    checkpoint_t *checkpoint = self;
    char *run_dir = NULL;
    json_t *data = NULL;
    int code = pl_run_options(body->start.options, &run_dir, &data, err);
    if (code != PL_OK) {
        json_decref(data);
        return code;
    }
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    if (run_dir) {
        checkpoint->timeout_ms = pl_milliseconds(job->trainer->step_timeout);
        checkpoint_find_level(checkpoint, job->options);
        checkpoint->path = pl_text("%s/" PL_WEIGHTS_FILE, run_dir);
        checkpoint->folder = pl_text("%s/" PL_CHECKPOINTS_FOLDER, run_dir);
        uint64_t id = 0;
        char hex[17];
        char *run = pl_options_print(job->options, err);
        json_t *parsed = run ? pl_json_read(run, strlen(run), "run", err) : NULL;
        json_t *same = parsed ? pl_resume_keys(parsed) : NULL;
        if (getrandom(&id, sizeof id, GRND_NONBLOCK) < 0)
            id = 0;
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)id);
        json_t *fixed = same ? json_pack("{s:s, s:s, s:I, s:o, s:o}", "format",
                                         PL_CHECKPOINT_FORMAT, "run_id", hex, "seed",
                                         (json_int_t)job->trainer->seed, "arithmetic",
                                         pl_resume_keys_hash(same), "run",
                                         json_incref(parsed))
                             : NULL;
        json_decref(same);
        json_decref(parsed);
        pl_text_free(run);
        if (!fixed && err->code == PL_OK)
            pl_no_memory(err);
        checkpoint->fixed = fixed;
    }
    bool failed = run_dir
                  && !(checkpoint->path && checkpoint->folder && checkpoint->fixed
                       && (!data || !json_object_set(checkpoint->fixed, "data", data)));
    json_decref(data);
    pl_free(run_dir);
    if (failed)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

/* The state is the list of the runs that this run resumes. */
static int checkpoint_on_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                                   pl_error_t *err)
{
    checkpoint_t *checkpoint = self;
    const char *text = body->set_state.state;
    json_t *resumed = *text ? pl_json_value(text, strlen(text), err) : json_array();
    if (!checkpoint->fixed) {
        json_decref(resumed);
        return pl_fail(err, PL_ESTATE, "this run has no run directory");
    }
    if (!resumed)
        return err->code;
    if (json_object_set_new(checkpoint->fixed, "resumed", resumed) != 0)
        return pl_no_memory(err);
    return pl_reply_set_state(call, &(pl_set_state_reply_t){0});
}

/* ---- while the disk works ---- */

static void saving_free(saving_t *saving)
{
    if (saving) {
        pl_free(saving->path);
        pl_free(saving->drop);
    }
    pl_free(saving);
}

/* The peer "checkpoint_io" writes the oldest save first. */
static void progress_report(const checkpoint_t *checkpoint)
{
    const saving_t *saving = checkpoint->oldest;
    if (saving)
        pl_progress_save_checkpoint(
            saving->call,
            &(pl_save_checkpoint_progress_t){.path = saving->path,
                                             .global_step = saving->global_step});
    if (checkpoint->weights)
        pl_progress_save(checkpoint->weights,
                         &(pl_save_progress_t){.path = checkpoint->path});
}

static bool is_stuck(checkpoint_t *checkpoint)
{
    const int64_t awake = pl_actor_awake_since(checkpoint),
                  since = checkpoint->moved_at > awake ? checkpoint->moved_at : awake,
                  max = checkpoint->timeout_ms < PL_STOP_SAVE_MS ? checkpoint->timeout_ms
                                                                 : PL_STOP_SAVE_MS;
    return pl_now() - since >= max * PL_MILLISECOND;
}

static void disk_look(void *self)
{
    checkpoint_t *checkpoint = self;
    const uint64_t progress = pl_disk_progress();
    if (!checkpoint->open)
        return;
    if (progress != checkpoint->disk_progress) {
        checkpoint->moved_at = pl_now();
        progress_report(checkpoint);
    }
    checkpoint->disk_progress = progress;
    if (checkpoint->ending && is_stuck(checkpoint))
        pl_actor_end(checkpoint, NULL);
    else
        pl_after(checkpoint,
                 checkpoint->timeout_ms / 4 < LOOK_MS ? checkpoint->timeout_ms / 4 + 1
                                                      : LOOK_MS,
                 disk_look, NULL);
}

static void call_began(checkpoint_t *checkpoint)
{
    if (checkpoint->open++ > 0)
        return;
    checkpoint->disk_progress = pl_disk_progress();
    checkpoint->moved_at = pl_now();
    progress_report(checkpoint);
    disk_look(checkpoint);
}

/* ---- answers of the writers ---- */

static void call_ended(checkpoint_t *checkpoint)
{
    checkpoint->open--;
    if (checkpoint->ending && checkpoint->open == 0)
        pl_actor_end(checkpoint, NULL);
}

static void checkpoint_on_written(void *self, const pl_answer_t *answer)
{
    checkpoint_t *checkpoint = self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_save(answer->context, &(pl_save_reply_t){.path = checkpoint->path});
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
    else
        return;
    checkpoint->weights = NULL;
    call_ended(checkpoint);
}

/* ---- the weights at the end ---- */

static int checkpoint_on_save(void *self, pl_call_t *call, const pl_body_t *body,
                              pl_error_t *err)
{
    checkpoint_t *checkpoint = self;
    if (!checkpoint->path)
        return pl_fail(err, PL_ESTATE, "this run has no run directory");
    const pl_write_weights_t fields = {.path = checkpoint->path,
                                       .global_step = body->save.global_step,
                                       .weights = body->save.weights};
    const pl_how_t how = {.on_answer = checkpoint_on_written, .context = call};
    if (!pl_call_write_weights(self, pl_peer(self, "writer"), &fields, how, err))
        return err->code;
    checkpoint->weights = call;
    if (checkpoint->sums_up && checkpoint->saved && checkpoint->level == PL_LOG_DEBUG)
        pl_log_line(PL_LOG_INFO, pl_actor_rank(self), pl_actor_name(self),
                    "saved %llu checkpoint%s, of which the best %s in %s",
                    (unsigned long long)checkpoint->saved,
                    pl_plural((int64_t)checkpoint->saved),
                    checkpoint->saved == 1 ? "is" : "are", checkpoint->folder);
    call_began(checkpoint);
    return PL_OK;
}

/* ---- a checkpoint ---- */

static void checkpoint_on_kept(void *self, const pl_answer_t *answer)
{
    checkpoint_t *checkpoint = self;
    saving_t *saving = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_log_line(checkpoint->level, pl_actor_rank(self), pl_actor_name(self),
                    "saved step %llu: %s", (unsigned long long)saving->global_step,
                    answer->body->write_checkpoint_progress.path);
    checkpoint->saved += answer->kind == PL_ANSWER_REPLY;
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_log_line(
            PL_LOG_ERROR, pl_actor_rank(self), pl_actor_name(self),
            "the checkpoint of step %llu could not be saved, training continues: %s",
            (unsigned long long)saving->global_step, answer->error->text);
        /* The next successful save removes the older checkpoints of this one too. */
        char *owed = pl_text("%s\n%s", saving->drop,
                             checkpoint->owed ? checkpoint->owed : "");
        if (owed) {
            pl_free(checkpoint->owed);
            checkpoint->owed = owed;
        }
    }
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    pl_reply_save_checkpoint(saving->call, &(pl_save_checkpoint_reply_t){
                                               .global_step = saving->global_step,
                                               .saved = answer->kind == PL_ANSWER_REPLY,
                                               .why = answer->kind == PL_ANSWER_ERROR
                                                          ? answer->error->text
                                                          : ""});
    checkpoint->oldest = saving->next;
    saving_free(saving);
    call_ended(self);
}

static char *manifest_of(const checkpoint_t *checkpoint, const pl_save_checkpoint_t *msg,
                         const char *drop, pl_error_t *err)
{
    const pl_weights_t *weights = (const pl_weights_t *)msg->weights;
    const struct {
        const char *key, *json;                             /* "": null */
    } members[] = {
        {"metrics", msg->metrics},
        {"progress", msg->progress},
        {"callbacks", msg->callbacks},
        {"loggers", msg->loggers},
        {"strategy", weights->state ? weights->state : ""},
    };
    json_t *manifest = json_copy(checkpoint->fixed);
    char *text = NULL;
    int code = PL_OK;
    if (!manifest || json_object_set_new(manifest, "epoch", json_integer(msg->epoch))
        || json_object_set_new(manifest, "global_step",
                               json_integer((json_int_t)msg->global_step))
        || json_object_set_new(manifest, "serial", json_integer((json_int_t)msg->serial))
        || json_object_set_new(manifest, "aside", json_boolean(msg->aside))
        || json_object_set_new(manifest, "names", json_string(msg->names))
        || json_object_set_new(manifest, "drop", json_string(drop)))
        code = pl_no_memory(err);
    for (size_t k = 0; k < sizeof members / sizeof *members && code == PL_OK; k++) {
        const char *json = members[k].json;
        json_t *value = *json ? pl_json_value(json, strlen(json), err) : json_null();
        if (!value)
            code = err->code;
        else if (json_object_set_new(manifest, members[k].key, value) != 0)
            code = pl_no_memory(err);
    }
    if (code == PL_OK && !(text = pl_json_write(manifest, PL_JSON_COMPACT)))
        pl_no_memory(err);
    json_decref(manifest);
    return text;
}

/* The names to remove after this save: requested and owed ones, except its own names. */
static char *drop_of(const checkpoint_t *checkpoint, const pl_save_checkpoint_t *msg)
{
    char *all = pl_text("%s\n%s", msg->drop, checkpoint->owed ? checkpoint->owed : "");
    char *to = all;
    for (const char *from = all; from && *from;) {
        size_t length = strcspn(from, "\n"), whole = length + (from[length] == '\n');
        if (length && !pl_checkpoint_requests_has(msg->names, from, length)) {
            memmove(to, from, whole);
            to += whole;
        }
        from += whole;
    }
    if (all)
        *to = '\0';
    return all;
}

static int checkpoint_on_checkpoint(void *self, pl_call_t *call, const pl_body_t *body,
                                    pl_error_t *err)
{
    checkpoint_t *checkpoint = self;
    const pl_save_checkpoint_t *msg = &body->save_checkpoint;
    if (!checkpoint->folder)
        return pl_fail(err, PL_ESTATE, "this run has no run directory");
    saving_t *saving = pl_alloc(sizeof *saving);
    if (!saving)
        return pl_no_memory(err);
    *saving = (saving_t){.call = call,
                         .global_step = msg->global_step,
                         .path = pl_text("%s/%.*s", checkpoint->folder,
                                         (int)strcspn(msg->names, "\n"), msg->names),
                         .drop = drop_of(checkpoint, msg)};
    char *manifest = NULL;
    int code = saving->path && saving->drop ? PL_OK : pl_no_memory(err);
    if (code == PL_OK && !(manifest = manifest_of(checkpoint, msg, saving->drop, err)))
        code = err->code;
    const pl_write_checkpoint_t fields = {.folder = checkpoint->folder,
                                          .names = msg->names,
                                          .drop = saving->drop,
                                          .manifest = manifest,
                                          .weights = msg->weights};
    const pl_how_t how = {.on_answer = checkpoint_on_kept, .context = saving};
    if (code == PL_OK
        && !pl_call_write_checkpoint(self, pl_peer(self, "checkpoint_io"), &fields, how,
                                     err))
        code = err->code;
    pl_free(manifest);
    if (code != PL_OK) {
        saving_free(saving);
        return code;
    }
    pl_free(checkpoint->owed);
    checkpoint->owed = NULL;
    saving_t **last = &checkpoint->oldest;
    while (*last)
        last = &(*last)->next;
    *last = saving;
    call_began(checkpoint);
    return PL_OK;
}

/* ---- the end ---- */

static void checkpoint_on_cancel(void *self, pl_call_t *call)
{
    checkpoint_t *checkpoint = self;
    if (!pl_is_life(self, call))
        return;
    checkpoint->ending = true;
    if (checkpoint->open == 0 || is_stuck(checkpoint))
        pl_actor_end(checkpoint, NULL);
}

static void checkpoint_release(void *self)
{
    checkpoint_t *checkpoint = self;
    for (saving_t *saving; (saving = checkpoint->oldest);) {
        checkpoint->oldest = saving->next;
        saving_free(saving);
    }
    pl_free(checkpoint->path);
    pl_free(checkpoint->folder);
    pl_free(checkpoint->owed);
    json_decref(checkpoint->fixed);
}

static const pl_handler_t checkpoint_handlers[] = {
    PL_ON(start, checkpoint_on_start),
    PL_ON(save, checkpoint_on_save),
    PL_ON(save_checkpoint, checkpoint_on_checkpoint),
    PL_ON(set_state, checkpoint_on_set_state),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_checkpoint_connector = {
    .name = "connector.checkpoint",
    .help = "saves the checkpoints and results of a run",
    .size = sizeof(checkpoint_t),
    .level = PL_LEVEL_CONNECTOR,
    .handlers = checkpoint_handlers,
    .on_cancel = checkpoint_on_cancel,
    .release = checkpoint_release,
};
