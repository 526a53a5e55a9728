/* collectives.c - tests of strategies/collectives/: what every collective must do, and
 * that all do it to the bit alike */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "collective_rig.h"
#include "scarce.h"
#include "tap.h"

static const char *const kinds[] = {"\"shm\"",           "\"tcp\"",
                                    "\"best\"",          "\"best\"@00112233",
                                    "\"best\"@00010111", "\"best\"@01220122",
                                    "\"best\"@01101023"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- every operation, of any size ---- */

static const uint64_t counts[] = {0, 1, 15, 16, 33, 509, 1000, 4099, 70001};
enum { COUNTS = sizeof counts / sizeof *counts, OFFSET = 12, LENT = 300000 };

typedef struct outcome {
    float reduced[COUNTS][70001];                           /* what rank 0 got */
    int wrong[PL_COLL_OP_COUNT];                            /* atomic */
    int failed;                                             /* atomic */
} outcome_t;

static outcome_t outcomes[KINDS];

static void fill(float *data, int rank, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++)
        data[k] = element_of(rank, k);
}

static float reduced_of(int ranks, uint64_t k)
{
    float value[MEMBERS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        value[rank] = element_of(rank, k);
    return tree_sum(value, ranks);
}

static void check(outcome_t *o, pl_coll_op_t op, const float *data, uint64_t first,
                  uint64_t length, int ranks, int from)
{
    int wrong = 0;
    for (uint64_t k = first; k < first + length; k++) {
        const float expected = from < 0 ? reduced_of(ranks, k) : element_of(from, k);
        wrong += memcmp(&expected, &data[k], sizeof expected) != 0;
    }
    __atomic_add_fetch(&o->wrong[op], wrong, __ATOMIC_RELAXED);
}

static void all_gathered_check(outcome_t *o, const float *data, uint64_t count,
                               const member_t *m)
{
    uint64_t first, length;
    for (int rank = 0; rank < m->size; rank++) {
        pl_chunk_by(count, m->step, m->size, rank, &first, &length);
        check(o, PL_COLL_OP_all_gather, data, first, length, m->size, rank);
    }
}

/* Chunks that begin at multiples of a cache line, or of more. */
static int chunks_call(member_t *m, outcome_t *o, pl_reg_buffer_t *buffer, uint64_t count,
                       uint64_t step)
{
    float *data = (float *)((char *)buffer->data + OFFSET);
    uint64_t first, length;
    m->step = step;
    fill(data, m->rank, count);
    int code = member_call(m, PL_COLL_OP_reduce_scatter, buffer, OFFSET, count);
    pl_chunk_by(count, step, m->size, m->rank, &first, &length);
    check(o, PL_COLL_OP_reduce_scatter, data, first, length, m->size, -1);
    fill(data, m->rank, count);
    code |= member_call(m, PL_COLL_OP_all_gather, buffer, OFFSET, count);
    all_gathered_check(o, data, count, m);
    m->step = 0;
    return code;
}

/* From rank 0 to the last. */
static int sent(member_t *m, pl_reg_buffer_t *buffer, uint64_t offset, uint64_t count)
{
    pl_coll_request_t req = {.memory = buffer,
                             .desc = {.op = PL_COLL_OP_send,
                                      .dtype = PL_F32,
                                      .to = (uint32_t)m->size - 1,
                                      .memory = buffer->number,
                                      .offset = offset,
                                      .count = count}};
    return member_do(m, &req);
}

/* Each segment goes to its offset in the rank that had it. */
static void exchanged_check(outcome_t *o, const float *data, const member_t *m,
                            uint64_t per_rank)
{
    int wrong = 0;
    for (int from = 0; from < m->size; from++)
        for (uint64_t k = 0; k < per_rank; k++) {
            const float expected = element_of(from, (uint64_t)m->rank * per_rank + k);
            wrong += memcmp(&expected, &data[(uint64_t)from * per_rank + k],
                            sizeof expected)
                     != 0;
        }
    __atomic_add_fetch(&o->wrong[PL_COLL_OP_all_to_all], wrong, __ATOMIC_RELAXED);
}

static int rank_to_rank(member_t *m, outcome_t *o, pl_reg_buffer_t *buffer,
                        uint64_t count)
{
    float *data = (float *)((char *)buffer->data + OFFSET);
    const uint64_t per_rank = count / (uint64_t)m->size;
    fill(data, m->rank, count);
    int code = member_call(m, PL_COLL_OP_all_to_all, buffer, OFFSET,
                           per_rank * (uint64_t)m->size);
    exchanged_check(o, data, m, per_rank);
    fill(data, m->rank, count);
    if (m->size > 1)
        code |= sent(m, buffer, OFFSET, count);
    check(o, PL_COLL_OP_send, data, 0, count, m->size,
          m->rank == m->size - 1 ? 0 : m->rank);
    return code;
}

static void every_operation(member_t *m, void *user)
{
    outcome_t *o = user;
    pl_reg_buffer_t *buffer = member_alloc(m, LENT);
    float *data = buffer ? (float *)((char *)buffer->data + OFFSET) : NULL;
    int code = buffer ? PL_OK : m->err.code;
    for (int k = 0; k < COUNTS && code == PL_OK; k++) {
        const uint64_t count = counts[k];
        fill(data, m->rank, count);
        code |= member_call(m, PL_COLL_OP_all_reduce, buffer, OFFSET, count);
        check(o, PL_COLL_OP_all_reduce, data, 0, count, m->size, -1);
        if (m->rank == 0)
            memcpy(o->reduced[k], data, count * sizeof *data);
        code |= chunks_call(m, o, buffer, count, PL_CHUNK_STEP);
        code |= chunks_call(m, o, buffer, count, 4096);
        fill(data, m->rank, count);
        code |= member_call(m, PL_COLL_OP_broadcast, buffer, OFFSET, count);
        check(o, PL_COLL_OP_broadcast, data, 0, count, m->size, 0);
        code |= rank_to_rank(m, o, buffer, count);
        code |= member_call(m, PL_COLL_OP_barrier, NULL, 0, 0);
    }
    if (code != PL_OK)
        __atomic_add_fetch(&o->failed, 1, __ATOMIC_RELAXED);
    pl_object_unref(buffer);
}

static void operations_hold(int kind, int ranks)
{
    outcome_t *o = &outcomes[kind];
    memset(o->wrong, 0, sizeof o->wrong);
    o->failed = 0;
    members_run(kinds[kind], ranks, every_operation, o);
    is_int(o->failed, 0, "%d ranks of %s do everything%s%s", ranks, kinds[kind],
           members_error.code ? ": " : "", members_error.text);
    for (int op = PL_COLL_OP_all_reduce; op < PL_COLL_OP_barrier; op++)
        is_int(o->wrong[op], 0, "%s of %s gives what it should", pl_coll_op_name(op),
               kinds[kind]);
}

static void operations_give_the_expected_elements(void)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    for (int s = 0; s < 6; s++) {
        for (int kind = 0; kind < KINDS; kind++)
            operations_hold(kind, sizes[s]);
        for (int kind = 1; kind < KINDS; kind++)
            ok(!memcmp(outcomes[0].reduced, outcomes[kind].reduced,
                       sizeof outcomes[0].reduced),
               "%s has the bits of %s, %d ranks", kinds[kind], kinds[0], sizes[s]);
    }
}

