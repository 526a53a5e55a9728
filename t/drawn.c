/* drawn.c - arguments for calls as chance has them, from a seed: good, bad, none */
#include "drawn.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/utf8.h"
#include "tap.h"

static uint64_t seed, drawn;
static pl_error_t error;
static int calls, broken;
static struct {
    const char *call;
    int done, refused;
} counts[64];

enum { MEMORY_MAX = 256 << 20 };                            /* of one request */

static void *take(size_t bytes)
{
    return bytes > MEMORY_MAX ? NULL : malloc(bytes);
}

static void *resize(void *memory, size_t bytes)
{
    return bytes > MEMORY_MAX ? NULL : realloc(memory, bytes);
}

void drawn_init(void)
{
    pl_memory_hooks(take, resize, free);
}

void drawn_from(uint64_t from)
{
    seed = from;
    drawn = 0;
}

int drawn_below(int count)
{
    return (int)(pl_random_u64(seed, drawn++) % (uint64_t)count);
}

const char *drawn_text(void)
{
    static char far_too_long[70000];
    static const char *const texts[] = {"",
                                        "x",
                                        "no such thing",
                                        "\xff\xfe\x80",
                                        "a\nb",
                                        "%s%n%d",
                                        "../..",
                                        "{}",
                                        "[1, 2]",
                                        "-1",
                                        "nan",
                                        "1e999",
                                        "/dev/null",
                                        "/nowhere/at/all"};
    enum { TEXTS = sizeof texts / sizeof *texts };
    const int which = drawn_below(TEXTS + 2);
    if (!far_too_long[0])
        memset(far_too_long, 'z', sizeof far_too_long - 1);
    return which < TEXTS ? texts[which] : which == TEXTS ? far_too_long : NULL;
}

const char *drawn_of(const char *const *list, int count)
{
    return drawn_one_in(4) ? drawn_text() : list[drawn_below(count)];
}

double drawn_double(void)
{
    static const double values[] = {0,      -0.0,     1,         -1,  0.1, 1e-3, 1e308,
                                    1e-320, INFINITY, -INFINITY, NAN, 3,   1e18};
    return values[drawn_below(sizeof values / sizeof *values)];
}

int64_t drawn_int64(void)
{
    static const int64_t values[] = {
        0,           1,       -1,        2,         3,         7,       64,
        INT_MAX,     INT_MIN, INT64_MAX, INT64_MIN, 1LL << 32, 1 << 20, INT64_MAX / 2 + 1,
        -(1LL << 40)};
    return values[drawn_below(sizeof values / sizeof *values)];
}

int drawn_int(void)
{
    static const int values[] = {0, 1, -1, 2, 3, 8, 9, 64, 65536, INT_MAX, INT_MIN};
    return values[drawn_below(sizeof values / sizeof *values)];
}

pl_error_t *drawn_err(void)
{
    error = (pl_error_t){0};
    return drawn_one_in(8) ? NULL : &error;
}

static const char *wrong_in(bool failed, int code, const pl_error_t *err)
{
    if (!failed)
        return err && (err->code || *err->text) ? "it went well and left an error" : NULL;
    if (code >= 0 || !strcmp(pl_code_name(code), "PL_E?"))
        return "its code is none";
    if (code == PL_EBUG)
        return "it calls it a mistake of Paceline's";
    if (!err)
        return NULL;
    if (err->code != code)
        return "it returns one code and writes another";
    if (!*err->text || strchr(err->text, '\n'))
        return "it does not say why, in one line";
    return pl_utf8_ok(err->text, strlen(err->text)) ? NULL : "it is not UTF-8";
}

static void count(const char *call, bool failed)
{
    size_t k = 0;
    while (counts[k].call && strcmp(counts[k].call, call))
        if (++k == sizeof counts / sizeof *counts)
            return;
    counts[k].call = call;
    *(failed ? &counts[k].refused : &counts[k].done) += 1;
    calls++;
}

bool drawn_held(const char *call, bool failed, int code, const pl_error_t *err)
{
    const char *wrong = wrong_in(failed, code, err);
    count(call, failed);
    if (wrong && broken++ < 20)
        tap_diag("seed %llu, draw %llu: %s(): %s: %d, \"%s\"", (unsigned long long)seed,
                 (unsigned long long)drawn, call, wrong, code, err ? err->text : "");
    return !failed;
}

int drawn_broken(void)
{
    return broken;
}

void drawn_tell(void)
{
    for (size_t k = 0; k < sizeof counts / sizeof *counts && counts[k].call; k++)
        tap_diag("%4d done, %4d refused: %s()", counts[k].done, counts[k].refused,
                 counts[k].call);
}

int drawn_calls(void)
{
    return calls;
}
