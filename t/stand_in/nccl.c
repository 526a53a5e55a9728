/* nccl.c - a replacement of NCCL, libnccl.so.2, among processes and threads
 *
 * Ranks exchange pieces through a shared file that the unique id names; their work
 * runs on streams of the replacement of the driver, delayed.  It refuses some calls
 * that NCCL accepts: communicators are nonblocking, a communicator has one thread,
 * none of its functions except those that ask for its state and abort it may be called
 * while something is in progress, nothing is recorded, memory and context are checked,
 * and ranks that request different operations get an error instead of a hang.  Sums
 * are added from the last rank to the first.
 *
 * STAND_IN has: "nccl_version=21700"; "nccl_call=3:1" (the third call of a rank returns
 * 1); "nccl_async=2:6" (after the second group the communicator has error 6);
 * "nccl_hang=2" (the second group never ends); "nccl_kill=3", "nccl_kill_run=2" (kill -9
 * at the third call, or when the second group runs).  "nccl_rank=1" limits them to that
 * rank; if the variable STAND_IN_ONCE names a file, they happen until that
 * exists. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "t/stand_in/cuda.h"

#define NCCL(member, symbol, result, parameters) API result symbol parameters;
#include "accelerators/cuda/names.def"

enum { RANKS = 16, PIECE = 256 << 10, OPERATIONS = 64, TRANSFERS = 2 * RANKS };

typedef enum what {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    SEND
} what_t;
static const char *const names[] = {"all_reduce", "reduce",    "reduce_scatter",
                                    "all_gather", "broadcast", "send"};

/* Properties of a transfer that must be equal on both sides. */
typedef struct note {
    uint32_t what, type, reduction, root;
    uint64_t count, number;                  /* number: of collective operations so far */
} note_t;

/* From one rank to another, a piece at a time. */
typedef struct channel {
    uint64_t sent, taken;                                   /* pieces */
    note_t note;
    char data[PIECE];
} channel_t;

typedef struct shared {
    int arrived;
    struct {
        int card;
        char host[32];
    } of[RANKS];
    _Alignas(64) channel_t channel[];                       /* [from][to] */
} shared_t;

typedef struct transfer {
    bool sends;
    int peer;
    char *at;
    size_t bytes, done;
} transfer_t;

typedef struct operation {
    note_t note;
    const char *from;
    char *to;
    size_t bytes;                                   /* of one rank's part */
    char *temporary;                                /* [ranks][bytes], for sums  [NULL] */
    int transfers;
    transfer_t transfer[TRANSFERS];
} operation_t;

/* The operations of a communicator in one group. */
typedef struct group {
    struct group *next;
    struct ncclComm *comm;
    CUstream stream;
    int number, waits, operations;
    operation_t *operation[OPERATIONS];
} group_t;

typedef enum state { STARTING = 1, READY, BUSY, FINISHING, FINISHED } state_t;

struct ncclComm {
    struct ncclComm *next;
    shared_t *all;
    size_t bytes;
    char path[96];
    int rank, ranks;
    context_t *of;
    pthread_t by;
    state_t state;
    int polls;                                     /* until what is in progress is over */
    group_t *pending;
    int groups, ran;                                 /* so far */
    int on_stream;                                   /* groups; atomic, as the next two */
    cu_result_t error;
    bool aborted;
    uint64_t number;
    unsigned seed;
    char text[240];
};

/* Kept where they can be found: work of a broken device never ends. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *comms;
static group_t *groups;

/* For tests: communicators that were not closed, and broken rules. */
API int stand_in_nccl_left, stand_in_nccl_wrong, stand_in_nccl_groups;

static __thread int depth, rank_of_thread = -1, calls;
static __thread group_t *open_group;

/* ---- The stand-in for the driver ---- */

static struct {
    int (*fact)(const char *word, int without, int *more);
    cu_result_t (*put)(CUstream, int (*)(void *), const void *, size_t);
    void *(*memory)(CUdeviceptr, size_t);
    CUcontext *(*current)(void);
} driver;

