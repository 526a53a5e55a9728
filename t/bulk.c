/* bulk.c - tests of engine/transport/bulk.c: transfers that come whole, and those that do
 * not come */
#include "transport/bulk.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "transport/socket.h"
#include "scarce.h"
#include "tap.h"
#include "wire.h"

typedef struct end {
    pl_bulk_t *bulk;
    int come, lost, sent, failed, events[PL_LINK_REFUSED + 1];
    uint64_t last;                                          /* transfer */
    char text[PL_ERROR_TEXT];
} end_t;

static pl_sockets_t loop;
static end_t host, rank;
static pl_bulk_spec_t usual;
static char endpoint[256];

static void on_come(void *user, int peer, uint64_t transfer)
{
    (void)peer;
    end_t *end = user;
    end->come++;
    end->last = transfer;
}

static void on_lost(void *user, int peer, uint64_t transfer, const pl_error_t *error)
{
    (void)peer, (void)transfer;
    end_t *end = user;
    end->lost++;
    snprintf(end->text, sizeof end->text, "%s", error->text);
}

static void on_sent(void *user, int peer, uint64_t transfer, const pl_error_t *error)
{
    (void)peer, (void)transfer;
    end_t *end = user;
    end->sent += !error;
    end->failed += error != NULL;
    if (error)
        snprintf(end->text, sizeof end->text, "%s", error->text);
}

static void on_event(void *user, int peer, pl_link_event_t event, const char *text)
{
    (void)peer, (void)text;
    ((end_t *)user)->events[event]++;
}

static void loop_turn(void)
{
    pl_sockets_flush(&loop);
    struct timeval soon = {0, 2000};
    event_base_loopexit(loop.base, &soon);
    event_base_loop(loop.base, EVLOOP_ONCE);
}

#define until(truth) \
    for (int64_t end_ = pl_now() + 60 * PL_SECOND; !(truth) && pl_now() < end_;) \
    loop_turn()

static void open_at(const char *where, size_t max)
{
    pl_error_t err = {0};
    host = rank = (end_t){0};
    loop = (pl_sockets_t){.base = event_base_new()};
    usual = (pl_bulk_spec_t){.link = {.endpoint = where,
                                      .run = 7,
                                      .incarnation = 1,
                                      .world_size = 1,
                                      .times = {.beat = 40, .rejoin = 2000}},
                             .max = max,
                             .on_come = on_come,
                             .on_lost = on_lost,
                             .on_sent = on_sent,
                             .on_event = on_event,
                             .user = &host};
    host.bulk = pl_bulk_open(&usual, true, &loop, &err);
    if (!host.bulk
        || pl_link_endpoint(pl_bulk_link(host.bulk), endpoint, sizeof endpoint, &err))
        tap_diag("%s", err.text);
    usual.link.endpoint = endpoint;
    usual.user = &rank;
}

static void open_file(size_t max)
{
    char file[128];
    snprintf(file, sizeof file, "ipc://%s/bulk", tap_folder());
    open_at(file, max);
}

static void rank_opens(void)
{
    pl_error_t err = {0};
    rank.bulk = pl_bulk_open(&usual, false, &loop, &err);
    if (!rank.bulk)
        tap_diag("%s", err.text);
}

static void close_all(void)
{
    pl_bulk_free(rank.bulk);
    pl_bulk_free(host.bulk);
    event_base_free(loop.base);
}

static pl_blob_t *blob_of(size_t size, uint64_t seed)
{
    pl_blob_t *blob = pl_blob_new(size, NULL);
    for (size_t k = 0; k + 8 <= size; k += 8) {
        uint64_t word = pl_mix(seed, k);
        memcpy(blob->data + k, &word, sizeof word);
    }
    return blob;
}

/* Sends one and lets go of it; -> its checksum. */
static uint32_t send_one(end_t *end, int peer, size_t size, uint64_t seed)
{
    pl_error_t err = {0};
    pl_blob_t *blob = blob_of(size, seed);
    uint32_t sum = pl_crc32c(0, blob->data, blob->size);
    if (!pl_bulk_send(end->bulk, peer, blob, &err))
        tap_diag("%s", err.text);
    pl_object_unref(blob);
    return sum;
}

