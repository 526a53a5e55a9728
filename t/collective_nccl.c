/* collective_nccl.c - tests of the collective "nccl" over stand-ins for NVIDIA's driver,
 * NVRTC and NCCL: ranks are threads or processes, each with a card */
#include <dlfcn.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerators/accelerator.h"
#include "accelerators/cuda/sums.h"
#include "base/clock.h"
#include "base/error.h"
#include "collective_rig.h"
#include "strategies/collectives/tree.h"
#include "tap.h"

enum { ELEMENTS = 10000, RANKS = 4 };

const pl_registration_t *cuda_plugin(void);
const pl_registration_t *nccl_plugin(void);

static const pl_accelerator_ops_t *cuda;

/* ---- a rank with a card ---- */

typedef struct card {
    void *device;
    pl_reg_buffer_t *buffer;                                /* [ELEMENTS], float32 */
    float *host;
} card_t;

static int card_register(card_t *c, int number, pl_error_t *err)
{
    pl_device_info_t info = {.ranks = 1, .device = number, .local_rank = number};
    *c = (card_t){.device = calloc(1, cuda->size),
                  .host = calloc(ELEMENTS, sizeof(float))};
    int code = cuda->open(c->device, &info, err);
    if (code == PL_OK)
        code = cuda->region(c->device, PL_REGION_GRADS, PL_F32, ELEMENTS, err);
    return code == PL_OK
               ? cuda->register_region(c->device, PL_REGION_GRADS, &c->buffer, err)
               : code;
}

/* Shares a region with the other ranks. */
static int card_open(card_t *c, member_t *m, int number)
{
    const int code = card_register(c, number, &m->err);
    if (code != PL_OK)
        return code;
    pl_coll_request_t req = {.memory = c->buffer,
                             .desc = {.op = PL_COLL_OP_register_buffer,
                                      .is_device = 1,
                                      .count = c->buffer->bytes}};
    return member_do(m, &req);
}

/* The collective is closed before. */
static void card_close(card_t *c)
{
    pl_object_unref(c->buffer);
    cuda->close(c->device);
    free(c->device);
    free(c->host);
}

static void card_fill(card_t *c, int rank, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++)
        c->host[k] = element_of(rank, k);
    cuda->write(c->device, PL_REGION_GRADS, 0, c->host, count, NULL);
}

/* Until all of an operation has run, or it has failed; at most ten seconds.  The thread
 * is the collective's, too, which polls for errors. */
static int fence_wait(pl_fence_t *fence, member_t *m)
{
    const int64_t until = pl_now() + 60 * PL_SECOND;
    bool passed = !fence;
    int code = PL_OK;
    while (code == PL_OK && !passed) {
        code = fence->ops->passed(fence, &passed, &m->err);
        if (code == PL_OK && !passed) {
            poll(&(struct pollfd){m->descriptor, POLLIN, 0}, 1, 1);
            member_help(m);
            code = m->ops->alive(m->component.self, &m->err);
        }
        if (pl_now() > until)
            code = pl_fail(&m->err, PL_ETIMEOUT, "the test has waited too long");
    }
    if (code != PL_OK)
        m->ops->abort(m->component.self, &m->err);
    return code;
}

static int card_call(card_t *c, member_t *m, pl_coll_desc_t desc)
{
    pl_coll_request_t req = {.memory = c->buffer, .desc = desc};
    req.desc.dtype = PL_F32;
    req.desc.is_device = 1;
    req.desc.memory = c->buffer->number;
    int code = m->err.code == PL_OK ? member_do(m, &req) : m->err.code;
    if (code == PL_OK)
        code = fence_wait(req.fence, m);
    pl_object_unref(req.fence);
    return code;
}

static void card_read(card_t *c, const member_t *m, uint64_t count)
{
    if (m->err.code == PL_OK)
        cuda->read(c->device, PL_REGION_GRADS, 0, c->host, count, NULL);
}

/* ---- every operation ---- */

