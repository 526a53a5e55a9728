/* collective_tcp.c - tests of tcp alone: which ranks may take part, what is sealed */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective_rig.h"
#include "config.h"
#include "scarce.h"
#include "strategies/collectives/mesh.h"
#include "tap.h"
#include "wire.h"

static const char sealed[] = "{\"name\": \"tcp\", \"encrypt\": true}";
static const unsigned char key[PL_KEY_BYTES] = {1, 2, 3},
                           other_key[PL_KEY_BYTES] = {1, 2, 4};
static const pl_collective_context_t context = {.key = key},
                                     other_context = {.key = other_key};

/* ---- addresses to listen at ---- */

static void open_fails(const char *component, const pl_collective_context_t *at, int code,
                       const char *pattern)
{
    member_t m;
    is_int(member_open(&m, component, at), code, "%s is refused", component);
    like(m.err.text, pattern, "%s", m.err.text);
    member_close(&m);
}

static void beyond_loopback_a_key_is_needed(void)
{
    open_fails("{\"name\": \"tcp\", \"host\": \"192.0.2.7\"}", NULL, PL_EINVAL,
               "192.0.2.7, beyond this machine, need the key of the job");
    open_fails("{\"name\": \"tcp\", \"host\": \"2001:db8::7\"}", NULL, PL_EINVAL,
               "beyond this machine, need the key");
    open_fails("\"tcp\"", &(pl_collective_context_t){.host = "192.0.2.7"}, PL_EINVAL,
               "beyond this machine, need the key");
    open_fails(sealed, NULL, PL_EINVAL, "127.0.0.1 with encryption need the key");
    open_fails("{\"name\": \"tcp\", \"host\": \"0.0.0.0\"}", &context, PL_EINVAL,
               "other ranks cannot reach this machine");
}

static void a_rank_beyond_loopback_is_not_met_without_a_key(void)
{
    member_t m;
    member_open(&m, "\"tcp\"", NULL);
    const char *address[] = {m.address,
                             "tcp 192.0.2.7 4000 00112233445566778899aabbccddeeff"};
    is_int(member_join(&m, 0, 2, address), PL_EINVAL, "it is refused");
    like(m.err.text, "rank 1 listens at 192.0.2.7, beyond this machine", "and named");
    member_close(&m);
}

static void malformed_addresses_are_refused(void)
{
    static const char *const wrong[] = {"", "tcp", "shm a b", "tcp 127.0.0.1 1 00ff",
                                        "tcp 127.0.0.1 1 "
                                        "0011223344556677889900112233445566778899"};
    for (int k = 0; k < 5; k++) {
        member_t m;
        member_open(&m, "\"tcp\"", NULL);
        const char *address[] = {m.address, wrong[k]};
        is_int(member_join(&m, 0, 2, address), PL_EINVAL, "\"%s\"", wrong[k]);
        member_close(&m);
    }
}

/* ---- two ranks of one thread ---- */

/* Both help until both are done, or so long. */
static void together(member_t m[2], pl_coll_request_t req[2], int milliseconds)
{
    const int64_t until = pl_now() + milliseconds * PL_MILLISECOND;
    for (int k = 0; k < 2; k++)
        member_begin(&m[k], &req[k]);
    while (!(m[0].done && m[1].done) && pl_now() < until) {
        struct pollfd wait[2] = {{m[0].descriptor, POLLIN, 0},
                                 {m[1].descriptor, POLLIN, 0}};
        poll(wait, 2, milliseconds);
        for (int k = 0; k < 2; k++)
            member_help(&m[k]);
    }
}

static void pair_connect(member_t m[2], const char *const *first,
                         const char *const *second, int milliseconds)
{
    const pl_world_t world[2] = {{0, 2, first}, {1, 2, second}};
    pl_coll_request_t req[2] = {{.desc = {.op = PL_COLL_OP_join}, .world = &world[0]},
                                {.desc = {.op = PL_COLL_OP_join}, .world = &world[1]}};
    together(m, req, milliseconds);
}