static bool take_is(end_t *end, int peer, uint64_t transfer, size_t size, uint32_t sum)
{
    pl_blob_t *blob = pl_bulk_take(end->bulk, peer, transfer);
    bool same = blob && blob->size == size && pl_crc32c(0, blob->data, size) == sum;
    pl_object_unref(blob);
    return same;
}

/* ---- whole ---- */

static void transfers_come_whole_both_ways(void)
{
    static const size_t sizes[] = {20 << 20, 0, 1, (512 << 10) + 1, 3 << 20};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    uint32_t up[COUNT], down[COUNT];
    open_file(0);
    rank_opens();
    for (int k = 0; k < COUNT; k++) {
        up[k] = send_one(&rank, PL_LINK_HOST, sizes[k], (uint64_t)k);
        down[k] = send_one(&host, 0, sizes[k], 100 + (uint64_t)k);
    }
    until(host.come == COUNT && rank.come == COUNT && host.sent == COUNT
          && rank.sent == COUNT);
    is_int(host.come + rank.come, 2 * COUNT, "all have come");
    is_int(host.sent + rank.sent, 2 * COUNT, "and their senders know");
    for (int k = 0; k < COUNT; k++) {
        ok(take_is(&host, 0, (uint64_t)k + 1, sizes[k], up[k]), "%zu bytes up, the same",
           sizes[k]);
        ok(take_is(&rank, PL_LINK_HOST, (uint64_t)k + 1, sizes[k], down[k]), "and down");
    }
    ok(!pl_bulk_take(host.bulk, 0, 1), "each can be taken once");
    ok(!pl_bulk_take(host.bulk, 0, 99), "and none that has not come");
    is_int(host.lost + rank.lost + host.failed + rank.failed, 0, "nothing was lost");
    close_all();
}

static void a_transfer_outlives_cuts(void)
{
    open_at("tcp://127.0.0.1:*", 0);
    usual.link.endpoint = wire_open(loop.base, endpoint);
    rank_opens();
    uint32_t sum = send_one(&rank, PL_LINK_HOST, 60 << 20, 3);
    int cuts = 0;
    for (int64_t end = pl_now() + 60 * PL_SECOND; !rank.sent && pl_now() < end;) {
        if (cuts < 5
            && pl_link_counts(pl_bulk_link(host.bulk))->messages
                   > 15 * ((uint64_t)cuts + 1)) {
            wire_cut();
            cuts++;
        }
        loop_turn();
    }
    ok(cuts >= 3, "cut %d times", cuts);
    is_int(rank.sent, 1, "it was sent");
    is_int(host.come, 1, "it came, once");
    ok(take_is(&host, 0, 1, 60 << 20, sum), "whole");
    wire_close();
    close_all();
}

static void transfers_in_flight_are_bounded(void)
{
    open_at("tcp://127.0.0.1:*", 0);
    usual.link.endpoint = wire_open(loop.base, endpoint);
    rank_opens();
    until(rank.events[PL_LINK_JOINED]);
    wire_hold(true);
    long before = scarce_live();
    send_one(&rank, PL_LINK_HOST, 64 << 20, 3);
    for (int k = 0; k < 50; k++)
        loop_turn();
    ok(scarce_live() - before < 30, "%ld blocks for 128 unread pieces",
       scarce_live() - before);
    wire_hold(false);
    until(rank.sent);
    is_int(rank.sent, 1, "they are taken in the end");
    wire_close();
    close_all();
}

/* ---- not at all ---- */