/* ---- so many that they travel in pieces ---- */

enum { MANY = 2000003 };

static float one_of_many(int rank, uint64_t k)
{
    return (float)((k * 7919 + (uint64_t)rank * 104729) % 1000003) / 977;
}

static float many_expected(const member_t *m, pl_coll_op_t op, uint64_t k)
{
    float value[MEMBERS_MAX];
    uint64_t first, length;
    pl_chunk_by(MANY, PL_CHUNK_STEP, m->size, 0, &first, &length);
    if (op == PL_COLL_OP_broadcast)
        return one_of_many(0, k);
    if (op == PL_COLL_OP_all_gather)
        return one_of_many((int)(k / length), k);
    for (int rank = 0; rank < m->size; rank++)
        value[rank] = one_of_many(rank, k);
    return tree_sum(value, m->size);
}

static void many_elements(member_t *m, void *user)
{
    static const pl_coll_op_t moves[] = {PL_COLL_OP_all_reduce, PL_COLL_OP_reduce_scatter,
                                         PL_COLL_OP_all_gather, PL_COLL_OP_broadcast};
    int wrong = 0;
    pl_reg_buffer_t *buffer = member_alloc(m, MANY * sizeof(float));
    float *data = buffer ? buffer->data : NULL;
    for (int op = 0; buffer && op < 4; op++) {
        uint64_t first = 0, length = MANY;
        for (uint64_t k = 0; k < MANY; k++)
            data[k] = one_of_many(m->rank, k);
        wrong += member_call(m, moves[op], buffer, 0, MANY) != PL_OK;
        if (moves[op] == PL_COLL_OP_reduce_scatter)
            pl_chunk_by(MANY, PL_CHUNK_STEP, m->size, m->rank, &first, &length);
        for (uint64_t k = first; k < first + length; k += 7)
            wrong += data[k] != many_expected(m, moves[op], k);
    }
    __atomic_add_fetch((int *)user, wrong + !buffer, __ATOMIC_RELAXED);
    pl_object_unref(buffer);
}