static bool driver_find(void)
{
    static const char *const symbol[] = {"stand_in_fact", "stand_in_put",
                                         "stand_in_memory", "stand_in_context"};
    void **const slot[] = {(void **)&driver.fact, (void **)&driver.put,
                           (void **)&driver.memory, (void **)&driver.current};
    void *library = driver.fact ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (int k = 3; library && k >= 0; k--)
        *slot[k] = dlsym(library, symbol[k]);
    return driver.fact != NULL;
}

/* ---- Faults ---- */

/* Whether one happens to that rank. */
static bool is_due(const char *word, int rank, int number, int *code)
{
    const char *once = getenv("STAND_IN_ONCE");
    if (!driver_find() || driver.fact(word, 0, code) != number)
        return false;
    const int only = driver.fact("nccl_rank", -1, NULL);
    if (only >= 0 && only != rank)
        return false;
    const int file = once ? open(once, O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (file >= 0)
        close(file);
    return !once || file >= 0;
}

static cu_result_t wrong(struct ncclComm *comm, cu_result_t result, const char *what)
{
    fprintf(stderr, "stand-in: NCCL, rank %d: %s\n", comm ? comm->rank : rank_of_thread,
            what);
    __atomic_add_fetch(&stand_in_nccl_wrong, 1, __ATOMIC_RELAXED);
    if (comm)
        snprintf(comm->text, sizeof comm->text, "%s", what);
    return result;
}

/* Every call begins here. */
static cu_result_t enter(void)
{
    int code = NCCL_OK;
    calls++;
    if (is_due("nccl_kill", rank_of_thread, calls, NULL))
        raise(SIGKILL);
    return is_due("nccl_call", rank_of_thread, calls, &code) ? (cu_result_t)code
                                                             : NCCL_OK;
}

static cu_result_t enter_with(struct ncclComm *comm)
{
    const cu_result_t result = enter();
    if (result != NCCL_OK)
        return result;
    if (!comm || !comm->all)
        return wrong(NULL, NCCL_INVALID_ARGUMENT, "this is no communicator");
    if (!pthread_equal(comm->by, pthread_self()))
        return wrong(comm, NCCL_INVALID_USAGE, "a communicator has one thread");
    return NCCL_OK;
}

/* ---- Work ---- */

static channel_t *channel_of(const struct ncclComm *comm, int from, int to)
{
    return &comm->all->channel[from * comm->ranks + to];
}

static size_t type_bytes(cu_choice_t type)
{
    switch (type) {
    case NCCL_U8: return 1;
    case NCCL_F16:
    case NCCL_BF16: return 2;
    case NCCL_I32:
    case NCCL_F32: return 4;
    case NCCL_I64:
    case NCCL_F64: return 8;
    default: return 0;
    }
}

static bool is_same(const note_t *a, const note_t *b)
{
    return a->what == b->what && a->type == b->type && a->count == b->count
           && a->reduction == b->reduction && a->root == b->root
           && a->number == b->number;
}

static void fail_unlike(struct ncclComm *comm, int peer, const note_t *own,
                        const note_t *theirs)
{
    char text[200];
    snprintf(text, sizeof text,
             "rank %d calls %s %llu of %llu elements of type %u, this rank %s %llu of "
             "%llu of type %u",
             peer, names[theirs->what], (unsigned long long)theirs->number,
             (unsigned long long)theirs->count, theirs->type, names[own->what],
             (unsigned long long)own->number, (unsigned long long)own->count, own->type);
    wrong(comm, NCCL_OK, text);
    __atomic_store_n(&comm->error, NCCL_INVALID_USAGE, __ATOMIC_RELEASE);
}

/* A piece, if one can go or has come; whether all are through. */
static bool transfer_step(struct ncclComm *comm, const operation_t *o, transfer_t *t)
{
    channel_t *c = t->sends ? channel_of(comm, comm->rank, t->peer)
                            : channel_of(comm, t->peer, comm->rank);
    const uint64_t sent = __atomic_load_n(&c->sent, __ATOMIC_ACQUIRE),
                   taken = __atomic_load_n(&c->taken, __ATOMIC_ACQUIRE);
    const size_t left = t->bytes - t->done, bytes = left < PIECE ? left : PIECE;
    if (!left || (sent > taken) == t->sends)
        return !left;
    if (t->sends) {
        c->note = o->note;
        memcpy(c->data, t->at + t->done, bytes);
    } else if (is_same(&c->note, &o->note)) {
        memcpy(t->at + t->done, c->data, bytes);
    } else {
        fail_unlike(comm, t->peer, &o->note, &c->note);
        return false;
    }
    t->done += bytes;
    __atomic_add_fetch(t->sends ? &c->sent : &c->taken, 1, __ATOMIC_ACQ_REL);
    return t->done == t->bytes;
}

#define FOLD(type) \
    do { \
        type *to = (type *)o->to; \
        for (size_t i = 0; i < o->bytes / sizeof(type); i++) { \
            type sum = ((const type *)in[ranks - 1])[i]; \
            for (int rank = ranks - 2; rank >= 0; rank--) { \
                const type x = ((const type *)in[rank])[i]; \
                sum = o->note.reduction == NCCL_SUM ? sum + x : x > sum ? x : sum; \
            } \
            to[i] = sum; \
        } \
    } while (0)

/* The result, when all parts have arrived. */
static void operation_end(const struct ncclComm *comm, operation_t *o)
{
    const int ranks = comm->ranks;
    const char *in[RANKS];
    const size_t own = o->note.what == REDUCE_SCATTER ? (size_t)comm->rank * o->bytes : 0;
    for (int rank = 0; rank < ranks; rank++)
        in[rank] = rank == comm->rank ? o->from + own
                                      : o->temporary + (size_t)rank * o->bytes;
    if (o->temporary && o->note.type == NCCL_F32)
        FOLD(float);
    else if (o->temporary && o->note.type == NCCL_F64)
        FOLD(double);
    else if (o->temporary)
        FOLD(int64_t);
    else if (o->note.what == ALL_GATHER)
        memmove(o->to + (size_t)comm->rank * o->bytes, o->from, o->bytes);
    else if (o->note.what == BROADCAST && o->note.root == (uint32_t)comm->rank)
        memmove(o->to, o->from, o->bytes);
}

static void group_free(group_t *g)
{
    pthread_mutex_lock(&list_lock);
    for (group_t **next = &groups; *next; next = &(*next)->next)
        if (*next == g) {
            *next = g->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
    for (int k = 0; k < g->operations; k++) {
        free(g->operation[k]->temporary);
        free(g->operation[k]);
    }
    free(g);
}

static void comm_free_if_done(struct ncclComm *comm)
{
    pthread_mutex_lock(&list_lock);
    struct ncclComm **next = &comms;
    while (*next && *next != comm)
        next = &(*next)->next;
    const bool frees = *next && !comm->by
                       && __atomic_load_n(&comm->on_stream, __ATOMIC_ACQUIRE) == 0;
    if (frees)
        *next = comm->next;
    pthread_mutex_unlock(&list_lock);
    if (!frees)
        return;
    munmap(comm->all, comm->bytes);
    free(comm);
}

/* On the device's thread. */
static int group_run(void *data)
{
    group_t *g;
    int code = 0;
    bool done = true;
    memcpy(&g, data, sizeof g);
    struct ncclComm *comm = g->comm;
    const bool ends = __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE)
                      || __atomic_load_n(&comm->error, __ATOMIC_ACQUIRE) != NCCL_OK;
    if (!ends && g->waits-- > 0)
        return STREAMS_AGAIN;
    if (!ends && comm->ran < g->number) {
        comm->ran = g->number;
        if (is_due("nccl_kill_run", comm->rank, g->number, NULL))
            raise(SIGKILL);
    }
    for (int k = 0; k < g->operations && !ends; k++)
        for (int i = 0; i < g->operation[k]->transfers; i++)
            done &= transfer_step(comm, g->operation[k], &g->operation[k]->transfer[i]);
    if (!ends && driver.fact("nccl_hang", 0, NULL) == g->number
        && (driver.fact("nccl_rank", comm->rank, NULL) == comm->rank))
        done = false;
    if (!done && !ends)
        return STREAMS_AGAIN;
    for (int k = 0; k < g->operations && !ends; k++)
        operation_end(comm, g->operation[k]);
    if (!ends && is_due("nccl_async", comm->rank, g->number, &code)) {
        snprintf(comm->text, sizeof comm->text, "NET/Socket : an error of the stand-in");
        __atomic_store_n(&comm->error, (cu_result_t)code, __ATOMIC_RELEASE);
    }
    group_free(g);
    __atomic_sub_fetch(&comm->on_stream, 1, __ATOMIC_ACQ_REL);
    comm_free_if_done(comm);
    return 0;
}

static cu_result_t group_put(group_t *g)
{
    struct ncclComm *comm = g->comm;
    __atomic_add_fetch(&stand_in_nccl_groups, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&comm->on_stream, 1, __ATOMIC_ACQ_REL);
    if (driver.put(g->stream, group_run, &g, sizeof g) == CU_OK)
        return NCCL_OK;
    __atomic_sub_fetch(&comm->on_stream, 1, __ATOMIC_ACQ_REL);
    group_free(g);
    return wrong(comm, NCCL_CUDA_FAILED, "the stream takes no work");
}

/* ---- Operations ---- */

static group_t *group_new(struct ncclComm *comm, CUstream stream)
{
    group_t *g = calloc(1, sizeof *g);
    g->comm = comm;
    g->stream = stream;
    g->number = ++comm->groups;
    g->waits = rand_r(&comm->seed) % 8;
    pthread_mutex_lock(&list_lock);
    g->next = groups;
    groups = g;
    pthread_mutex_unlock(&list_lock);
    return g;
}

static void transfer_add(operation_t *o, bool sends, int peer, const char *at,
                         size_t bytes)
{
    if (bytes)
        o->transfer[o->transfers++] = (transfer_t){sends, peer, (char *)(uintptr_t)at,
                                                   bytes, 0};
}

static void transfers_add(const struct ncclComm *comm, operation_t *o)
{
    const size_t bytes = o->bytes;
    const bool is_root = o->note.root == (uint32_t)comm->rank;
    const what_t what = o->note.what;
    if (what == ALL_REDUCE || what == REDUCE_SCATTER || (what == REDUCE && is_root))
        o->temporary = calloc((size_t)comm->ranks, bytes ? bytes : 1);
    for (int peer = 0; peer < comm->ranks; peer++) {
        const size_t theirs = (size_t)peer * bytes;
        if (peer == comm->rank)
            continue;
        if (what == ALL_REDUCE || what == ALL_GATHER || (what == BROADCAST && is_root)
            || (what == REDUCE && o->note.root == (uint32_t)peer))
            transfer_add(o, true, peer, o->from, bytes);
        if (what == REDUCE_SCATTER)
            transfer_add(o, true, peer, o->from + theirs, bytes);
        if (o->temporary)
            transfer_add(o, false, peer, o->temporary + theirs, bytes);
        if (what == ALL_GATHER)
            transfer_add(o, false, peer, o->to + theirs, bytes);
        if (what == BROADCAST && o->note.root == (uint32_t)peer)
            transfer_add(o, false, peer, o->to, bytes);
    }
}

static cu_result_t group_close(group_t *g)
{
    struct ncclComm *comm = g->comm;
    comm->polls = rand_r(&comm->seed) % 4;
    if (!comm->polls)
        return group_put(g);
    comm->pending = g;
    comm->state = BUSY;
    return NCCL_IN_PROGRESS;
}

/* Whether an operation can begin now; `at` and `to` of so many elements in all. */
static cu_result_t check(struct ncclComm *comm, CUstream stream, cu_choice_t type)
{
    const cu_result_t result = enter_with(comm);
    if (result != NCCL_OK)
        return result;
    if (comm->state != READY)
        return wrong(comm, NCCL_INVALID_USAGE,
                     "an operation while the communicator is busy or closed");
    if (__atomic_load_n(&comm->error, __ATOMIC_ACQUIRE) != NCCL_OK)
        return comm->error;
    if (!type_bytes(type))
        return wrong(comm, NCCL_INVALID_ARGUMENT, "there is no such type");
    if (*driver.current() != comm->of || !stream || stream->thing.of != comm->of)
        return wrong(comm, NCCL_INVALID_USAGE, "another card is current");
    if (stream->capturing)
        return wrong(comm, NCCL_INVALID_USAGE, "operations are not recorded here");
    if (open_group && (open_group->comm != comm || open_group->stream != stream))
        return wrong(comm, NCCL_INVALID_USAGE, "a group has one stream here");
    if (open_group && open_group->operations == OPERATIONS)
        return wrong(comm, NCCL_INVALID_USAGE, "the stand-in has no more room");
    return NCCL_OK;
}

typedef struct ask {
    what_t what;
    const void *from;
    void *to;
    size_t count, in, out;             /* elements of a part; that are read and written */
    cu_choice_t type, reduction;
    int peer;                                               /* or root */
} ask_t;

static cu_result_t begin(struct ncclComm *comm, CUstream stream, const ask_t *ask)
{
    cu_result_t result = check(comm, stream, ask->type);
    if (result != NCCL_OK)
        return result;
    const size_t size = type_bytes(ask->type);
    const char *from =
        ask->in ? driver.memory((CUdeviceptr)(uintptr_t)ask->from, ask->in * size) : "";
    char *to = ask->out ? driver.memory((CUdeviceptr)(uintptr_t)ask->to, ask->out * size)
                        : NULL;
    if (!from || (ask->out && !to))
        return wrong(comm, NCCL_INVALID_ARGUMENT, "this is no memory of the card");
    if (ask->peer < 0 || ask->peer >= comm->ranks)
        return wrong(comm, NCCL_INVALID_ARGUMENT, "there is no such rank");
    operation_t *o = calloc(1, sizeof *o);
    const bool is_pair = ask->what == SEND;
    o->note = (note_t){ask->what,      ask->type,
                       ask->reduction, is_pair ? 0 : (uint32_t)ask->peer,
                       ask->count,     is_pair ? 0 : ++comm->number};
    o->from = from, o->to = to;
    o->bytes = ask->count * size;
    if (is_pair)
        transfer_add(o, ask->in > 0, ask->peer, ask->in ? from : to, o->bytes);
    else
        transfers_add(comm, o);
    group_t *g = open_group ? open_group : group_new(comm, stream);
    g->operation[g->operations++] = o;
    if (depth)
        open_group = g;
    return depth ? NCCL_OK : group_close(g);
}

cu_result_t ncclGroupStart(void)
{
    const cu_result_t result = enter();
    depth += result == NCCL_OK;
    return result;
}

cu_result_t ncclGroupEnd(void)
{
    const cu_result_t result = enter();
    group_t *g = open_group;
    if (!depth)
        return wrong(NULL, NCCL_INVALID_USAGE, "no group has begun");
    if (--depth)
        return result;
    open_group = NULL;
    if (g && result != NCCL_OK)
        group_free(g);
    return g && result == NCCL_OK ? group_close(g) : result;
}

cu_result_t ncclAllReduce(const void *from, void *to, size_t count, cu_choice_t type,
                          cu_choice_t reduction, ncclComm_t comm, CUstream stream)
{
    return begin(comm, stream,
                 &(ask_t){ALL_REDUCE, from, to, count, count, count, type, reduction, 0});
}

cu_result_t ncclReduce(const void *from, void *to, size_t count, cu_choice_t type,
                       cu_choice_t reduction, int root, ncclComm_t comm, CUstream stream)
{
    const bool is_root = comm && comm->rank == root;
    return begin(comm, stream,
                 &(ask_t){REDUCE, from, to, count, count, is_root ? count : 0, type,
                          reduction, root});
}

cu_result_t ncclReduceScatter(const void *from, void *to, size_t count, cu_choice_t type,
                              cu_choice_t reduction, ncclComm_t comm, CUstream stream)
{
    const size_t all = comm ? count * (size_t)comm->ranks : 0;
    return begin(comm, stream,
                 &(ask_t){REDUCE_SCATTER, from, to, count, all, count, type, reduction,
                          0});
}

cu_result_t ncclAllGather(const void *from, void *to, size_t count, cu_choice_t type,
                          ncclComm_t comm, CUstream stream)
{
    const size_t all = comm ? count * (size_t)comm->ranks : 0;
    return begin(comm, stream,
                 &(ask_t){ALL_GATHER, from, to, count, count, all, type, 0, 0});
}

cu_result_t ncclBroadcast(const void *from, void *to, size_t count, cu_choice_t type,
                          int root, ncclComm_t comm, CUstream stream)
{
    const bool is_root = comm && comm->rank == root;
    return begin(comm, stream,
                 &(ask_t){BROADCAST, from, to, count, is_root ? count : 0, count, type, 0,
                          root});
}

cu_result_t ncclSend(const void *from, size_t count, cu_choice_t type, int peer,
                     ncclComm_t comm, CUstream stream)
{
    return begin(comm, stream,
                 &(ask_t){SEND, from, NULL, count, count, 0, type, 0, peer});
}

cu_result_t ncclRecv(void *to, size_t count, cu_choice_t type, int peer, ncclComm_t comm,
                     CUstream stream)
{
    return begin(comm, stream, &(ask_t){SEND, NULL, to, count, 0, count, type, 0, peer});
}

/* ---- Communicators ---- */

cu_result_t ncclGetVersion(int *version)
{
    *version = driver_find() ? driver.fact("nccl_version", 22809, NULL) : 22809;
    return NCCL_OK;
}

const char *ncclGetErrorString(cu_result_t result)
{
    static const char *const text[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return result < sizeof text / sizeof *text ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->text : "";
}

cu_result_t ncclGetUniqueId(ncclUniqueId *id)
{
    const char *folder = getenv("STAND_IN_FOLDER");
    uint64_t number = 0;
    const cu_result_t result = enter();
    if (result != NCCL_OK || getrandom(&number, sizeof number, 0) != sizeof number)
        return result != NCCL_OK ? result : NCCL_SYSTEM_FAILED;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, 96, "%.60s/stand-in-nccl-%016llx",
             folder ? folder : "/dev/shm", (unsigned long long)number);
    return NCCL_OK;
}

static bool shared_open(struct ncclComm *comm)
{
    const int file = open(comm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    comm->bytes = sizeof(shared_t)
                  + (size_t)(comm->ranks * comm->ranks) * sizeof(channel_t);
    void *at = file >= 0 && ftruncate(file, (off_t)comm->bytes) == 0
                   ? mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                   : MAP_FAILED;
    if (file >= 0)
        close(file);
    if (at == MAP_FAILED)
        return false;
    comm->all = at;
    return true;
}

cu_result_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank,
                                   ncclConfig_t *config)
{
    rank_of_thread = rank;
    const cu_result_t result = enter();
    if (result != NCCL_OK)
        return result;
    if (!driver_find() || !*driver.current())
        return wrong(NULL, NCCL_CUDA_FAILED, "no card is current");
    if (!config || config->magic != NCCL_MAGIC || config->size != sizeof *config
        || config->version < 21800 || config->blocking != 0)
        return wrong(NULL, NCCL_INVALID_ARGUMENT, "the config is not as it should be");
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks)
        return wrong(NULL, NCCL_INVALID_ARGUMENT, "there is no such rank");
    struct ncclComm *comm = calloc(1, sizeof *comm);
    const char *host = getenv("NCCL_HOSTID");
    memcpy(comm->path, id.internal, sizeof comm->path - 1);
    comm->rank = rank, comm->ranks = ranks;
    comm->of = *driver.current();
    comm->by = pthread_self();
    comm->state = STARTING;
    comm->seed = (unsigned)(rank + 1) * 7919u + (unsigned)getpid();
    comm->polls = 1 + rand_r(&comm->seed) % 4;
    if (!shared_open(comm)) {
        free(comm);
        return wrong(NULL, NCCL_SYSTEM_FAILED, "no shared file");
    }
    comm->all->of[rank].card = comm->of->number;
    snprintf(comm->all->of[rank].host, sizeof comm->all->of[rank].host, "%s",
             host ? host : "");
    if (__atomic_add_fetch(&comm->all->arrived, 1, __ATOMIC_ACQ_REL) == ranks)
        unlink(comm->path);
    pthread_mutex_lock(&list_lock);
    comm->next = comms;
    comms = comm;
    stand_in_nccl_left++;
    pthread_mutex_unlock(&list_lock);
    *made = comm;
    return NCCL_IN_PROGRESS;
}