typedef struct outcome {
    int wrong[PL_COLL_OP_COUNT], failed;                    /* of all ranks; atomic */
    double off;                                             /* rank 0: of the tree */
    int same;                                               /* rank 0: elements */
} outcome_t;

static void judge(outcome_t *o, uint32_t op, bool is_right)
{
    __atomic_add_fetch(&o->wrong[op], !is_right, __ATOMIC_RELAXED);
}

static float sum_of(int ranks, uint64_t k)
{
    float value[RANKS];
    for (int rank = 0; rank < ranks; rank++)
        value[rank] = element_of(rank, k);
    return tree_sum(value, ranks);
}

static void sums_check(const card_t *c, const member_t *m, outcome_t *o, uint64_t count)
{
    int same = 0;
    double off = 0;
    for (uint64_t k = 0; k < count; k++) {
        const float expected = sum_of(m->size, k);
        double size = 0;
        for (int rank = 0; rank < m->size; rank++)
            size += fabs(element_of(rank, k));
        same += c->host[k] == expected;
        off = fmax(off, fabs(c->host[k] - expected) / (size + 1e-30));
    }
    judge(o, PL_COLL_OP_all_reduce, off < 1e-6);
    if (m->rank == 0)
        o->off = fmax(o->off, off), o->same += same;
}

static void moves_check(card_t *c, member_t *m, outcome_t *o, uint64_t count,
                        uint64_t step)
{
    uint64_t first, length;
    bool is_right = true;
    const uint64_t per_rank = count / (uint64_t)m->size;
    pl_chunk_by(count, step, m->size, m->rank, &first, &length);
    card_fill(c, m->rank, count);
    card_call(c, m,
              (pl_coll_desc_t){.op = PL_COLL_OP_reduce_scatter,
                               .count = count,
                               .step = step});
    card_read(c, m, count);
    for (uint64_t k = first; k < first + length; k++)
        is_right &= fabsf(c->host[k] - sum_of(m->size, k))
                    <= 1e-5f * (fabsf(sum_of(m->size, k)) + 1e4f);
    judge(o, PL_COLL_OP_reduce_scatter, is_right);
    card_fill(c, m->rank, count);
    card_call(c, m,
              (pl_coll_desc_t){.op = PL_COLL_OP_all_gather,
                               .count = count,
                               .step = step});
    card_read(c, m, count);
    for (int rank = 0; rank < m->size; rank++) {
        pl_chunk_by(count, step, m->size, rank, &first, &length);
        for (uint64_t k = first; k < first + length; k++)
            judge(o, PL_COLL_OP_all_gather, c->host[k] == element_of(rank, k));
    }
    card_fill(c, m->rank, count);
    card_call(c, m,
              (pl_coll_desc_t){.op = PL_COLL_OP_all_to_all,
                               .count = per_rank * (uint64_t)m->size});
    card_read(c, m, count);
    for (int rank = 0; rank < m->size; rank++)
        for (uint64_t k = 0; k < per_rank; k++)
            judge(o, PL_COLL_OP_all_to_all,
                  c->host[(uint64_t)rank * per_rank + k]
                      == element_of(rank, (uint64_t)m->rank * per_rank + k));
    card_fill(c, m->rank, count);
    card_call(c, m,
              (pl_coll_desc_t){.op = PL_COLL_OP_broadcast,
                               .count = count,
                               .root = (uint32_t)m->size - 1});
    card_read(c, m, count);
    for (uint64_t k = 0; k < count; k++)
        judge(o, PL_COLL_OP_broadcast, c->host[k] == element_of(m->size - 1, k));
    if (m->size == 1)
        return;
    card_fill(c, m->rank, count);
    card_call(c, m, (pl_coll_desc_t){.op = PL_COLL_OP_send, .count = count, .to = 1});
    card_read(c, m, count);
    for (uint64_t k = 0; k < count; k++)
        judge(o, PL_COLL_OP_send,
              c->host[k] == element_of(m->rank == 1 ? 0 : m->rank, k));
}