static void many_elements_are_sent_in_pieces(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int wrong = 0;
        members_run(kinds[kind], 4, many_elements, &wrong);
        is_int(wrong, 0, "and arrive, by %s%s%s", kinds[kind],
               members_error.code ? ": " : "", members_error.text);
    }
}

/* ---- other types, other ends ---- */

static int typed(member_t *m, pl_reg_buffer_t *buffer, pl_dtype_t dtype,
                 pl_reduction_t reduction, uint64_t count)
{
    pl_coll_request_t req = {.memory = buffer,
                             .desc = {.op = PL_COLL_OP_all_reduce,
                                      .dtype = dtype,
                                      .reduction = reduction,
                                      .memory = buffer->number,
                                      .count = count}};
    return member_do(m, &req);
}

static void other_types(member_t *m, void *user)
{
    enum { N = 777 };
    int wrong = 0;
    pl_reg_buffer_t *buffer = member_alloc(m, N * 8);
    double *wide = buffer->data;
    int64_t *whole = buffer->data;
    for (int k = 0; k < N; k++)
        wide[k] = 0.5 + m->rank;
    typed(m, buffer, PL_F64, PL_REDUCE_SUM, N);
    for (int k = 0; k < N; k++)
        wrong += wide[k] != 0.5 + 1.5 + 2.5;
    for (int k = 0; k < N; k++)
        whole[k] = (INT64_C(1) << 60) + m->rank * (k - 5);
    typed(m, buffer, PL_I64, PL_REDUCE_MAX, N);
    for (int k = 0; k < N; k++)
        wrong += whole[k] != (INT64_C(1) << 60) + (k > 5 ? 2 * (k - 5) : 0);
    __atomic_add_fetch((int *)user, wrong, __ATOMIC_RELAXED);
    pl_object_unref(buffer);
}

static void other_types_are_reduced_too(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int wrong = 0;
        members_run(kinds[kind], 3, other_types, &wrong);
        is_int(wrong, 0, "float64 and int64, sums and maxima, by %s", kinds[kind]);
    }
}

static void halves(member_t *m, void *user)
{
    (void)user;
    pl_reg_buffer_t *buffer = member_alloc(m, 64);
    if (buffer)
        typed(m, buffer, PL_BF16, PL_REDUCE_SUM, 4);
    pl_object_unref(buffer);
}

static void types_that_cannot_be_reduced_are_refused(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        members_run(kinds[kind], 2, halves, NULL);
        is_int(members_error.code, PL_EUNSUPPORTED, "%s: %s", kinds[kind],
               members_error.text);
    }
}

static void unlike(member_t *m, void *user)
{
    (void)user;
    pl_reg_buffer_t *buffer = member_alloc(m, 80000);
    if (buffer)
        member_call(m, PL_COLL_OP_all_reduce, buffer, 0, 1000 + (uint64_t)m->rank * 10);
    pl_object_unref(buffer);
}

static void different_requests_of_ranks_are_an_error(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        members_run(kinds[kind], 2, unlike, NULL);
        is_int(members_error.code, PL_EPROTOCOL, "%s ends", kinds[kind]);
        like(members_error.text, "all_reduce of 10[01]0 elements", "and says what: %s",
             members_error.text);
    }
}

