/* emulator.c - threads of kernels as fibers, with barriers, shuffles and local memory
 *
 * A fiber switches by six registers and its stack; a system call for each switch would
 * take most of the time.  For ThreadSanitizer a fiber is a thread of its own, and what
 * orders memory on a card is a pair of objects that are released before and acquired
 * after: two in turn, because a thread that is at the next barrier already must not order
 * one that is still leaving the last. */
#include "t/emulator.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef __SANITIZE_THREAD__
#define EMULATOR_TSAN 1
#endif
#ifdef EMULATOR_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *at);
void __tsan_release(void *at);
#define TSAN(call) call
#else
#define TSAN(call) ((void)0)
#endif
#ifdef __SANITIZE_ADDRESS__
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
void __asan_poison_memory_region(const volatile void *at, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes);
#define ASAN(call) call
static const void *host_stack;
static size_t host_stack_size;
#define UNWATCHED __attribute__((no_sanitize("address")))
#else
#define ASAN(call) ((void)0)
#define UNWATCHED
#endif

enum {
    STACK = 64 * 1024,
    BLOCKS = 2,                                             /* under way at once */
    THREADS = 1024,                                         /* of a block, at most */
    WARP = 32,
    LOCAL_BYTES = 256 * 1024,
    ARRAYS = 16,
};

typedef enum state { CAN_CONTINUE, AT_BARRIER, AT_SHUFFLE, IS_DONE } state_t;

typedef struct block block_t;

typedef struct fiber {
    emulator_thread_t place;                                /* the first member */
    void *at;                                               /* where its stack is */
    char *stack;
    state_t state;
    block_t *block;
    double offered;                                         /* to a shuffle */
    unsigned barriers, shuffles;                            /* passed */
    void *tsan, *fake;                                      /* the sanitizers' own */
} fiber_t;

typedef struct array {
    const char *name;
    void *memory;
} array_t;

struct block {
    fiber_t *fiber;                                         /* [THREADS] */
    unsigned count;
    bool is_busy;
    array_t array[ARRAYS];
    int arrays;
    char *local;                                            /* [LOCAL_BYTES] */
    size_t used;
    char barrier[2], shuffle[2 * THREADS / WARP], end[2];   /* objects of orders */
    unsigned ends;                                          /* blocks before it */
};

emulator_thread_t *emulator_self;
static fiber_t host;
static block_t block[BLOCKS];
static void (*running)(void *argument);
static void *argument_of;
static uint64_t drawn;

static unsigned draw(unsigned below)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(drawn >> 33) % below;
}

static void fault(const char *what, unsigned count, unsigned of)
{
    fprintf(stderr, "emulator: %s: %u of %u threads of block %u\n", what, count, of,
            emulator_self ? emulator_self->block.x : 0);
    exit(EMULATOR_FAULT);
}

/* ---- fibers ---- */

void emulator_jump(void **from, void *to);
__asm__(".text\n.globl emulator_jump\n.type emulator_jump, @function\n"
        "emulator_jump:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emulator_jump, . - emulator_jump\n");

UNWATCHED static void jump(fiber_t *from, fiber_t *to)
{
    ASAN(__sanitizer_start_switch_fiber(from->state == IS_DONE ? NULL : &from->fake,
                                        to == &host ? host_stack : to->stack,
                                        to == &host ? host_stack_size : STACK));
    TSAN(__tsan_switch_to_fiber(to->tsan, 1));
    emulator_self = &to->place;
    emulator_jump(&from->at, to->at);
    ASAN(__sanitizer_finish_switch_fiber(from->fake, NULL, NULL));
}

static fiber_t *current(void)
{
    return (fiber_t *)emulator_self;
}

static void wait_as(fiber_t *fiber, state_t state, char *order)
{
    (void)order;
    TSAN(__tsan_release(order));
    fiber->state = state;
    jump(fiber, &host);
    TSAN(__tsan_acquire(order));
}

UNWATCHED static void fiber_main(void)
{
    ASAN(__sanitizer_finish_switch_fiber(NULL, &host_stack, &host_stack_size));
    fiber_t *const fiber = current();
    TSAN(__tsan_acquire(&running));
    TSAN(__tsan_acquire(&fiber->block->end[fiber->block->ends & 1]));
    running(argument_of);
    TSAN(__tsan_release(&fiber->block->end[~fiber->block->ends & 1]));
    TSAN(__tsan_release(&argument_of));
    fiber->state = IS_DONE;
    jump(fiber, &host);
    abort();                                                /* no thread continues here */
}

static void fiber_start(fiber_t *fiber, block_t *of, unsigned number, unsigned which,
                        unsigned blocks)
{
    void **at = (void **)(fiber->stack + STACK - 16);
    *--at = NULL;                                           /* keeps calls aligned */
    *--at = (void *)fiber_main;
    for (int saved = 0; saved < 6; saved++)
        *--at = NULL;
    fiber->at = at;
    fiber->fake = NULL;
    fiber->block = of;
    fiber->state = CAN_CONTINUE;
    fiber->barriers = fiber->shuffles = 0;
    fiber->place = (emulator_thread_t){{number}, {which}, {of->count}, {blocks}};
    TSAN(fiber->tsan = fiber->tsan ? fiber->tsan : __tsan_create_fiber(0));
}

/* ---- what kernels call ---- */

