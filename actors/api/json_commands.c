/* json_commands.c - commands to the runs of an engine as JSON, from any thread
 *
 * What serves a page or a socket hands them in through the engine's commander. Whatever
 * comes is answered, once; a queue of its own, so that nothing is lost when the engine
 * closes. */
#include <jansson.h>
#include <string.h>

#include "actors/api/host.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/suggestion.h"
#include "telemetry/control.h"

struct pl_request {
    pl_request_t *next;
    pl_engine_t *engine;
    pl_on_reply_t on_reply;
    void *user;
    json_t *asked;                                          /* NULL: it was none */
    size_t size;
    char text[];                                            /* [size] */
};

/* ---- replies ---- */

static void request_free(pl_request_t *request)
{
    json_decref(request->asked);
    pl_free(request);
}

/* Consumes the request and the object; what was said as "id" comes back. */
static void reply(pl_request_t *request, json_t *object)
{
    static const char nothing[] =
        "{\"error\": {\"code\": \"PL_ENOMEM\", \"text\": \"out of memory\"}}";
    json_t *id = json_object_get(request->asked, "id");
    bool whole = object && (!id || json_object_set(object, "id", id) == 0);
    char *text = whole ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    const char *sent = text ? text : nothing;
    request->on_reply(sent, strlen(sent), request->user);
    pl_text_free(text);
    json_decref(object);
    request_free(request);
}

static void reply_error(pl_request_t *request, const pl_error_t *error)
{
    reply(request, json_pack("{s:{s:s, s:s}}", "error", "code", pl_code_name(error->code),
                             "text", error->text));
}

static void order_reply(pl_order_t *order, const pl_command_result_t *result)
{
    if (result->error.code != PL_OK)
        reply_error(order->request, &result->error);
    else
        reply(order->request,
              json_pack("{s:b, s:s, s:I, s:I, s:s*}", "ok", 1, "command", result->command,
                        "run", (json_int_t)order->trainer->number, "global_step",
                        (json_int_t)result->global_step, "checkpoint",
                        result->checkpoint));
    pl_text_free((char *)result->checkpoint);
}

/* ---- what is asked for ---- */

static const char *state_of(const pl_trainer_t *trainer)
{
    const pl_standing_t *s = &trainer->standing;
    return s->is_stopping ? "stopping"
           : s->is_paused ? "paused"
           : s->has_begun ? "running"
                          : "starting";
}

static json_t *run_show(const pl_trainer_t *trainer)
{
    const pl_ending_t *now = &trainer->done->ending;
    return json_pack("{s:I, s:s, s:b, s:I, s:I, s:s*}", "run",
                     (json_int_t)trainer->number, "state", state_of(trainer), "fit",
                     (int)trainer->standing.is_fit, "global_step",
                     (json_int_t)now->global_step, "epoch", (json_int_t)now->epoch,
                     "run_dir", now->run_dir);
}

static void list_carry_out(pl_request_t *request)
{
    json_t *runs = json_array();
    for (const pl_trainer_t *t = request->engine->living; t; t = t->next_living)
        if (t->run)
            json_array_insert_new(runs, 0, run_show(t));
    reply(request, json_pack("{s:b, s:o}", "ok", 1, "runs", runs));
}

/* The run that is meant: by its number, or the only one. */
static pl_trainer_t *run_find(const pl_request_t *request, pl_error_t *err)
{
    const json_t *wanted = json_object_get(request->asked, "run");
    pl_trainer_t *found = NULL;
    int count = 0;
    for (pl_trainer_t *t = request->engine->living; t; t = t->next_living) {
        if (!t->run || (wanted && (json_int_t)t->number != json_integer_value(wanted)))
            continue;
        found = t;
        count++;
    }
    if (count == 1)
        return found;
    if (wanted)
        pl_fail(err, PL_ENOTFOUND,
                "no run %lld is active: \"list\" shows the active runs",
                (long long)json_integer_value(wanted));
    else if (count)
        pl_fail(err, PL_EINVAL, "%d runs are active: choose one with \"run\"", count);
    else
        pl_fail(err, PL_ESTATE, "no run is active");
    return NULL;
}

