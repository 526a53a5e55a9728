/* agreed.h - the callbacks' answers as text, for the ranks that have none to ask */
#ifndef PL_LOOPS_AGREED_H
#define PL_LOOPS_AGREED_H

#include <jansson.h>

#include "actors/intervals.h"
#include "runtime/actor.h"

/* A new text, pl_free() frees it; NULL with PL_ENOMEM. */
char *pl_agreed_wish(const pl_ask_callbacks_reply_t *wish, pl_error_t *err);
char *pl_agreed_interest(const pl_interest_reply_t *interest, pl_error_t *err);

/* From such a text; what is read borrows its texts from *kept_p, the caller's.
 * PL_EPROTOCOL. */
int pl_agreed_read_wish(const char *text, pl_ask_callbacks_reply_t *wish, json_t **kept_p,
                        pl_error_t *err);
/* Its numbers lie in an array of the caller's. */
enum { PL_AGREED_NUMBERS = PL_INTERVALS_MOST };
int pl_agreed_read_interest(const char *text, pl_interest_reply_t *interest,
                            uint64_t numbers[2 * PL_AGREED_NUMBERS], pl_error_t *err);

#endif