static void pair_join(member_t m[2], const char *component,
                      const pl_collective_context_t *first,
                      const pl_collective_context_t *second, int milliseconds)
{
    const char *address[2] = {m[0].address, m[1].address};
    member_open(&m[0], component, first);
    member_open(&m[1], component, second);
    pair_connect(m, address, address, milliseconds);
}

static void pair_close(member_t m[2])
{
    member_close(&m[0]);
    member_close(&m[1]);
}

/* ---- others that are not as they should be ---- */

static void two_jobs_do_not_get_one_port(void)
{
    char component[64];
    unsigned port = 0;
    member_t first, second;
    member_open(&first, "\"tcp\"", NULL);
    sscanf(first.address, "tcp 127.0.0.1 %u", &port);
    snprintf(component, sizeof component, "{\"name\": \"tcp\", \"port\": %u}", port);
    is_int(member_open(&second, component, NULL), PL_EIO, "the second is refused");
    like(second.err.text, "cannot listen at 127.0.0.1, port [0-9]+: Address already in",
         "%s", second.err.text);
    member_close(&second);
    member_close(&first);
}

/* A rank gets an address where a rank of another job listens by now. */
static void a_rank_of_another_job_is_not_met(void)
{
    char stale[PL_ADDRESS_TEXT];
    unsigned port = 0;
    member_t m[2], lost;
    member_open(&m[0], "\"tcp\"", NULL);
    member_open(&m[1], "\"tcp\"", NULL);
    member_open(&lost, "\"tcp\"", NULL);
    sscanf(m[0].address, "tcp 127.0.0.1 %u", &port);
    snprintf(stale, sizeof stale, "tcp 127.0.0.1 %u 00112233445566778899aabbccddeeff",
             port);
    const char *address[] = {m[0].address, m[1].address},
               *wrong[] = {stale, lost.address};
    const pl_world_t world = {1, 2, wrong};
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_join}, .world = &world};
    member_begin(&lost, &req);
    pair_connect(m, address, address, 20000);
    ok(m[0].done && m[1].done && !m[0].err.code && !m[1].err.code,
       "the other ranks join");
    member_help(&lost);
    ok(!lost.arrived[0], "nor accepts any rank");
    member_close(&lost);
    pair_close(m);
}

/* ---- bad wires ---- */

static struct {
    struct event_base *base;
    member_t m[2];
    char through[PL_ADDRESS_TEXT];                          /* to rank 0, as 1 sees it */
    const char *address[2][2];
    pl_world_t world[2];
    pl_coll_request_t req[2];
} far;

/* Rank 1 calls rank 0 over a wire, on which all takes so long. */
static void far_open(int delay_ms)
{
    char endpoint[64];
    unsigned port;
    memset(&far, 0, sizeof far);
    far.base = event_base_new();
    for (int k = 0; k < 2; k++) {
        member_open(&far.m[k], "\"tcp\"", NULL);
        far.address[k][1] = far.m[1].address;
        far.world[k] = (pl_world_t){k, 2, far.address[k]};
        far.req[k] = (pl_coll_request_t){.desc = {.op = PL_COLL_OP_join},
                                         .world = &far.world[k]};
    }
    sscanf(far.m[0].address, "tcp 127.0.0.1 %u", &port);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", port);
    const char *there = wire_open(far.base, endpoint);
    wire_delay(delay_ms);
    snprintf(far.through, sizeof far.through, "tcp 127.0.0.1 %s %s",
             strrchr(there, ':') + 1, strrchr(far.m[0].address, ' ') + 1);
    far.address[0][0] = far.m[0].address;
    far.address[1][0] = far.through;
    for (int k = 0; k < 2; k++)
        member_begin(&far.m[k], &far.req[k]);
}

static void far_turn(void)
{
    const struct timeval soon = {0, 1000};
    event_base_loopexit(far.base, &soon);
    event_base_loop(far.base, EVLOOP_ONCE);
    for (int k = 0; k < 2; k++)
        member_help(&far.m[k]);
}