static void stop_carry_out(pl_request_t *request, pl_trainer_t *trainer)
{
    const char *reason = json_string_value(json_object_get(request->asked, "reason"));
    pl_error_t err = {0};
    if (pl_trainer_tell_stop(trainer, reason ? reason : "requested by a command", &err)
        != PL_OK)
        reply_error(request, &err);
    else
        reply(request, json_pack("{s:b, s:s, s:I}", "ok", 1, "command", "stop", "run",
                                 (json_int_t)trainer->number));
}

static int rate_read(const json_t *asked, pl_order_t *order, pl_error_t *err)
{
    const json_t *lr = json_object_get(asked, "lr"),
                 *factor = json_object_get(asked, "factor");
    if (!lr == !factor)
        return pl_fail(err, PL_EINVAL, "\"set_lr\" needs either \"lr\" or \"factor\"");
    order->what.is_factor = factor != NULL;
    order->what.value = json_number_value(lr ? lr : factor);
    int code = pl_order_check(order, err);
    return code == PL_OK ? pl_order_optimizer(
               order, json_string_value(json_object_get(asked, "optimizer")), err)
                         : code;
}

static void order_carry_out(pl_request_t *request, pl_trainer_t *trainer,
                            pl_run_command_t command)
{
    pl_error_t err = {0};
    pl_order_t *order = pl_alloc(sizeof *order);
    int code = order ? PL_OK : pl_no_memory(&err);
    if (code == PL_OK) {
        *order = (pl_order_t){.trainer = trainer,
                              .what = {.command = command},
                              .answer = order_reply,
                              .request = request};
        if (command == PL_RUN_COMMAND_SET_LR)
            code = rate_read(request->asked, order, &err);
        else
            code = pl_order_name(
                order, json_string_value(json_object_get(request->asked, "name")), &err);
    }
    if (code == PL_OK) {
        pl_order_give(order);
        return;
    }
    pl_free(order);
    reply_error(request, &err);
}

/* ---- reading ---- */

/* Each key, the type that it has, and the command that it is for. */
static const struct {
    const char *key, *command;                              /* NULL: every command */
    int kind;
} keys[] = {
    {"command", NULL, 's'},       {"id", NULL, '*'},     {"run", NULL, 'i'},
    {"reason", "stop", 's'},      {"lr", "set_lr", 'f'}, {"factor", "set_lr", 'f'},
    {"optimizer", "set_lr", 's'}, {"name", "save", 's'},
};
enum { KEYS = sizeof keys / sizeof *keys };

static const char *const commands[] = {"list",   "pause", "continue", "save",
                                       "set_lr", "stop",  NULL};

static bool is_of_kind(const json_t *value, int kind)
{
    switch (kind) {
    case 's': return json_is_string(value);
    case 'i': return json_is_integer(value);
    case 'f': return json_is_number(value);
    default: return json_is_string(value) || json_is_integer(value);
    }
}

static int key_check(const char *key, const json_t *value, const char *command,
                     pl_error_t *err)
{
    pl_suggestion_t nearest;
    char text[PL_SUGGESTION_TEXT];
    pl_suggestion_init(&nearest, key);
    for (int k = 0; k < KEYS; k++) {
        if (keys[k].command && strcmp(keys[k].command, command))
            continue;
        pl_suggestion_offer(&nearest, keys[k].key);
        if (strcmp(keys[k].key, key))
            continue;
        return is_of_kind(value, keys[k].kind)
                   ? PL_OK
                   : pl_fail(err, PL_EINVAL, "\"%s\" has the wrong type", key);
    }
    return pl_fail(err, PL_EINVAL, "unknown key \"%.64s\" of \"%s\": %s", key, command,
                   pl_suggestion_text(&nearest, text));
}

/* The command, one of ours, or NULL. */
static const char *command_find(const char *word, pl_error_t *err)
{
    pl_suggestion_t nearest;
    char text[PL_SUGGESTION_TEXT];
    pl_suggestion_init(&nearest, word);
    if (!strcmp(word, "go_on")) {
        pl_log_line(PL_LOG_WARNING, 0, "control",
                    "the command go_on is now called continue");
        word = "continue";
    }
    for (int k = 0; commands[k]; k++) {
        pl_suggestion_offer(&nearest, commands[k]);
        if (!strcmp(commands[k], word))
            return commands[k];
    }
    pl_fail(err, PL_EINVAL, "unknown command \"%.64s\": %s", word,
            pl_suggestion_text(&nearest, text));
    return NULL;
}

