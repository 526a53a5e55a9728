/* commands.h - commands to a run on their way down: passed on, or kept until there is
 * somebody to take them */
#ifndef PL_COMMANDS_H
#define PL_COMMANDS_H

#include "runtime/actor.h"

/* Passes a command on to who is below; its answer is that of the call. */
int pl_command_pass(void *self, pl_call_t *call, pl_address_t to,
                    const pl_control_t *what, pl_error_t *err);
/* call  [NULL: nobody waits for an answer] */
void pl_command_fail(pl_call_t *call, pl_code_t code, const char *why);

enum { PL_HELD_MAX = 16 };

/* Commands that came too early; all zero: none. */
typedef struct pl_held {
    int count;
    struct {
        pl_call_t *call;
        pl_control_t what;                        /* its texts stay as long as the call */
    } command[PL_HELD_MAX];
} pl_held_t;

/* PL_EBUSY: they are too many. */
int pl_held_add(pl_held_t *held, pl_call_t *call, const pl_control_t *what,
                pl_error_t *err);
/* Passes all of them on, in order, by pass(), whose error answers. */
void pl_held_pass(pl_held_t *held, void *self,
                  int (*pass)(void *self, pl_call_t *call, const pl_control_t *what,
                              pl_error_t *err));
/* There will be nobody. */
void pl_held_fail(pl_held_t *held, const char *why);

#endif
