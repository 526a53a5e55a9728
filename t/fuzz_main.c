/* fuzz_main.c - feeds a libFuzzer target mutated inputs where there is no libFuzzer
 *
 * A target t/fuzz_NAME.c has only LLVMFuzzerTestOneInput() and is linked with this
 * main(); its seeds lie in t/corpus/NAME/.  Every input is a pure function of its number,
 * so a death is repeated by its number alone:
 *
 *   t/fuzz_NAME                               about a second, as `make check` does
 *   FUZZ_SECONDS=600 t/fuzz_NAME              longer
 *   FUZZ_FIRST=81 FUZZ_INPUTS=1 t/fuzz_NAME   input 81 again; FUZZ_SAVE=FILE keeps it
 *   t/fuzz_NAME FILE…                         these files as they are
 *
 * Beside deaths it finds inputs that leave memory behind, ask for far too much of it, or
 * take seconds.  Where clang is installed `make check-fuzz` gives the same targets to
 * libFuzzer, without this file. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "paceline.h"
#include "tap.h"

#define INPUT_SECONDS 20
#define MEMORY_LIMIT ((size_t)256 << 20)

typedef struct seed {
    char *path;
    uint8_t *bytes;
    size_t size;
} seed_t;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static seed_t seeds[1024];
static int seed_count;
static uint64_t input_number;
static size_t live_blocks, largest_request;

/* ---- Memory, counted ---- */

static void *counted_allocate(size_t bytes)
{
    if (bytes > largest_request)
        largest_request = bytes;
    void *memory = bytes > MEMORY_LIMIT ? NULL : malloc(bytes);
    if (memory)
        __atomic_add_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    return memory;
}

static void *counted_resize(void *memory, size_t bytes)
{
    if (!memory)
        return counted_allocate(bytes);
    if (bytes > largest_request)
        largest_request = bytes;
    return bytes > MEMORY_LIMIT ? NULL : realloc(memory, bytes);
}

static void counted_release(void *memory)
{
    __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    free(memory);
}

/* ---- Deaths ---- */

static void tell_number(void)
{
    char text[96];
    int length = snprintf(text, sizeof text,
                          "#   died on input %llu: FUZZ_FIRST=%llu FUZZ_INPUTS=1\n",
                          (unsigned long long)input_number,
                          (unsigned long long)input_number);
    ssize_t written = write(STDOUT_FILENO, text, (size_t)length);
    (void)written;
}

static void on_signal(int number)
{
    tell_number();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_deaths(void)
{
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(tell_number);
        return;
    }
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
}

/* ---- Seeds ---- */

static void seed_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || seed_count == (int)(sizeof seeds / sizeof *seeds)) {
        tap_diag("cannot take %s", path);
        exit(99);
    }
    fseek(file, 0, SEEK_END);
    seed_t *seed = &seeds[seed_count++];
    seed->size = (size_t)ftell(file);
    rewind(file);
    seed->path = strdup(path);
    seed->bytes = malloc(seed->size + 1);
    if (fread(seed->bytes, 1, seed->size, file) != seed->size)
        exit(99);
    fclose(file);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const seed_t *)a)->path, ((const seed_t *)b)->path);
}

/* "t/.libs/lt-fuzz_options" has its seeds in t/corpus/options. */
static void seeds_read(const char *program)
{
    const char *top = getenv("top_srcdir"), *name = strstr(program, "fuzz_");
    char folder[4096], path[8192];
    for (const char *later; name && (later = strstr(name + 1, "fuzz_"));)
        name = later;
    snprintf(folder, sizeof folder, "%s/t/corpus/%s", top ? top : ".",
             name ? name + 5 : "");
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            seed_read(path);
    }
    if (dir)
        closedir(dir);
    qsort(seeds, (size_t)seed_count, sizeof *seeds, by_path);
    ok(seed_count > 0, "there are seeds in %s", folder);
}

static void seeds_free(void)
{
    while (seed_count > 0) {
        free(seeds[--seed_count].path);
        free(seeds[seed_count].bytes);
    }
}

/* ---- Mutations ---- */

typedef struct input {
    uint8_t *bytes;
    size_t size, capacity;
    uint64_t key, draws;
} input_t;

static size_t draw(input_t *in, size_t below)
{
    return below ? (size_t)(pl_random_u64(in->key, in->draws++) % below) : 0;
}

/* Replaces bytes [at, at + cut) by `count` others. */
static void splice(input_t *in, size_t at, size_t cut, const uint8_t *other, size_t count)
{
    if (in->size - cut + count > in->capacity)
        return;
    memmove(in->bytes + at + count, in->bytes + at + cut, in->size - at - cut);
    if (count)
        memcpy(in->bytes + at, other, count);
    in->size = in->size - cut + count;
}

