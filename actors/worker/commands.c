/* commands.c - commands to the fit of a worker: they wait until its loop runs, and are
 * recorded in a file of the run directory when they are carried out */
#include <jansson.h>
#include <string.h>

#include "actors/commands.h"
#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"

#define COMMANDS_FILE "commands.jsonl"

enum { WAITING_MAX = 16 };

typedef struct command command_t;

struct command {
    command_t *next, **pprev;                               /* in w->commands, by time */
    pl_worker_t *worker;
    pl_call_t *call;
    pl_control_t what;                            /* its texts live as long as the call */
    bool sent;                                    /* to the loop  [it waits] */
};

static void command_free(command_t *command)
{
    *command->pprev = command->next;
    if (command->next)
        command->next->pprev = command->pprev;
    pl_free(command);
}

/* ---- the file ---- */

/* Consumes the line. If memory is out the line is missing, although the command has been
 * executed. */
static void line_append(pl_worker_t *w, json_t *line)
{
    char *text = line ? pl_json_write(line, PL_JSON_COMPACT) : NULL,
         *whole = text ? pl_text("%s\n", text) : NULL,
         *path = whole ? pl_text("%s/" COMMANDS_FILE, w->run_dir) : NULL;
    if (path)
        pl_call_append_log(w, w->writer,
                           &(pl_append_log_t){.path = path,
                                              .text = {whole, strlen(whole)}},
                           (pl_how_t){0}, NULL);
    pl_text_free(path);
    pl_text_free(whole);
    pl_text_free(text);
    json_decref(line);
}

void pl_worker_stop_note(pl_worker_t *w, const pl_outcome_t *outcome)
{
    if (!outcome->stopped || !w->run_dir || !*w->stop_reason || w->job->manual_signature
        || w->stop_kind == PL_STOP_KIND_RESTART)
        return;
    line_append(w, json_pack("{s:f, s:I, s:s, s:s}", "time", pl_wall_clock(),
                             "global_step", (json_int_t)outcome->global_step, "command",
                             "stop", "reason", w->stop_reason));
}

/* ---- to the loop ---- */

/* In the file a command has the checkpoint in place of the name that was requested. */
static void command_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    command_t *command = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_control_reply_t *reply = &answer->body->control_reply;
        if (command->worker->run_dir) {
            json_t *line = json_pack("{s:f, s:I}", "time", pl_wall_clock(), "global_step",
                                     (json_int_t)reply->global_step),
                   *what = pl_control_to_json(&command->what);
            if (what)
                json_object_del(what, "name");
            if (what && *reply->checkpoint)
                what = pl_json_with(what, "checkpoint", json_string(reply->checkpoint));
            if (!what || json_object_update(line, what) != 0) {
                json_decref(line);
                line = NULL;
            }
            json_decref(what);
            line_append(command->worker, line);
        }
        pl_reply_control(command->call, reply);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        pl_call_fail(command->call, answer->error);
    } else {
        return;
    }
    command_free(command);
}

/* A call that is not made consumes the command. */
static int command_send(command_t *command, pl_error_t *err)
{
    pl_worker_t *w = command->worker;
    const pl_how_t how = {.on_answer = command_answered, .context = command};
    command->sent = true;
    if (pl_call_control(w, w->loop, &command->what, how, err))
        return PL_OK;
    command_free(command);
    return err->code;
}

int pl_worker_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_worker_t *w = self;
    command_t **end = &w->commands;
    int waiting = 0;
    if (!w->run)
        return pl_fail(err, PL_ESTATE, "the run has ended");
    for (; *end; end = &(*end)->next)
        waiting += !(*end)->sent;
    if (w->setup.step && waiting == WAITING_MAX)
        return pl_fail(err, PL_EBUSY,
                       "%d commands already wait for the start of the run: send the "
                       "next when it has started",
                       WAITING_MAX);
    command_t *command = pl_alloc(sizeof *command);
    if (!command)
        return pl_no_memory(err);
    *command = (command_t){NULL, end, w, call, body->control, false};
    *end = command;
    return w->setup.step ? PL_OK : command_send(command, err);
}

void pl_worker_commands_begin(pl_worker_t *w)
{
    for (command_t *command = w->commands, *next; command; command = next) {
        pl_call_t *call = command->call;
        pl_error_t err = {0};
        next = command->next;
        if (!command->sent && command_send(command, &err) != PL_OK)
            pl_call_fail(call, &err);
    }
}

void pl_worker_commands_fail(pl_worker_t *w, const char *why)
{
    for (command_t *command = w->commands, *next; command; command = next) {
        next = command->next;
        if (command->sent)
            continue;
        pl_command_fail(command->call, PL_ESTATE, why);
        command_free(command);
    }
}

void pl_worker_commands_release(pl_worker_t *w)
{
    while (w->commands)
        command_free(w->commands);
}