static void a_transfer_that_is_too_large_is_refused_and_others_come(void)
{
    open_file(1 << 20);
    rank_opens();
    send_one(&rank, PL_LINK_HOST, 3 << 20, 1);
    uint32_t sum = send_one(&rank, PL_LINK_HOST, 1 << 20, 2);
    until(rank.failed && rank.sent);
    is_int(rank.failed, 1, "the sender gets the failure");
    like(rank.text, "transfer 1 has 3145728 bytes; the limit is 1048576", "why");
    is_int(host.lost, 1, "so is the receiver");
    ok(take_is(&host, 0, 2, 1 << 20, sum), "the next one comes");
    send_one(&rank, PL_LINK_HOST, 1 << 20, 3);
    until(rank.sent == 2);
    is_int(rank.sent, 2, "what was taken makes room");
    close_all();
}

typedef struct bulk_head {
    uint64_t kind, transfer, number;
} bulk_head_t;

static void say(pl_link_t *link, uint64_t kind, uint64_t transfer, uint64_t number,
                size_t more)
{
    unsigned char message[sizeof(bulk_head_t) + 64] = {0};
    bulk_head_t head = {kind, transfer, number};
    memcpy(message, &head, sizeof head);
    pl_link_send(link, PL_LINK_HOST, (pl_bytes_t){message, sizeof head + more}, NULL);
}

static void ignore_message(void *user, int peer, pl_frame_t *message)
{
    (void)user, (void)peer, (void)message;
}

static void a_transfer_that_is_damaged_never_comes(void)
{
    enum { BEGIN, A_PIECE, END };
    open_file(1000);
    pl_link_spec_t spec = usual.link;
    spec.on_message = ignore_message;
    spec.on_event = on_event;
    spec.user = &rank;
    pl_link_t *liar = pl_link_connect(&spec, &loop, NULL);
    until(rank.events[PL_LINK_JOINED]);
    long before = scarce_live();
    say(liar, BEGIN, 1, 64, 0);
    say(liar, A_PIECE, 1, 0, 64);
    say(liar, END, 1, 0xBAD, 0);
    until(host.lost == 1);
    like(host.text, "transfer 1 is damaged.*checksum .* not 00000bad",
         "a wrong checksum");
    say(liar, BEGIN, 2, 64, 0);
    say(liar, A_PIECE, 2, 0, 32);
    say(liar, END, 2, 0, 0);
    until(host.lost == 2);
    like(host.text, "32 of 64 bytes", "a part that is missing");
    say(liar, BEGIN, 3, 64, 0);
    say(liar, A_PIECE, 3, 32, 32);
    until(host.lost == 3);
    like(host.text, "32 bytes at 32, expected at 0", "a piece from elsewhere");
    say(liar, BEGIN, 4, 10, 0);
    say(liar, A_PIECE, 4, 0, 64);
    until(host.lost == 4);
    like(host.text, "64 bytes at 0, expected at 0 of 10", "one that is too long");
    say(liar, BEGIN, 5, UINT64_MAX, 0);
    until(host.lost == 5);
    like(host.text, "the limit is 1000", "a size that cannot be");
    say(liar, BEGIN, 6, 64, 0);
    say(liar, BEGIN, 7, 64, 0);
    until(host.lost == 6);
    like(host.text, "transfer 6 has no end", "one that does not end");
    say(liar, BEGIN, 3, 64, 0);
    say(liar, 99, 1, 1, 1);
    say(liar, A_PIECE, 5, 0, 1);
    say(liar, END, 4, 0, 0);
    say(liar, 3, 1, 0, 0);
    say(liar, 4, 1, 0, 5);
    pl_link_send(liar, PL_LINK_HOST, (pl_bytes_t){"x", 1}, NULL);
    until(rank.events[PL_LINK_CLEAR] && host.lost == 7);
    is_int(host.come, 0, "nothing came of all that");
    pl_link_leave(liar, NULL);
    until(rank.events[PL_LINK_LEFT]);
    ok(scarce_live() <= before, "and nothing is kept of it");
    pl_link_free(liar);
    close_all();
}