static void every_operation(member_t *m, void *user)
{
    static const uint64_t counts[] = {1, 33, 4096, ELEMENTS};
    outcome_t *o = user;
    card_t c;
    int code = card_open(&c, m, m->rank);
    for (size_t k = 0; k < sizeof counts / sizeof *counts && code == PL_OK; k++) {
        card_fill(&c, m->rank, counts[k]);
        code =
            card_call(&c, m,
                      (pl_coll_desc_t){.op = PL_COLL_OP_all_reduce, .count = counts[k]});
        card_read(&c, m, counts[k]);
        sums_check(&c, m, o, counts[k]);
        moves_check(&c, m, o, counts[k], PL_CHUNK_STEP << (k % 2 * 4));
        code = code == PL_OK ? m->err.code : code;
    }
    __atomic_add_fetch(&o->failed, code != PL_OK, __ATOMIC_RELAXED);
    m->ops->close(m->component.self);
    m->ops = NULL;
    card_close(&c);
}

enum { ALL = 1 + 33 + 4096 + ELEMENTS };

static void requests_check(const char *part, int ranks, bool is_tree)
{
    outcome_t o = {.failed = 0};
    members_run(part, ranks, every_operation, &o);
    ok(!o.failed && !members_error.code, "%s, %d ranks: %s", part, ranks,
       members_error.text);
    for (uint32_t op = 0; op < PL_COLL_OP_COUNT; op++)
        if (op >= PL_COLL_OP_all_reduce && op < PL_COLL_OP_barrier)
            is_int(o.wrong[op], 0, "%s", pl_coll_op_name(op));
    ok((o.same == ALL) == is_tree, "%d of %d sums have the bits of the tree, off by %g",
       o.same, ALL, o.off);
}

static void sums_have_the_bits_of_the_other_collectives(void)
{
    for (int ranks = 1; ranks <= RANKS; ranks++)
        requests_check("\"nccl\"", ranks, true);
}

static void the_order_of_the_library_is_its_own(void)
{
    requests_check("{\"name\": \"nccl\", \"order\": \"library\"}", RANKS, false);
    member_t m;
    member_open(&m, "{\"name\": \"nccl\", \"order\": \"library\"}", NULL);
    ok(m.ops->own_order(m.component.self), "which it says");
    member_close(&m);
    member_open(&m, "\"nccl\"", NULL);
    ok(!m.ops->own_order(m.component.self), "and without the option it does not");
    member_close(&m);
    member_open(&m, "{\"name\": \"nccl\", \"host\": \"own\"}", NULL);
    ok(m.ops->own_order(m.component.self), "unlike a host's collective");
    member_close(&m);
}

static void host_memory(member_t *m, void *user)
{
    outcome_t *o = user;
    pl_reg_buffer_t *buffer = member_alloc(m, 64 * sizeof(float));
    for (uint64_t k = 0; buffer && k < 64; k++)
        ((float *)buffer->data)[k] = element_of(m->rank, k);
    judge(o, PL_COLL_OP_all_reduce,
          buffer && member_call(m, PL_COLL_OP_all_reduce, buffer, 0, 64) == PL_OK);
    for (uint64_t k = 0; buffer && k < 64; k++)
        judge(o, PL_COLL_OP_all_reduce, ((float *)buffer->data)[k] == sum_of(m->size, k));
    pl_object_unref(buffer);
}

