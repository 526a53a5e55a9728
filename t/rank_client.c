/* rank_client.c - tests of actors/launchers/rank_client.c: a rank's side of the links
 * with its launcher, both of which are this process */
#include "actors/launchers/rank_client.h"

#include <stdio.h>
#include <string.h>

#include "actor_rig.h"
#include "actors/launchers/rank_links.h"
#include "base/options.h"
#include "tap.h"

/* The launcher's side. */
typedef struct received {
    pl_outbox_t outbox;
    int refused, ended;
    char text[PL_ERROR_TEXT];                               /* of the refusal */
} received_t;

static void message_came(void *self, pl_frame_t *message)
{
    received_t *received = self;
    pl_incoming_t m;
    if (pl_incoming_read(&m, &received->outbox, pl_frame_bytes(message), NULL) == PL_OK) {
        if (m.envelope.message == PL_MESSAGE_run && m.envelope.call == 2
            && strstr(m.error.text, "already runs")) {
            received->refused++;
            snprintf(received->text, sizeof received->text, "%s", m.error.text);
        }
        received->ended += m.envelope.message == PL_MESSAGE_start;
    }
    pl_incoming_release(&m);
}

static void event_came(void *self, pl_link_event_t event, const char *text)
{
    (void)self, (void)event, (void)text;
}

static void ignore_end(void *self)
{
    (void)self;
}

static void ignore_loss(void *self, const char *why)
{
    (void)self, (void)why;
}

static pl_job_t *job_new(void)
{
    pl_options_t *options = pl_options_parse("{}", "run.json", NULL);
    pl_job_t *job = pl_job_new(options, PL_TRAIN, NULL);
    pl_options_free(options);
    return job;
}

static int rank_open(pl_rank_client_t *client, const pl_rank_links_t *links)
{
    static const pl_rank_client_ops_t ops = {.on_end = ignore_end,
                                             .on_lost = ignore_loss,
                                             .on_left = ignore_end};
    static char calls[PL_FOLDER_PATH], bulk[PL_FOLDER_PATH];
    char text[PL_BOOTSTRAP_TEXT];
    pl_bootstrap_t bootstrap;
    pl_rank_links_bootstrap(links, 0, text);
    pl_bootstrap_read(strchr(text, '=') + 1, &bootstrap);
    const pl_rank_client_spec_t spec = {.calls = pl_folder_path(bootstrap.folder,
                                                                PL_FOLDER_CALLS, calls),
                                        .bulk = pl_folder_path(bootstrap.folder,
                                                               PL_FOLDER_BULK, bulk),
                                        .run = bootstrap.run,
                                        .incarnation = bootstrap.incarnation,
                                        .world_size = 1,
                                        .sharers = 1};
    *client = (pl_rank_client_t){0};
    return pl_rank_client_open(client, rig.queen, &ops, &spec, NULL);
}

/* The links of a launcher with one rank. */
static pl_rank_links_t *links_open(received_t *received)
{
    static const pl_rank_receiver_ops_t ops = {message_came, event_came};
    const pl_rank_links_spec_t spec = {.count = 1,
                                       .join_ms = 60000,
                                       .run = 7,
                                       .incarnation = 1};
    rig_open_launcher();
    pl_rank_links_t *links = pl_rank_links_new(rig.queen, &spec, NULL);
    pl_rank_links_attach(links, 0, &ops, received, &received->outbox);
    return links;
}

static void a_second_job_is_refused(void)
{
    received_t received = {0};
    pl_rank_client_t client;
    pl_rank_links_t *links = links_open(&received);
    is_int(rank_open(&client, links), PL_OK, "a rank");
    pl_job_t *job = job_new();
    for (uint64_t k = 1; k <= 2; k++)
        pl_outbox_post(&received.outbox, PL_KIND_CALL, PL_MESSAGE_run, k,
                       &(pl_run_t){.job = &job->object}, NULL);
    pl_object_unref(job);
    ok(eventually((rig_turn(), received.refused)), "the second one is: %s",
       received.text);
    pl_rank_client_end(&client);
    ok(eventually((rig_turn(), received.ended)), "and the rank ends in order");
    pl_rank_client_release(&client);
    pl_outbox_release(&received.outbox);
    pl_object_unref(links);
    rig_close();
}

/* Where a leak is an error, nothing of the call may be left. */
static void an_engine_closes_in_the_middle_of_a_job(void)
{
    received_t received = {0};
    pl_rank_client_t client;
    pl_rank_links_t *links = links_open(&received);
    rank_open(&client, links);
    pl_job_t *job = job_new();
    pl_outbox_post(&received.outbox, PL_KIND_CALL, PL_MESSAGE_run, 1,
                   &(pl_run_t){.job = &job->object}, NULL);
    pl_object_unref(job);
    ok(eventually((rig_turn(), client.run)), "a job runs");
    pl_rank_client_release(&client);
    pl_outbox_release(&received.outbox);
    pl_object_unref(links);
    rig_close();
    ok(!received.ended, "and the launcher gets no answer");
}

int main(void)
{
    run(an_engine_closes_in_the_middle_of_a_job);
    run(a_second_job_is_refused);
    return tap_done();
}
