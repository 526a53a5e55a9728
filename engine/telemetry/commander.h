/* commander.h - carries out the commands that the page and the control socket receive
 *
 * The engine passes it to the page and to the control socket at their start; they know
 * nothing else of the engine. */
#ifndef PL_TELEMETRY_COMMANDER_H
#define PL_TELEMETRY_COMMANDER_H

#include "paceline.h"

enum { PL_REQUEST_MAX = 4096 };                             /* bytes */

/* Receives one JSON object in one line, {"ok": true, …} or {"error": {"code": "PL_E…",
 * "text": "…"}}; valid until it returns.  The engine's control thread: it must not
 * wait. */
typedef void (*pl_on_reply_t)(const char *reply, size_t size, void *user);

typedef struct pl_commander {
    /* Carries out a request, JSON as in doc/embedding.md; it may be malformed.  Calls
     * on_reply exactly once, before the engine has closed; not after an error.
     * PL_ENOMEM; PL_ESTATE: the engine is closing.  Any thread, while the engine
     * exists. */
    int (*post)(void *self, const char *request, size_t size, pl_on_reply_t on_reply,
                void *user, pl_error_t *err);
    void *self;
} pl_commander_t;

#endif