void emulator_barrier(void)
{
    fiber_t *const fiber = current();
    wait_as(fiber, AT_BARRIER, &fiber->block->barrier[fiber->barriers++ & 1]);
}

double emulator_shuffle(double x, int mask)
{
    fiber_t *const fiber = current();
    const unsigned thread = fiber->place.thread.x;
    char *const order = &fiber->block->shuffle[thread / WARP * 2];
    fiber->offered = x;
    wait_as(fiber, AT_SHUFFLE, order + (fiber->shuffles++ & 1));
    const double other = fiber->block->fiber[thread ^ (unsigned)mask].offered;
    wait_as(fiber, AT_SHUFFLE, order + (fiber->shuffles++ & 1));
    return other;
}

void *emulator_local(const char *name, size_t bytes)
{
    block_t *const of = current()->block;
    for (int k = 0; k < of->arrays; k++)
        if (!strcmp(of->array[k].name, name))
            return of->array[k].memory;
    if (of->arrays == ARRAYS || of->used + bytes > LOCAL_BYTES)
        fault("more local memory than there is", of->count, of->count);
    char *const memory = of->local + of->used;
    ASAN(__asan_unpoison_memory_region(memory, bytes));
    for (volatile char *at = memory; at < memory + bytes; at++)
        *at = (char)0xff;                         /* a thread would be seen to memset() */
    of->used += (bytes + 63) / 64 * 64 + 64;      /* and a gap that nothing may touch */
    of->array[of->arrays++] = (array_t){name, memory};
    return memory;
}

const emulator_calls_t emulator_own_calls = {&emulator_self, emulator_barrier,
                                             emulator_shuffle, emulator_local};

/* ---- blocks ---- */

static void block_start(block_t *b, unsigned which, unsigned blocks, unsigned threads)
{
    b->is_busy = true;
    b->count = threads;
    ASAN(__asan_poison_memory_region(b->local, LOCAL_BYTES));
    b->used = 0;
    b->arrays = 0;
    b->ends++;
    for (unsigned k = 0; k < threads; k++)
        fiber_start(&b->fiber[k], b, k, which, blocks);
}

/* Continues the warps with all threads at a shuffle. */
static bool shuffles_pass(block_t *b)
{
    bool passed = false;
    for (unsigned from = 0; from < b->count; from += WARP) {
        const unsigned to = from + WARP < b->count ? from + WARP : b->count;
        unsigned waits = 0;
        for (unsigned k = from; k < to; k++)
            waits += b->fiber[k].state == AT_SHUFFLE;
        for (unsigned k = from; k < to && waits == to - from; k++)
            b->fiber[k].state = CAN_CONTINUE;
        passed |= waits == to - from;
    }
    return passed;
}

static unsigned count_of(const block_t *b, state_t state)
{
    unsigned count = 0;
    for (unsigned k = 0; k < b->count; k++)
        count += b->fiber[k].state == state;
    return count;
}

/* Each thread that can continue does so once, in a drawn order. */
static void block_turn(block_t *b)
{
    unsigned order[THREADS];
    bool went = false;
    for (unsigned k = 0; k < b->count; k++) {
        const unsigned other = draw(k + 1);
        order[k] = order[other];
        order[other] = k;
    }
    for (unsigned k = 0; k < b->count; k++)
        if (b->fiber[order[k]].state == CAN_CONTINUE) {
            jump(&host, &b->fiber[order[k]]);
            went = true;
        }
    went |= shuffles_pass(b);
    const unsigned done = count_of(b, IS_DONE), waits = count_of(b, AT_BARRIER);
    b->is_busy = done < b->count;
    if (waits && waits + done == b->count) {
        if (done)
            fault("a barrier that some threads never come to", waits, b->count);
        for (unsigned k = 0; k < b->count; k++)
            b->fiber[k].state = CAN_CONTINUE;
    } else if (!went && b->is_busy) {
        fault("a shuffle that a part of a warp never comes to", count_of(b, AT_SHUFFLE),
              b->count);
    }
}

static void block_make(block_t *b)
{
    b->fiber = calloc(THREADS, sizeof *b->fiber);
    b->local = aligned_alloc(64, LOCAL_BYTES);
    char *stacks = mmap(NULL, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!b->fiber || !b->local || stacks == MAP_FAILED) {
        fputs("emulator: out of memory\n", stderr);
        exit(EMULATOR_FAULT);
    }
    for (int k = 0; k < THREADS; k++)
        b->fiber[k].stack = stacks + (size_t)k * STACK;
}

void emulator_run(void (*kernel)(void *argument), void *argument, unsigned blocks,
                  unsigned threads, uint64_t seed)
{
    running = kernel;
    argument_of = argument;
    drawn = seed;
    TSAN(host.tsan = __tsan_get_current_fiber());
    TSAN(__tsan_release(&running));
    for (unsigned next = 0, busy = 1; busy;) {
        busy = 0;
        for (int k = 0; k < BLOCKS; k++) {
            if (!block[k].fiber)
                block_make(&block[k]);
            if (!block[k].is_busy && next < blocks)
                block_start(&block[k], next++, blocks, threads);
            if (block[k].is_busy) {
                block_turn(&block[k]);
                busy = 1;
            }
        }
    }
    emulator_self = NULL;
    TSAN(__tsan_acquire(&argument_of));
}