static const char *request_read(pl_request_t *request, pl_error_t *err)
{
    request->asked = pl_json_read(request->text, request->size, "request", err);
    const char *word = json_string_value(json_object_get(request->asked, "command")),
               *command = word ? command_find(word, err) : NULL, *key;
    json_t *value;
    if (request->asked && !word)
        pl_fail(err, PL_EINVAL,
                "a request needs a \"command\", such as \"list\", which shows the runs");
    if (!command)
        return NULL;
    json_object_foreach(request->asked, key, value)
        if (key_check(key, value, command, err) != PL_OK)
            return NULL;
    return command;
}

static void request_carry_out(pl_request_t *request)
{
    pl_error_t err = {0};
    const char *command = request_read(request, &err);
    const bool lists = command && !strcmp(command, "list");
    pl_trainer_t *trainer = command && !lists ? run_find(request, &err) : NULL;
    if (lists)
        list_carry_out(request);
    else if (!trainer)
        reply_error(request, &err);
    else if (!strcmp(command, "stop"))
        stop_carry_out(request, trainer);
    else
        order_carry_out(request, trainer,
                        (pl_run_command_t)pl_enum_find(pl_run_command_names, command));
}

/* ---- the queue ---- */

static pl_request_t *requests_take(pl_requests_t *requests)
{
    pthread_mutex_lock(&requests->lock);
    pl_request_t *first = requests->first;
    if (first && !(requests->first = first->next))
        requests->last = &requests->first;
    pthread_mutex_unlock(&requests->lock);
    return first;
}

static void requests_look(void *argument)
{
    pl_engine_t *engine = argument;
    for (pl_request_t *request; (request = requests_take(&engine->requests));)
        request_carry_out(request);
}

static int request_queue(pl_engine_t *engine, pl_request_t *request, pl_error_t *err)
{
    pl_requests_t *requests = &engine->requests;
    int code = PL_OK;
    pthread_mutex_lock(&requests->lock);
    if (requests->closed)
        code = pl_fail(err, PL_ESTATE, "the engine is closing");
    else
        code = pl_reactor_post(engine->reactor, requests_look, engine, err);
    if (code == PL_OK) {
        *requests->last = request;
        requests->last = &request->next;
    }
    pthread_mutex_unlock(&requests->lock);
    return code;
}

static int request_post(void *self, const char *text, size_t size, pl_on_reply_t on_reply,
                        void *user, pl_error_t *err)
{
    if (size > PL_REQUEST_MAX)
        return pl_fail(err, PL_EINVAL, "the request has %zu bytes: send at most %d", size,
                       PL_REQUEST_MAX);
    pl_request_t *request = pl_alloc(sizeof *request + size);
    if (!request)
        return pl_no_memory(err);
    request->engine = self;
    request->on_reply = on_reply;
    request->user = user;
    request->size = size;
    memcpy(request->text, text, size);
    int code = request_queue(self, request, err);
    if (code != PL_OK)
        pl_free(request);
    return code;
}

pl_commander_t pl_engine_commander(pl_engine_t *engine)
{
    return (pl_commander_t){.post = request_post, .self = engine};
}

/* ---- life ---- */

void pl_requests_init(pl_requests_t *requests)
{
    pthread_mutex_init(&requests->lock, NULL);
    requests->last = &requests->first;
}

void pl_requests_close(pl_requests_t *requests)
{
    pl_error_t err;
    pthread_mutex_lock(&requests->lock);
    requests->closed = true;
    pthread_mutex_unlock(&requests->lock);
    pl_fail(&err, PL_ESTATE, "the engine is closing");
    for (pl_request_t *request; (request = requests_take(requests));)
        reply_error(request, &err);
}

void pl_requests_release(pl_requests_t *requests)
{
    if (requests->last)
        pthread_mutex_destroy(&requests->lock);
}
