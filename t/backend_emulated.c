/* backend_emulated.c - an accelerator whose GPU is the emulator */
#include "backend_emulated.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "t/emulated_code.h"
#include "t/emulated_layers.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "t/emulator.h"
#include "t/stand_in/gelu.h"

#include "base/alloc.h"
#include "base/error.h"

/* The emulator has one thread of its own. */
static pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;

atomic_int emulated_slow_us;

/* Each device that is opened has threads in another order. */
static int opened;

static int emulated_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    e->seed = 1000003u * (uint64_t)__atomic_add_fetch(&opened, 1, __ATOMIC_RELAXED);
    e->streams = streams_new(e->seed);
    for (int k = 0; k < STREAMS_MAX; k++)
        e->stream[k] = (streams_handle_t){e->streams, k};
    e->gpu.checks = true;
    e->gpu.short_replay = 60;
    if (getenv("EMULATED_LIMIT"))
        e->limit = (size_t)atol(getenv("EMULATED_LIMIT"));
    e->descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    *info = (pl_device_info_t){.ranks = info->ranks,
                               .local_rank = info->local_rank,
                               .device = -1,
                               .devices = 1,
                               .threads = 1};
    snprintf(info->model, sizeof info->model, "emulator");
    return PL_OK;
}

/* ---- Memory ---- */

typedef struct memory {
    struct memory *next;
    void *at;
    size_t bytes;
} memory_t;

static void emulated_close(void *self)
{
    emulated_t *e = self;
    if (e->streams)
        streams_free(e->streams), close(e->descriptor);
    e->streams = NULL;
    while (e->freed) {
        memory_t *block = e->freed;
        e->freed = block->next;
        free(block->at);
        pl_free(block);
    }
}

static int emulated_memory_new(void *self, size_t bytes, pl_device_ptr_t *address,
                               pl_error_t *err)
{
    emulated_t *e = self;
    if ((e->limit && bytes > e->limit) || (e->capacity && e->used + bytes > e->capacity))
        return pl_fail(err, PL_ENOMEM, "out of memory: %zu bytes requested", bytes);
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memory_t *block = pl_alloc(sizeof *block);
    if (!memory || !block) {
        free(memory), pl_free(block);
        return pl_fail(err, PL_ENOMEM, "out of memory: %zu bytes", bytes);
    }
    memset(memory, 0xff, bytes);                            /* NaN */
    *address = (pl_device_ptr_t)(uintptr_t)memory;
    pthread_mutex_lock(&at_work);
    *block = (memory_t){e->memory, memory, bytes};
    e->memory = block;
    e->used += bytes;
    pthread_mutex_unlock(&at_work);
    return PL_OK;
}

static void *pointer(pl_device_ptr_t address)
{
    return (void *)(uintptr_t)address;
}

static void emulated_memory_free(void *self, pl_device_ptr_t address)
{
    emulated_t *e = self;
    memory_t **next = &e->memory, *block;
    pthread_mutex_lock(&at_work);
    while ((*next)->at != pointer(address))
        next = &(*next)->next;
    block = *next;
    *next = block->next;
    e->used -= block->bytes;
    block->next = e->freed;
    e->freed = block;
    pthread_mutex_unlock(&at_work);
}

/* With the lock: none of the addresses lies in memory that is freed. */
static bool is_there(emulated_t *e, const pl_device_ptr_t *address, int count)
{
    for (const memory_t *m = e->freed; m; m = m->next)
        for (int k = 0; k < count; k++)
            if (address[k] >= (uintptr_t)m->at
                && address[k] < (uintptr_t)m->at + m->bytes) {
                fprintf(stderr, "emulated: memory is used that was freed\n");
                e->stale++;
                return false;
            }
    return true;
}

/* Of all memory of the device a kernel may touch what its launch names. */
#ifdef __SANITIZE_ADDRESS__
static void memory_close(const emulated_t *e, const pl_kernel_launch_t *launch)
{
    for (const memory_t *m = e->memory; m && launch->bytes; m = m->next)
        ASAN_POISON_MEMORY_REGION(m->at, m->bytes);
    for (int k = 0; k < launch->count && launch->bytes; k++)
        ASAN_UNPOISON_MEMORY_REGION(pointer(launch->address[k]), launch->bytes[k]);
}

