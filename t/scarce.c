/* scarce.c - memory that runs out when a test says so
 *
 * jansson's parser writes where it must not when its memory runs out (lex_save() ignores
 * it).  So memory never runs out while jansson parses, in tests that are linked with
 * -Wl,--wrap=json_loadb; everywhere else in jansson it may. */
#include "scarce.h"

#include <jansson.h>
#include <stdlib.h>

#include "paceline.h"
#include "tap.h"

static int left;                                    /* requests until one fails; atomic */
static bool failed;                                 /* atomic */
static _Thread_local bool spared;
static long live;

/* Any thread: of two requests at once, one gets the last remaining block. */
static bool runs_out(void)
{
    if (spared || __atomic_load_n(&left, __ATOMIC_RELAXED) <= 0
        || __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) != 0)
        return false;
    __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
    return true;
}

/* Beyond these a sanitizer ends the program instead of refusing. */
static const size_t BYTES_MAX = (size_t)1 << 40;

static void *scarce_allocate(size_t bytes)
{
    void *memory = runs_out() || bytes > BYTES_MAX ? NULL : malloc(bytes);
    __atomic_add_fetch(&live, memory != NULL, __ATOMIC_RELAXED);
    return memory;
}

static void *scarce_resize(void *memory, size_t bytes)
{
    if (!memory)
        return scarce_allocate(bytes);
    return runs_out() ? NULL : realloc(memory, bytes);
}

static void scarce_release(void *memory)
{
    __atomic_sub_fetch(&live, memory != NULL, __ATOMIC_RELAXED);
    free(memory);
}

void scarce_init_own(void)
{
    pl_memory_hooks(scarce_allocate, scarce_resize, scarce_release);
}

void scarce_init(void)
{
    scarce_init_own();
    json_set_alloc_funcs(scarce_allocate, scarce_release);
}

void scarce_fail(int n)
{
    __atomic_store_n(&failed, false, __ATOMIC_RELAXED);
    __atomic_store_n(&left, n, __ATOMIC_RELAXED);
}

void scarce_stop(void)
{
    __atomic_store_n(&left, 0, __ATOMIC_RELAXED);
}

bool scarce_failed(void)
{
    return __atomic_load_n(&failed, __ATOMIC_RELAXED);
}

json_t *__real_json_loadb(const char *text, size_t length, size_t flags,
                          json_error_t *error) __attribute__((weak));
json_t *__wrap_json_loadb(const char *text, size_t length, size_t flags,
                          json_error_t *error);

json_t *__wrap_json_loadb(const char *text, size_t length, size_t flags,
                          json_error_t *error)
{
    bool before = spared;
    spared = true;
    json_t *value = __real_json_loadb(text, length, flags, error);
    spared = before;
    return value;
}

long scarce_live(void)
{
    return __atomic_load_n(&live, __ATOMIC_RELAXED);
}

void scarce_try(int (*work)(void *user), void *user, const char *name)
{
    int wrong_code = 0, left_behind = 0, n = 0;
    do {
        long before = live;
        scarce_fail(++n);
        int rc = work(user);
        left = 0;
        if (rc != PL_OK && rc != PL_ENOMEM && !wrong_code)
            tap_diag("request %d failing gives %s", wrong_code = n, pl_code_name(rc));
        if (live != before && !left_behind)
            tap_diag("request %d failing leaves %ld blocks", left_behind = n,
                     live - before);
    } while (failed);
    is_int(wrong_code, 0, "%s: each of %d requests may fail with a clean error", name,
           n - 1);
    is_int(left_behind, 0, "%s: and leaves nothing behind", name);
}
