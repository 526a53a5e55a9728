/* proxy.c - tests of actors/launchers/proxy.c: the worker of a rank in another process,
 * which is the test's own, as is the rank's side of the links */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "actor_rig.h"
#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"
#include "actors/launchers/supervisor.h"
#include "base/options.h"
#include "tap.h"

typedef struct scene {
    pl_rank_links_t *links;
    pl_address_t at;
    uint64_t life;
    pl_bootstrap_t bootstrap;
    char calls[PL_FOLDER_PATH], bulk_path[PL_FOLDER_PATH], process_file[300];
    pl_link_t *link;                                        /* of the rank */
    pl_bulk_t *bulk;
    pl_outbox_t outbox;
    uint64_t run, control;                       /* numbers of calls  [0: not received] */
    bool has_died, has_failed, has_ended, is_controlled, is_control_refused;
    char text[PL_ERROR_TEXT];                               /* why it has failed */
    uint64_t outcome_step;                                  /* [0: no outcome] */
} scene_t;

/* ---- time, which stands still while a proxy waits for the last messages of a dead
 * rank ---- */

static int64_t stopped;                                  /* atomic: when  [time passes] */
int64_t __real_pl_now(void);
int64_t __wrap_pl_now(void);

int64_t __wrap_pl_now(void)
{
    const int64_t at = __atomic_load_n(&stopped, __ATOMIC_RELAXED);
    return at ? at : __real_pl_now();
}

/* ---- the caller ---- */

static void run_answered(void *self, const pl_answer_t *answer)
{
    scene_t *s = answer->context;
    (void)self;
    if (answer->kind == PL_ANSWER_ERROR) {
        s->has_failed = true;
        snprintf(s->text, sizeof s->text, "%s", answer->error->text);
    }
    if (answer->kind == PL_ANSWER_REPLY)
        s->outcome_step =
            ((const pl_outcome_t *)answer->body->run_reply.outcome)->global_step;
}

static void control_answered(void *self, const pl_answer_t *answer)
{
    scene_t *s = answer->context;
    (void)self;
    s->is_controlled |= answer->kind == PL_ANSWER_REPLY;
    s->is_control_refused |= answer->kind == PL_ANSWER_ERROR;
}

static void watch_answered(void *self, const pl_answer_t *answer)
{
    scene_t *s = answer->context;
    (void)self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        s->has_died |= answer->body->watch_progress.event == PL_RANK_EVENT_DIED;
}

static void life_answered(void *self, const pl_answer_t *answer)
{
    scene_t *s = answer->context;
    (void)self;
    s->has_ended |= answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR;
}

static pl_job_t *job_new(void)
{
    pl_options_t *options = pl_options_parse("{}", "run.json", NULL);
    pl_job_t *job = pl_job_new(options, PL_TRAIN, NULL);
    pl_options_free(options);
    return job;
}

/* ---- the rank ---- */

static void message_came(void *user, int peer, pl_frame_t *message)
{
    scene_t *s = user;
    pl_envelope_t e;
    (void)peer;
    if (pl_envelope_read(pl_frame_bytes(message), &e, NULL) == PL_OK
        && e.kind == PL_KIND_CALL) {
        if (e.message == PL_MESSAGE_run)
            s->run = e.call;
        if (e.message == PL_MESSAGE_control)
            s->control = e.call;
    }
    pl_frame_release(message);
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    (void)user, (void)peer, (void)event, (void)text;
}

static void object_sent(void *user, int peer, uint64_t transfer, const pl_error_t *error)
{
    (void)peer;
    pl_outbox_sent(&((scene_t *)user)->outbox, transfer, error);
}

