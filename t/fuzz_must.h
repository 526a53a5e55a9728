/* fuzz_must.h - what has to hold for any input of a fuzzer, or the process aborts */
#ifndef PL_T_FUZZ_MUST_H
#define PL_T_FUZZ_MUST_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "paceline.h"

static inline void must(bool truth)
{
    if (!truth)
        abort();
}

static inline void must_be_a_sentence(const pl_error_t *err)
{
    must(err->code < 0 && err->text[0] && !strchr(err->text, '\n'));
    must(pl_utf8_ok(err->text, strlen(err->text)));
}

#endif
