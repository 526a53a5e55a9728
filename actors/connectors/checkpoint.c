/* checkpoint.c - the checkpoint connector: keeps what a run has come to
 *
 * Checkpoints on the way go to a thread of their own; one that cannot be written costs
 * nothing but itself, and what it was to take the place of stays.  A save that has begun
 * is waited for, also at the end: it is what the run was for.  While a disk works the
 * loop receives progress; without it the loop decides how long it waits, and a connector
 * that is to end waits no longer than that. */
#include "actors/connectors/connectors.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "actors/connectors/checkpoint_io.h"
#include "actors/connectors/run_options.h"
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

enum { LOOK_MS = 250 };                                     /* at the disk */

typedef struct checkpoint {
    char *path;                       /* of the weights  [none] */
    char *folder;                     /* of the checkpoints  [none] */
    json_t *fixed;                    /* what all manifests say: run, seed, …  [none] */
    char *owed;                       /* names to be removed after the next save that
                                         goes well, one a line  [none] */
    pl_log_level_t level;             /* of saves: those that nobody listed are quiet */
    int open;                         /* calls to the writers */
    struct saving *oldest;            /* of the saves  [none] */
    pl_call_t *weights;               /* the save of the weights  [none] */
    int timeout_ms;                   /* trainer.step_timeout */
    uint64_t moves;                   /* of the disk, when it was looked at */
    int64_t moved_at;                 /* pl_now() when that changed, or a save began */
    bool ending;
} checkpoint_t;

/* ---- the start ---- */

/* The run by a name that no other has, and how it was set up. */
static json_t *fixed_of(const pl_job_t *job, pl_error_t *err)
{
    uint64_t id = 0;
    char hex[17];
    char *run = pl_options_print(job->options, err);
    json_t *parsed = run ? pl_json_read(run, strlen(run), "run", err) : NULL;
    json_t *same = parsed ? pl_resume_keys(parsed) : NULL;
    if (getrandom(&id, sizeof id, GRND_NONBLOCK) < 0)
        id = 0;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)id);
    json_t *fixed = same
                        ? json_pack("{s:s, s:s, s:I, s:o, s:o}", "format",
                                    PL_CHECKPOINT_FORMAT, "run_id", hex, "seed",
                                    (json_int_t)job->trainer->seed, "arithmetic",
                                    pl_resume_keys_hash(same), "run", json_incref(parsed))
                        : NULL;
    json_decref(same);
    json_decref(parsed);
    pl_text_free(run);
    if (!fixed && err->code == PL_OK)
        pl_no_memory(err);
    return fixed;
}

static bool is_listed_in(const pl_options_t *options)
{
    char path[32];
    const int count = pl_options_count(options, "callbacks");
    for (int k = 0; k < count; k++) {
        snprintf(path, sizeof path, "callbacks.%d", k);
        if (!strcmp(pl_options_choice(options, path, ""), "model_checkpoint"))
            return true;
    }
    return false;
}

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
        checkpoint->level = is_listed_in(job->options) ? PL_LOG_INFO : PL_LOG_DEBUG;
        checkpoint->path = pl_text("%s/" PL_WEIGHTS_FILE, run_dir);
        checkpoint->folder = pl_text("%s/" PL_CHECKPOINTS_FOLDER, run_dir);
        checkpoint->fixed = fixed_of(job, err);
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

/* The runs that this one goes on from. */
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

/* One that is under way. */
typedef struct saving {
    pl_call_t *call;
    uint64_t global_step;
    char *path;                                             /* under its first name */
    char *drop;                                             /* names, one a line */
    struct saving *next;                                    /* newer */
} saving_t;

static void saving_free(saving_t *saving)
{
    if (saving) {
        pl_free(saving->path);
        pl_free(saving->drop);
    }
    pl_free(saving);
}

/* The keeper writes the oldest. */
static void progress_tell(const checkpoint_t *checkpoint)
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
    const uint64_t moves = pl_disk_progress();
    if (!checkpoint->open)
        return;
    if (moves != checkpoint->moves) {
        checkpoint->moved_at = pl_now();
        progress_tell(checkpoint);
    }
    checkpoint->moves = moves;
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
    checkpoint->moves = pl_disk_progress();
    checkpoint->moved_at = pl_now();
    progress_tell(checkpoint);
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
    call_began(checkpoint);
    return PL_OK;
}

