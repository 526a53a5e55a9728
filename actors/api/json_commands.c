/* json_commands.c - commands to the runs of an engine as JSON, from any thread
 *
 * The servers of the page and of the control socket post requests through the engine's
 * commander. Each request is answered once. This queue is not the reactor's, so that
 * requests are answered also when the engine closes. */
#include <jansson.h>
#include <string.h>

#include "actors/api/host.h"
#include "actors/commands.h"
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
    json_t *json;                                           /* [the text is not JSON] */
    size_t size;
    char text[];                                            /* [size] */
};

/* ---- Replies ---- */

/* Consumes the request and the object. The request's "id" comes back. */
static void reply(pl_request_t *request, json_t *object)
{
    static const char no_memory[] =
        "{\"error\": {\"code\": \"PL_ENOMEM\", \"text\": \"out of memory\"}}";
    json_t *id = json_object_get(request->json, "id");
    bool whole = object && (!id || json_object_set(object, "id", id) == 0);
    char *text = whole ? pl_json_write(object, PL_JSON_COMPACT) : NULL;
    const char *sent = text ? text : no_memory;
    request->on_reply(sent, strlen(sent), request->user);
    pl_text_free(text);
    json_decref(object);
    json_decref(request->json);
    pl_free(request);
}

static void reply_error(pl_request_t *request, const pl_error_t *error)
{
    reply(request, json_pack("{s:{s:s, s:s}}", "error", "code", pl_code_name(error->code),
                             "text", error->text));
}

static void command_reply(pl_command_t *command, const pl_command_result_t *result)
{
    const json_t *request = command->request->json;
    if (result->error.code != PL_OK)
        reply_error(command->request, &result->error);
    else
        reply(command->request,
              json_pack("{s:b, s:s, s:I, s:I, s:s*, s:O*, s:O*, s:O*}", "ok", 1,
                        "command", result->command, "run",
                        (json_int_t)command->trainer->number, "global_step",
                        (json_int_t)result->global_step, "checkpoint", result->checkpoint,
                        "lr", json_object_get(request, "lr"), "factor",
                        json_object_get(request, "factor"), "optimizer",
                        json_object_get(request, "optimizer")));
    pl_text_free((char *)result->checkpoint);
}

/* ---- Execution ---- */

static void list_runs(pl_request_t *request)
{
    json_t *runs = json_array();
    for (const pl_trainer_t *t = request->engine->living; t; t = t->next_living) {
        if (!t->run)
            continue;
        const pl_ending_t *now = &t->done->ending;
        const pl_run_state_t *s = &t->state;
        const char *state = s->is_stopping ? "stopping"
                            : s->is_paused ? "paused"
                            : s->has_begun ? "running"
                                           : "starting";
        json_array_insert_new(runs, 0,
                              json_pack("{s:I, s:s, s:b, s:I, s:I, s:s*}", "run",
                                        (json_int_t)t->number, "state", state, "fit",
                                        (int)s->is_fit, "global_step",
                                        (json_int_t)now->global_step, "epoch",
                                        (json_int_t)now->epoch, "run_dir", now->run_dir));
    }
    reply(request, json_pack("{s:b, s:o}", "ok", 1, "runs", runs));
}