/* All are there: none may have the card of another. */
static void cards_compare(struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->ranks; rank++)
        if (rank != comm->rank
            && memcmp(&comm->all->of[rank], &comm->all->of[comm->rank],
                      sizeof comm->all->of[rank])
                   == 0) {
            snprintf(comm->text, sizeof comm->text,
                     "Duplicate GPU detected : rank %d and rank %d both on CUDA device",
                     comm->rank, rank);
            comm->error = NCCL_INVALID_USAGE;
        }
}

static cu_result_t progress(struct ncclComm *comm)
{
    if (comm->state == READY || comm->state == FINISHED)
        return NCCL_OK;
    const bool waits = comm->state == STARTING
                           ? __atomic_load_n(&comm->all->arrived, __ATOMIC_ACQUIRE)
                                 < comm->ranks
                       : comm->state == FINISHING
                           ? __atomic_load_n(&comm->on_stream, __ATOMIC_ACQUIRE) > 0
                           : false;
    if (waits || --comm->polls > 0)
        return NCCL_IN_PROGRESS;
    const state_t state = comm->state;
    comm->state = state == FINISHING ? FINISHED : READY;
    if (state == STARTING)
        cards_compare(comm);
    group_t *pending = comm->pending;
    comm->pending = NULL;
    return state == BUSY ? group_put(pending) : NCCL_OK;
}

