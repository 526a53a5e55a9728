/* commander.h - how what looks at runs has commands carried out on them
 *
 * Whoever serves requests, of a page or a socket, is given one of these when it is
 * started and knows nothing of what is behind it. */
#ifndef PL_TELEMETRY_COMMANDER_H
#define PL_TELEMETRY_COMMANDER_H

#include "paceline.h"

enum { PL_REQUEST_MAX = 4096 };                             /* bytes */

/* One JSON object in one line, {"ok": true, …} or {"error": {"code": "PL_E…", "text":
 * "…"}}; gone when it returns.  On the engine's control thread: return soon. */
typedef void (*pl_on_reply_t)(const char *reply, size_t size, void *user);

typedef struct pl_commander {
    /* Any thread, as long as the engine is there: carries a request out, JSON as in
     * doc/embedding.md, however malformed it is.  on_reply comes exactly once, and before
     * the engine has closed; not after an error.  PL_ENOMEM; PL_ESTATE: the engine is
     * closing. */
    int (*post)(void *self, const char *request, size_t size, pl_on_reply_t on_reply,
                void *user, pl_error_t *err);
    void *self;
} pl_commander_t;

#endif