/* ---- what is refused ---- */

static const pl_device_memory_t elsewhere = {.kind = "cuda"};

typedef struct refused {
    pl_coll_desc_t desc;
    bool is_device;
    const char *why;
} refused_t;

static const refused_t refusals[] = {
    {{.op = PL_COLL_OP_all_to_all, .count = 7},
     false,
     "all_to_all of 7 .* a multiple of"},
    {{.op = PL_COLL_OP_all_to_all, .count = 9000},
     false,
     "does not fit registered buffer"},
    {{.op = PL_COLL_OP_all_gather, .count = 99, .step = 24},
     false,
     "all_gather by chunks of multiples of 24 elements: .* multiple of 16"},
    {{.op = PL_COLL_OP_send, .count = 4, .root = 5, .to = 1}, false, "send from rank 5"},
    {{.op = PL_COLL_OP_send, .count = 4, .root = 1, .to = 5}, false, "rank 1 to rank 5"},
    {{.op = PL_COLL_OP_send, .count = 4, .root = 1, .to = 1}, false, "rank 1 to rank 1"},
    {{.op = PL_COLL_OP_all_reduce, .count = 4},
     true,
     "all_reduce of memory of a device of kind \"cuda\": .* moves memory of the host"},
};

static void refused(member_t *m, void *user)
{
    const refused_t *r = user;
    pl_reg_buffer_t device = {.bytes = 4096, .device = &elsewhere};
    pl_reg_buffer_t *buffer = member_alloc(m, 4096);
    pl_coll_request_t req = {.memory = r->is_device ? &device : buffer, .desc = r->desc};
    req.desc.dtype = PL_F32;
    req.desc.is_device = r->is_device;
    if (buffer)
        member_do(m, &req);
    pl_object_unref(buffer);
}

static void impossible_requests_are_refused(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++) {
            members_run(kinds[kind], 2, refused, (void *)(uintptr_t)&refusals[k]);
            like(members_error.text, refusals[k].why, "%s: %s", kinds[kind],
                 members_error.text);
        }
}

/* ---- processes: killed, stopped ---- */

/* Until something fails. */
static void reduce_for_ever(member_t *m, void *user)
{
    (void)user;
    enum { N = 1 << 18 };
    pl_reg_buffer_t *buffer = member_alloc(m, N * sizeof(float));
    while (buffer && member_call(m, PL_COLL_OP_all_reduce, buffer, 0, N) == PL_OK)
        continue;
    pl_object_unref(buffer);
}

/* The same from rank to rank. */
static void exchange_for_ever(member_t *m, void *user)
{
    (void)user;
    enum { N = 3 << 16 };
    pl_reg_buffer_t *buffer = member_alloc(m, (1 << 18) * sizeof(float));
    while (buffer && member_call(m, PL_COLL_OP_all_to_all, buffer, 0, N) == PL_OK
           && sent(m, buffer, 0, N) == PL_OK)
        continue;
    pl_object_unref(buffer);
}

/* Five operations; then it stops, and continues when it may. */
static void reduce_and_stop(member_t *m, void *user)
{
    (void)user;
    enum { N = 1 << 18 };
    pl_reg_buffer_t *buffer = member_alloc(m, N * sizeof(float));
    for (int k = 0; buffer && k < 5; k++)
        member_call(m, PL_COLL_OP_all_reduce, buffer, 0, N);
    raise(SIGSTOP);
    if (buffer)
        member_call(m, PL_COLL_OP_all_reduce, buffer, 0, N);
    pl_object_unref(buffer);
}

/* This process is rank 0, the others are processes, the last of which runs the script. */
typedef struct fleet {
    member_t own;
    rank_process_t other[2];
    pl_reg_buffer_t *buffer;
} fleet_t;

enum { FLEET = 3, FLEET_ELEMENTS = 1 << 18 };