/* More than a kernel adds. */
static void sums_of_many_ranks_are_added_in_chunks(void)
{
    enum { MANY = 70, COUNT = 300, APART = 1280 };
    pl_error_t err = {0};
    static float part[MANY][APART / sizeof(float)], got[COUNT];
    CUstream stream;
    card_t card;
    int same = 0;
    const cuda_library_t *library = cuda_library_open(&err);
    const cuda_driver_t *call = &library->call;
    if (!ok(card_register(&card, 0, &err) == PL_OK, "a card is open: %s", err.text))
        return;
    call->stream_new(&stream, CU_STREAM_APART);
    cuda_sums_t *sums = cuda_sums_new(library, card.buffer->device, MANY, pl_tree_left,
                                      &err);
    const CUdeviceptr staging = sums ? cuda_sums_staging(sums, APART, &err) : 0;
    for (int rank = 0; rank < MANY; rank++)
        for (uint64_t k = 0; k < COUNT; k++)
            part[rank][k] = element_of(rank, k);
    if (staging)
        call->copy_in(staging, part, sizeof part, stream);
    const cuda_sum_t sum = {5, staging + 5 * APART, APART, COUNT, PL_F32, false};
    if (ok(staging && cuda_sums_add(sums, &sum, stream, &err) == PL_OK, "%d ranks: %s",
           MANY, err.text))
        call->copy_out(got, sum.own, sizeof got, stream);
    for (uint64_t k = 0; k < COUNT; k++) {
        float value[MANY];
        for (int rank = 0; rank < MANY; rank++)
            value[rank] = part[rank][k];
        same += got[k] == tree_sum(value, MANY);
    }
    is_int(same, COUNT, "the bits equal the tree's");
    call->stream_finish(stream);
    cuda_sums_free(sums);
    call->stream_free(stream);
    card_close(&card);
}

static void memory_of_the_host_is_moved_by_another_collective(void)
{
    static const char *const parts[] = {"\"nccl\"",
                                        "{\"name\": \"nccl\", \"host\": \"tcp\"}"};
    for (int k = 0; k < 2; k++) {
        outcome_t o = {.failed = 0};
        members_run(parts[k], 3, host_memory, &o);
        is_int(o.wrong[PL_COLL_OP_all_reduce], 0, "%s: %s", parts[k], members_error.text);
    }
}

/* ---- what ranks do wrong ---- */

static void stand_in(const char *facts)
{
    char text[128];
    snprintf(text, sizeof text, "devices=4 %s", facts);
    setenv("STAND_IN", text, 1);
}

static void a_kernel_of_sums_that_cannot_be_loaded_leaves_nothing(void)
{
    pl_error_t err = {0};
    card_t card;
    const cuda_library_t *library = cuda_library_open(&err);
    const int *left = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD),
                            "stand_in_left"),
              before = *left;
    stand_in("function=1");
    if (!ok(card_register(&card, 0, &err) == PL_OK, "a card is open: %s", err.text))
        return;
    cuda_sums_t *sums = cuda_sums_new(library, card.buffer->device, 2, pl_tree_left,
                                      &err);
    is_int(sums ? cuda_sums_prepare(sums, PL_F32, false, &err) : 0, PL_EIO,
           "its function is not found: %s", err.text);
    is_int(sums ? cuda_sums_prepare(sums, PL_F32, false, &err) : -1, PL_OK,
           "the next time it is");
    cuda_sums_free(sums);
    card_close(&card);
    stand_in("");
    is_int(*left, before, "no module stays");
}

/* All-reduces on the card until something fails, but not for ever. */
static void reduce_on(member_t *m, int number, uint64_t count, int times)
{
    card_t c;
    int code = card_open(&c, m, number);
    card_fill(&c, m->rank, count);
    for (int k = 0; code == PL_OK && k < times; k++)
        code = card_call(&c, m,
                         (pl_coll_desc_t){.op = PL_COLL_OP_all_reduce, .count = count});
    m->ops->close(m->component.self);
    m->ops = NULL;
    card_close(&c);
}

static void one_card(member_t *m, void *user)
{
    (void)user;
    reduce_on(m, 0, 16, 1);
}

static void two_ranks_on_one_card_are_named(void)
{
    members_run("\"nccl\"", 2, one_card, NULL);
    is_int(members_error.code, PL_EINVAL, "an error");
    is_text(members_error.text,
            "rank 0 and rank 1 use the same card (cuda:0): each rank needs one of its "
            "own; see trainer.devices",
            "and why");
}

static void other_counts(member_t *m, void *user)
{
    (void)user;
    reduce_on(m, m->rank, 64 + (uint64_t)m->rank, 1);
}