static void rank_join(scene_t *s)
{
    char text[PL_BOOTSTRAP_TEXT];
    pl_rank_links_bootstrap(s->links, 0, text);
    pl_bootstrap_read(strchr(text, '=') + 1, &s->bootstrap);
    pl_link_spec_t spec = {.endpoint = pl_folder_path(s->bootstrap.folder,
                                                      PL_FOLDER_CALLS, s->calls),
                           .run = s->bootstrap.run,
                           .incarnation = s->bootstrap.incarnation,
                           .world_size = 1,
                           .about = "a rank",
                           .on_message = message_came,
                           .on_event = event_came,
                           .user = s};
    s->link = pl_link_connect(&spec, pl_actor_loop(rig.queen), NULL);
    spec.endpoint = pl_folder_path(s->bootstrap.folder, PL_FOLDER_BULK, s->bulk_path);
    const pl_bulk_spec_t bulk = {.link = spec,
                                 .on_sent = object_sent,
                                 .on_event = event_came,
                                 .user = s};
    s->bulk = pl_bulk_open(&bulk, false, pl_actor_loop(rig.queen), NULL);
    s->outbox = (pl_outbox_t){.link = s->link,
                              .peer = PL_LINK_HOST,
                              .run = s->bootstrap.run,
                              .incarnation = s->bootstrap.incarnation,
                              .bulk = s->bulk};
}

/* All that a rank says at its end, and that nothing follows. */
static void rank_tell_outcome(scene_t *s, uint64_t global_step)
{
    pl_outcome_t *outcome = pl_outcome_new(NULL);
    outcome->global_step = global_step;
    pl_outbox_post(&s->outbox, PL_KIND_REPLY, PL_MESSAGE_run, s->run,
                   &(pl_run_reply_t){.outcome = &outcome->object}, NULL);
    pl_object_unref(outcome);
    while (s->outbox.first)
        rig_turn();
    pl_link_leave(s->link, NULL);
    pl_link_leave(pl_bulk_link(s->bulk), NULL);
}

/* ---- its process ---- */

