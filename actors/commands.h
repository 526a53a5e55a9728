/* commands.h - commands to a run: forwarded from level to level, and their arguments as
 * JSON
 *
 * The list of commands is in messages/enums.def.  The levels above the fit loop forward
 * the message `control` and know no command; fit_commands.c carries them out. */
#ifndef PL_COMMANDS_H
#define PL_COMMANDS_H

#include <jansson.h>

#include "runtime/actor.h"

/* Forwards a command to an actor below; the answer of that actor ends the call. */
int pl_command_pass(void *self, pl_call_t *call, pl_address_t to,
                    const pl_control_t *what, pl_error_t *err);
/* Fails the call  [NULL: nothing to do]. */
void pl_command_fail(pl_call_t *call, pl_code_t code, const char *why);

/* The command with its arguments, as the engine receives it as JSON: {"command":
 * "set_lr", "factor": 0.5, "optimizer": "g"}; a new reference; NULL: out of memory. */
json_t *pl_control_to_json(const pl_control_t *what);
/* The reverse; texts are borrowed from the JSON. */
pl_control_t pl_control_from_json(const json_t *json);

enum { PL_HELD_MAX = 16 };

/* Commands that came too early; all zero: none. */
typedef struct pl_held {
    int count;
    struct {
        pl_call_t *call;
        pl_control_t what;                        /* its texts live as long as the call */
    } command[PL_HELD_MAX];
} pl_held_t;

/* PL_EBUSY: there are too many. */
int pl_held_add(pl_held_t *held, pl_call_t *call, const pl_control_t *what,
                pl_error_t *err);
/* Forwards all of them in order; an error of pass() fails the call. */
void pl_held_pass(pl_held_t *held, void *self,
                  int (*pass)(void *self, pl_call_t *call, const pl_control_t *what,
                              pl_error_t *err));
/* Fails all of them. */
void pl_held_fail(pl_held_t *held, const char *why);

#endif
