/* queen.c - what tests of connectors share */
#include "queen.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "runtime/message.h"
#include "runtime/reactor.h"
#include "scarce.h"
#include "tap.h"

#define LIVES 8

static pl_runtime_t runtime;
static pl_reactor_t *reactor;
static void *queen, *loop;
static asked_t *lives[LIVES];
static int life_count;
static asked_t latest;
static pthread_t own_thread;
static const asked_t *awaited;

/* ---- The actor that asks ---- */

static const pl_actor_ops_t queen_ops = {.name = "queen",
                                         .size = 1,
                                         .level = PL_LEVEL_WORKER};
static const pl_actor_ops_t loop_ops = {.name = "loop",
                                        .size = 1,
                                        .level = PL_LEVEL_FIT_LOOP};

void queen_open(void)
{
    own_thread = pthread_self();
    pl_runtime_init(&runtime, NULL);
    reactor = pl_reactor_new(&runtime, 0, NULL);
    pl_actor_root(reactor, &queen_ops, &queen, NULL);
    pl_actor_root(reactor, &loop_ops, &loop, NULL);
    life_count = 0;
    memset(&numbers_state, 0, sizeof numbers_state);
    numbers_allow(-1);
}

static void drop_latest(void)
{
    pl_object_unref(latest.object);
    latest = (asked_t){0};
}

void queen_close(void)
{
    drop_latest();
    while (life_count > 0)
        queen_end(lives[life_count - 1]);
    pl_reactor_free(reactor);
    pl_runtime_release(&runtime);
}

int queen_in_flight(void)
{
    return pl_flight_count();
}

/* ---- Calls ---- */

static void copy_text(asked_t *asked, const char *text)
{
    snprintf(asked->text, sizeof asked->text, "%s", text ? text : "");
}

/* Numbers, with spaces between. */
static void keep_numbers(asked_t *asked, pl_bytes_t numbers)
{
    asked->text[0] = '\0';
    for (size_t at = 0; at < numbers.size; at += sizeof(uint64_t)) {
        uint64_t number;
        size_t length = strlen(asked->text);
        memcpy(&number, (const char *)numbers.data + at, sizeof number);
        snprintf(asked->text + length, sizeof asked->text - length, "%s%llu",
                 at ? " " : "", (unsigned long long)number);
    }
}

/* The reply's text and object, which are borrowed, of those messages that have any. */
static void keep(asked_t *asked, const pl_body_t *body)
{
    asked->body = *body;
    switch (asked->message) {
    case PL_MESSAGE_open_data:
        copy_text(asked, body->open_data_reply.data_info);
        asked->object = pl_object_ref(body->open_data_reply.signature);
        break;
    case PL_MESSAGE_fetch_batch:
        asked->object = pl_object_ref(body->fetch_batch_reply.batch);
        break;
    case PL_MESSAGE_export_weights:
        asked->object = pl_object_ref(body->export_weights_reply.weights);
        break;
    case PL_MESSAGE_callback_hooks:
        keep_numbers(asked, body->callback_hooks_reply.halts);
        break;
    case PL_MESSAGE_run_hook:
        copy_text(asked, body->run_hook_reply.stop    ? body->run_hook_reply.reason
                         : *body->run_hook_reply.save ? body->run_hook_reply.save
                                                      : body->run_hook_reply.metrics);
        break;
    case PL_MESSAGE_get_state: copy_text(asked, body->get_state_reply.state); break;
    case PL_MESSAGE_save: copy_text(asked, body->save_reply.path); break;
    case PL_MESSAGE_read_weights:
        asked->object = pl_object_ref(body->read_weights_reply.weights);
        break;
    case PL_MESSAGE_make_run_dir: copy_text(asked, body->make_run_dir_reply.path);
    }
}

static void queen_answer(void *self, const pl_answer_t *answer)
{
    asked_t *asked = answer->context;
    (void)self;
    if (answer->kind == PL_ANSWER_REPLY)
        keep(asked, answer->body);
    else if (answer->kind == PL_ANSWER_ERROR)
        asked->error = *answer->error;
    else
        return;
    asked->ended = true;
    if (asked == awaited)
        pl_reactor_leave(reactor);
}

static pl_how_t how_of(asked_t *asked)
{
    return (pl_how_t){.on_answer = queen_answer, .context = asked};
}

pl_address_t queen_spawn(const pl_actor_ops_t *ops, const pl_start_t *start,
                         asked_t *life)
{
    pl_address_t at = {0};
    *life = (asked_t){.message = PL_MESSAGE_start};
    pl_where_t where = ops->level == PL_LEVEL_IO ? PL_OWN_THREAD : PL_SAME_THREAD;
    life->number = pl_spawn(queen, ops, where, start, how_of(life), &at, &life->error);
    if (life->number)
        lives[life_count++] = life;
    else
        life->ended = true;
    return at;
}

void queen_end(asked_t *life)
{
    queen_cancel(life);
    queen_wait(life);
    int kept = 0;
    for (int k = 0; k < life_count; k++)
        if (lives[k] != life)
            lives[kept++] = lives[k];
    life_count = kept;
}

void queen_ask(asked_t *asked, pl_address_t at, pl_message_t message, const void *fields)
{
    const int levels = pl_message_info(message)->from_levels;
    void *caller = pl_level_is_in(levels, PL_LEVEL_WORKER) ? queen : loop;
    *asked = (asked_t){.message = message};
    asked->number = pl_call(caller, at, message, fields, how_of(asked), &asked->error);
    asked->ended = asked->number == 0;
}

