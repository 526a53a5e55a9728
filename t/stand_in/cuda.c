/* cuda.c - a replacement of CUDA's driver, libcuda.so.1, on the emulator of the tests
 *
 * It refuses some calls that the driver accepts.  Work of streams runs later, in any
 * order that events allow.  The host cannot use device memory: only kernels and copies
 * can, which have a mapping elsewhere, and nothing can use memory beyond an
 * allocation.  Pinned memory is read when a copy runs, other memory when the copy is
 * requested.  A call without a current context is an error, and so is a call that a
 * recording does not allow. Tests can ask for the number of leaks at the end of a
 * context.
 *
 * The variable STAND_IN has faults and facts, separated by spaces: "no_device",
 * "stub", "old", "one_card" (all numbers are the same card), "dma_buf" (other devices
 * reach its memory), "devices=2", "memory_mb=64", "capability=90", "memory=3" (the
 * third allocation finds no memory), "function=2" (the second function is not found),
 * "launch=2:719" (the second launch fails with that error), "run=2:700" (the second
 * kernel breaks the device), and "cuEventCreate=3:999" (the third call of that
 * function fails with that error; any function except those that free something).
 * Counts begin with a context. */
#include "t/stand_in/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, UNIT = 256 };

pthread_mutex_t stand_in_lock = PTHREAD_MUTEX_INITIALIZER;
__thread context_t *stand_in_current;
static context_t context[DEVICES];
static bool is_started;
static stream_t *captures[DEVICES][STREAMS_MAX];            /* that are recorded */

/* ---- Facts and faults ---- */

/* The number after "WORD=" in STAND_IN, and the one after ':'; `without` if there is
 * none. */
API int stand_in_fact(const char *word, int without, int *more)
{
    const char *at = getenv("STAND_IN");
    const size_t length = strlen(word);
    for (; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncmp(at, word, length) == 0 && (!at[length] || strchr("= ", at[length]))) {
            const char *colon = strchr(at, ':');
            if (more)
                *more = colon ? atoi(colon + 1) : 0;
            return at[length] == '=' ? atoi(at + length + 1) : 1;
        }
    return without;
}

static int device_count(void)
{
    return stand_in_fact("devices", 1, NULL);
}

/* ---- Device memory: a range that the host cannot use, and a mapping of it ---- */

#define RANGE ((size_t)1 << 38)

static uintptr_t range, really, next_free;

static void *mapped(int protection)
{
    void *at = mmap(NULL, RANGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED)
        perror("stand-in: mmap"), abort();
    return at;
}

void *stand_in_real(CUdeviceptr address)
{
    return (void *)(really + ((uintptr_t)address - range));
}