/* ---- a checkpoint ---- */

/* The run goes on.  What was to be removed after this save is, after the next. */
static void save_failed(checkpoint_t *checkpoint, saving_t *saving,
                        const pl_error_t *error)
{
    pl_log_line(PL_LOG_ERROR, pl_actor_rank(checkpoint), pl_actor_name(checkpoint),
                "the checkpoint of step %llu could not be saved, training continues: %s",
                (unsigned long long)saving->global_step, error->text);
    pl_free(checkpoint->owed);
    checkpoint->owed = saving->drop;
    saving->drop = NULL;
}

static void checkpoint_on_kept(void *self, const pl_answer_t *answer)
{
    checkpoint_t *checkpoint = self;
    saving_t *saving = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_log_line(checkpoint->level, pl_actor_rank(self), pl_actor_name(self),
                    "saved step %llu: %s", (unsigned long long)saving->global_step,
                    answer->body->write_checkpoint_progress.path);
    if (answer->kind == PL_ANSWER_ERROR)
        save_failed(self, saving, answer->error);
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

/* JSON of an actor; nothing becomes null. */
static int put_text(json_t *manifest, const char *key, const char *text, pl_error_t *err)
{
    json_t *value = *text ? pl_json_value(text, strlen(text), err) : json_null();
    if (!value)
        return err->code;
    return json_object_set_new(manifest, key, value) == 0 ? PL_OK : pl_no_memory(err);
}

static char *manifest_of(const checkpoint_t *checkpoint, const pl_save_checkpoint_t *msg,
                         const char *drop, pl_error_t *err)
{
    const pl_weights_t *weights = (const pl_weights_t *)msg->weights;
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
    if (code == PL_OK)
        code = put_text(manifest, "metrics", msg->metrics, err);
    if (code == PL_OK)
        code = put_text(manifest, "progress", msg->progress, err);
    if (code == PL_OK)
        code = put_text(manifest, "callbacks", msg->callbacks, err);
    if (code == PL_OK)
        code = put_text(manifest, "loggers", msg->loggers, err);
    if (code == PL_OK)
        code = put_text(manifest, "strategy", weights->state ? weights->state : "", err);
    if (code == PL_OK && !(text = pl_json_write(manifest, PL_JSON_COMPACT)))
        pl_no_memory(err);
    json_decref(manifest);
    return text;
}

static bool is_listed(const char *names, const char *name, size_t length)
{
    for (; *names; names += strcspn(names, "\n"), names += *names == '\n')
        if (strcspn(names, "\n") == length && !strncmp(names, name, length))
            return true;
    return false;
}

/* What is to go and what is owed, but never what is being written. */
static char *drop_of(const checkpoint_t *checkpoint, const pl_save_checkpoint_t *msg)
{
    char *all = pl_text("%s\n%s", msg->drop, checkpoint->owed ? checkpoint->owed : "");
    char *to = all;
    for (const char *from = all; from && *from;) {
        size_t length = strcspn(from, "\n"), whole = length + (from[length] == '\n');
        if (length && !is_listed(msg->names, from, length)) {
            memmove(to, from, whole);
            to += whole;
        }
        from += whole;
    }
    if (all)
        *to = '\0';
    return all;
}

static int checkpoint_write(checkpoint_t *checkpoint, saving_t *saving,
                            const pl_save_checkpoint_t *msg, pl_error_t *err)
{
    char *manifest = manifest_of(checkpoint, msg, saving->drop, err);
    if (!manifest)
        return err->code;
    const pl_write_checkpoint_t fields = {.folder = checkpoint->folder,
                                          .names = msg->names,
                                          .drop = saving->drop,
                                          .manifest = manifest,
                                          .weights = msg->weights};
    const pl_how_t how = {.on_answer = checkpoint_on_kept, .context = saving};
    uint64_t sent = pl_call_write_checkpoint(checkpoint, pl_peer(checkpoint, "keeper"),
                                             &fields, how, err);
    pl_free(manifest);
    return sent ? PL_OK : err->code;
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
    int code = saving->path && saving->drop
                   ? checkpoint_write(checkpoint, saving, msg, err)
                   : pl_no_memory(err);
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
