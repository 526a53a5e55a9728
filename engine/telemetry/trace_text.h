/* trace_text.h - an event of a trace as text */
#ifndef PL_TELEMETRY_TRACE_TEXT_H
#define PL_TELEMETRY_TRACE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { EVENT_MAX = 512 };

/* Printing is most of what a trace costs: so texts are of known length where they are
 * constant, and an event is made where it stays. */
typedef struct text {
    size_t length;
    bool is_cut;                                            /* there was no room */
    char at[EVENT_MAX];
} text_t;

static inline void add_bytes(text_t *t, const char *bytes, size_t count)
{
    if (count > EVENT_MAX - t->length) {
        t->is_cut = true;
        return;
    }
    memcpy(t->at + t->length, bytes, count);
    t->length += count;
}

static inline void add(text_t *t, const char *text)
{
    add_bytes(t, text, strlen(text));
}

static inline void add_number(text_t *t, uint64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char digits[24], *const end = digits + sizeof digits, *first = end;
    for (; number >= 10; number /= 100)
        memcpy(first -= 2, pairs + number % 100 * 2, 2);
    if (number || first == end)
        *--first = (char)('0' + number);
    add_bytes(t, first, (size_t)(end - first));
}

/* Microseconds with the nanoseconds behind the point. */
static inline void add_time(text_t *t, int64_t time)
{
    const uint64_t ns = time > 0 ? (uint64_t)time : 0;
    const char rest[] = {'.', (char)('0' + ns % 1000 / 100), (char)('0' + ns % 100 / 10),
                         (char)('0' + ns % 10)};
    add_number(t, ns / 1000);
    add_bytes(t, rest, sizeof rest);
}

/* Names of actors may be a user's. */
static inline void add_name(text_t *t, const char *name)
{
    const size_t first = t->length;
    add(t, name);
    for (size_t k = first; k < t->length; k++)
        if (t->at[k] == '"' || t->at[k] == '\\' || (t->at[k] & 0xe0) == 0)
            t->at[k] = '?';
}

static inline void event(text_t *t, char phase, int pid, uint64_t tid, int64_t time)
{
    const char begin[] = {'{', '"', 'p', 'h', '"', ':', '"', phase, '"'};
    t->length = 0;
    t->is_cut = false;
    add_bytes(t, begin, sizeof begin);
    add(t, ",\"pid\":");
    add_number(t, (uint64_t)pid);
    add(t, ",\"tid\":");
    add_number(t, tid);
    add(t, ",\"ts\":");
    add_time(t, time);
}

static inline void add_label(text_t *t, const char *name)
{
    add(t, ",\"name\":\"");
    add_name(t, name);
    add(t, "\"");
}

#endif
