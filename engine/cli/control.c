/* control.c - paceline control: a command to a run of another process
 *
 * The commands are named like the functions of paceline.h. The run answers when it has
 * carried out the command, after the step that is under way. Only the run knows how long
 * that takes, so the answer has no time limit. The command gives up only if no run is
 * there, if the process there never greets, or if the connection ends. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/endpoint_client.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/watch.h"

enum { REQUEST_MAX = 4096 };                                /* bytes that a run accepts */

static const double ABSENCE = 2, PATIENCE = 3, GREETING = 30, TURN = 0.2;  /* s */

typedef struct order {
    const char *word, *command;      /* what is typed; what is sent */
    const char *value;               /* key of the value that the command takes  [none] */
    bool takes_optimizer, takes_name, takes_reason;
} order_t;

static const order_t orders[] = {
    {"list", "list"},
    {"pause", "pause"},
    {"continue", "continue"},
    {"save", "save", .takes_name = true},
    {"stop", "stop", .takes_reason = true},
    {"set-lr", "set_lr", "lr", .takes_optimizer = true},
    {"scale-lr", "set_lr", "factor", .takes_optimizer = true},
    {NULL, NULL},
};

/* ---- the request ---- */

static const order_t *order_find(const char *word, pl_error_t *err)
{
    const char *names[sizeof orders / sizeof *orders] = {NULL};
    for (size_t k = 0; orders[k].word; k++) {
        if (!strcmp(orders[k].word, word))
            return &orders[k];
        names[k] = orders[k].word;
    }
    const char *near = pl_nearest(word, names);
    char known[128] = "";
    for (size_t k = 0; names[k]; k++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 k ? ", " : "", names[k]);
    pl_fail(err, PL_EINVAL, "no command to a run is called \"%s\": %s%s%s", word,
            near ? "did you mean \"" : "the commands are ", near ? near : known,
            near ? "\"?" : "");
    return NULL;
}

/* Reads the value of a command, and refuses options of other commands. */
static int options_read(const order_t *order, const cli_control_t *a, double *value,
                        pl_error_t *err)
{
    const char *text = a->value;
    char *end;
    if (!order->value && text)
        return pl_fail(err, PL_EINVAL, "%s takes no value, but got \"%s\"", order->word,
                       text);
    if (order->value)
        *value = text ? strtod(text, &end) : NAN;
    if (order->value && (!text || end == text || *end || !isfinite(*value) || *value < 0))
        return pl_fail(err, PL_EINVAL, "%s needs a number of at least 0%s%s%s",
                       order->word, text ? ", not \"" : "", text ? text : "",
                       text ? "\"" : "");
    if (a->optimizer && !order->takes_optimizer)
        return pl_fail(err, PL_EINVAL, "--optimizer is for set-lr and scale-lr");
    if (a->name && !order->takes_name)
        return pl_fail(err, PL_EINVAL, "--name is for save");
    if (a->reason && !order->takes_reason)
        return pl_fail(err, PL_EINVAL, "--reason is for stop");
    if (a->run && !strcmp(order->command, "list"))
        return pl_fail(err, PL_EINVAL, "list shows all runs and takes no --run");
    return PL_OK;
}

/* Checks the length too: a run answers a request that is a little too long with an error,
 * but closes the connection after one that is much too long. */
static char *request_write(const cli_control_t *a, pl_error_t *err)
{
    double value = 0;
    const order_t *order = order_find(a->command, err);
    if (!order || options_read(order, a, &value, err) != PL_OK)
        return NULL;
    json_t *request = json_pack("{s:s, s:s*, s:s*, s:s*}", "command", order->command,
                                "optimizer", a->optimizer, "name", a->name, "reason",
                                a->reason);
    if (order->value)
        json_object_set_new(request, order->value, json_real(value));
    if (a->run)
        json_object_set_new(request, "run", json_integer(a->run));
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    const size_t length = text ? strlen(text) : 0;
    if (!text)
        pl_fail(err, PL_EINVAL,
                "cannot write the request: a text is not UTF-8, or out of memory");
    if (length <= REQUEST_MAX)
        return text;
    pl_fail(err, PL_EINVAL,
            "the request has %zu bytes, a run takes at most %d: give a shorter %s",
            length, REQUEST_MAX,
            a->reason ? "--reason"
            : a->name ? "--name"
                      : "--optimizer");
    free(text);
    return NULL;
}

/* ---- the answer ---- */

