/* commands.h - commands to a run: how levels forward them, and their arguments as JSON
 *
 * A command is the message `control`.  Its kinds are listed in messages/enums.def and its
 * arguments in commands.c.  Every level between the program and the fit loop forwards the
 * message and knows no kind; fit_commands.c carries them out. */
#ifndef PL_COMMANDS_H
#define PL_COMMANDS_H

#include <jansson.h>

#include "runtime/actor.h"

/* Forwards a call to an actor below.  What that actor answers is the answer of the
 * call. */
int pl_forward(void *self, pl_call_t *call, pl_address_t to, pl_message_t message,
               const pl_body_t *body, pl_error_t *err);

/* Fails the call  [NULL: nothing to do]. */
void pl_command_fail(pl_call_t *call, pl_code_t code, const char *why);

/* An argument of one kind of command. */
typedef struct pl_command_argument {
    const char *key;
    pl_run_command_t command;
    bool is_number;                                         /* [a text] */
} pl_command_argument_t;

extern const pl_command_argument_t pl_command_arguments[];  /* up to one without key */

/* The command with its arguments: {"command": "set_lr", "factor": 0.5, "optimizer":
 * "g"}; a new reference; NULL: out of memory. */
json_t *pl_control_to_json(const pl_control_t *what);
/* A command with the arguments of the JSON; texts are borrowed from it, and NULL if it
 * lacks them. */
pl_control_t pl_control_from_json(pl_run_command_t command, const json_t *json);

#endif
