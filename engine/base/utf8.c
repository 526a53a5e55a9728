/* utf8.c - whether text is UTF-8, and text that is safe to show */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the character at p, at most `left`; 0: not UTF-8 (overlong forms and
 * surrogates are not). */
static size_t character(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t bytes = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || bytes > left)
        return 0;
    uint32_t code = p[0] & (0xFFu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3F);
    }
    bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return overlong || surrogate || code > 0x10FFFF ? 0 : bytes;
}

bool pl_utf8_ok(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t bytes = character((const unsigned char *)text + at, length - at);
        if (bytes == 0)
            return false;
        at += bytes;
    }
    return true;
}

/* Goes on while the rest fits, or this character and a "…" after it do. */
char *pl_utf8_show(const char *text, char *shown, size_t size)
{
    static const char more[] = "…";
    const size_t more_bytes = sizeof more - 1;
    size_t left = strlen(text), used = 0;
    while (left > 0) {
        const unsigned char *p = (const unsigned char *)text;
        size_t valid = character(p, left), bytes = valid ? valid : 1,
               room = size - 1 - used;
        if (left > room && bytes + more_bytes > room) {
            memcpy(shown + used, more, more_bytes);
            used += more_bytes;
            break;
        }
        if (valid && p[0] >= 0x20 && p[0] != 0x7F)
            memcpy(shown + used, p, bytes);
        else
            memset(shown + used, '?', bytes);
        used += bytes;
        text += bytes;
        left -= bytes;
    }
    shown[used] = '\0';
    return shown;
}