static void fleet_open(fleet_t *f, const char *kind, const char *script, const char *last)
{
    const char *address[FLEET] = {f->own.address};
    member_open(&f->own, kind, NULL);
    for (int k = 0; k < FLEET - 1; k++) {
        rank_start(&f->other[k], kind, k ? last : script, k + 1, FLEET);
        address[k + 1] = f->other[k].address;
    }
    for (int k = 0; k < FLEET - 1; k++)
        rank_tell(&f->other[k], address, FLEET);
    is_int(member_join(&f->own, 0, FLEET, address), PL_OK, "processes join by %s", kind);
    f->buffer = member_alloc(&f->own, FLEET_ELEMENTS * sizeof(float));
}

static void fleet_close(fleet_t *f)
{
    pl_object_unref(f->buffer);
    member_close(&f->own);
    for (int k = 0; k < FLEET - 1; k++)
        rank_end(&f->other[k]);
}

static int fleet_reduce(fleet_t *f, int times)
{
    int code = PL_OK;
    for (int k = 0; k < times && code == PL_OK; k++)
        code = member_call(&f->own, PL_COLL_OP_all_reduce, f->buffer, 0, FLEET_ELEMENTS);
    return code;
}

static void a_rank_that_is_killed_is_named(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fleet_t f;
        fleet_open(&f, kinds[kind], "reduce_for_ever", "reduce_for_ever");
        is_int(fleet_reduce(&f, 5), PL_OK, "and work");
        kill(f.other[0].pid, SIGKILL);
        const int64_t began = pl_now();
        is_int(fleet_reduce(&f, 100000), PL_EPEER, "one is killed: it ends");
        ok(pl_now() - began < PL_SECOND, "soon");
        like(f.own.err.text, "rank 1 is gone", "and names it");
        like(rank_line(&f.other[1]), "^PL_EPEER rank (1 is gone|0 aborted)",
             "so it does on the others");
        fleet_close(&f);
    }
}

static void a_rank_that_is_killed_between_two_operations_is_named(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fleet_t f;
        member_t *m = &f.own;
        fleet_open(&f, kinds[kind], "exchange_for_ever", "exchange_for_ever");
        int code = PL_OK;
        for (int k = 0; k < 100000 && code == PL_OK; k++) {
            code = member_call(m, PL_COLL_OP_all_to_all, f.buffer, 0, 3 << 16);
            if (code == PL_OK)
                code = sent(m, f.buffer, 0, 3 << 16);
            if (k == 5)
                kill(f.other[0].pid, SIGKILL);
        }
        is_int(code, PL_EPEER, "one is killed while %s moves from rank to rank",
               kinds[kind]);
        like(m->err.text, "rank (1 is gone|2 aborted)", "and named: %s", m->err.text);
        fleet_close(&f);
    }
}

static void a_stopped_rank_counts_as_not_arrived(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fleet_t f;
        fleet_open(&f, kinds[kind], "reduce_for_ever", "reduce_and_stop");
        pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_all_reduce,
                                          .dtype = PL_F32,
                                          .count = FLEET_ELEMENTS},
                                 .memory = f.buffer};
        int code = fleet_reduce(&f, 5);
        if (code == PL_OK)
            code = member_begin(&f.own, &req);
        if (code == PL_OK)
            code = member_wait(&f.own, 100);
        is_int(code, PL_ETIMEOUT, "%s does not end while one is stopped", kinds[kind]);
        ok(f.own.arrived[0] && f.own.arrived[1] && !f.own.arrived[2],
           "it is known which");
        f.own.ops->abort(f.own.component.self,
                         &(pl_error_t){PL_ETIMEOUT, "", "too slow"});
        ok(f.own.done && f.own.err.code == PL_ETIMEOUT, "an abort ends it");
        like(rank_line(&f.other[0]), "PL_EPEER rank 0 aborted: too slow",
             "on the others, too");
        kill(f.other[1].pid, SIGCONT);
        member_help(&f.own);
        like(rank_line(&f.other[1]), "PL_EPEER rank (0 aborted: too slow|1 is gone)",
             "also on that which wakes later");
        fleet_close(&f);
    }
}

static void a_rank_that_is_gone_before_it_joins_is_named(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int rank = 0; rank < 2; rank++) {
            member_t m[2];
            const char *address[2] = {m[0].address, m[1].address};
            for (int k = 0; k < 2; k++)
                member_open(&m[k], kinds[kind], NULL);
            member_close(&m[!rank]);
            is_int(member_join(&m[rank], rank, 2, address), PL_EPEER,
                   "rank %d of %s receives it", rank, kinds[kind]);
            like(m[rank].err.text, "rank [01] is gone: nothing listens", "%s",
                 m[rank].err.text);
            member_close(&m[rank]);
        }
}

