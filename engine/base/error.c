/* error.c - errors: their codes and texts */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* The text may quote anything, such as a path, and may be cut within a character: it
 * becomes one line of UTF-8. */
static void text_set(pl_error_t *err, const char text[PL_ERROR_TEXT])
{
    const size_t length = strlen(text);
    bool is_plain = pl_utf8_ok(text, length);
    for (size_t k = 0; k < length && is_plain; k++)
        is_plain = (unsigned char)text[k] >= ' ' && text[k] != 127;
    if (is_plain)
        memcpy(err->text, text, PL_ERROR_TEXT);
    else
        pl_utf8_show(text, err->text, PL_ERROR_TEXT);
}

int pl_fail(pl_error_t *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char text[PL_ERROR_TEXT];                    /* an argument may be err->text itself */
    va_list args;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    err->code = code;
    err->where[0] = '\0';
    text_set(err, text);
    return code;
}

int pl_error_prefix(pl_error_t *err, const char *format, ...)
{
    if (!err)
        return PL_EBUG;
    char text[PL_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    int length = pl_text_print(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || length > PL_ERROR_TEXT / 2)
        return err->code;
    snprintf(text + length, sizeof text - (size_t)length, ": %.*s",
             PL_ERROR_TEXT - length - 3, err->text);
    text_set(err, text);
    return err->code;
}

int pl_no_memory(pl_error_t *err)
{
    return pl_fail(err, PL_ENOMEM, "out of memory");
}

int pl_require(const void *thing, const char *what, pl_error_t *err)
{
    return thing ? PL_OK
                 : pl_fail(err, PL_EINVAL, "%s is required, but the argument is NULL",
                           what);
}

const char *pl_code_name(int code)
{
    switch (code) {
    case PL_OK: return "PL_OK";
#define PL_X(name, number, text) \
    case name: return #name;
        PL_ERRORS(PL_X)
#undef PL_X
    default: return "PL_E?";
    }
}

const char *pl_code_text(int code)
{
    switch (code) {
    case PL_OK: return "done";
#define PL_X(name, number, text) \
    case name: return text;
        PL_ERRORS(PL_X)
#undef PL_X
    default: return "unknown error";
    }
}
