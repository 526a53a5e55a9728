/* callback_text.h - replies of the callback connector as JSON text, for ranks without
 * callbacks */
#ifndef PL_LOOPS_CALLBACK_TEXT_H
#define PL_LOOPS_CALLBACK_TEXT_H

#include <jansson.h>

#include "actors/intervals.h"
#include "runtime/actor.h"

/* A new text, pl_free() frees it; NULL with PL_ENOMEM. */
char *pl_hook_reply_text(const pl_run_hook_reply_t *request, pl_error_t *err);
char *pl_callback_hooks_text(const pl_callback_hooks_reply_t *interest, pl_error_t *err);

/* From such a text; what is read borrows its texts from *kept_p, the caller's.
 * PL_EPROTOCOL. */
int pl_hook_reply_read(const char *text, pl_run_hook_reply_t *request, json_t **kept_p,
                       pl_error_t *err);
/* Its numbers lie in an array of the caller's. */
enum { PL_HOOK_INTERVALS = PL_INTERVALS_MAX };
int pl_callback_hooks_read(const char *text, pl_callback_hooks_reply_t *interest,
                           uint64_t numbers[2 * PL_HOOK_INTERVALS], pl_error_t *err);

#endif
