/* error.c - error codes and the text beside them */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pl_fail(pl_error_t *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char text[PL_ERROR_TEXT];                    /* an argument may be err->text itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err->code = code;
    err->where[0] = '\0';
    memcpy(err->text, text, sizeof text);
    return code;
}

int pl_pass(pl_error_t *err, const char *format, ...)
{
    if (!err)
        return PL_EBUG;
    char text[PL_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || length > PL_ERROR_TEXT / 2)
        return err->code;
    snprintf(text + length, sizeof text - (size_t)length, ": %.*s",
             PL_ERROR_TEXT - length - 3, err->text);
    memcpy(err->text, text, sizeof text);
    return err->code;
}

int pl_no_memory(pl_error_t *err)
{
    return pl_fail(err, PL_ENOMEM, "out of memory");
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