#define far_until(truth) \
    for (int64_t end_ = pl_now() + 60 * PL_SECOND; !(truth) && pl_now() < end_;)

/* Until both have joined, and done something together. */
static void far_join(const char *what)
{
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_barrier};
    bool begun[2] = {false, false}, both = false;
    far_until(both)
    {
        far_turn();
        for (int k = 0; k < 2; k++)
            if (far.m[k].done && !far.m[k].err.code && !begun[k]) {
                begun[k] = true;
                far.req[k] = (pl_coll_request_t){.desc = desc};
                member_begin(&far.m[k], &far.req[k]);
            }
        both = begun[0] && begun[1] && far.m[0].done && far.m[1].done;
    }
    for (int k = 0; k < 2; k++)
        ok(begun[k] && far.m[k].done && !far.m[k].err.code,
           "rank %d joins the other %s%s", k, what,
           far.m[k].err.code ? far.m[k].err.text : "");
    wire_close();
    pair_close(far.m);
    event_base_free(far.base);
}

static void ranks_join_over_a_slow_network(void)
{
    far_open(800);
    far_join("though an answer takes longer than a second");
}

/* One of them has met the other, which does not know that yet. */
static void ranks_that_lose_a_connection_in_the_rendezvous_join(void)
{
    static void (*const cuts[])(void) = {wire_cut, wire_cut_near};
    static const char *const what[] = {"over another connection",
                                       "where one alone knows that the first is gone"};
    for (int k = 0; k < 2; k++) {
        far_open(50);
        far_until(far.m[0].done) far_turn();
        ok(far.m[0].arrived[1] && !far.m[1].arrived[0], "one has met the other");
        cuts[k]();
        far_join(what[k]);
    }
}

static void a_wait_for_a_rank_that_stops_reading_takes_bounded_memory(void)
{
    enum { N = 4 << 20 };
    member_t m[2];
    pair_join(m, "\"tcp\"", NULL, NULL, 20000);
    pl_coll_request_t req[2] = {{.desc = {.op = PL_COLL_OP_alloc_buffer, .count = 4 * N}},
                                {.desc = {.op = PL_COLL_OP_alloc_buffer,
                                          .count = 4 * N}}};
    together(m, req, 20000);
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_all_reduce,
                                 .dtype = PL_F32,
                                 .count = N};
    pl_coll_request_t sum[2] = {{.desc = desc, .memory = req[0].memory},
                                {.desc = desc, .memory = req[1].memory}};
    const long before = scarce_live();
    member_begin(&m[0], &sum[0]);
    member_begin(&m[1], &sum[1]);                           /* and no more */
    is_int(member_wait(&m[0], 100), PL_ETIMEOUT, "it is waited for");
    is_int(scarce_live(), before, "and nothing is kept for it");
    ok(m[0].arrived[0] && !m[0].arrived[1], "the missing rank is known");
    const int64_t began = pl_now();
    m[0].ops->abort(m[0].component.self, &(pl_error_t){PL_ETIMEOUT, "", "too slow"});
    member_close(&m[0]);
    ok(m[0].done && pl_now() - began < 2 * PL_SECOND, "but not when it is given up");
    is_int(member_wait(&m[1], 20000), PL_EPEER, "when it reads again it gets the error");
    like(m[1].err.text, "rank 0 (aborted: too slow|is gone)", "%s", m[1].err.text);
    for (int k = 0; k < 2; k++)
        pl_object_unref(req[k].memory);
    member_close(&m[1]);
}

/* ---- how much travels ---- */

static _Thread_local uint64_t sent;                         /* bytes, by this thread */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    const ssize_t count = real(fd, message, flags);
    sent += count > 0 ? (uint64_t)count : 0;
    return count;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "send");
    const ssize_t count = real(fd, bytes, length, flags);
    sent += count > 0 ? (uint64_t)count : 0;
    return count;
}

enum { TRAVELLING = 3000000 };                              /* elements */