static void other_moves(member_t *m, void *user)
{
    (void)user;
    card_t c;
    int code = card_open(&c, m, m->rank);
    card_fill(&c, m->rank, 64);
    if (code == PL_OK)
        card_call(&c, m,
                  (pl_coll_desc_t){.op = m->rank ? PL_COLL_OP_all_gather
                                                 : PL_COLL_OP_all_reduce,
                                   .count = 64});
    m->ops->close(m->component.self);
    m->ops = NULL;
    card_close(&c);
}

static void different_requests_of_ranks_are_an_error(void)
{
    members_run("\"nccl\"", 2, other_counts, NULL);
    is_int(members_error.code, PL_EPROTOCOL, "an error");
    like(members_error.text, "the ranks do different operations, .*: rank [01] .* 6[45] ",
         "that names a rank and both counts");
    members_run("\"nccl\"", 2, other_moves, NULL);
    is_int(members_error.code, PL_EPROTOCOL, "an error");
    like(members_error.text,
         "rank (0 begins all_reduce .*begins all_gather|1 begins all_gather "
         ".*begins all_reduce) ",
         "that names both operations");
}

static void no_share(member_t *m, void *user)
{
    (void)user;
    card_t c = {.device = calloc(1, cuda->size)};
    pl_device_info_t info = {.ranks = 1, .device = m->rank};
    cuda->open(c.device, &info, NULL);
    cuda->region(c.device, PL_REGION_GRADS, PL_F32, ELEMENTS, NULL);
    cuda->register_region(c.device, PL_REGION_GRADS, &c.buffer, NULL);
    card_call(&c, m, (pl_coll_desc_t){.op = PL_COLL_OP_all_reduce, .count = 4});
    m->ops->close(m->component.self);
    m->ops = NULL;
    card_close(&c);
}

static void memory_is_registered_first(void)
{
    members_run("\"nccl\"", 2, no_share, NULL);
    like(members_error.text, "^all_reduce of memory of a device before register_buffer$",
         "else an error says so");
}

static int join_code;

static void join_done(pl_coll_request_t *req, const pl_error_t *err)
{
    (void)req;
    join_code = err ? err->code : PL_OK;
}

/* Rank 1 is not there yet. */
static void memory_is_registered_after_the_ranks_have_joined(void)
{
    member_t m, other;
    unsigned char arrived[2] = {0};
    card_t c;
    member_open(&m, "\"nccl\"", NULL);
    member_open(&other, "\"nccl\"", NULL);
    const pl_world_t world = {0, 2, (const char *const[]){m.address, other.address}};
    pl_coll_request_t join = {.desc = {.op = PL_COLL_OP_join},
                              .world = &world,
                              .arrived = arrived,
                              .done = join_done};
    is_int(m.ops->join(m.component.self, &join, &m.err), PL_OK, "a rank joins");
    is_int(card_open(&c, &m, 0), PL_ESTATE, "and shares memory at once");
    is_text(m.err.text, "register_buffer of memory of a device while the ranks join",
            "which is refused");
    is_int(join_code, PL_ESTATE, "and ends the join");
    member_close(&other);
    member_close(&m);
    card_close(&c);
}

static void a_rank_of_another_collective_is_named(void)
{
    member_t m, other;
    member_open(&m, "\"nccl\"", NULL);
    member_open(&other, "\"best\"", NULL);
    is_int(member_join(&m, 0, 2, (const char *const[]){m.address, other.address}),
           PL_EUNSUPPORTED, "they do not join");
    like(m.err.text,
         "^rank 1 does not use the collective nccl, which this rank uses: install NCCL",
         "and why");
    member_close(&other);
    member_close(&m);
}

/* ---- failures of NCCL ---- */

static void reduce_often(member_t *m, void *user)
{
    (void)user;
    reduce_on(m, m->rank, 1000, 4);
}

static bool matches(const char *text, const char *pattern)
{
    regex_t compiled;
    if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    const bool is = regexec(&compiled, text, 0, NULL, 0) == 0;
    regfree(&compiled);
    return is;
}