static void memory_open(const emulated_t *e)
{
    for (const memory_t *m = e->memory; m; m = m->next)
        ASAN_UNPOISON_MEMORY_REGION(m->at, m->bytes);
}
#else
#define memory_close(e, launch) ((void)(e))
#define memory_open(e) ((void)(e))
#endif

enum { HEAD = 64 /* bytes, in which the size stands */ };

static void *emulated_host_new(void *self, size_t bytes, pl_error_t *err)
{
    emulated_t *e = self;
    const bool fits = !e->pin_limit || bytes <= e->pin_limit;
    size_t *memory = fits ? aligned_alloc(HEAD, HEAD + (bytes + HEAD - 1) / HEAD * HEAD)
                          : NULL;
    if (!memory) {
        pl_fail(err, PL_ENOMEM, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    *memory = bytes;
    e->pinned += bytes;
    return (char *)memory + HEAD;
}

static void emulated_host_free(void *self, void *host)
{
    emulated_t *e = self;
    size_t *memory = (size_t *)((char *)host - HEAD);
    e->pinned -= *memory;
    free(memory);
}

/* ---- Streams ---- */

typedef struct copying {
    void *to;
    const void *from;                                       /* NULL: zeros */
    size_t bytes;
    emulated_t *device;
} copying_t;

static int copy_run(void *data)
{
    const copying_t *c = data;
    const pl_device_ptr_t address[] = {(uintptr_t)c->to, (uintptr_t)c->from};
    pthread_mutex_lock(&at_work);
    if (!is_there(c->device, address, 2))
        ;
    else if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
    pthread_mutex_unlock(&at_work);
    return 0;
}

static int copy_put(emulated_t *e, pl_stream_t stream, copying_t copying, pl_error_t *err)
{
    copying.device = e;
    if (e->recording)
        return pl_fail(err, PL_EBUG, "a copy is put on a stream that is recorded");
    streams_put(e->streams, (int)stream, copy_run, &copying, sizeof copying);
    return PL_OK;
}

static int emulated_copy_in(void *self, pl_stream_t stream, pl_device_ptr_t to,
                            const void *host, size_t bytes, pl_error_t *err)
{
    return copy_put(self, stream, (copying_t){pointer(to), host, bytes, NULL}, err);
}

static int emulated_copy_out(void *self, pl_stream_t stream, void *host,
                             pl_device_ptr_t from, size_t bytes, pl_error_t *err)
{
    return copy_put(self, stream, (copying_t){host, pointer(from), bytes, NULL}, err);
}

static int emulated_copy(void *self, pl_stream_t stream, pl_device_ptr_t to,
                         pl_device_ptr_t from, size_t bytes, pl_error_t *err)
{
    const copying_t copying = {pointer(to), pointer(from), bytes, NULL};
    return copy_put(self, stream, copying, err);
}

static int emulated_zero(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                         pl_error_t *err)
{
    return copy_put(self, stream, (copying_t){pointer(to), NULL, bytes, NULL}, err);
}

static int emulated_call(void *self, pl_stream_t stream, void (*function)(void *user),
                         void *user, pl_error_t *err)
{
    emulated_t *e = self;
    if (e->recording)
        return pl_fail(err, PL_EBUG, "a call is put on a stream that is recorded");
    streams_call(e->streams, (int)stream, function, user);
    return PL_OK;
}

static int emulated_finish(void *self, pl_stream_t stream, pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    __atomic_store_n(&e->waiting, 1, __ATOMIC_RELEASE);
    streams_finish(e->streams, (int)stream);
    __atomic_store_n(&e->waiting, 0, __ATOMIC_RELEASE);
    return PL_OK;
}

/* ---- Events: those of streams.h ---- */

static streams_event_t *event_of(pl_event_t *event)
{
    return (streams_event_t *)event;
}

static int emulated_event_new(void *self, pl_event_t **event, pl_error_t *err)
{
    (void)self, (void)err;
    *event = (pl_event_t *)streams_event_new();
    return PL_OK;
}

static void emulated_event_free(void *self, pl_event_t *event)
{
    (void)self;
    streams_event_free(event_of(event));
}

static int emulated_event_record(void *self, pl_event_t *event, pl_stream_t stream,
                                 pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    streams_record(e->streams, (int)stream, event_of(event));
    return PL_OK;
}

static int emulated_event_wait(void *self, pl_event_t *event, pl_stream_t stream,
                               pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    streams_wait(e->streams, (int)stream, event_of(event));
    return PL_OK;
}

static int emulated_event_passed(void *self, pl_event_t *event, bool *passed,
                                 pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    *passed = streams_passed(e->streams, event_of(event));
    return PL_OK;
}

static double emulated_event_seconds(void *self, pl_event_t *from, pl_event_t *to)
{
    (void)self;
    return streams_seconds(event_of(from), event_of(to));
}

static void write_notice(void *user)
{
    const uint64_t one = 1;
    const emulated_t *e = user;
    if (write(e->descriptor, &one, sizeof one) != sizeof one)
        abort();
}

static int emulated_notify(void *self, pl_event_t *event, pl_stream_t stream, bool soon,
                           pl_error_t *err)
{
    emulated_t *e = self;
    (void)stream, (void)soon, (void)err;
    streams_notify(e->streams, event_of(event), write_notice, e);
    return PL_OK;
}

static int emulated_descriptor(const void *self)
{
    const emulated_t *e = self;
    return e->descriptor;
}

/* ---- Streams of collectives, numbered after those of the core ---- */

static void *emulated_stream(void *self, pl_stream_t stream)
{
    return &((emulated_t *)self)->stream[stream];
}

static int emulated_enter(void *self, pl_error_t *err)
{
    (void)self, (void)err;
    return PL_OK;
}

static int emulated_stream_new(void *self, void **stream, pl_error_t *err)
{
    emulated_t *e = self;
    const int number = PL_STREAMS + __atomic_fetch_add(&e->made, 1, __ATOMIC_RELAXED);
    if (number >= STREAMS_MAX)
        return pl_fail(err, PL_EBUSY, "more than %d streams", STREAMS_MAX);
    *stream = &e->stream[number];
    return PL_OK;
}

/* Work on it still runs. */
static void emulated_stream_free(void *self, void *stream)
{
    (void)self, (void)stream;
}

static int emulated_stream_record(void *self, void *stream, pl_event_t *event,
                                  pl_error_t *err)
{
    const streams_handle_t *s = stream;
    (void)self, (void)err;
    streams_record(s->of, s->number, event_of(event));
    return PL_OK;
}

static int emulated_stream_wait(void *self, void *stream, pl_event_t *event,
                                pl_error_t *err)
{
    const streams_handle_t *s = stream;
    (void)self, (void)err;
    streams_wait(s->of, s->number, event_of(event));
    return PL_OK;
}

/* ---- Code ---- */

static int emulated_code_new(void *self, const char *text, pl_binary_t **code,
                             pl_error_t *err)
{
    (void)self;
    *code = emulated_code_load(text, err);
    return *code ? PL_OK : err->code;
}

static void emulated_code_free(void *self, pl_binary_t *code)
{
    (void)self;
    emulated_code_release(code);
}

static const pl_entry_t *emulated_code_entry(void *self, pl_binary_t *code,
                                             const char *name, pl_error_t *err)
{
    (void)self;
    const pl_entry_t *entry = emulated_code_find(code, name);
    if (!entry)
        pl_fail(err, PL_EBUG, "there is no kernel %s", name);
    return entry;
}

/* ---- Launches, products and layers ---- */

typedef struct launching {
    pl_kernel_launch_t launch;
    emulated_enter_t *enter;
    uint64_t seed;
    emulated_t *device;
} launching_t;

struct pl_product_plan {
    pl_product_t is;
};

typedef struct multiplying {
    pl_product_t is;
    pl_device_ptr_t at[PL_PRODUCT_ADDRESSES];
} multiplying_t;

typedef struct layering {
    pl_layer_t is;
    pl_device_ptr_t at[PL_LAYER_ADDRESSES];
} layering_t;

/* Work on a stream, or recorded work. */
typedef struct work {
    int (*run)(void *work);
    union {
        launching_t launching;
        multiplying_t multiplying;
        layering_t layering;
    } of;
} work_t;

struct pl_recording {
    work_t *work;
    int count, capacity;
};

static int work_put(emulated_t *e, pl_stream_t stream, const work_t *work,
                    pl_error_t *err)
{
    pl_recording_t *r = e->recording;
    if (!r) {
        streams_put(e->streams, (int)stream, work->run, work, sizeof *work);
        return PL_OK;
    }
    if (PL_GROW(r->work, r->count, r->capacity) != PL_OK)
        return pl_no_memory(err);
    r->work[r->count++] = *work;
    return PL_OK;
}

static int launch_run(void *work)
{
    launching_t *l = &((work_t *)work)->of.launching;
    if (emulated_slow_us)
        usleep((useconds_t)emulated_slow_us);
    pthread_mutex_lock(&at_work);
    if (is_there(l->device, l->launch.address, l->launch.count)) {
        memory_close(l->device, &l->launch);
        emulator_run(l->enter, l->launch.address, (unsigned)l->launch.groups,
                     (unsigned)l->launch.threads, l->seed);
        memory_open(l->device);
    }
    pthread_mutex_unlock(&at_work);
    return 0;
}

static int emulated_launch(void *self, pl_stream_t stream,
                           const pl_kernel_launch_t *launch, pl_error_t *err)
{
    emulated_t *e = self;
    if (++e->launches == e->fails_at)
        return pl_fail(err, PL_EIO, "launch %d fails", e->launches);
    const work_t work = {launch_run, {{*launch, launch->entry->enter, e->seed++, e}}};
    return work_put(e, stream, &work, err);
}

static double left_element(const multiplying_t *w, int64_t b, int64_t m, int64_t k)
{
    const pl_product_t *p = &w->is;
    return emulated_element(w->at[PL_PRODUCT_A], p->in,
                            b * p->batch_a
                                + (p->transpose_a ? k * p->row_a + m : m * p->row_a + k));
}

/* Element (m, n) of batch b, added up in float64. */
static double product_element(const multiplying_t *w, int64_t b, int64_t m, int64_t n)
{
    const pl_product_t *p = &w->is;
    double sum = p->has_bias ? emulated_element(w->at[PL_PRODUCT_BIAS], p->out, n) : 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += left_element(w, b, m, k)
               * emulated_element(w->at[PL_PRODUCT_B], p->in,
                                  b * p->batch_b
                                      + (p->transpose_b ? n * p->row_b + k
                                                        : k * p->row_b + n));
    return sum;
}

static double rounded(double x, pl_dtype_t dtype)
{
    double memory[1];
    emulated_set((pl_device_ptr_t)(uintptr_t)memory, dtype, 0, x);
    return emulated_element((pl_device_ptr_t)(uintptr_t)memory, dtype, 0);
}

/* What becomes of it, and of the element of aux beside it.  Vendors' libraries may leave
 * out the rounding in between. */
static double epilogue_of(const multiplying_t *w, double u, int64_t at)
{
    const pl_product_t *p = &w->is;
    if (p->epilogue != PL_EPILOGUE_NONE || p->adds)
        u = rounded(u, p->out);
    if (p->epilogue == PL_EPILOGUE_GELU && p->has_aux)
        emulated_set(w->at[PL_PRODUCT_AUX], p->out, at, u);
    if (p->epilogue == PL_EPILOGUE_GELU)
        u = gelu_of(u);
    if (p->epilogue == PL_EPILOGUE_GELU_GRAD)
        u *= gelu_slope_at(emulated_element(w->at[PL_PRODUCT_AUX], p->out, at));
    return p->adds ? u + emulated_element(w->at[PL_PRODUCT_C], p->out, at) : u;
}

static void sum_bias(const multiplying_t *w)
{
    const pl_product_t *p = &w->is;
    for (int64_t m = 0; m < p->m; m++) {
        double sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += left_element(w, 0, m, k);
        emulated_set(w->at[PL_PRODUCT_BIAS], p->out, m, sum);
    }
}

static int product_run(void *work)
{
    const multiplying_t *w = &((work_t *)work)->of.multiplying;
    const pl_product_t *p = &w->is;
    for (int64_t b = 0; b < p->batches; b++)
        for (int64_t m = 0; m < p->m; m++)
            for (int64_t n = 0; n < p->n; n++) {
                const int64_t at = b * p->batch_c + m * p->row_c + n;
                emulated_set(w->at[PL_PRODUCT_C], p->out, at,
                             epilogue_of(w, product_element(w, b, m, n), at));
            }
    if (p->epilogue == PL_EPILOGUE_BIAS_GRAD)
        sum_bias(w);
    return 0;
}

/* A library has limits: this one computes at most 64 batches, and no gelu of rows whose
 * length is no multiple of 8. */
static int emulated_product_new(void *self, const pl_product_t *product,
                                pl_product_plan_t **prepared, size_t *workspace,
                                pl_error_t *err)
{
    emulated_t *e = self;
    if (product->batches > 64
        || (product->n % 8
            && (product->epilogue == PL_EPILOGUE_GELU
                || product->epilogue == PL_EPILOGUE_GELU_GRAD)))
        return PL_EUNSUPPORTED;
    pl_product_plan_t *fresh = pl_alloc(sizeof *fresh);
    if (!fresh)
        return pl_no_memory(err);
    fresh->is = *product;
    *prepared = fresh;
    *workspace = 256;
    e->products++;
    return PL_OK;
}

static unsigned emulated_epilogues(const void *self)
{
    return ~((const emulated_t *)self)->without;
}

static int emulated_product_run(void *self, pl_stream_t stream,
                                const pl_product_plan_t *prepared,
                                const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES],
                                pl_error_t *err)
{
    emulated_t *e = self;
    work_t work = {product_run, {.multiplying = {.is = prepared->is}}};
    for (int k = 0; k < PL_PRODUCT_ADDRESSES; k++) {
        if (address[k] % PL_PRODUCT_ALIGNMENT)
            return pl_fail(err, PL_EBUG, "operand %d of a product is not aligned", k);
        work.of.multiplying.at[k] = address[k];
    }
    e->multiplied++;
    e->followed += prepared->is.epilogue != PL_EPILOGUE_NONE;
    e->added += prepared->is.adds;
    return work_put(e, stream, &work, err);
}

static void emulated_product_free(void *self, pl_product_plan_t *prepared)
{
    emulated_t *e = self;
    e->products--;
    pl_free(prepared);
}

/* A library has limits: this one has attention of widths that are multiples of 8, and
 * finds when it builds one that it has none of 24. */
struct pl_layer_plan {
    pl_layer_t is;
    bool is_built;
};

static int emulated_layer_new(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                              pl_error_t *err)
{
    emulated_t *e = self;
    const int64_t width = layer->attention.width;
    if (width % 8 || (width == 24 && __atomic_load_n(&e->refused, __ATOMIC_RELAXED)))
        return PL_EUNSUPPORTED;
    pl_layer_plan_t *fresh = pl_alloc(sizeof *fresh);
    if (!fresh)
        return pl_no_memory(err);
    fresh->is = *layer;
    *plan = fresh;
    e->products++;
    return PL_OK;
}

static int emulated_layer_build(void *self, pl_layer_plan_t *plan, size_t *workspace,
                                pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    if (plan->is.attention.width == 24) {
        __atomic_add_fetch(&e->refused, 1, __ATOMIC_RELAXED);
        return PL_EUNSUPPORTED;
    }
    plan->is_built = true;
    *workspace = EMULATED_LAYER_WORKSPACE;
    return PL_OK;
}

static int layer_run(void *work)
{
    const layering_t *w = &((work_t *)work)->of.layering;
    emulated_layer_compute(&w->is, w->at);
    return 0;
}

static int emulated_layer_run(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                              const pl_device_ptr_t address[PL_LAYER_ADDRESSES],
                              pl_error_t *err)
{
    emulated_t *e = self;
    work_t work = {layer_run, {.layering = {.is = plan->is}}};
    if (!plan->is_built)
        return pl_fail(err, PL_EBUG, "a layer is not built");
    for (int k = 0; k < PL_LAYER_ADDRESSES; k++) {
        if (address[k] % PL_PRODUCT_ALIGNMENT)
            return pl_fail(err, PL_EBUG, "operand %d of a layer is not aligned", k);
        work.of.layering.at[k] = address[k];
    }
    e->layered++;
    return work_put(e, stream, &work, err);
}

static void emulated_layer_free(void *self, pl_layer_plan_t *plan)
{
    emulated_t *e = self;
    e->products--;
    pl_free(plan);
}

/* ---- Recordings ---- */

static int emulated_record_begin(void *self, pl_stream_t stream, pl_error_t *err)
{
    emulated_t *e = self;
    (void)stream;
    if (e->recording)
        return pl_fail(err, PL_EBUG, "a stream is recorded already");
    e->recording = pl_alloc(sizeof *e->recording);
    return e->recording ? PL_OK : pl_no_memory(err);
}

static int emulated_record_end(void *self, pl_stream_t stream, pl_recording_t **recording,
                               pl_error_t *err)
{
    emulated_t *e = self;
    (void)stream, (void)err;
    *recording = e->recording;
    e->recording = NULL;
    return PL_OK;
}

static int emulated_recording_run(void *self, pl_stream_t stream,
                                  pl_recording_t *recording, pl_error_t *err)
{
    emulated_t *e = self;
    (void)err;
    for (int k = 0; k < recording->count; k++)
        streams_put(e->streams, (int)stream, recording->work[k].run, &recording->work[k],
                    sizeof(work_t));
    return PL_OK;
}

static void emulated_recording_free(void *self, pl_recording_t *recording)
{
    (void)self;
    pl_free(recording->work);
    pl_free(recording);
}

#define MACHINE \
    .name = "emulated", .open = emulated_open, .close = emulated_close, \
    .memory_new = emulated_memory_new, .memory_free = emulated_memory_free, \
    .host_new = emulated_host_new, .host_free = emulated_host_free, \
    .copy_in = emulated_copy_in, .copy_out = emulated_copy_out, .copy = emulated_copy, \
    .zero = emulated_zero, .call = emulated_call, .event_new = emulated_event_new, \
    .event_free = emulated_event_free, .event_record = emulated_event_record, \
    .event_wait = emulated_event_wait, .event_passed = emulated_event_passed, \
    .event_seconds = emulated_event_seconds, .notify = emulated_notify, \
    .descriptor = emulated_descriptor, .finish = emulated_finish, \
    .stream = emulated_stream, .enter = emulated_enter, \
    .stream_new = emulated_stream_new, .stream_free = emulated_stream_free, \
    .stream_record = emulated_stream_record, .stream_wait = emulated_stream_wait, \
    .code_new = emulated_code_new, .code_free = emulated_code_free, \
    .code_entry = emulated_code_entry, .launch = emulated_launch, \
    .record_begin = emulated_record_begin, .record_end = emulated_record_end, \
    .recording_run = emulated_recording_run, .recording_free = emulated_recording_free

static const pl_gpu_backend_ops_t backend = {MACHINE},
                                  machine_library = {MACHINE,
                                                     .product_new = emulated_product_new,
                                                     .product_run = emulated_product_run,
                                                     .product_free =
                                                         emulated_product_free,
                                                     .epilogues = emulated_epilogues,

                                                     .layer_new = emulated_layer_new,
                                                     .layer_build = emulated_layer_build,
                                                     .layer_run = emulated_layer_run,
                                                     .layer_free = emulated_layer_free};

static int open_gpu(void *self, pl_device_info_t *info, pl_error_t *err)
{
    return pl_gpu_open(self, &backend, info, err);
}

static int open_gpu_library(void *self, pl_device_info_t *info, pl_error_t *err)
{
    return pl_gpu_open(self, &machine_library, info, err);
}

const pl_accelerator_ops_t emulated_accelerator = {
    .name = "emulated",
    .help = "the emulator of a GPU, for tests",
    .size = sizeof(emulated_t),
    .open = open_gpu,
    .memory_kind = "emulated",
    PL_GPU_OPS,
    PL_GPU_REGISTERS,
};

const pl_accelerator_ops_t emulated_library_accelerator = {
    .name = "emulated_library",
    .help = "the emulator of a GPU with a library of products and layers, for tests",
    .size = sizeof(emulated_t),
    .open = open_gpu_library,
    .memory_kind = "emulated",
    PL_GPU_OPS,
    PL_GPU_REGISTERS,
};