static size_t rounded(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* So that its end meets a page that cannot be used; filled with NaN. */
static uintptr_t memory_take(size_t bytes)
{
    const size_t span = rounded(bytes, UNIT), pages = rounded(span, PAGE);
    if (!range) {
        range = next_free = (uintptr_t)mapped(PROT_NONE);
        really = (uintptr_t)mapped(PROT_NONE);
    }
    const uintptr_t at = next_free + pages - span;
    mprotect(stand_in_real(next_free), pages, PROT_READ | PROT_WRITE);
    memset(stand_in_real(next_free), 0xff, pages);
    next_free += pages + PAGE;
    return at;
}

static void memory_drop(const block_t *block)
{
    const size_t pages = rounded(rounded(block->bytes, UNIT), PAGE);
    char *page = stand_in_real(block->at / PAGE * PAGE);
    madvise(page, pages, MADV_DONTNEED);
    mprotect(page, pages, PROT_NONE);
}

static void block_add(block_t **list, uintptr_t at, size_t bytes)
{
    block_t *block = malloc(sizeof *block);
    *block = (block_t){*list, at, bytes};
    *list = block;
}

static bool block_take(block_t **list, uintptr_t at, block_t *taken)
{
    for (block_t **next = list; *next; next = &(*next)->next)
        if ((*next)->at == at) {
            block_t *found = *next;
            *taken = *found;
            *next = found->next;
            free(found);
            return true;
        }
    return false;
}

static bool block_has(const block_t *list, uintptr_t at, size_t bytes)
{
    for (; list; list = list->next)
        if (at >= list->at && bytes <= list->bytes
            && at - list->at <= list->bytes - bytes)
            return true;
    return false;
}

/* ---- Contexts ---- */

/* Calls of each function since a context began. */
static struct {
    const char *call;
    int count;
} calls[64];

/* Calls so far that put work on a stream or ask for it, for tests. */
API int stand_in_calls;

cu_result_t stand_in_fault(const char *call)
{
    int k = 0, code = 0;
    pthread_mutex_lock(&stand_in_lock);
    stand_in_calls += strcmp(call, "cuCtxSetCurrent") && strcmp(call, "cuEventQuery");
    while (calls[k].call && strcmp(calls[k].call, call) != 0)
        k++;
    calls[k].call = call;
    const bool fails = ++calls[k].count == stand_in_fact(call, 0, &code);
    pthread_mutex_unlock(&stand_in_lock);
    return fails ? (cu_result_t)code : CU_OK;
}

cu_result_t stand_in_enter(const char *call)
{
    if (!is_started)
        return CU_NOT_INITIALIZED;
    if (!stand_in_current || !stand_in_current->users)
        return CU_INVALID_CONTEXT;
    const int broken = streams_broken(stand_in_current->streams);
    return broken || !call ? (cu_result_t)broken : stand_in_fault(call);
}

cu_result_t stand_in_enter_with(const void *handle, kind_t kind, const char *call)
{
    const thing_t *thing = handle;
    const cu_result_t result = stand_in_enter(NULL);
    if (result != CU_OK)
        return result;
    if (!thing || thing->kind != kind)
        return CU_INVALID_HANDLE;
    if (thing->of != stand_in_current)
        return CU_INVALID_CONTEXT;
    return call ? stand_in_fault(call) : CU_OK;
}

/* Of this thread, which then must not do what could wait. */
cu_result_t stand_in_refuse_in_capture(void)
{
    cu_result_t result = CU_OK;
    pthread_mutex_lock(&stand_in_lock);
    for (int k = 0; k < DEVICES * STREAMS_MAX; k++) {
        stream_t *stream = captures[k / STREAMS_MAX][k % STREAMS_MAX];
        if (stream && pthread_equal(stream->by, pthread_self())) {
            stream->is_invalid = true;
            result = CU_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&stand_in_lock);
    return result;
}

void *stand_in_thing_new(size_t bytes, kind_t kind)
{
    thing_t *thing = calloc(1, bytes);
    *thing = (thing_t){kind, stand_in_current};
    __atomic_add_fetch(&stand_in_current->things[kind], 1, __ATOMIC_RELAXED);
    return thing;
}

void stand_in_thing_free(void *handle)
{
    thing_t *thing = handle;
    __atomic_sub_fetch(&thing->of->things[thing->kind], 1, __ATOMIC_RELAXED);
    thing->kind = 0;
    free(thing);
}

/* The number of leaks of contexts, for tests. */
API int stand_in_left;

static void tell_left(const context_t *c)
{
    static const char *const names[] = {"streams", "events", "modules", "recordings",
                                        "recordings that are ready"};
    int blocks = 0, pinned = 0;
    for (const block_t *b = c->memory; b; b = b->next)
        blocks++;
    for (const block_t *b = c->pinned; b; b = b->next)
        pinned++;
    for (int k = A_STREAM; k <= A_READY_GRAPH; k++)
        if (c->things[k]) {
            fprintf(stderr, "stand-in: %d %s are left\n", c->things[k],
                    names[k - A_STREAM]);
            stand_in_left += c->things[k];
        }
    if (blocks || pinned)
        fprintf(stderr,
                "stand-in: %d blocks of device memory and %d of pinned memory are "
                "left\n",
                blocks, pinned);
    stand_in_left += blocks + pinned;
}

API cu_result_t cuInit(unsigned flags)
{
    if (stand_in_fact("stub", 0, NULL))
        return CU_STUB_LIBRARY;
    if (stand_in_fact("no_device", 0, NULL))
        return CU_NO_DEVICE;
    is_started = true;
    return flags ? CU_INVALID_VALUE : stand_in_fault(__func__);
}

API cu_result_t cuDriverGetVersion(int *version)
{
    *version = stand_in_fact("old", 0, NULL) ? 11080 : 13000;
    return stand_in_fault(__func__);
}

API cu_result_t cuGetErrorName(cu_result_t error, const char **name)
{
    switch (error) {
#define RESULT(ours, theirs, value) \
    case value: \
        *name = #theirs; \
        return CU_OK;
#include "accelerators/cuda/names.def"
    default: *name = "CUDA_ERROR"; return CU_OK;
    }
}

API cu_result_t cuGetErrorString(cu_result_t error, const char **text)
{
    *text = error == CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
            : error == CU_LAUNCH_FAILED ? "unspecified launch failure"
                                        : "an error of the stand-in";
    return CU_OK;
}

API cu_result_t cuDeviceGetCount(int *count)
{
    *count = device_count();
    return is_started ? stand_in_fault(__func__) : CU_NOT_INITIALIZED;
}

API cu_result_t cuDeviceGet(CUdevice *device, int number)
{
    *device = number;
    return number >= 0 && number < device_count() ? stand_in_fault(__func__)
                                                  : CU_INVALID_DEVICE;
}

API cu_result_t cuDeviceGetName(char *name, int capacity, CUdevice device)
{
    snprintf(name, (size_t)capacity, "Stand-in %d", device);
    return stand_in_fault(__func__);
}

API cu_result_t cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0x40 + (stand_in_fact("one_card", 0, NULL) ? 0 : device), sizeof *uuid);
    return stand_in_fault(__func__);
}