/* With a fault of rank 1; whether the ranks end as they should. */
static bool ends_by(const char *fault, const char *pattern)
{
    char facts[64];
    const int64_t began = pl_now();
    snprintf(facts, sizeof facts, "%s nccl_rank=1", fault);
    stand_in(facts);
    members_run("\"nccl\"", 2, reduce_often, NULL);
    stand_in("");
    const bool is_right = members_error.code && matches(members_error.text, pattern)
                          && pl_now() - began < 40 * PL_SECOND;
    if (!is_right)
        tap_diag("%s: %s (%d)", fault, members_error.text, members_error.code);
    return is_right;
}

static void a_failure_at_each_call_is_reported(void)
{
    int wrong = 0;
    for (int k = 1; k <= 20; k++) {
        char fault[32];
        snprintf(fault, sizeof fault, "nccl_call=%d:1", k);
        wrong += !ends_by(fault,
                          "NCCL 2.28.9 on cuda:1: .* failed: unhandled cuda error .1.");
    }
    is_int(wrong, 0, "at each of 20 calls");
}

static void a_failure_on_the_card_is_reported(void)
{
    ok(ends_by("nccl_async=3:6", "NCCL 2.28.9 on cuda:1: .* failed: remote process "
                                 "exited .*6.: NET/Socket : an error of the stand-in"),
       "with what NCCL says of it");
    ok(ends_by("run=1:700", "cuda:[01] .Stand-in [01].: .* an illegal memory access .* "
                            "cannot use the card any "
                            "more"),
       "or the driver");
}

static void reduce_and_abort(member_t *m, void *user)
{
    (void)user;
    card_t c;
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_all_reduce,
                                      .dtype = PL_F32,
                                      .is_device = 1,
                                      .count = 1000}};
    bool passed = true;
    if (card_open(&c, m, m->rank) == PL_OK) {
        req.memory = c.buffer;
        req.desc.memory = c.buffer->number;
        member_do(m, &req);
        member_wait(m, 1);
        for (int k = 0; k < 50; k++) {
            poll(NULL, 0, 2);
            member_help(m);
        }
        req.fence->ops->passed(req.fence, &passed, NULL);
        m->ops->abort(m->component.self, &(pl_error_t){PL_ETIMEOUT, "too late"});
        pl_object_unref(req.fence);
    }
    __atomic_add_fetch((int *)user, passed, __ATOMIC_RELAXED);
    m->ops->close(m->component.self);
    m->ops = NULL;
    card_close(&c);
}

static void an_operation_that_never_ends_can_be_aborted(void)
{
    int passed = 0;
    const int64_t began = pl_now();
    stand_in("nccl_hang=1");
    members_run("\"nccl\"", 2, reduce_and_abort, &passed);
    stand_in("");
    is_int(passed, 0, "an operation on the card does not end");
    ok(pl_now() - began < 40 * PL_SECOND, "and the ranks do");
}

/* ---- processes ---- */

static void reduce_for_ever(member_t *m, void *user)
{
    (void)user;
    reduce_on(m, m->rank, ELEMENTS, 100000);
}

/* This process is rank 0, and two others are processes with this fault; the error. */
static const char *fleet(const char *fault, int kill_after_ms, double *seconds)
{
    static member_t own;
    rank_process_t other[2];
    const char *address[3] = {own.address};
    int64_t began = 0;
    member_open(&own, "\"nccl\"", NULL);
    stand_in(fault);
    for (int k = 0; k < 2; k++) {
        rank_start(&other[k], "\"nccl\"", "reduce_for_ever", k + 1, 3);
        address[k + 1] = other[k].address;
    }
    stand_in("");
    for (int k = 0; k < 2; k++)
        rank_tell(&other[k], address, 3);
    member_join(&own, 0, 3, address);
    card_t c;
    int code = card_open(&c, &own, 0);
    card_fill(&c, 0, ELEMENTS);
    const int64_t start = pl_now();
    while (code == PL_OK) {
        if (!began && kill_after_ms
            && pl_now() - start > kill_after_ms * PL_MILLISECOND) {
            kill(other[0].pid, SIGKILL);
            began = pl_now();
        }
        code =
            card_call(&c, &own,
                      (pl_coll_desc_t){.op = PL_COLL_OP_all_reduce, .count = ELEMENTS});
    }
    *seconds = began ? (double)(pl_now() - began) / 1e9 : 0;
    member_close(&own);
    own.ops = NULL;
    card_close(&c);
    like(rank_line(&other[1]), "^PL_E[A-Z]* ", "%s: the third rank ends, too", fault);
    for (int k = 0; k < 2; k++)
        rank_end(&other[k]);
    return own.err.text;
}