static void a_transfer_whose_peer_is_gone_is_lost_on_both_sides(void)
{
    open_at("tcp://127.0.0.1:*", 0);
    usual.link.endpoint = wire_open(loop.base, endpoint);
    usual.link.times.rejoin = 300;
    rank_opens();
    send_one(&rank, PL_LINK_HOST, 60 << 20, 3);
    until(pl_link_counts(pl_bulk_link(host.bulk))->messages > 3);
    wire_cut_for_good();
    pl_link_died(pl_bulk_link(host.bulk), 0);
    until(rank.failed && host.lost);
    is_int(rank.failed, 1, "the sender knows");
    is_int(host.lost, 1, "and the receiver");
    ok(!pl_bulk_take(host.bulk, 0, 1), "which has no part of it");
    pl_blob_t *blob = pl_blob_new(8, NULL);
    pl_error_t err = {0};
    ok(!pl_bulk_send(host.bulk, 0, blob, &err), "nothing more is sent");
    is_int(err.code, PL_EPEER, "it says why");
    pl_object_unref(blob);
    wire_close();
    close_all();
}

static void a_new_incarnation_has_nothing_of_the_old(void)
{
    open_file(0);
    send_one(&host, 0, 1000, 1);
    is_int(pl_bulk_renew(host.bulk, 2, 3, NULL), PL_OK, "it begins");
    is_int(host.failed, 1, "the transfer to the old one is reported as lost");
    usual.link.incarnation = 2;
    usual.link.world_size = 3;
    usual.link.rank = 2;
    rank_opens();
    uint32_t sum = send_one(&host, 2, 1000, 2);
    until(rank.come);
    ok(take_is(&rank, PL_LINK_HOST, 1, 1000, sum), "the new one gets what is for it");
    close_all();
}

/* ---- memory that runs out ---- */

static int open_both(void *user)
{
    (void)user;
    pl_error_t err = {0};
    char file[128];
    snprintf(file, sizeof file, "ipc://%s/scarce", tap_folder());
    pl_bulk_spec_t spec = usual;
    spec.link.endpoint = file;
    pl_bulk_t *a = pl_bulk_open(&spec, true, &loop, &err),
              *b = a ? pl_bulk_open(&spec, false, &loop, &err) : NULL;
    pl_blob_t *blob = b ? pl_blob_new(10, &err) : NULL;
    if (blob)
        pl_bulk_send(b, PL_LINK_HOST, blob, &err);
    pl_object_unref(blob);
    pl_bulk_free(b);
    pl_bulk_free(a);
    return err.code;
}

static void bulk_opens_or_memory_is_out(void)
{
    open_file(0);
    scarce_try(open_both, NULL, "two ends and a blob");
    close_all();
}

/* Of the sender's side; nothing else happens between two ends that are there. */
static void a_lack_of_memory_that_passes_stops_no_transfer(void)
{
    int come = 0, failed = 1;
    open_file(0);
    rank_opens();
    send_one(&host, 0, 100, 1);
    until(host.sent == 1);
    for (int n = 1; failed && n < 40; n++) {
        pl_blob_t *blob = blob_of(1000, (uint64_t)n);
        scarce_fail(n);
        bool is_sent = pl_bulk_send(host.bulk, 0, blob, NULL) != 0;
        failed = scarce_failed();
        scarce_stop();
        pl_object_unref(blob);
        come += is_sent;
        until(host.sent == come + 1);
        is_int(host.sent, come + 1, "what was taken goes, without memory %d", n);
    }
    ok(!failed, "whichever it was that lacked");
    close_all();
}

int main(void)
{
    scarce_init();
    run(transfers_come_whole_both_ways);
    run(a_transfer_outlives_cuts);
    run(transfers_in_flight_are_bounded);
    run(a_transfer_that_is_too_large_is_refused_and_others_come);
    run(a_transfer_that_is_damaged_never_comes);
    run(a_transfer_whose_peer_is_gone_is_lost_on_both_sides);
    run(a_new_incarnation_has_nothing_of_the_old);
    run(bulk_opens_or_memory_is_out);
    run(a_lack_of_memory_that_passes_stops_no_transfer);
    return tap_done();
}
