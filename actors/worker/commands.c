/* commands.c - commands to the fit of a worker: held until its loop runs, and recorded in
 * a file of the run directory when they are carried out */
#include <jansson.h>
#include <string.h>

#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"

#define COMMANDS_FILE "commands.jsonl"

/* A command that the loop has. */
typedef struct command command_t;

struct command {
    command_t *next, **pprev;                               /* list of the worker's */
    pl_worker_t *worker;
    pl_call_t *call;
    pl_control_t what;
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

static void command_note(const command_t *command, const pl_control_reply_t *reply)
{
    const pl_control_t *what = &command->what;
    if (!command->worker->run_dir)
        return;
    json_t *line = json_pack("{s:f, s:I, s:s}", "time", pl_wall_clock(), "global_step",
                             (json_int_t)reply->global_step, "command",
                             pl_run_command_names[what->command]);
    int failed = line ? 0 : -1;
    if (!failed && *reply->checkpoint)
        failed = json_object_set_new(line, "checkpoint", json_string(reply->checkpoint));
    if (!failed && what->command == PL_RUN_COMMAND_SET_LR)
        failed = json_object_set_new(line, what->is_factor ? "factor" : "lr",
                                     json_real(what->value));
    if (!failed && *what->optimizer)
        failed = json_object_set_new(line, "optimizer", json_string(what->optimizer));
    if (failed) {
        json_decref(line);
        line = NULL;
    }
    line_append(command->worker, line);
}

void pl_worker_stop_note(pl_worker_t *w, const pl_outcome_t *outcome)
{
    if (!outcome->stopped || !w->run_dir || !*w->stop_reason || w->job->manual_signature
        || !strcmp(w->stop_reason, PL_OTHER_RANKS))
        return;
    line_append(w, json_pack("{s:f, s:I, s:s, s:s}", "time", pl_wall_clock(),
                             "global_step", (json_int_t)outcome->global_step, "command",
                             "stop", "reason", w->stop_reason));
}

/* ---- to the loop ---- */

static void command_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    command_t *command = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        command_note(command, &answer->body->control_reply);
        pl_reply_control(command->call, &answer->body->control_reply);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        pl_call_fail(command->call, answer->error);
    } else {
        return;
    }
    command_free(command);
}

static int command_pass(void *self, pl_call_t *call, const pl_control_t *what,
                        pl_error_t *err)
{
    pl_worker_t *w = self;
    command_t *command = pl_alloc(sizeof *command);
    const pl_how_t how = {.on_answer = command_answered, .context = command};
    if (!command)
        return pl_no_memory(err);
    *command = (command_t){w->commands, &w->commands, w, call, *what};
    if (command->next)
        command->next->pprev = &command->next;
    w->commands = command;
    if (pl_call_control(w, w->loop, what, how, err))
        return PL_OK;
    command_free(command);
    return err->code;
}

int pl_worker_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_worker_t *w = self;
    if (!w->run)
        return pl_fail(err, PL_ESTATE, "the run has ended");
    if (w->setup.step)
        return pl_held_add(&w->held, call, &body->control, err);
    return command_pass(w, call, &body->control, err);
}

void pl_worker_commands_begin(pl_worker_t *w)
{
    pl_held_pass(&w->held, w, command_pass);
}

void pl_worker_commands_release(pl_worker_t *w)
{
    while (w->commands)
        command_free(w->commands);
}