cu_result_t ncclCommGetAsyncError(ncclComm_t comm, cu_result_t *state)
{
    const cu_result_t result = enter_with(comm);
    if (result != NCCL_OK)
        return result;
    *state = progress(comm);
    const cu_result_t error = __atomic_load_n(&comm->error, __ATOMIC_ACQUIRE);
    if (error != NCCL_OK)
        *state = error;
    return NCCL_OK;
}

cu_result_t ncclCommFinalize(ncclComm_t comm)
{
    const cu_result_t result = enter_with(comm);
    if (result != NCCL_OK)
        return result;
    if (comm->state != READY)
        return wrong(comm, NCCL_INVALID_USAGE, "it is busy, or was finalized before");
    comm->state = FINISHING;
    comm->polls = 1 + rand_r(&comm->seed) % 4;
    return NCCL_IN_PROGRESS;
}

static void comm_close(struct ncclComm *comm)
{
    if (comm->state == STARTING)
        unlink(comm->path);
    if (comm->pending)
        group_free(comm->pending);
    pthread_mutex_lock(&list_lock);
    comm->by = 0;
    stand_in_nccl_left--;
    pthread_mutex_unlock(&list_lock);
    comm_free_if_done(comm);
}

cu_result_t ncclCommDestroy(ncclComm_t comm)
{
    const cu_result_t result = enter_with(comm);
    if (result != NCCL_OK)
        return result;
    if (comm->state != FINISHED)
        return wrong(comm, NCCL_INVALID_USAGE, "it was not finalized");
    comm_close(comm);
    return NCCL_OK;
}

/* Kernels of this rank end. */
cu_result_t ncclCommAbort(ncclComm_t comm)
{
    const cu_result_t result = enter_with(comm);
    if (result != NCCL_OK && (!comm || !pthread_equal(comm->by, pthread_self())))
        return result;
    __atomic_store_n(&comm->aborted, true, __ATOMIC_RELEASE);
    comm_close(comm);
    return NCCL_OK;
}