static size_t memory_all(void)
{
    return (size_t)stand_in_fact("memory_mb", 512, NULL) << 20;
}

API cu_result_t cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = memory_all();
    return stand_in_fault(__func__);
}

API cu_result_t cuDeviceGetAttribute(int *value, cu_choice_t attribute, CUdevice device)
{
    (void)device;
    const int capability = stand_in_fact("capability", 90, NULL);
    *value = attribute == CU_CAPABILITY_MAJOR   ? capability / 10
             : attribute == CU_CAPABILITY_MINOR ? capability % 10
             : attribute == CU_MULTIPROCESSORS  ? 2
             : attribute == CU_DMA_BUF          ? stand_in_fact("dma_buf", 0, NULL)
                                                : 0;
    return stand_in_fault(__func__);
}

API cu_result_t cuDeviceGetPCIBusId(char *bus, int capacity, CUdevice device)
{
    const int slot = stand_in_fact("one_card", 0, NULL) ? 0 : device;
    snprintf(bus, (size_t)capacity, "0000:0%d:00.0", slot);
    return stand_in_fault(__func__);
}

API cu_result_t cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    *can = device != peer;
    return stand_in_fault(__func__);
}

API cu_result_t cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    (void)device;
    return flags == CU_SCHEDULE_BLOCKING ? stand_in_fault(__func__) : CU_INVALID_VALUE;
}

API cu_result_t cuDevicePrimaryCtxRetain(CUcontext *made, CUdevice device)
{
    static uint64_t seed;
    context_t *c = &context[device];
    if (!is_started || device < 0 || device >= DEVICES)
        return CU_INVALID_DEVICE;
    const cu_result_t fault = stand_in_fault(__func__);
    if (fault != CU_OK)
        return fault;
    pthread_mutex_lock(&stand_in_lock);
    if (!c->users++) {
        memset(calls, 0, sizeof calls);
        *c = (context_t){.number = device, .users = 1};
        c->streams = streams_new(7919 * ++seed);
    }
    pthread_mutex_unlock(&stand_in_lock);
    *made = c;
    return CU_OK;
}

API cu_result_t cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    context_t *c = &context[device];
    block_t block;
    pthread_mutex_lock(&stand_in_lock);
    const bool ends = c->users && --c->users == 0;
    pthread_mutex_unlock(&stand_in_lock);
    if (!ends)
        return CU_OK;
    tell_left(c);
    streams_free(c->streams);
    while (c->memory && block_take(&c->memory, c->memory->at, &block))
        memory_drop(&block);
    return CU_OK;
}

API cu_result_t cuCtxSetCurrent(CUcontext made)
{
    stand_in_current = made;
    return stand_in_fault(__func__);
}

/* ---- Memory ---- */

API cu_result_t cuMemGetInfo_v2(size_t *left, size_t *all)
{
    const cu_result_t result = stand_in_enter(__func__);
    if (result == CU_OK) {
        *all = memory_all();
        *left = *all - stand_in_current->used;
    }
    return result;
}