static json_t *reply_wait(cli_endpoint_client_t *c, const cli_control_t *a,
                          pl_error_t *err)
{
    const double began = cli_now();
    double there = began;                             /* when a process was there, last */
    const char *text = NULL;
    bool hinted = false;
    size_t length;
    while (!text && !cli_signalled() && !c->parted && !c->refused) {
        const double now = cli_now();
        if (c->reached)
            there = now;
        if (!c->connected && (now - there > ABSENCE || now - began > GREETING))
            break;
        if (!hinted && now - began > PATIENCE) {
            hinted = true;
            cli_note(c->connected ? "the run has not answered yet; waiting"
                                  : "the process there does not answer; waiting: it "
                                    "may be suspended");
        }
        cli_wait(c, -1, TURN);
        text = cli_receive(c, &length);
    }
    json_t *reply = text ? json_loadb(text, length, 0, NULL) : NULL;
    if (json_is_object(reply))
        return reply;
    json_decref(reply);
    if (text || c->refused)
        pl_fail(err, PL_EINVAL,
                "the socket at %s takes no commands: use the address that fit --control "
                "prints",
                a->endpoint);
    else if (c->parted)
        pl_fail(err, PL_EPEER, "%s closed before it answered: the run has ended",
                a->endpoint);
    else if (cli_now() - there > ABSENCE)
        pl_fail(err, PL_ENOTFOUND,
                "no run takes commands at %s: start the run with --control", a->endpoint);
    else
        pl_fail(err, PL_ETIMEOUT,
                "the process at %s has not answered for %.0f s: if it is suspended, "
                "kill -CONT resumes it",
                a->endpoint, GREETING);
    return NULL;
}

/* ---- its text ---- */

bool cli_reply_words(const json_t *reply, char *text, size_t capacity)
{
    static const char *const done[][2] = {{"pause", "paused"},
                                          {"continue", "continues"},
                                          {"save", "saved"}};
    const json_t *error = json_object_get(reply, "error");
    const char *command = cli_get_text(reply, "command"), *checkpoint;
    const char *words = command;
    for (size_t k = 0; k < sizeof done / sizeof *done; k++)
        if (!strcmp(command, done[k][0]))
            words = done[k][1];
    checkpoint = cli_get_text(reply, "checkpoint");
    const char *optimizer = cli_get_text(reply, "optimizer");
    if (error)
        snprintf(text, capacity, "%s", cli_get_text(error, "text"));
    else if (!strcmp(command, "set_lr"))
        snprintf(text, capacity,
                 "run %lld: the learning rate%s%s is %g%s after step %lld",
                 cli_get_count(reply, "run"), *optimizer ? " of " : "", optimizer,
                 cli_get_number(reply, json_object_get(reply, "lr") ? "lr" : "factor"),
                 json_object_get(reply, "lr") ? "" : " times the rate of its schedule",
                 cli_get_count(reply, "global_step"));
    else if (!strcmp(command, "stop"))
        snprintf(text, capacity, "run %lld: stops after this step",
                 cli_get_count(reply, "run"));
    else
        snprintf(text, capacity, "run %lld: %s after step %lld%s%s",
                 cli_get_count(reply, "run"), words, cli_get_count(reply, "global_step"),
                 *checkpoint ? ": " : "", checkpoint);
    return !error;
}

/* Prints the reply, which it consumes; the exit status. */
static int reply_show(json_t *reply, bool json)
{
    char text[1024];
    size_t k;
    const json_t *runs = json_object_get(reply, "runs"),
                 *error = json_object_get(reply, "error"), *run;
    const bool is_wrong = !strcmp(cli_get_text(error, "code"), "PL_EINVAL");
    const int status = !error ? CLI_DONE : is_wrong ? CLI_WRONG : CLI_FAILED;
    cli_reply_words(reply, text, sizeof text);
    if (error)
        cli_error("%s", text);
    if (json)
        cli_print_json(json_incref(reply));
    else if (runs && !json_array_size(runs))
        cli_print("no run is active\n");
    else if (!runs && !error)
        cli_print("%s\n", text);
    json_array_foreach(json ? NULL : runs, k, run)
        cli_print("run %lld  %-8s  step %lld  epoch %lld  %s\n",
                  cli_get_count(run, "run"), cli_get_text(run, "state"),
                  cli_get_count(run, "global_step"), cli_get_count(run, "epoch") + 1,
                  cli_get_text(run, "run_dir"));
    json_decref(reply);
    return status;
}

int cli_control(const cli_control_t *arguments)
{
    cli_endpoint_client_t client = {0};
    pl_error_t err = {0};
    int status = CLI_WRONG;
    char *request = request_write(arguments, &err);
    if (request
        && cli_connect(&client, CLI_COMMANDS, arguments->endpoint, &err) == PL_OK) {
        cli_watch_signals();
        cli_send(&client, request);
        json_t *reply = reply_wait(&client, arguments, &err);
        status = reply             ? reply_show(reply, arguments->json)
                 : cli_signalled() ? CLI_INTERRUPTED
                                   : CLI_FAILED;
    }
    if (err.code != PL_OK && !cli_signalled())
        cli_failure(&err, arguments->json);
    free(request);
    cli_disconnect(&client);
    return status;
}
