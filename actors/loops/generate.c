/* generate.c - the generate loop: text that continues a prompt, one token at a time
 *
 * The module gets its whole context.  A shorter text stands at its beginning; what
 * follows the text is never used, because attention is causal.  Its graph keeps keys and
 * values of all tokens, and another graph continues them with one token (tensor/cache.c).
 * Before it is relied on, it computes a token again: a module that mixes tokens by other
 * means than causal attention gives something else, and gets its whole context for each
 * token.  So it does when the text has become longer than the context, which moves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/options.h"
#include "base/random.h"
#include "base/run.h"
#include "formats/vocabulary.h"
#include "runtime/payload.h"

enum { FEW = 8, WORTH_IT = 16 };                            /* tokens */

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
    } * choice;                                /* [vocabulary] */
    pl_batch_signature_t *signature[2];        /* without and with a batch of one token */
    int64_t sent;                              /* tokens of the newest batch */
    enum { UNTRIED, USED, UNUSED } cache;
    float *expected;                                 /* [vocabulary]: the newest logits */
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

pl_batch_signature_t *pl_generate_signature(const char *data_info, bool caches,
                                            pl_error_t *err)
{
    knowledge_t k;
    if (knowledge_read(&k, data_info, err) != PL_OK)
        return NULL;
    pl_batch_signature_t *signature = pl_batch_signature_new(err);
    if (signature) {
        signature->stage[PL_PREDICT].present = true;
        signature->stage[PL_PREDICT].samples = signature->stage[PL_PREDICT].batch_size =
            1;
        signature->stage[PL_PREDICT].size[0] = (pl_batch_size_t){1, k.context};
        signature->stage[PL_PREDICT].size[1] = (pl_batch_size_t){1, 1};
        signature->stage[PL_PREDICT].size_count = 1;
        signature->stage[PL_PREDICT].field_count = 2;
        signature->stage[PL_PREDICT].field[0] =
            (pl_field_t){.name = "x", .dtype = PL_I64, .shape = PL_SHAPE(PL_VARIES)};
        signature->stage[PL_PREDICT].field[1] = (pl_field_t){.name = "position",
                                                             .dtype = PL_I64};
        signature->context = caches ? k.context : 0;
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
    const size_t size = (size_t)pl_vocabulary_size(g->vocabulary);
    g->choice = pl_alloc_array(size, sizeof *g->choice);
    g->expected = pl_alloc_array(size, sizeof *g->expected);
    if (!g->token || !g->choice || !g->expected)
        return pl_no_memory(err);
    code = pl_vocabulary_encode(g->vocabulary, g->job->prompt, length, g->token, &count,
                                err);
    if (code != PL_OK)
        return pl_error_prefix(err, "prompt");
    if (count == 0)
        return pl_fail(err, PL_EINVAL,
                       "the prompt is empty: give at least one character");
    g->prompt_count = g->count = (int64_t)count;
    for (int sizes = 1; sizes <= 2; sizes++) {
        pl_batch_signature_t *signature = pl_generate_signature(body->start.options, true,
                                                                err);
        if (!signature)
            return err->code;
        signature->stage[PL_PREDICT].size_count = sizes;
        g->signature[sizes - 1] = signature;
    }
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

/* ---- a text as a batch ---- */

static void text_release(pl_object_t *object)
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

/* Sends the text, or its token `at` alone, as a batch of one sample in one piece of
 * memory. */
static void text_send(generate_t *g, int64_t at, pl_on_answer_t on_answer)
{
    const int64_t start = g->count > g->context ? g->count - g->context : 0,
                  from = at < 0 ? start : at;
    g->sent = at < 0 ? g->context : 1;
    pl_error_t err = {0};
    pl_batch_t *text = pl_alloc(sizeof *text + (size_t)(g->sent + 1) * sizeof(int64_t));
    if (text) {
        pl_object_init(&text->object, text_release);
        text->stage = PL_PREDICT;
        text->count = 1;
        text->length = g->sent;
        text->field_count = 2;
        int64_t *x = text->field[0] = text + 1, *position = text->field[1] = x + g->sent;
        *position = from;
        for (int64_t k = from; k < g->count && k < from + g->sent; k++)
            x[k - from] = g->token[k];
    } else {
        pl_no_memory(&err);
    }
    const pl_evaluate_batch_t msg = {.stage = PL_PREDICT,
                                     .batch = text ? &text->object : NULL};
    if (!text
        || !pl_call_evaluate_batch(g, g->strategy, &msg,
                                   (pl_how_t){.on_answer = on_answer}, &err))
        pl_loop_fail(&g->call, &err);
    pl_object_unref(text);
}

/* The logits behind the newest token of the batch.  NULL: the answer has none, or the run
 * has failed. */
static const float *logits_of(generate_t *g, const pl_answer_t *answer)
{
    pl_error_t err;
    if (pl_loop_no_reply(&g->call, answer))
        return NULL;
    const pl_outputs_t *outputs =
        (pl_outputs_t *)answer->body->evaluate_batch_reply.outputs;
    const int size = pl_vocabulary_size(g->vocabulary);
    const pl_output_t *logits = outputs && outputs->count ? &outputs->output[0] : NULL;
    const int64_t last = g->sent > 1 && g->count < g->sent ? g->count : g->sent;
    pl_watchdog_reset(&g->watchdog);
    if (logits && pl_elements(logits->shape) == g->sent * size)
        return logits->data + (last - 1) * size;
    pl_fail(&err, PL_EUNSUPPORTED,
            "the module's first output must be logits [1, %lld, %d] to generate text",
            (long long)g->sent, size);
    pl_loop_fail(&g->call, &err);
    return NULL;
}

/* ---- the cache of keys and values ---- */

static void generate_next(generate_t *g);

/* why: the cache cannot be used  [it is used] */
static void cache_decide(generate_t *g, const char *why)
{
    g->cache = why ? UNUSED : USED;
    if (why)
        pl_log_line(PL_LOG_INFO, pl_actor_rank(g), pl_actor_name(g),
                    "the whole text is computed again for each token: %s", why);
    generate_next(g);
}

/* The newest token but one was computed again, alone. */
static void cache_compared(void *self, const pl_answer_t *answer)
{
    generate_t *g = self;
    const float *logits = logits_of(g, answer);
    if (!logits)
        return;
    const char *precision = pl_options_component_name(g->job->options,
                                                      "trainer.precision");
    const bool is_exact = !precision || !strncmp(precision, "32", 2);
    const int size = pl_vocabulary_size(g->vocabulary);
    double least = INFINITY, most = -INFINITY;
    for (int k = 0; k < size; k++) {
        least = fmin(least, g->expected[k]);
        most = fmax(most, g->expected[k]);
    }
    const double limit = (is_exact ? 1e-3 : 3e-2) * (most - least);
    bool is_same = true;
    for (int k = 0; k < size; k++)                          /* NaN is not the same */
        is_same = is_same && fabs(logits[k] - g->expected[k]) <= limit;
    cache_decide(g, is_same ? NULL
                            : "the module mixes tokens by other means than causal "
                              "attention");
}

/* A module that cannot be described for one token has no such plan. */
static void cache_refused(void *self, const pl_answer_t *answer)
{
    generate_t *g = self;
    if (!pl_loop_no_reply(&g->call, answer))
        cache_decide(g, "the module cannot take one token alone");
}

static void cache_compiled(void *self, const pl_answer_t *answer)
{
    generate_t *g = self;
    const pl_set_signature_t msg = {.signature = &g->signature[0]->object};
    pl_error_t err = {0};
    if (!g->call || answer->kind == PL_ANSWER_PROGRESS)
        return;
    if (answer->kind == PL_ANSWER_REPLY)
        text_send(g, g->count - 2, cache_compared);
    else if (!pl_call_set_signature(g, g->strategy, &msg,
                                    (pl_how_t){.on_answer = cache_refused}, &err))
        pl_loop_fail(&g->call, &err);
}

/* Some tokens are there, so that a wrong position is seen; more are to come than the
 * attempt costs; and the context will not move at once. */
static bool is_time_to_try(const generate_t *g)
{
    const int64_t left = g->job->tokens - (g->count - g->prompt_count);
    return g->cache == UNTRIED && !g->job->no_cache && !g->stopping
           && (g->count > FEW || 2 * g->count > g->context) && g->count > 1
           && g->count < g->context && left >= WORTH_IT;
}

static void cache_try(generate_t *g)
{
    const pl_set_signature_t msg = {.signature = &g->signature[1]->object};
    pl_error_t err = {0};
    if (!pl_call_set_signature(g, g->strategy, &msg,
                               (pl_how_t){.on_answer = cache_compiled}, &err))
        pl_loop_fail(&g->call, &err);
}

/* ---- token by token ---- */

/* Keeps the token that follows, and reports its text. */
static void text_seen(void *self, const pl_answer_t *answer)
{
    generate_t *g = self;
    const float *logits = logits_of(g, answer);
    if (!logits)
        return;
    const int size = pl_vocabulary_size(g->vocabulary);
    memcpy(g->expected, logits, (size_t)size * sizeof *logits);
    g->token[g->count] = choose(g, logits, size);
    g->count++;
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
    if (is_time_to_try(g))
        cache_try(g);
    else
        generate_next(g);
}

static void generate_next(generate_t *g)
{
    pl_error_t err = {0};
    if (!g->stopping && g->count - g->prompt_count < g->job->tokens) {
        text_send(g, g->cache == USED && g->count <= g->context ? g->count - 1 : -1,
                  text_seen);
        return;
    }
    pl_outcome_t *outcome = pl_outcome_new(&err);
    if (outcome) {
        outcome->stopped = g->stopping;
        outcome->seconds = (double)(pl_now() - g->began) / 1e9;
        outcome->metrics = pl_strdup("{}");
        outcome->text = pl_vocabulary_decode(g->vocabulary, g->token + g->prompt_count,
                                             (size_t)(g->count - g->prompt_count), NULL,
                                             &err);
    }
    pl_call_t *call = g->call;
    if (outcome && outcome->text && outcome->metrics) {
        g->call = NULL;
        pl_reply_run(call, &(pl_run_reply_t){.outcome = &outcome->object});
    } else {
        pl_loop_fail(&g->call, &err);
    }
    pl_object_unref(outcome);
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
    pl_free(g->expected);
    pl_object_unref(g->signature[0]);
    pl_object_unref(g->signature[1]);
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