static void a_rank_that_is_killed_is_named(void)
{
    static const char *const points[] = {"nccl_kill=1",     "nccl_kill=2",
                                         "nccl_kill=9",     "nccl_kill=31",
                                         "nccl_kill_run=1", "nccl_kill_run=4"};
    double seconds;
    const char *error = fleet("", 30, &seconds);
    like(error, "rank (1 is gone|2 aborted: rank 1 is gone)", "the error names it");
    ok(seconds < 1, "%.3f s later", seconds);
    for (size_t k = 0; k < sizeof points / sizeof *points; k++) {
        char fault[48];
        snprintf(fault, sizeof fault, "%s nccl_rank=1", points[k]);
        like(fleet(fault, 0, &seconds), "rank (1 is gone|2 aborted: rank 1 is gone)",
             "%s: it is named", points[k]);
    }
}

static void mixed_versions_are_named(void)
{
    double seconds;
    const char *error = fleet("nccl_version=22105", 0, &seconds);
    like(error,
         "the ranks have different versions of NCCL: rank 0 has 2.28.9, rank 1 has "
         "2.21.5; install the same version everywhere",
         "with both");
}

/* Of a host with sums in another order than the tree's. */
static bool own_order(const void *self)
{
    (void)self;
    return true;
}

int main(int argc, char **argv)
{
    static pl_collective_ops_t own;
    static const pl_registration_t components[] = {{"collective", &own},
                                                   PL_REGISTRATIONS_END};
    static const named_script_t scripts[] = {{"reduce_for_ever", reduce_for_ever},
                                             {NULL, NULL}};
    char text[4096];
    const char *top = getenv("top_builddir");
    snprintf(text, sizeof text, "%s/t/stand_in/.libs", top ? top : ".");
    setenv("PACELINE_CUDA_PATH", text, 1);
    setenv("STAND_IN", "devices=4", 0);
    if (!getenv("LD_LIBRARY_PATH") || !strstr(getenv("LD_LIBRARY_PATH"), "stand_in")) {
        setenv("LD_LIBRARY_PATH", text, 1);
        execv("/proc/self/exe", argv);
    }
    if (!getenv("STAND_IN_FOLDER")) {                       /* no process of a rank's */
        setenv("STAND_IN_FOLDER", tap_folder(), 1);
        setenv("TMPDIR", tap_folder(), 1);                  /* what a killed one leaves */
    }
    pl_init(&argc, &argv, nccl_plugin(), NULL);
    own = pl_shm_collective;
    own.name = "own";
    own.own_order = own_order;
    pl_register(components, NULL);
    cuda = cuda_plugin()->table;
    if (rank_main(argc, argv, scripts))
        return 0;
    run(sums_have_the_bits_of_the_other_collectives);
    run(the_order_of_the_library_is_its_own);
    run(sums_of_many_ranks_are_added_in_chunks);
    run(a_kernel_of_sums_that_cannot_be_loaded_leaves_nothing);
    run(memory_of_the_host_is_moved_by_another_collective);
    run(two_ranks_on_one_card_are_named);
    run(different_requests_of_ranks_are_an_error);
    run(memory_is_registered_first);
    run(memory_is_registered_after_the_ranks_have_joined);
    run(a_rank_of_another_collective_is_named);
    run(a_failure_at_each_call_is_reported);
    run(a_failure_on_the_card_is_reported);
    run(an_operation_that_never_ends_can_be_aborted);
    run(a_rank_that_is_killed_is_named);
    run(mixed_versions_are_named);
    return tap_done();
}
