/* utf8.c - code points of UTF-8 text, strictly, and text that is safe to show */
#include "base/utf8.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

int pl_utf8_get(const void *text, size_t size, uint32_t *code)
{
    static const uint32_t min[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t *p = text;
    if (size == 0)
        return 0;
    if (p[0] < 0x80) {
        *code = p[0];
        return 1;
    }
    int bytes = p[0] < 0xC0 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF8 ? 4 : 0;
    if (bytes == 0 || (size_t)bytes > size)
        return 0;
    uint32_t c = p[0] & (0x7Fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < min[bytes] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return 0;
    *code = c;
    return bytes;
}

int pl_utf8_put(uint32_t code, char out[static 4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(0xF00u >> bytes | code);
    return bytes;
}

bool pl_utf8_ok(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint32_t code;
        int bytes = pl_utf8_get(text + at, length - at, &code);
        if (bytes == 0)
            return false;
        at += (size_t)bytes;
    }
    return true;
}

/* Copies characters while the rest fits, or the character and a "…" after it. */
char *pl_utf8_show(const char *text, char *shown, size_t size)
{
    static const char more[] = "…";
    const size_t more_bytes = sizeof more - 1;
    size_t left = strlen(text), used = 0;
    while (left > 0) {
        const unsigned char *p = (const unsigned char *)text;
        uint32_t code;
        size_t valid = (size_t)pl_utf8_get(p, left, &code), bytes = valid ? valid : 1,
               capacity = size - 1 - used;
        if (left > capacity && bytes + more_bytes > capacity) {
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

int pl_text_print(char *text, size_t size, const char *format, va_list args)
{
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    const int length = vsnprintf(text, size, format, args);
    uselocale(before);
    return length;
}
