/* generate.c - the generate loop: text that continues a prompt, one token at a time
 *
 * The module gets its whole context for each token.  A shorter text stands at its
 * beginning; what follows the text is never used, because attention is causal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/random.h"
#include "base/run.h"
#include "formats/vocabulary.h"
#include "runtime/payload.h"

typedef struct generate {
    pl_job_t *job;                                          /* counted */
    pl_address_t strategy;
    uint64_t key;                                           /* of the random numbers */
    pl_vocabulary_t *vocabulary;
    int64_t context;                                        /* tokens */
    pl_call_t *call;
    int64_t began;
    int32_t *token;                                 /* [count]: the prompt and the text */
    int64_t prompt_count, count;
    struct {
        double p;
        int32_t token;
    } * choice;                                             /* [vocabulary] */
    bool stopping;
    double timeout;                                         /* s */
    pl_watchdog_t watchdog;                                 /* for the next token */
} generate_t;

/* What the training data recorded in the data info of the weights. */
typedef struct knowledge {
    json_t *data_info;
    const char *vocabulary;
    int64_t context;
} knowledge_t;

static int knowledge_read(knowledge_t *k, const char *data_info, pl_error_t *err)
{
    k->data_info = json_loads(data_info ? data_info : "", JSON_REJECT_DUPLICATES, NULL);
    k->vocabulary = json_string_value(json_object_get(k->data_info, "vocabulary"));
    k->context = json_integer_value(json_object_get(k->data_info, "context"));
    if (k->vocabulary && k->context > 0)
        return PL_OK;
    json_decref(k->data_info);
    return pl_fail(
        err, PL_EINVAL,
        "a prompt needs weights that were trained on text: these weights have no "
        "vocabulary");
}

pl_batch_signature_t *pl_generate_signature(const char *data_info, pl_error_t *err)
{
    knowledge_t k;
    if (knowledge_read(&k, data_info, err) != PL_OK)
        return NULL;
    pl_batch_signature_t *signature = pl_batch_signature_new(err);
    if (signature) {
        signature->stage[PL_PREDICT].present = true;
        signature->stage[PL_PREDICT].samples = signature->stage[PL_PREDICT].batch_size =
            1;
        signature->stage[PL_PREDICT].size[0].count = 1;
        signature->stage[PL_PREDICT].size_count = 1;
        signature->stage[PL_PREDICT].field_count = 1;
        signature->stage[PL_PREDICT].field[0] =
            (pl_field_t){.name = "x", .dtype = PL_I64, .shape = PL_SHAPE(k.context)};
    }
    json_decref(k.data_info);
    return signature;
}

/* The options are the data info of the weights. */
static int generate_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    (void)call;
    generate_t *g = self;
    knowledge_t k;
    g->job = pl_object_ref(body->start.context);
    g->strategy = pl_peer(self, "strategy");
    g->watchdog.pulse = g->job->pulse;
    g->timeout = g->job->trainer->step_timeout;
    g->key = pl_mix((uint64_t)g->job->trainer->seed, pl_hash_text("generate"));
    int code = knowledge_read(&k, body->start.options, err);
    if (code != PL_OK)
        return code;
    g->context = k.context;
    g->vocabulary = pl_vocabulary_new(k.vocabulary, err);
    json_decref(k.data_info);
    if (!g->vocabulary)
        return PL_ENOMEM;
    const size_t length = strlen(g->job->prompt);
    size_t count = 0;
    g->token = pl_alloc_array(length + (size_t)g->job->tokens + 1, sizeof *g->token);
    g->choice = pl_alloc_array((size_t)pl_vocabulary_size(g->vocabulary),
                               sizeof *g->choice);
    if (!g->token || !g->choice)
        return pl_no_memory(err);
    code = pl_vocabulary_encode(g->vocabulary, g->job->prompt, length, g->token, &count,
                                err);
    if (code != PL_OK)
        return pl_error_prefix(err, "prompt");
    if (count == 0)
        return pl_fail(err, PL_EINVAL,
                       "the prompt is empty: give at least one character");
    g->prompt_count = g->count = (int64_t)count;
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- choosing ---- */

static int by_probability(const void *a, const void *b)
{
    const struct {
        double p;
        int32_t token;
    } *x = a, *y = b;
    return x->p < y->p ? 1 : x->p > y->p ? -1 : x->token - y->token;
}

/* The next token from logits [size]. */
static int32_t choose(generate_t *g, const float *logits, int size)
{
    for (int k = 0; k < size; k++) {
        g->choice[k].p = logits[k];
        g->choice[k].token = k;
    }
    qsort(g->choice, (size_t)size, sizeof *g->choice, by_probability);
    int max = g->job->top_k > 0 && g->job->top_k < size ? (int)g->job->top_k : size;
    if (g->job->temperature <= 0)
        return g->choice[0].token;
    double best = g->choice[0].p, sum = 0;
    for (int k = 0; k < max; k++)
        sum += g->choice[k].p = exp((g->choice[k].p - best) / g->job->temperature);
    double left = pl_random_uniform(g->key, (uint64_t)g->count) * sum;
    int k = 0;
    while (k < max - 1 && (left -= g->choice[k].p) >= 0)
        k++;
    return g->choice[k].token;
}