/* ---- strangers ---- */

static int shm_stranger(const char *address)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *name = strrchr(address, ' ') + 1;
    memcpy(at.sun_path + 1, name, strlen(name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    return connect(fd, (struct sockaddr *)&at, length) == 0 ? fd : -1;
}

static int tcp_stranger(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[64];
    unsigned short port = 0;
    sscanf(address, "tcp %63s %hu", host, &port);
    inet_pton(AF_INET, host, &at.sin_addr);
    at.sin_port = htons(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&at, sizeof at) == 0 ? fd : -1;
}

static int best_stranger(const char *address)
{
    char shm[PL_ADDRESS_TEXT];
    snprintf(shm, sizeof shm, "%.*s", (int)(strstr(address, " | ") - address), address);
    return shm_stranger(shm);
}

static int (*const strangers[KINDS])(const char *address) = {shm_stranger,  tcp_stranger,
                                                             best_stranger, best_stranger,
                                                             best_stranger, best_stranger,
                                                             best_stranger};

static void strangers_are_not_accepted(void)
{
    enum { STRANGERS = 40 };
    for (int kind = 0; kind < KINDS; kind++) {
        static unsigned char garbage[4096];
        int fd[STRANGERS], connected = 0;
        member_t own;
        rank_process_t other;
        member_open(&own, kinds[kind], NULL);
        rank_start(&other, kinds[kind], "reduce_for_ever", 1, 2);
        const char *address[] = {own.address, other.address};
        for (int k = 0; k < STRANGERS; k++) {
            fd[k] = strangers[kind](address[k % 2]);
            for (size_t i = 0; i < sizeof garbage; i++)
                garbage[i] = (unsigned char)pl_random_u64((uint64_t)k, i);
            connected += fd[k] >= 0;
            if (k % 4)                                      /* others stay silent */
                send(fd[k], garbage, (size_t)(k * k * 2), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (k % 4 == 3)
                shutdown(fd[k], SHUT_WR);
        }
        is_int(connected, STRANGERS, "strangers connect to %s, say anything or nothing",
               kinds[kind]);
        rank_tell(&other, address, 2);
        is_int(member_join(&own, 0, 2, address), PL_OK, "the ranks join nevertheless");
        pl_reg_buffer_t *buffer = member_alloc(&own, 4 << 18);
        is_int(member_call(&own, PL_COLL_OP_all_reduce, buffer, 0, 1 << 18), PL_OK,
               "and work");
        pl_object_unref(buffer);
        member_close(&own);
        rank_end(&other);
        for (int k = 0; k < STRANGERS; k++)
            close(fd[k]);
    }
}

/* ---- memory ---- */

static void join_and_reduce(member_t *m, void *user)
{
    (void)user;
    pl_reg_buffer_t *buffer = member_alloc(m, 1000);
    if (buffer)
        member_call(m, PL_COLL_OP_all_reduce, buffer, 0, 100);
    pl_object_unref(buffer);
}

static int ranks_work(void *user)
{
    members_run(user, 2, join_and_reduce, NULL);
    return members_error.code;
}

static void memory_may_run_out_at_any_point(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        scarce_try(ranks_work, (void *)(uintptr_t)kinds[kind], kinds[kind]);
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static void a_closed_collective_leaves_no_descriptor(void)
{
    const int before = descriptors();
    for (int kind = 0; kind < KINDS; kind++)
        members_run(kinds[kind], 3, join_and_reduce, NULL);
    is_int(descriptors(), before, "of descriptors");
}

/* ---- many ranks ---- */

enum { CROWD = MEMBERS_MAX };

static bool has_descriptors(int max)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur >= (rlim_t)max;
}

/* Everything that the others send lies unread in rank 0 when it begins. */
static void allocate_when_all_others_have(member_t *m, void *user)
{
    pthread_barrier_t *others_have = user;
    pl_coll_request_t req = {
        .desc = {.op = PL_COLL_OP_alloc_buffer, .count = sizeof(float)}};
    int code = m->rank ? member_begin(m, &req) : PL_OK;
    pthread_barrier_wait(others_have);
    if (m->rank == 0)
        code = member_begin(m, &req);
    if (code == PL_OK)
        code = member_wait(m, 60000);
    if (code == PL_OK)
        *(float *)req.memory->data = 1;
    if (code == PL_OK && member_call(m, PL_COLL_OP_all_reduce, req.memory, 0, 1) == PL_OK
        && *(float *)req.memory->data != (float)m->size)
        pl_fail(&m->err, PL_EBUG, "%g of %d", *(float *)req.memory->data, m->size);
    pl_object_unref(req.memory);
}

static void a_rank_reads_what_all_others_have_sent(void)
{
    static const char *const of_many[] = {"\"shm\"", "\"tcp\"", "\"best\""};
    pthread_barrier_t others_have;
    if (!has_descriptors(2 * CROWD * CROWD)) {
        tap_skip("%d ranks take %d descriptors", CROWD, 2 * CROWD * CROWD);
        return;
    }
    pthread_barrier_init(&others_have, NULL, CROWD);
    for (int kind = 0; kind < 3; kind++) {
        members_run(of_many[kind], CROWD, allocate_when_all_others_have, &others_have);
        is_int(members_error.code, PL_OK, "%d ranks of %s lend memory and add up: %s",
               CROWD, of_many[kind], members_error.text);
    }
    pthread_barrier_destroy(&others_have);
}

/* ---- one processor for all ---- */

typedef struct crowd {
    pthread_barrier_t ready;
    bool over;                                              /* atomic */
    int64_t of_ranks, of_other;                             /* atomic; ns */
    int reductions;
} crowd_t;

static void keep_to_one(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    for (int k = 0; k < CPU_SETSIZE && CPU_COUNT(&one) == 0; k++)
        if (CPU_ISSET(k, &all))
            CPU_SET(k, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static int64_t own_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * PL_SECOND + now.tv_nsec;
}

/* For a second, by rank zero's clock: the sum says that it is over. */
static void reduce_in_a_crowd(member_t *m, void *user)
{
    crowd_t *crowd = user;
    keep_to_one();
    pl_reg_buffer_t *buffer = member_alloc(m, sizeof(float));
    float none, *sum = buffer ? buffer->data : &none;
    pthread_barrier_wait(&crowd->ready);
    const int64_t before = own_time(), until = pl_now() + PL_SECOND;
    int code = buffer ? PL_OK : PL_ENOMEM, count = 0;
    for (*sum = 0; code == PL_OK && *sum == 0; count++) {
        *sum = m->rank == 0 && pl_now() > until;
        code = member_call(m, PL_COLL_OP_all_reduce, buffer, 0, 1);
    }
    __atomic_add_fetch(&crowd->of_ranks, own_time() - before, __ATOMIC_RELAXED);
    __atomic_store_n(&crowd->over, true, __ATOMIC_RELEASE);
    if (m->rank == 0)
        crowd->reductions = code == PL_OK ? count : -1;
    pl_object_unref(buffer);
}

static void *compute_in_a_crowd(void *user)
{
    crowd_t *crowd = user;
    keep_to_one();
    pthread_barrier_wait(&crowd->ready);
    const int64_t before = own_time();
    while (!__atomic_load_n(&crowd->over, __ATOMIC_ACQUIRE))
        continue;
    crowd->of_other = own_time() - before;
    return NULL;
}

/* Ranks that look for each other, as there were processors enough when they met, give
 * way: else each of the three would have a third.  Others do not look, and so reduce as
 * soon as they are woken, not once in a few milliseconds. */
static void a_thread_that_computes_beside_ranks_has_its_share(void)
{
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    for (int late = 1; late >= 0; late--) {
        crowd_t crowd = {0};
        pthread_t other;
        pthread_barrier_init(&crowd.ready, NULL, 3);
        if (!late)
            keep_to_one();
        pthread_create(&other, NULL, compute_in_a_crowd, &crowd);
        members_run("\"shm\"", 2, reduce_in_a_crowd, &crowd);
        pthread_join(other, NULL);
        pthread_barrier_destroy(&crowd.ready);
        sched_setaffinity(0, sizeof all, &all);
        const double share = (double)crowd.of_other
                             / (double)(crowd.of_other + crowd.of_ranks);
        ok(share >= (late ? 0.4 : 0.2), "%s: %.0f %% of the time of one processor",
           late ? "the processors become few" : "they are few", share * 100);
        ok(crowd.reductions > (late ? 20 : 2000), "while the ranks reduce: %d times",
           crowd.reductions);
    }
}

/* ---- best ---- */

static void best_join_as(const char *first, const char *second, int *code, char *text)
{
    member_t m;
    char own[PL_ADDRESS_TEXT], other[PL_ADDRESS_TEXT];
    member_open(&m, "\"best\"", NULL);
    snprintf(own, sizeof own, "%s", m.address);
    snprintf(other, sizeof other, "shm %s x | %s", first, second);
    *code = member_join(&m, 0, 2, (const char *[]){own, other});
    strcpy(text, m.err.text);
    member_close(&m);
}

/* What best says that it took, of so many ranks. */
static char taken[PL_ERROR_TEXT];

static void note_line(pl_log_level_t level, int rank, const char *actor, const char *text,
                      void *user)
{
    (void)actor, (void)user;
    if (level == PL_LOG_INFO && rank == 0)
        snprintf(taken, sizeof taken, "%s", text);
}

static void the_choice_is_logged(void)
{
    pl_log_hook(note_line, PL_LOG_INFO, NULL);
    members_run("\"best\"", 3, join_and_reduce, NULL);
    is_text(taken, "shm moves the data of the 3 ranks", "one machine");
    members_run("\"best\"@012", 3, join_and_reduce, NULL);
    is_text(taken, "tcp moves the data of the 3 ranks", "as many as ranks");
    members_run("\"best\"@011", 3, join_and_reduce, NULL);
    is_text(taken,
            "tcp between 2 machines, with shm on each, moves the data of the 3 ranks",
            "two, one with two ranks");
    *taken = '\0';
    members_run("\"best\"", 1, join_and_reduce, NULL);
    is_text(taken, "", "nothing for one rank, which exchanges nothing");
    pl_log_hook(NULL, PL_LOG_INFO, NULL);
}

static void ranks_of_several_machines_join_over_tcp(void)
{
    int code;
    char text[PL_ERROR_TEXT];
    best_join_as("elsewhere", "tcp 192.0.2.7 1 00112233445566778899aabbccddeeff", &code,
                 text);
    like(text, "rank 1 listens at 192.0.2.7, beyond this machine", "tcp is chosen");
    best_join_as("elsewhere", "they need the key", &code, text);
    is_int(code, PL_EUNSUPPORTED, "where it can be");
    like(text, "rank 1 cannot be reached over TCP: they need the key", "and if not: why");
}

int main(int argc, char **argv)
{
    static const named_script_t scripts[] = {{"reduce_for_ever", reduce_for_ever},
                                             {"exchange_for_ever", exchange_for_ever},
                                             {"reduce_and_stop", reduce_and_stop},
                                             {NULL, NULL}};
    scarce_init_own();
    pl_init(NULL, NULL, NULL, NULL);
    if (rank_main(argc, argv, scripts))
        return 0;
    run(operations_give_the_expected_elements);
    run(many_elements_are_sent_in_pieces);
    run(other_types_are_reduced_too);
    run(types_that_cannot_be_reduced_are_refused);
    run(impossible_requests_are_refused);
    run(different_requests_of_ranks_are_an_error);
    run(a_rank_that_is_killed_is_named);
    run(a_rank_that_is_killed_between_two_operations_is_named);
    run(a_stopped_rank_counts_as_not_arrived);
    run(a_rank_that_is_gone_before_it_joins_is_named);
    run(strangers_are_not_accepted);
    run(memory_may_run_out_at_any_point);
    run(a_closed_collective_leaves_no_descriptor);
    run(a_rank_reads_what_all_others_have_sent);
    run(a_thread_that_computes_beside_ranks_has_its_share);
    run(the_choice_is_logged);
    run(ranks_of_several_machines_join_over_tcp);
    return tap_done();
}