static void reduce_and_count(member_t *m, void *user)
{
    uint64_t *share = user;
    pl_reg_buffer_t *buffer = member_alloc(m, TRAVELLING * sizeof(float));
    const uint64_t before = sent;
    if (buffer && member_call(m, PL_COLL_OP_all_reduce, buffer, 0, TRAVELLING) == PL_OK)
        share[m->rank] = sent - before;
    pl_object_unref(buffer);
}

/* Heads of frames and reports may take a hundredth. */
static void an_all_reduce_sends_no_more_than_a_ring(void)
{
    for (int ranks = 2; ranks <= 5; ranks++) {
        uint64_t share[MEMBERS_MAX] = {0}, max = 0, min = UINT64_MAX;
        const double ring = 2.0 * (ranks - 1) / ranks * TRAVELLING
                            * (double)sizeof(float);
        members_run("\"tcp\"", ranks, reduce_and_count, share);
        for (int k = 0; k < ranks; k++) {
            max = share[k] > max ? share[k] : max;
            min = share[k] < min ? share[k] : min;
        }
        ok((double)min > 0.99 * ring && (double)max < 1.01 * ring,
           "of %d ranks each sends %.4f to %.4f times as much", ranks, (double)min / ring,
           (double)max / ring);
    }
}

#ifdef HAVE_SODIUM

/* ---- sealed ---- */

static void ranks_with_the_key_join_and_work(void)
{
    enum { N = 500000 };
    member_t m[2];
    pair_join(m, sealed, &context, &context, 20000);
    ok(m[0].err.code == PL_OK && m[1].err.code == PL_OK, "they join");
    pl_coll_request_t req[2] = {{.desc = {.op = PL_COLL_OP_alloc_buffer, .count = 4 * N}},
                                {.desc = {.op = PL_COLL_OP_alloc_buffer,
                                          .count = 4 * N}}};
    together(m, req, 20000);
    int wrong = 0;
    for (int few = 0; few < 2; few++) {
        for (int k = 0; k < 2; k++) {
            float *data = req[k].memory->data;
            for (int i = 0; i < N; i++)
                data[i] = (float)(i % 1000 + k);
        }
        const pl_coll_desc_t desc = {.op = PL_COLL_OP_all_reduce,
                                     .dtype = PL_F32,
                                     .count = few ? 100 : N};
        pl_coll_request_t sum[2] = {{.desc = desc, .memory = req[0].memory},
                                    {.desc = desc, .memory = req[1].memory}};
        together(m, sum, 20000);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < (int)desc.count; i++)
                wrong += ((float *)req[k].memory->data)[i] != (float)(i % 1000 * 2 + 1);
    }
    is_int(wrong, 0, "and add up many elements and few");
    for (int k = 0; k < 2; k++)
        pl_object_unref(req[k].memory);
    pair_close(m);
}

static void ranks_with_another_key_do_not_join(void)
{
    member_t m[2];
    pair_join(m, sealed, &context, &other_context, 300);
    for (int k = 0; k < 2; k++) {
        ok(!m[k].done, "rank %d waits for the other", k);
        is_int(m[k].arrived[!k], 0, "which has not come for it");
    }
    pair_close(m);
}

/* ---- the cipher ---- */

typedef struct pair {
    mesh_cipher_t *side[2];
} pair_t;

static void pair_agree(pair_t *p, const unsigned char *first, const unsigned char *second)
{
    unsigned char nonce[2][CIPHER_NONCE], header[2][CIPHER_HEADER];
    p->side[0] = cipher_new(first, NULL);
    p->side[1] = cipher_new(second, NULL);
    for (int k = 0; k < 2; k++)
        cipher_nonce(p->side[k], nonce[k]);
    for (int k = 0; k < 2; k++)
        cipher_agree(p->side[k], nonce[!k], header[k]);
    for (int k = 0; k < 2; k++)
        cipher_accept(p->side[k], header[!k]);
}

static void pair_free(pair_t *p)
{
    cipher_free(p->side[0]);
    cipher_free(p->side[1]);
}