void queen_cancel(const asked_t *asked)
{
    pl_cancel(queen, asked->number);                       /* one of them made the call */
    pl_cancel(loop, asked->number);
}

void queen_wait(const asked_t *asked)
{
    awaited = asked;
    while (!asked->ended) {
        reactor->leave = false;
        pl_reactor_run(reactor);
    }
    awaited = NULL;
}

asked_t *queen_call(pl_address_t at, pl_message_t message, const void *fields)
{
    drop_latest();
    queen_ask(&latest, at, message, fields);
    queen_wait(&latest);
    return &latest;
}

static void leave(void *self)
{
    (void)self;
    pl_reactor_leave(reactor);
}

void queen_turn(void)
{
    pl_after(queen, 5, leave, NULL);
    reactor->leave = false;
    pl_reactor_run(reactor);
}

/* ---- Memory ---- */

void queen_lacks_memory(bool (*scene)(int nth), int min)
{
    int wrong = 0, left_behind = 0, in_flight = 0, nth = 0;
    do {
        const long before = scarce_live();
        const bool succeeded = scene(++nth);
        wrong += !succeeded && !scarce_failed();
        left_behind += scarce_live() != before;
        in_flight += queen_in_flight();
    } while (scarce_failed() && nth < 2000);
    ok(nth > min && !scarce_failed(), "%d requests for memory were made to fail",
       nth - 1);
    is_int(wrong, 0, "and with all of them granted nothing fails");
    is_int(left_behind, 0, "nothing is left behind");
    is_int(in_flight, 0, "no object is on its way");
}

/* ---- A data set that follows orders ---- */

typedef struct numbers {
    int64_t samples, fail;                                  /* fail: a record; -1: none */
    bool ordered, mute, broken;
    const char *vocabulary;
    int64_t begin;
} numbers_t;

static const pl_option_t numbers_options[] = {
    PL_INT(numbers_t, samples, "10", NULL, "samples"),
    PL_INT(numbers_t, fail, "-1", NULL, "record that cannot be read"),
    PL_BOOL(numbers_t, ordered, "false", "splits are contiguous"),
    PL_BOOL(numbers_t, mute, "false", "fails without a text"),
    PL_BOOL(numbers_t, broken, "false", "cannot be opened"),
    PL_TEXT(numbers_t, vocabulary, "\"\"", NULL, "of the data info"),
    PL_OPTIONS_END,
};

numbers_state_t numbers_state;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static int gate = -1;

void numbers_allow(int reads)
{
    pthread_mutex_lock(&gate_lock);
    gate = reads;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_lock);
}

static void gate_pass(void)
{
    pthread_mutex_lock(&gate_lock);
    while (gate == 0)
        pthread_cond_wait(&gate_changed, &gate_lock);
    if (gate > 0)
        gate--;
    pthread_mutex_unlock(&gate_lock);
}

static void count(int *counter, int by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

static int numbers_open(void *self, const pl_data_request_t *request,
                        pl_data_info_t *info, pl_error_t *err)
{
    numbers_t *numbers = self;
    count(&numbers_state.opened, 1);
    snprintf(numbers_state.reported[request->stage], sizeof *numbers_state.reported, "%s",
             request->data_info ? request->data_info : "");
    if (numbers->broken)
        return pl_fail(err, PL_EIO, "numbers.txt: cannot be opened");
    info->samples = numbers->samples;
    info->ordered = numbers->ordered;
    if (numbers->ordered) {
        numbers->begin = llround(request->from * (double)numbers->samples);
        info->samples = llround(request->to * (double)numbers->samples) - numbers->begin;
    }
    info->field_count = 2;
    info->field[0] = (pl_field_t){"x", PL_I64, {1, {2}}};
    info->field[1] = (pl_field_t){"y", PL_U8, {0, {0}}};
    info->data_info = pl_text("{\"classes\": 10, \"vocabulary\": \"%s\"}",
                              numbers->vocabulary);
    return info->data_info ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
}

static int numbers_read(const void *self, const pl_read_request_t *request,
                        void *const field[], pl_error_t *err)
{
    const numbers_t *numbers = self;
    int64_t *x = field[0];
    gate_pass();
    count(&numbers_state.batches, 1);
    count(&numbers_state.reads, request->count);
    for (int k = 0; k < request->count; k++) {
        int64_t sample = request->index[k];
        if (sample == numbers->fail)
            return numbers->mute ? 1 : pl_fail(err, PL_EIO, "numbers.txt: cut off");
        x[2 * k] = numbers->begin + sample;
        x[2 * k + 1] = (int64_t)pl_random_u64(pl_mix(request->seed, request->epoch),
                                              (uint64_t)sample);
        ((uint8_t *)field[1])[k] = (uint8_t)request->stage;
    }
    return PL_OK;
}

static void numbers_close(void *self)
{
    (void)self;
    count(&numbers_state.closed, 1);
    if (pthread_equal(pthread_self(), own_thread))
        count(&numbers_state.closed_elsewhere, 1);
}

const pl_dataset_ops_t numbers_dataset = {
    .name = "numbers",
    .size = sizeof(numbers_t),
    .options = numbers_options,
    .open = numbers_open,
    .read = numbers_read,
    .close = numbers_close,
};

pl_job_t *queen_job(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pl_error_t err = {0};
    pl_options_t *options = pl_options_parse(text, "run.json", &err);
    if (!options) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    pl_job_t *job = pl_job_new(options, PL_TRAIN, NULL);
    pl_options_free(options);
    return job;
}
