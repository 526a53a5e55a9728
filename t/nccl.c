/* nccl.c - tests of the stand-in for NCCL: what it computes, and that it finds what NCCL
 * would only hang at */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelerators/cuda/load.h"
#include "device_rig.h"
#include "tap.h"

enum { RANKS = 4, COUNT = 200000, BYTES = COUNT * 4 };

static const cuda_driver_t *call;
static const cuda_nccl_t *nccl;
static int *left, *left_on_cards, *wrong;

/* Ranks are threads, each with a card. */
typedef struct rank {
    pthread_t thread;
    void (*body)(struct rank *r);
    int rank, ranks;
    ncclUniqueId id;
    ncclComm_t comm;
    CUcontext context;
    CUstream stream;
    CUdeviceptr in, out;                                    /* [COUNT] float */
    float *host;                                            /* [COUNT] */
    cu_result_t result;
    bool is_right;
} rank_t;

/* Polls a state until nothing is in progress, for ten seconds. */
static cu_result_t state_of(const rank_t *r)
{
    cu_result_t state = NCCL_IN_PROGRESS, result = NCCL_OK;
    for (int k = 0; k < 20000 && result == NCCL_OK && state == NCCL_IN_PROGRESS; k++) {
        result = nccl->comm_state(r->comm, &state);
        if (state == NCCL_IN_PROGRESS)
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return result != NCCL_OK ? result : state;
}

static cu_result_t begun(const rank_t *r, cu_result_t result)
{
    return result == NCCL_IN_PROGRESS ? state_of(r) : result;
}

static ncclConfig_t config_new(void)
{
    return (ncclConfig_t){.size = sizeof(ncclConfig_t),
                          .magic = NCCL_MAGIC,
                          .version = NCCL_MIN,
                          .cgaClusterSize = NCCL_UNSET,
                          .minCTAs = NCCL_UNSET,
                          .maxCTAs = NCCL_UNSET,
                          .splitShare = NCCL_UNSET};
}

static void fill(const rank_t *r, int of)
{
    for (int k = 0; k < COUNT; k++)
        r->host[k] = (float)((k * 7 + of * 31) % 1000) * 0.37f;
}

static void *rank_main(void *user)
{
    rank_t *r = user;
    ncclConfig_t config = config_new();
    call->context_retain(&r->context, r->rank);
    call->context_use(r->context);
    call->stream_new(&r->stream, CU_STREAM_APART);
    call->memory_new(&r->in, BYTES);
    call->memory_new(&r->out, BYTES);
    fill(r, r->rank);
    call->copy_in(r->in, r->host, BYTES, r->stream);
    r->result = begun(r, nccl->comm_new(&r->comm, r->ranks, r->id, r->rank, &config));
    r->body(r);
    call->stream_finish(r->stream);
    call->memory_free(r->in);
    call->memory_free(r->out);
    call->stream_free(r->stream);
    call->context_release(r->rank);
    return NULL;
}

/* Runs a body on each rank; whether all were right. */
static bool on_ranks(int ranks, void (*body)(rank_t *r))
{
    rank_t r[RANKS];
    bool is_right = true;
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    nccl->id_new(&id);
    for (int k = 0; k < ranks; k++) {
        r[k] = (rank_t){
            .body = body, .rank = k, .ranks = ranks, .id = id, .host = malloc(BYTES)};
        pthread_create(&r[k].thread, NULL, rank_main, &r[k]);
    }
    for (int k = 0; k < ranks; k++) {
        pthread_join(r[k].thread, NULL);
        is_right &= r[k].is_right;
        free(r[k].host);
    }
    return is_right;
}

static cu_result_t comm_close(rank_t *r)
{
    call->stream_finish(r->stream);
    const cu_result_t result = begun(r, nccl->comm_finish(r->comm));
    return result == NCCL_OK ? nccl->comm_free(r->comm) : result;
}

/* ---- Versions ---- */

static void an_old_nccl_is_reported(void)
{
    pl_error_t err = {0};
    setenv("STAND_IN", "devices=4 nccl_version=21705", 1);
    ok(!cuda_communicator_open(&err) && err.code == PL_EUNSUPPORTED,
       "a version before 2.18 is refused");
    like(err.text,
         "^NCCL 2.17.5 .*/libnccl.so.2.* is too old: install 2.18 or later .apt-get "
         "install libnccl2 .* or pip install nvidia-nccl-cu13., or name its folder in "
         "PACELINE_CUDA_PATH$",
         "by an error that says what to install");
    setenv("STAND_IN", "devices=4", 1);
}

/* ---- What it computes ---- */

static void every_operation(rank_t *r)
{
    enum { PART = COUNT / RANKS };
    const CUdeviceptr own = r->out + (CUdeviceptr)r->rank * PART * 4;
    float *got = malloc(BYTES);
    bool is_right = r->result == NCCL_OK;
    void *const in = (void *)(uintptr_t)r->in, *const out = (void *)(uintptr_t)r->out;
#define DO(operation, ...) \
    is_right &= begun(r, nccl->operation(__VA_ARGS__, r->comm, r->stream)) == NCCL_OK
#define READ() call->copy_out(got, r->out, BYTES, r->stream)
    DO(all_reduce, in, out, COUNT, NCCL_F32, NCCL_SUM);
    READ();
    for (int k = 0; k < COUNT; k++) {
        float sum = 0;
        for (int rank = r->ranks - 1; rank >= 0; rank--)
            sum += (float)((k * 7 + rank * 31) % 1000) * 0.37f;
        is_right &= got[k] == sum;
    }
    DO(broadcast, in, out, COUNT, NCCL_F32, 2);
    READ();
    fill(r, 2);
    is_right &= memcmp(got, r->host, BYTES) == 0;
    DO(reduce_scatter, in, (void *)(uintptr_t)own, PART, NCCL_F32, NCCL_MAX);
    DO(all_gather, (void *)(uintptr_t)own, out, PART, NCCL_F32);
    READ();
    for (int k = 0; k < COUNT; k++) {
        float max = 0;
        for (int rank = 0; rank < r->ranks; rank++) {
            const float x = (float)((k * 7 + rank * 31) % 1000) * 0.37f;
            max = x > max ? x : max;
        }
        is_right &= got[k] == max;
    }
    const int next = (r->rank + 1) % r->ranks,
              before = (r->rank + r->ranks - 1) % r->ranks;
    nccl->group_begin();
    DO(send, in, COUNT, NCCL_F32, next);
    DO(receive, out, COUNT, NCCL_F32, before);
    is_right &= begun(r, nccl->group_end()) == NCCL_OK;
    READ();
    fill(r, before);
    is_right &= memcmp(got, r->host, BYTES) == 0;
    is_right &= comm_close(r) == NCCL_OK;
    r->is_right = is_right;
    free(got);
}

static void ranks_reduce_gather_and_send(void)
{
    ok(on_ranks(RANKS, every_operation), "four ranks do every operation");
    ok(*left == 0 && *wrong == 0, "and leave nothing open");
}

/* ---- What NCCL would hang at ---- */

static void *call_of_another_thread(void *user)
{
    rank_t *r = user;
    cu_result_t state;
    call->context_use(r->context);
    r->is_right &= nccl->comm_state(r->comm, &state) == NCCL_INVALID_USAGE;
    return NULL;
}

static void rules_are_broken(rank_t *r)
{
    void *const in = (void *)(uintptr_t)r->in;
    CUgraph graph = NULL;
    pthread_t other;
    bool is_right = r->result == NCCL_OK;
#define REFUSED(result, expression) is_right &= (expression) == (result)
    REFUSED(NCCL_INVALID_ARGUMENT,
            nccl->all_reduce((void *)(uintptr_t)(r->in + 4), in, COUNT, NCCL_F32,
                             NCCL_SUM, r->comm, r->stream));
    REFUSED(NCCL_INVALID_ARGUMENT,
            nccl->all_reduce(in, r->host, COUNT, NCCL_F32, NCCL_SUM, r->comm, r->stream));
    REFUSED(NCCL_INVALID_USAGE, nccl->comm_free(r->comm));
    call->capture_begin(r->stream, CU_CAPTURE_BY_THREAD);
    REFUSED(NCCL_INVALID_USAGE,
            nccl->all_reduce(in, in, COUNT, NCCL_F32, NCCL_SUM, r->comm, r->stream));
    call->capture_end(r->stream, &graph);
    call->graph_free(graph);
    r->is_right = true;
    pthread_create(&other, NULL, call_of_another_thread, r);
    pthread_join(other, NULL);
    cu_result_t result;
    do
        result = nccl->broadcast(in, in, COUNT, NCCL_F32, 0, r->comm, r->stream);
    while (result == NCCL_OK);
    if (result == NCCL_IN_PROGRESS)
        REFUSED(NCCL_INVALID_USAGE,
                nccl->broadcast(in, in, COUNT, NCCL_F32, 0, r->comm, r->stream));
    is_right &= result == NCCL_IN_PROGRESS;
    nccl->comm_abort(r->comm);
    r->is_right &= is_right;
}

static void calls_that_nccl_may_accept_are_errors_here(void)
{
    ok(on_ranks(1, rules_are_broken),
       "memory that is not there, no end, recording, another thread, a busy "
       "communicator");
    ok(*wrong >= 6 && *left == 0, "each is reported");
    *wrong = 0;
}

/* Rank 1 calls another operation. */
static void unlike_counts(rank_t *r)
{
    void *const in = (void *)(uintptr_t)r->in;
    cu_result_t state = NCCL_OK;
    begun(r, nccl->all_reduce(in, in, (size_t)(COUNT - r->rank), NCCL_F32, NCCL_SUM,
                              r->comm, r->stream));
    for (int k = 0; k < 20000 && state == NCCL_OK; k++) {
        state = state_of(r);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    r->is_right = state == NCCL_INVALID_USAGE;
    nccl->comm_abort(r->comm);
}

static void ranks_with_different_operations_get_an_error(void)
{
    ok(on_ranks(2, unlike_counts), "both get one");
    ok(*wrong > 0 && *left == 0, "which is reported");
    *wrong = 0;
}

/* ---- Failures ---- */

static void rank_0_aborts_its_wait(rank_t *r)
{
    void *const in = (void *)(uintptr_t)r->in;
    if (r->rank == 0)
        begun(r, nccl->all_reduce(in, in, COUNT, NCCL_F32, NCCL_SUM, r->comm, r->stream));
    r->is_right = nccl->comm_abort(r->comm) == NCCL_OK
                  && call->stream_finish(r->stream) == CU_OK;
}

static void an_abort_ends_what_waits_for_another_rank(void)
{
    ok(on_ranks(2, rank_0_aborts_its_wait), "the stream is free again");
    is_int(*left, 0, "and nothing is open");
}

static void fails_at_the_second_call(rank_t *r)
{
    cu_result_t state;
    const cu_result_t result = r->result == NCCL_OK ? nccl->comm_state(r->comm, &state)
                                                    : r->result;
    r->is_right = result == NCCL_SYSTEM_FAILED;
    nccl->comm_abort(r->comm);
}

static void gets_an_error_later(rank_t *r)
{
    void *const in = (void *)(uintptr_t)r->in;
    cu_result_t state;
    begun(r, nccl->all_reduce(in, in, COUNT, NCCL_F32, NCCL_SUM, r->comm, r->stream));
    call->stream_finish(r->stream);
    nccl->comm_state(r->comm, &state);
    r->is_right = state == (r->rank == 1 ? NCCL_REMOTE_FAILED : NCCL_OK);
    nccl->comm_abort(r->comm);
}

static void failures_come_on_request(void)
{
    setenv("STAND_IN", "devices=4 nccl_call=2:2", 1);
    ok(on_ranks(1, fails_at_the_second_call), "at a call");
    setenv("STAND_IN", "devices=4 nccl_async=1:6 nccl_rank=1", 1);
    ok(on_ranks(2, gets_an_error_later), "or later, of one rank");
    setenv("STAND_IN", "devices=4", 1);
    is_int(*left, 0, "nothing is left open");
}

int main(void)
{
    char text[PATH_MAX];
    const char *top = getenv("top_builddir");
    pl_error_t err = {0};
    snprintf(text, sizeof text, "%s/t/stand_in/.libs", top ? top : ".");
    setenv("PACELINE_CUDA_PATH", text, 1);
    setenv("STAND_IN_FOLDER", tap_folder(), 1);
    setenv("STAND_IN", "devices=4", 1);
    left_on_cards = device_stand_in("libcuda.so.1", "stand_in_left");
    left = device_stand_in("libnccl.so.2", "stand_in_nccl_left");
    wrong = device_stand_in("libnccl.so.2", "stand_in_nccl_wrong");
    const cuda_library_t *library = cuda_library_open(&err);
    if (!ok(left_on_cards && left && wrong && library, "the stand-ins are there: %s",
            err.text))
        return tap_done();
    call = &library->call;
    run(an_old_nccl_is_reported);
    const cuda_communicator_t *communicator = cuda_communicator_open(&err);
    if (!ok(communicator != NULL, "NCCL is there: %s", err.text))
        return tap_done();
    nccl = &communicator->call;
    run(ranks_reduce_gather_and_send);
    run(calls_that_nccl_may_accept_are_errors_here);
    run(ranks_with_different_operations_get_an_error);
    run(an_abort_ends_what_waits_for_another_rank);
    run(failures_come_on_request);
    is_int(*left_on_cards, 0, "nothing is left on the cards");
    return tap_done();
}