static bool opens(mesh_cipher_t *c, const unsigned char *box)
{
    char text[8];
    return cipher_open(c, text, box, sizeof text) && !memcmp(text, "gradient", 8);
}

static void changed_frames_do_not_open(void)
{
    enum { BOX = 8 + CIPHER_MORE };
    pair_t p, later;
    unsigned char first[BOX], second[BOX], changed[BOX];
    pair_agree(&p, key, key);
    cipher_seal(p.side[0], first, "gradient", 8);
    cipher_seal(p.side[0], second, "gradient", 8);
    memcpy(changed, first, BOX);
    changed[10] ^= 1;
    ok(!opens(p.side[1], changed), "changed");
    ok(!opens(p.side[1], second), "without that before it");
    ok(!opens(p.side[0], first), "returned to its sender");
    ok(opens(p.side[1], first), "as it is, it does");
    ok(!opens(p.side[1], first), "but not twice");
    ok(opens(p.side[1], second), "then the next");
    pair_agree(&later, key, key);
    ok(!opens(later.side[1], first), "nor does a recording, later");
    pair_free(&later);
    pair_agree(&later, key, other_key);
    cipher_seal(later.side[0], first, "gradient", 8);
    ok(!opens(later.side[1], first), "nor anything under another key");
    pair_free(&later);
    pair_free(&p);
}

static void a_reflected_greeting_is_no_rank(void)
{
    unsigned char nonce[CIPHER_NONCE], header[CIPHER_HEADER];
    mesh_cipher_t *c = cipher_new(key, NULL);
    cipher_nonce(c, nonce);
    ok(!cipher_agree(c, nonce, header), "its own number does not come from another");
    cipher_free(c);
}

static int listen_near(unsigned short *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bind(fd, (struct sockaddr *)&at, length);
    listen(fd, 4);
    getsockname(fd, (struct sockaddr *)&at, &length);
    *port = ntohs(at.sin_port);
    return fd;
}

/* A rank connects to a listener that has no key. */
static void nothing_of_the_run_is_sent_without_the_key(void)
{
    unsigned short port;
    unsigned char received[4096];
    char text[PL_ADDRESS_TEXT];
    size_t count = 0;
    member_t m;
    int listener = listen_near(&port);
    member_open(&m, sealed, &context);
    snprintf(text, sizeof text, "tcp 127.0.0.1 %d 00112233445566778899aabbccddeeff",
             port);
    const char *address[] = {text, m.address};
    const pl_world_t world = {1, 2, address};
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_join}, .world = &world};
    member_begin(&m, &req);
    int fd = accept(listener, NULL, NULL);
    send(fd, "plmesh01 and a number of thirty-two bytes", 40, 0);
    member_wait(&m, 100);
    for (ssize_t got;
         (got = recv(fd, received + count, sizeof received - count, MSG_DONTWAIT)) > 0;)
        count += (size_t)got;
    is_int(count, 40 + CIPHER_HEADER, "but two random numbers");
    ok(!m.arrived[0], "it is not taken for a rank");
    close(fd);
    close(listener);
    member_close(&m);
}

#endif

int main(void)
{
    scarce_init_own();
    pl_init(NULL, NULL, NULL, NULL);
    run(beyond_loopback_a_key_is_needed);
    run(a_rank_beyond_loopback_is_not_met_without_a_key);
    run(malformed_addresses_are_refused);
    run(two_jobs_do_not_get_one_port);
    run(a_rank_of_another_job_is_not_met);
    run(ranks_join_over_a_slow_network);
    run(ranks_that_lose_a_connection_in_the_rendezvous_join);
    run(a_wait_for_a_rank_that_stops_reading_takes_bounded_memory);
    run(an_all_reduce_sends_no_more_than_a_ring);
#ifdef HAVE_SODIUM
    run(ranks_with_the_key_join_and_work);
    run(ranks_with_another_key_do_not_join);
    run(changed_frames_do_not_open);
    run(a_reflected_greeting_is_no_rank);
    run(nothing_of_the_run_is_sent_without_the_key);
#endif
    return tap_done();
}