static void process_live(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FILE *file = fopen(getenv("REMOTE_PROCESS"), "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    for (;;)
        pause();
}

static int process_of(const scene_t *s)
{
    int number = 0;
    FILE *file = fopen(s->process_file, "r");
    if (file && fscanf(file, "%d", &number) != 1)
        number = 0;
    if (file)
        fclose(file);
    return number;
}

/* ---- the scene ---- */

/* A rank without an open call. */
static void scene_begin(scene_t *s, int join_ms)
{
    *s = (scene_t){0};
    rig_open_launcher();
    snprintf(s->process_file, sizeof s->process_file, "%s/process", tap_folder());
    unlink(s->process_file);
    setenv("REMOTE_PROCESS", s->process_file, 1);
    const pl_rank_links_spec_t spec = {.count = 1,
                                       .join_ms = join_ms,
                                       .run = 7,
                                       .incarnation = 1};
    s->links = pl_rank_links_new(rig.queen, &spec, NULL);
    const pl_start_t start = {.options = "0",
                              .context = (pl_object_t *)s->links};
    s->life = pl_spawn(rig.queen, &pl_proxy, PL_SAME_THREAD, &start,
                       (pl_how_t){.on_answer = life_answered, .context = s}, &s->at,
                       NULL);
}

static void scene_watch(scene_t *s)
{
    pl_call_watch(rig.queen, s->at, &(pl_watch_t){0},
                  (pl_how_t){.on_answer = watch_answered, .context = s}, NULL);
}

static void scene_open(scene_t *s)
{
    scene_begin(s, 60000);
    scene_watch(s);
    pl_job_t *job = job_new();
    pl_call_run(rig.queen, s->at, &(pl_run_t){.job = &job->object},
                (pl_how_t){.on_answer = run_answered, .context = s}, NULL);
    pl_object_unref(job);
    rank_join(s);
}

static void scene_close(scene_t *s)
{
    pl_outbox_release(&s->outbox);
    pl_bulk_free(s->bulk);
    pl_link_free(s->link);
    pl_object_unref(s->links);
    rig_close();
}

/* Its death is seen at once; what it has said may be on the way for some time. */
static void messages_sent_before_a_death_count(void)
{
    scene_t s;
    scene_open(&s);
    ok(eventually((rig_turn(), s.run && process_of(&s))), "a rank has its job");
    __atomic_store_n(&stopped, __real_pl_now(), __ATOMIC_RELAXED);
    kill(process_of(&s), SIGKILL);
    ok(eventually((rig_turn(), s.has_died)), "its process has died");
    ok(!s.has_ended && !s.has_failed, "which is not its end");
    rank_tell_outcome(&s, 42);
    ok(eventually((rig_turn(), s.has_ended)), "what it had sent is");
    is_int(s.outcome_step, 42, "its outcome is the run's");
    ok(!s.has_failed, "and no error");
    __atomic_store_n(&stopped, 0, __ATOMIC_RELAXED);
    scene_close(&s);
}

/* Each call is answered by its own answer alone: by number and by message.  The wrong
 * answers are errors, because every call has the same ones: a proxy that accepts a reply
 * of another message would read fields that are not there. */
static void an_answer_of_another_message_is_dropped(void)
{
    scene_t s;
    scene_open(&s);
    pl_call_control(rig.queen, s.at, &(pl_control_t){.command = PL_RUN_COMMAND_PAUSE},
                    (pl_how_t){.on_answer = control_answered, .context = &s}, NULL);
    ok(eventually((rig_turn(), s.run && s.control)), "a rank has a job and a command");
    const pl_error_t wrong = {PL_EIO, "", "an answer of another call"},
                     own = {PL_EIO, "", "its own"};
    pl_outbox_post(&s.outbox, PL_KIND_ERROR, PL_MESSAGE_join, s.control, &wrong, NULL);
    pl_outbox_post(&s.outbox, PL_KIND_ERROR, PL_MESSAGE_stop, s.run, &wrong, NULL);
    pl_outbox_post(&s.outbox, PL_KIND_REPLY, PL_MESSAGE_control, s.control + 7,
                   &(pl_control_reply_t){.checkpoint = ""}, NULL);
    pl_outbox_post(&s.outbox, PL_KIND_ERROR, PL_MESSAGE_run, s.run, &own, NULL);
    ok(eventually((rig_turn(), s.has_failed)), "the run has failed");
    is_text(s.text, "its own", "by its own error");
    ok(!s.is_controlled && !s.is_control_refused, "the command has no answer yet");
    pl_outbox_post(&s.outbox, PL_KIND_REPLY, PL_MESSAGE_control, s.control,
                   &(pl_control_reply_t){.checkpoint = ""}, NULL);
    ok(eventually((rig_turn(), s.is_controlled)), "then its own");
    scene_close(&s);
}

static void a_reply_without_its_outcome_is_an_error(void)
{
    scene_t s;
    scene_open(&s);
    ok(eventually((rig_turn(), s.run)), "a rank has its job");
    pl_outbox_post_packed(&s.outbox, PL_KIND_REPLY, PL_MESSAGE_run, s.run,
                          &(pl_run_reply_t){0}, NULL, NULL);
    ok(eventually((rig_turn(), s.has_failed)), "the run fails");
    is_text(s.text, "run came without its outcome (transfer 0)", "with the reason");
    scene_close(&s);
}

/* Before any call to it: its death is known, and yet the proxy has not ended. */
static void die_early(scene_t *s, int join_ms)
{
    scene_begin(s, join_ms);
    ok(eventually((rig_turn(), process_of(s))), "a rank has a process");
    kill(process_of(s), SIGKILL);
    ok(eventually((rig_turn(), kill(process_of(s), 0))), "which has died");
    for (int k = 0; k < 20; k++)
        rig_turn();
    ok(!s->has_ended && !s->has_died, "and no event has come");
}

static void an_early_death_waits_for_the_first_call(void)
{
    scene_t s;
    die_early(&s, 60000);
    scene_watch(&s);
    ok(eventually((rig_turn(), s.has_ended)), "then it has ended");
    ok(s.has_died, "with its death");
    scene_close(&s);
}

static void an_early_death_does_not_hold_up_the_end(void)
{
    scene_t s;
    die_early(&s, 60000);
    pl_cancel(rig.queen, s.life);
    ok(eventually((rig_turn(), s.has_ended)), "it is ended");
    scene_close(&s);
}

static void the_limit_to_join_waits_for_the_first_call(void)
{
    scene_t s;
    die_early(&s, 1000);
    ok(eventually((rig_turn(), s.has_ended)), "it is given up, and has ended");
    scene_close(&s);
}

int main(void)
{
    if (getenv(PL_BOOTSTRAP))
        process_live();
    pl_supervisor_init();
    run(messages_sent_before_a_death_count);
    run(an_answer_of_another_message_is_dropped);
    run(a_reply_without_its_outcome_is_an_error);
    run(an_early_death_waits_for_the_first_call);
    run(an_early_death_does_not_hold_up_the_end);
    run(the_limit_to_join_waits_for_the_first_call);
    return tap_done();
}