API cu_result_t cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    cu_result_t result = stand_in_enter(__func__);
    if (result == CU_OK)
        result = stand_in_refuse_in_capture();
    if (result != CU_OK || !bytes)
        return result != CU_OK ? result : CU_INVALID_VALUE;
    pthread_mutex_lock(&stand_in_lock);
    if (++stand_in_current->allocations == stand_in_fact("memory", 0, NULL)
        || bytes > memory_all() - stand_in_current->used) {
        result = CU_OUT_OF_MEMORY;
    } else {
        *address = memory_take(bytes);
        block_add(&stand_in_current->memory, (uintptr_t)*address, bytes);
        stand_in_current->used += bytes;
    }
    pthread_mutex_unlock(&stand_in_lock);
    return result;
}

/* Waits for the device, as the driver does. */
API cu_result_t cuMemFree_v2(CUdeviceptr address)
{
    block_t block;
    cu_result_t result = stand_in_current && stand_in_current->users
                             ? stand_in_refuse_in_capture()
                             : CU_INVALID_CONTEXT;
    for (int k = 0; k < STREAMS_MAX && result == CU_OK; k++)
        streams_finish(stand_in_current->streams, k);
    if (result != CU_OK)
        return result;
    pthread_mutex_lock(&stand_in_lock);
    if (block_take(&stand_in_current->memory, (uintptr_t)address, &block)) {
        stand_in_current->used -= block.bytes;
        memory_drop(&block);
    } else {
        result = CU_INVALID_VALUE;
    }
    pthread_mutex_unlock(&stand_in_lock);
    return result;
}

static cu_result_t pinned_begin(size_t bytes, unsigned flags, const char *call)
{
    cu_result_t result = stand_in_enter(call);
    if (result == CU_OK)
        result = stand_in_refuse_in_capture();
    if (result != CU_OK)
        return result;
    return flags == CU_HOST_FOR_ALL && bytes ? CU_OK : CU_INVALID_VALUE;
}

static void pinned_add(void *host, size_t bytes)
{
    pthread_mutex_lock(&stand_in_lock);
    block_add(&stand_in_current->pinned, (uintptr_t)host, bytes);
    pthread_mutex_unlock(&stand_in_lock);
}

static cu_result_t pinned_take(void *host, block_t *block)
{
    if (!stand_in_current || !stand_in_current->users)
        return CU_INVALID_CONTEXT;
    pthread_mutex_lock(&stand_in_lock);
    const bool found = block_take(&stand_in_current->pinned, (uintptr_t)host, block);
    pthread_mutex_unlock(&stand_in_lock);
    return found ? CU_OK : CU_INVALID_VALUE;
}

API cu_result_t cuMemHostAlloc(void **host, size_t bytes, unsigned flags)
{
    const cu_result_t result = pinned_begin(bytes, flags, __func__);
    if (result != CU_OK)
        return result;
    *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*host == MAP_FAILED)
        return CU_OUT_OF_MEMORY;
    memset(*host, 0xff, bytes);
    pinned_add(*host, bytes);
    return CU_OK;
}

API cu_result_t cuMemFreeHost(void *host)
{
    block_t block;
    const cu_result_t result = pinned_take(host, &block);
    if (result == CU_OK)
        munmap(host, block.bytes);
    return result;
}

API cu_result_t cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    const cu_result_t result = pinned_begin(bytes, flags, __func__);
    if (result == CU_OK)
        pinned_add(host, bytes);
    return result;
}

API cu_result_t cuMemHostUnregister(void *host)
{
    block_t block;
    return pinned_take(host, &block);
}

bool stand_in_is_pinned(const void *host, size_t bytes)
{
    pthread_mutex_lock(&stand_in_lock);
    const bool is = block_has(stand_in_current->pinned, (uintptr_t)host, bytes);
    pthread_mutex_unlock(&stand_in_lock);
    return is;
}

bool stand_in_is_memory(CUdeviceptr at, size_t bytes)
{
    pthread_mutex_lock(&stand_in_lock);
    const bool is = block_has(stand_in_current->memory, (uintptr_t)at, bytes);
    pthread_mutex_unlock(&stand_in_lock);
    return is;
}

void stand_in_captures(stream_t *stream, bool begins)
{
    pthread_mutex_lock(&stand_in_lock);
    captures[stream->thing.of->number][stream->number] = begins ? stream : NULL;
    pthread_mutex_unlock(&stand_in_lock);
}
