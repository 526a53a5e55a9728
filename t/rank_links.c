/* rank_links.c - tests of actors/launchers/rank_links.c: a launcher's links with its
 * ranks */
#include <stdio.h>
#include <string.h>

#include "actors/launchers/rank_links.h"
#include "actor_rig.h"
#include "tap.h"

/* The proxy of a rank. */
typedef struct stand_in {
    int joined, missing;
    pl_outbox_t outbox;
    char about[128];
} stand_in_t;

static void message_came(void *self, pl_frame_t *message)
{
    (void)self, (void)message;
}

static void event_came(void *self, pl_link_event_t event, const char *text)
{
    stand_in_t *s = self;
    s->joined += event == PL_LINK_JOINED;
    s->missing += event == PL_LINK_MISSING;
    if (event == PL_LINK_JOINED)
        snprintf(s->about, sizeof s->about, "%s", text);
}

static const pl_rank_receiver_ops_t ops = {message_came, event_came};

static void ignore_message(void *user, int rank, pl_frame_t *message)
{
    (void)user, (void)rank;
    pl_frame_release(message);
}

static void ignore_event(void *user, int rank, pl_link_event_t event, const char *text)
{
    (void)user, (void)rank, (void)event, (void)text;
}

/* The calls' link of rank 0. */
static pl_link_t *rank_join(const pl_rank_links_t *links, int world_size)
{
    pl_bootstrap_t bootstrap = {0};
    char text[PL_BOOTSTRAP_TEXT], calls[PL_FOLDER_PATH];
    pl_rank_links_bootstrap(links, 0, text);
    pl_bootstrap_read(strchr(text, '=') + 1, &bootstrap);
    pl_folder_path(bootstrap.folder, PL_FOLDER_CALLS, calls);
    const pl_link_spec_t spec = {.endpoint = calls,
                                 .run = bootstrap.run,
                                 .incarnation = bootstrap.incarnation,
                                 .world_size = world_size,
                                 .about = "early bird",
                                 .on_message = ignore_message,
                                 .on_event = ignore_event};
    return pl_link_connect(&spec, pl_actor_loop(rig.queen), NULL);
}

/* Links of one rank, which has joined them. */
static pl_link_t *early_rank(pl_rank_links_t **links_p)
{
    const pl_rank_links_spec_t spec = {.count = 1,
                                       .join_ms = 60000,
                                       .run = 7,
                                       .incarnation = 1};
    rig_open_launcher();
    *links_p = pl_rank_links_new(rig.queen, &spec, NULL);
    pl_link_t *rank = rank_join(*links_p, 1);
    while (!(*links_p)->were_all_there)
        rig_turn();
    return rank;
}

static void a_rank_that_is_early_has_joined(void)
{
    stand_in_t first = {0}, second = {0};
    pl_rank_links_t *links;
    pl_link_t *rank = early_rank(&links);
    pl_rank_links_attach(links, 0, &ops, &first, &first.outbox);
    is_int(first.joined, 1, "a later proxy gets the event that it is there");
    is_text(first.about, "early bird", "and what it is");
    pl_rank_links_attach(links, 0, &ops, &second, &second.outbox);
    is_int(second.joined, 0, "once");
    pl_link_free(rank);
    pl_object_unref(links);
    rig_close();
}

static void an_early_rank_of_the_last_incarnation_is_not_there_in_this(void)
{
    stand_in_t late = {0};
    pl_rank_links_t *links;
    pl_link_t *rank = early_rank(&links);
    pl_link_free(rank);
    is_int(pl_rank_links_renew(links, 1, NULL), PL_OK, "a new incarnation");
    pl_rank_links_attach(links, 0, &ops, &late, &late.outbox);
    is_int(late.joined, 0, "has not been joined yet");
    pl_object_unref(links);
    rig_close();
}

/* Rank 0 joins only the link for calls, rank 1 none. The limit of the link for bulk data
 * is later by as long as a rank may take to connect again. */
static void a_missing_rank_is_reported_once(void)
{
    stand_in_t rank[2] = {{0}};
    const pl_rank_links_spec_t spec = {.count = 2,
                                       .join_ms = 200,
                                       .run = 7,
                                       .incarnation = 1};
    rig_open_launcher();
    pl_rank_links_t *links = pl_rank_links_new(rig.queen, &spec, NULL);
    for (int k = 0; k < 2; k++)
        pl_rank_links_attach(links, k, &ops, &rank[k], &rank[k].outbox);
    pl_link_t *link = rank_join(links, 2);
    ok(eventually((rig_turn(), rank[1].missing)), "a rank that does not call is");
    is_int(rank[0].missing, 0, "one that has called is not yet");
    ok(eventually((rig_turn(), rank[0].missing)),
       "it is when it has no link for bulk data");
    is_int(rank[1].missing, 1, "and the other not again");
    pl_link_free(link);
    pl_object_unref(links);
    rig_close();
}

int main(void)
{
    run(a_rank_that_is_early_has_joined);
    run(an_early_rank_of_the_last_incarnation_is_not_there_in_this);
    run(a_missing_rank_is_reported_once);
    return tap_done();
}