/* The run of that number, or the only one. */
static pl_trainer_t *run_find(const pl_request_t *request, pl_error_t *err)
{
    const json_t *wanted = json_object_get(request->json, "run");
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

static void command_execute(pl_request_t *request, pl_trainer_t *trainer,
                            pl_run_command_t name)
{
    pl_error_t err = {0};
    const json_t *lr = json_object_get(request->json, "lr"),
                 *factor = json_object_get(request->json, "factor");
    const pl_control_t what = pl_control_from_json(name, request->json);
    pl_command_t *command = pl_alloc(sizeof *command);
    int code = command ? PL_OK : pl_no_memory(&err);
    if (code == PL_OK && name == PL_RUN_COMMAND_SET_LR && !lr == !factor)
        code = pl_fail(&err, PL_EINVAL, "\"set_lr\" needs either \"lr\" or \"factor\"");
    if (code == PL_OK) {
        *command = (pl_command_t){.trainer = trainer,
                                  .what = what,
                                  .answer = command_reply,
                                  .request = request};
        code = pl_command_check(command, &err);
    }
    if (code == PL_OK)
        code = pl_command_set_optimizer(command, what.optimizer, &err);
    if (code == PL_OK)
        code = pl_command_set_name(command, what.name, &err);
    if (code == PL_OK) {
        pl_command_send(command);
        return;
    }
    pl_free(command);
    reply_error(request, &err);
}

/* ---- Reading ---- */

/* The keys of every request; the others are the arguments of commands. */
static const char *const keys[] = {"command", "id", "run", NULL};

/* Offers a key that the command has; true: it is the given one. */
static bool key_is(pl_suggestion_t *nearest, const char *key, const char *given)
{
    pl_suggestion_offer(nearest, key);
    return !strcmp(key, given);
}

static int key_check(const char *key, const json_t *value, const char *command,
                     pl_error_t *err)
{
    const pl_command_argument_t *argument = pl_command_arguments;
    pl_suggestion_t nearest;
    char text[PL_SUGGESTION_TEXT];
    bool is_known = false, fits = json_is_string(value);
    pl_suggestion_init(&nearest, key);
    for (int k = 0; keys[k] && !is_known; k++)
        if ((is_known = key_is(&nearest, keys[k], key)))
            fits = k == 0   ? json_is_string(value)
                   : k == 1 ? json_is_string(value) || json_is_integer(value)
                            : json_is_integer(value);
    if (!is_known && !strcmp(command, "stop"))
        is_known = key_is(&nearest, "reason", key);
    for (; argument->key && !is_known; argument++)
        if (!strcmp(pl_run_command_names[argument->command], command)
            && (is_known = key_is(&nearest, argument->key, key)))
            fits = argument->is_number ? json_is_number(value) : json_is_string(value);
    if (!is_known)
        return pl_fail(err, PL_EINVAL, "unknown key \"%.64s\" of \"%s\": %s", key,
                       command, pl_suggestion_text(&nearest, text));
    return fits ? PL_OK : pl_fail(err, PL_EINVAL, "\"%s\" has the wrong type", key);
}

/* The command of that name: "list", "stop" or one to a fit; NULL: unknown. */
static const char *command_find(const char *word, pl_error_t *err)
{
    pl_suggestion_t nearest;
    char text[PL_SUGGESTION_TEXT];
    pl_suggestion_init(&nearest, word);
    if (key_is(&nearest, "list", word))
        return "list";
    for (int k = 0; pl_run_command_names[k]; k++)
        if (key_is(&nearest, pl_run_command_names[k], word))
            return pl_run_command_names[k];
    if (key_is(&nearest, "stop", word))
        return "stop";
    pl_fail(err, PL_EINVAL, "unknown command \"%.64s\": %s", word,
            pl_suggestion_text(&nearest, text));
    return NULL;
}

/* The command of a request that is well-formed. */
static const char *request_read(pl_request_t *request, pl_error_t *err)
{
    request->json = pl_json_read(request->text, request->size, "request", err);
    const char *word = json_string_value(json_object_get(request->json, "command")),
               *command = word ? command_find(word, err) : NULL, *key;
    json_t *value;
    if (request->json && !word)
        pl_fail(err, PL_EINVAL,
                "a request needs a \"command\", such as \"list\", which shows the runs");
    if (!command)
        return NULL;
    json_object_foreach(request->json, key, value)
        if (key_check(key, value, command, err) != PL_OK)
            return NULL;
    return command;
}

/* ---- The queue ---- */

static pl_request_t *requests_take(pl_requests_t *requests)
{
    pthread_mutex_lock(&requests->lock);
    pl_request_t *first = requests->first;
    if (first && !(requests->first = first->next))
        requests->last = &requests->first;
    pthread_mutex_unlock(&requests->lock);
    return first;
}

static void requests_execute(void *argument)
{
    pl_engine_t *engine = argument;
    for (pl_request_t *request; (request = requests_take(&engine->requests));) {
        pl_error_t err = {0};
        const char *command = request_read(request, &err);
        const bool lists = command && !strcmp(command, "list");
        pl_trainer_t *trainer = command && !lists ? run_find(request, &err) : NULL;
        if (lists) {
            list_runs(request);
        } else if (!trainer) {
            reply_error(request, &err);
        } else if (strcmp(command, "stop") != 0) {
            command_execute(request, trainer,
                            (pl_run_command_t)pl_enum_find(pl_run_command_names,
                                                           command));
        } else {
            const char *reason =
                json_string_value(json_object_get(request->json, "reason"));
            reason = reason ? reason : "requested by a command";
            if (pl_trainer_send_stop(trainer, reason, &err) != PL_OK)
                reply_error(request, &err);
            else
                reply(request, json_pack("{s:b, s:s, s:I}", "ok", 1, "command", "stop",
                                         "run", (json_int_t)trainer->number));
        }
    }
}

static int request_post(void *self, const char *text, size_t size, pl_on_reply_t on_reply,
                        void *user, pl_error_t *err)
{
    pl_engine_t *engine = self;
    pl_requests_t *requests = &engine->requests;
    if (size > PL_REQUEST_MAX)
        return pl_fail(err, PL_EINVAL, "the request has %zu bytes: send at most %d", size,
                       PL_REQUEST_MAX);
    pl_request_t *request = pl_alloc(sizeof *request + size);
    if (!request)
        return pl_no_memory(err);
    request->engine = engine;
    request->on_reply = on_reply;
    request->user = user;
    request->size = size;
    memcpy(request->text, text, size);
    pthread_mutex_lock(&requests->lock);
    int code = requests->closed
                   ? pl_fail(err, PL_ESTATE, "the engine is closing")
                   : pl_reactor_post(engine->reactor, requests_execute, engine, err);
    if (code == PL_OK) {
        *requests->last = request;
        requests->last = &request->next;
    }
    pthread_mutex_unlock(&requests->lock);
    if (code != PL_OK)
        pl_free(request);
    return code;
}

pl_commander_t pl_engine_commander(pl_engine_t *engine)
{
    return (pl_commander_t){.post = request_post, .self = engine};
}

void pl_requests_close(pl_engine_t *engine)
{
    pl_error_t err;
    pthread_mutex_lock(&engine->requests.lock);
    engine->requests.closed = true;
    pthread_mutex_unlock(&engine->requests.lock);
    pl_fail(&err, PL_ESTATE, "the engine is closing");
    for (pl_request_t *request; (request = requests_take(&engine->requests));)
        reply_error(request, &err);
}