/* ---- token by token ---- */

static void window_release(pl_object_t *object)
{
    pl_free(object);
}

static void generate_look(void *self)
{
    generate_t *g = self;
    pl_error_t err;
    if (g->call
        && pl_watchdog_has_expired(&g->watchdog, g, &err, "token %lld of the text",
                                   (long long)(g->count - g->prompt_count)))
        pl_loop_fail(&g->call, &err);
}

static void generate_next(generate_t *g);

/* Keeps the token that follows, and reports its text. */
static void generate_seen(void *self, const pl_answer_t *answer)
{
    generate_t *g = self;
    pl_error_t err;
    if (pl_loop_no_reply(&g->call, answer))
        return;
    const pl_outputs_t *outputs =
        (pl_outputs_t *)answer->body->evaluate_batch_reply.outputs;
    int size = pl_vocabulary_size(g->vocabulary);
    const pl_output_t *logits = outputs && outputs->count ? &outputs->output[0] : NULL;
    if (!logits || pl_elements(logits->shape) != g->context * size) {
        pl_fail(&err, PL_EUNSUPPORTED,
                "the module's first output must be logits [1, %lld, %d] to generate "
                "text",
                (long long)g->context, size);
        pl_loop_fail(&g->call, &err);
        return;
    }
    int64_t at = (g->count < g->context ? g->count : g->context) - 1;
    g->token[g->count] = choose(g, logits->data + at * size, size);
    g->count++;
    pl_watchdog_reset(&g->watchdog);
    char *text = pl_vocabulary_decode(g->vocabulary, &g->token[g->count - 1], 1, NULL,
                                      NULL);
    char *json = pl_json_to_text(text ? json_string(text) : NULL, NULL);
    if (json)
        pl_progress_run(
            g->call, &(pl_run_progress_t){.event = PL_RUN_EVENT_TEXT,
                                          .batch = (uint32_t)(g->count - g->prompt_count),
                                          .batches = (uint32_t)g->job->tokens,
                                          .metrics = json});
    pl_text_free(json);
    pl_text_free(text);
    generate_next(g);
}

static void generate_next(generate_t *g)
{
    pl_error_t err = {0};
    if (g->stopping || g->count - g->prompt_count >= g->job->tokens) {
        pl_outcome_t *outcome = pl_outcome_new(&err);
        if (outcome) {
            outcome->stopped = g->stopping;
            outcome->seconds = (double)(pl_now() - g->began) / 1e9;
            outcome->metrics = pl_strdup("{}");
            outcome->text =
                pl_vocabulary_decode(g->vocabulary, g->token + g->prompt_count,
                                     (size_t)(g->count - g->prompt_count), NULL, &err);
        }
        pl_call_t *call = g->call;
        if (outcome && outcome->text && outcome->metrics) {
            g->call = NULL;
            pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
        } else {
            pl_loop_fail(&g->call, &err);
        }
        pl_object_unref(outcome);
        return;
    }
    /* The newest tokens as a batch of one sample, in one piece of memory. */
    pl_batch_t *window = pl_alloc(sizeof *window + (size_t)g->context * sizeof(int64_t));
    if (window) {
        pl_object_init(&window->object, window_release);
        window->stage = PL_PREDICT;
        window->count = window->field_count = 1;
        int64_t *x = window->field[0] = window + 1;
        const int64_t from = g->count > g->context ? g->count - g->context : 0;
        for (int64_t k = from; k < g->count; k++)
            x[k - from] = g->token[k];
    } else {
        pl_no_memory(&err);
    }
    pl_evaluate_batch_t msg = {.stage = PL_PREDICT,
                               .batch = window ? &window->object : NULL};
    if (!window
        || !pl_call_evaluate_batch(g, g->strategy, &msg,
                                   (pl_how_t){.on_answer = generate_seen}, &err))
        pl_loop_fail(&g->call, &err);
    pl_object_unref(window);
}

static int generate_run(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)body;
    generate_t *g = self;
    if (g->began)
        return pl_fail(err, PL_ESTATE, "the loop has already generated a text");
    g->call = call;
    g->began = pl_now();
    pl_watchdog_begin(&g->watchdog, g, g->timeout, generate_look);
    generate_next(g);
    return PL_OK;
}

static int generate_stop(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)body, (void)err;
    ((generate_t *)self)->stopping = true;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void generate_release(void *self)
{
    generate_t *g = self;
    pl_vocabulary_free(g->vocabulary);
    pl_free(g->token);
    pl_free(g->choice);
    pl_object_unref(g->job);
}

static const pl_handler_t generate_handlers[] = {
    PL_ON(start, generate_start),
    PL_ON(run, generate_run),
    PL_ON(stop, generate_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_generate_loop = {
    .name = "generate",
    .help = "generates text from a prompt",
    .size = sizeof(generate_t),
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = generate_handlers,
    .release = generate_release,
};