/* Numbers that parsers stumble over, in 1 to 8 bytes, either end first. */
static void put_number(input_t *in, size_t at)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x100,
                                       0x7fff,
                                       0xffff,
                                       0x10000,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       UINT64_C(0x100000000),
                                       INT64_MAX,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX};
    uint64_t number = numbers[draw(in, sizeof numbers / sizeof *numbers)];
    size_t width = (size_t)1 << draw(in, 4);
    bool big_end_first = draw(in, 2);
    for (size_t i = 0; i < width && at + i < in->size; i++)
        in->bytes[at + i] = (uint8_t)(number >> 8 * (big_end_first ? width - 1 - i : i));
}

static void put_piece(input_t *in, size_t at, size_t cut)
{
    const seed_t *other = &seeds[draw(in, (size_t)seed_count)];
    size_t from = draw(in, other->size + 1), max = other->size - from;
    splice(in, at, cut, other->bytes + from, draw(in, (max > 64 ? 64 : max) + 1));
}

static void repeat_piece(input_t *in, size_t at, size_t count)
{
    uint8_t piece[64];
    memcpy(piece, in->bytes + at, count);
    for (size_t times = draw(in, 2) ? 1 : draw(in, 64); times > 0; times--)
        splice(in, at, 0, piece, count);
}

static void mutate(input_t *in)
{
    static const char odd[] = "\0\n\r\"\\/{}[](),:;.-+eE0 19\x7f\x80\xbf\xc0\xe2\xff";
    size_t at = draw(in, in->size + 1), left = in->size - at,
           piece = draw(in, (left > 32 ? 32 : left) + 1);
    uint8_t byte = (uint8_t)odd[draw(in, sizeof odd - 1)];
    switch (draw(in, 9)) {
    case 0: splice(in, at, 0, &byte, 1); break;
    case 1: splice(in, at, left ? 1 : 0, &byte, 1); break;
    case 2: splice(in, at, piece, NULL, 0); break;
    case 3: splice(in, at, draw(in, 16) ? 0 : left, NULL, 0); break;
    case 4: repeat_piece(in, at, piece); break;
    case 5: put_piece(in, at, 0); break;
    case 6: put_piece(in, at, piece); break;
    case 7: put_number(in, at); break;
    default:
        if (left)
            in->bytes[at] ^= (uint8_t)(1u << draw(in, 8));
    }
}

static void input_make(input_t *in, uint64_t number)
{
    const seed_t *seed = &seeds[number % (uint64_t)seed_count];
    in->key = pl_mix(0xF022, number);
    in->draws = 0;
    in->size = seed->size;
    memcpy(in->bytes, seed->bytes, seed->size);
    for (size_t edits = 1 + draw(in, 5); edits > 0; edits--)
        mutate(in);
}

/* ---- The run ---- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void input_save(const uint8_t *bytes, size_t size)
{
    const char *path = getenv("FUZZ_SAVE");
    FILE *file = path ? fopen(path, "wb") : NULL;
    if (!file)
        return;
    fwrite(bytes, 1, size, file);
    fclose(file);
}

/* A copy of exactly that size, so that a sanitizer sees one byte too many.  False when
 * memory stays behind. */
static bool feed(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, bytes, size);
    input_save(copy, size);
    size_t before = live_blocks;
    alarm(INPUT_SECONDS);
    LLVMFuzzerTestOneInput(copy, size);
    alarm(0);
    free(copy);
    return live_blocks == before;
}

static void feed_seeds(void)
{
    for (int i = 0; i < seed_count; i++)
        ok(feed(seeds[i].bytes, seeds[i].size), "%s leaves nothing behind",
           strrchr(seeds[i].path, '/') + 1);
}

static void feed_mutations(void)
{
    uint64_t first = setting("FUZZ_FIRST", 0), count = setting("FUZZ_INPUTS", 100000),
             leaks = 0, done = 0;
    int64_t until = pl_now() + (int64_t)setting("FUZZ_SECONDS", 1) * PL_SECOND;
    input_t in = {.capacity = 1 << 12};
    for (int i = 0; i < seed_count; i++)
        in.capacity = seeds[i].size + (1 << 12) > in.capacity ? seeds[i].size + (1 << 12)
                                                              : in.capacity;
    in.bytes = malloc(in.capacity);
    while (done < count && (done == 0 || pl_now() < until)) {
        input_number = first + done++;
        input_make(&in, input_number);
        if (!feed(in.bytes, in.size) && leaks++ == 0)
            tap_diag("input %llu leaves memory behind", (unsigned long long)input_number);
    }
    free(in.bytes);
    ok(leaks == 0, "no input leaves memory behind");
    ok(largest_request <= MEMORY_LIMIT, "no input asks for too much memory");
    tap_diag("%llu inputs, largest request %zu bytes", (unsigned long long)done,
             largest_request);
}

int main(int argc, char **argv)
{
    pl_memory_hooks(counted_allocate, counted_resize, counted_release);
    watch_deaths();
    if (argc > 1)
        for (int i = 1; i < argc; i++)
            seed_read(argv[i]);
    else
        seeds_read(argv[0]);
    feed(NULL, 0);                            /* what is made once and kept is made now */
    feed_seeds();
    if (argc == 1 && seed_count > 0)
        feed_mutations();
    seeds_free();
    return tap_done();
}
