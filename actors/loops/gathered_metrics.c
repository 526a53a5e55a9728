/* gathered_metrics.c - metrics whose value needs every sample in one place: rank
 * correlation, retrieval, and text
 *
 * Each is a component of role "metric": graphs gather its states over batches and ranks
 * (engine/tensor/metrics_custom.c), and its result is computed here.  Definitions are
 * those of torchmetrics. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/error.h"

/* ---- rank correlation ---- */

typedef struct placed {
    double value;
    size_t place;
} placed_t;

static int by_value(const void *a, const void *b)
{
    const placed_t *x = a, *y = b;
    return x->value != y->value ? (x->value > y->value) - (x->value < y->value)
                                : (x->place > y->place) - (x->place < y->place);
}

/* Ranks from 1; equal values have the mean of their ranks. */
static double *ranks_of(const double *value, size_t count)
{
    placed_t *placed = pl_alloc_array(count, sizeof *placed);
    double *rank = pl_alloc_array(count, sizeof *rank);
    for (size_t k = 0; placed && k < count; k++)
        placed[k] = (placed_t){value[k], k};
    if (placed)
        qsort(placed, count, sizeof *placed, by_value);
    for (size_t from = 0, to; placed && rank && from < count; from = to) {
        for (to = from; to < count && placed[to].value == placed[from].value;)
            to++;
        for (size_t k = from; k < to; k++)
            rank[placed[k].place] = (double)(from + to + 1) / 2;
        if (to == from) {                                   /* NaN has no place */
            rank[placed[to].place] = NAN;
            to++;
        }
    }
    pl_free(placed);
    return rank;
}

/* States: x, target.  Spearman, "The proof and measurement of association between two
 * things", 1904. */
static int spearman_result(const pl_gathered_t *state, int states, double parameter,
                           double *value, pl_error_t *err)
{
    (void)states, (void)parameter;
    const size_t count = state[0].count;
    double *x = ranks_of(state[0].value, count), *y = ranks_of(state[1].value, count),
           mean = (double)(count + 1) / 2, both = 0, of_x = 0, of_y = 0;
    const bool has_memory = x && y;
    for (size_t k = 0; has_memory && k < count; k++) {
        both += (x[k] - mean) * (y[k] - mean);
        of_x += (x[k] - mean) * (x[k] - mean);
        of_y += (y[k] - mean) * (y[k] - mean);
    }
    pl_free(x);
    pl_free(y);
    *value = of_x > 0 && of_y > 0 ? both / sqrt(of_x) / sqrt(of_y) : NAN;
    return has_memory ? PL_OK : pl_no_memory(err);
}

/* ---- retrieval ---- */

/* A document that was found for a query. */
typedef struct document {
    double query, score, relevance;
    size_t place;
} document_t;

static int by_query_and_score(const void *a, const void *b)
{
    const document_t *x = a, *y = b;
    if (x->query != y->query)
        return x->query < y->query ? -1 : 1;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static int by_relevance(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The value of one query, whose documents are in the order of their scores; the first
 * `top` of them count. */
typedef double query_value_t(const document_t *found, size_t count, size_t top);

static double hits_of(const document_t *found, size_t count)
{
    double hits = 0;
    for (size_t k = 0; k < count; k++)
        hits += found[k].relevance > 0;
    return hits;
}

static double precision_of(const document_t *found, size_t count, size_t top)
{
    return hits_of(found, top < count ? top : count) / (double)top;
}

static double recall_of(const document_t *found, size_t count, size_t top)
{
    const double all = hits_of(found, count);
    return all > 0 ? hits_of(found, top < count ? top : count) / all : 0;
}

static double reciprocal_rank_of(const document_t *found, size_t count, size_t top)
{
    for (size_t k = 0; k < count && k < top; k++)
        if (found[k].relevance > 0)
            return 1 / (double)(k + 1);
    return 0;
}

static double average_precision_of(const document_t *found, size_t count, size_t top)
{
    double hits = 0, sum = 0;
    for (size_t k = 0; k < count && k < top; k++)
        if (found[k].relevance > 0)
            sum += ++hits / (double)(k + 1);
    return hits > 0 ? sum / hits : 0;
}

/* Jarvelin, Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002. */
static double ndcg_of(const document_t *found, size_t count, size_t top)
{
    double gain = 0, best = 0, *ideal = pl_alloc_array(count, sizeof *ideal);
    for (size_t k = 0; ideal && k < count; k++)
        ideal[k] = found[k].relevance;
    if (ideal)
        qsort(ideal, count, sizeof *ideal, by_relevance);
    for (size_t k = 0; ideal && k < count && k < top; k++) {
        gain += found[k].relevance / log2((double)k + 2);
        best += ideal[k] / log2((double)k + 2);
    }
    const double value = !ideal ? NAN : best > 0 ? gain / best : 0;
    pl_free(ideal);
    return value;
}

/* States: query, score, relevance of each document; parameter: how many of a query count,
 * 0: all.  The mean over queries. */
static int queries_mean(const pl_gathered_t *state, double parameter, query_value_t *of,
                        double *value, pl_error_t *err)
{
    const size_t count = state[0].count;
    document_t *all = pl_alloc_array(count, sizeof *all);
    double sum = 0, queries = 0;
    if (!all)
        return pl_no_memory(err);
    for (size_t k = 0; k < count; k++)
        all[k] = (document_t){state[0].value[k], state[1].value[k], state[2].value[k], k};
    qsort(all, count, sizeof *all, by_query_and_score);
    for (size_t from = 0, to = 0; from < count; from = to) {
        while (to < count && all[to].query == all[from].query)
            to++;
        to += to == from;                                   /* NaN */
        sum += of(all + from, to - from, parameter > 0 ? (size_t)parameter : to - from);
        queries++;
    }
    pl_free(all);
    *value = sum / queries;
    return PL_OK;
}

#define RETRIEVAL(name, of) \
    static int name(const pl_gathered_t *state, int states, double parameter, \
                    double *value, pl_error_t *err) \
    { \
        (void)states; \
        return queries_mean(state, parameter, of, value, err); \
    }
RETRIEVAL(precision_result, precision_of)
RETRIEVAL(recall_result, recall_of)
RETRIEVAL(reciprocal_rank_result, reciprocal_rank_of)
RETRIEVAL(average_precision_result, average_precision_of)
RETRIEVAL(ndcg_result, ndcg_of)

/* ---- text ---- */

/* The tokens of a row: those that are not padding. */
typedef struct tokens {
    const double *token;                                    /* [count] */
    size_t count;
} tokens_t;

/* Row k without padding, which moves to the end of `to`. */
static tokens_t tokens_of(const pl_gathered_t *state, size_t k, double padding,
                          double *to)
{
    size_t count = 0;
    for (size_t i = 0; i < state->columns; i++) {
        const double token = state->value[k * state->columns + i];
        if (token != padding)
            to[count++] = token;
    }
    return (tokens_t){to, count};
}

/* How often the n tokens at `gram` occur among the first `end` places. */
static size_t occurrences(tokens_t in, const double *gram, size_t n, size_t end)
{
    size_t count = 0;
    for (size_t k = 0; k + n <= in.count && k < end; k++)
        count += !memcmp(in.token + k, gram, n * sizeof *gram);
    return count;
}

enum { GRAMS = 4 };

/* Sums over all pairs of texts. */
typedef struct text_sums {
    double found[GRAMS], said[GRAMS];                     /* n-grams of the predictions */
    double predicted, reference;                          /* tokens */
    double edits;                                         /* to make one of the other */
    double overlap, texts;                                /* sum of ROUGE F1; pairs */
} text_sums_t;

/* Clipped: an n-gram is found at most as many times as the reference has it. */
static void grams_add(text_sums_t *sums, tokens_t said, tokens_t is)
{
    for (size_t n = 1; n <= GRAMS; n++)
        for (size_t k = 0; k + n <= said.count; k++) {
            const double *gram = said.token + k;
            sums->said[n - 1]++;
            sums->found[n - 1] += occurrences(said, gram, n, k)
                                  < occurrences(is, gram, n, is.count);
        }
    sums->predicted += (double)said.count;
    sums->reference += (double)is.count;
}

/* The F1 of the n-grams that both have. */
static void overlap_add(text_sums_t *sums, tokens_t said, tokens_t is, size_t n)
{
    const size_t grams = (said.count < n ? 0 : said.count - n + 1)
                         + (is.count < n ? 0 : is.count - n + 1);
    size_t both = 0;
    for (size_t k = 0; k + n <= said.count; k++)
        both += occurrences(said, said.token + k, n, k)
                < occurrences(is, said.token + k, n, is.count);
    sums->overlap += grams ? 2 * (double)both / (double)grams : 0;
    sums->texts++;
}

/* Levenshtein's distance, and the length of the longest common subsequence, in rows of
 * is.count + 1 numbers. */
static void alignment_add(text_sums_t *sums, tokens_t said, tokens_t is, double *edits,
                          double *common)
{
    for (size_t j = 0; j <= is.count; j++)
        edits[j] = (double)j, common[j] = 0;
    for (size_t i = 0; i < said.count; i++) {
        double before = edits[0], common_before = 0;
        edits[0] = (double)(i + 1);
        for (size_t j = 0; j < is.count; j++) {
            const bool same = said.token[i] == is.token[j];
            const double above = edits[j + 1], common_above = common[j + 1];
            edits[j + 1] = fmin(before + !same, 1 + fmin(above, edits[j]));
            common[j + 1] = same ? common_before + 1 : fmax(common_above, common[j]);
            before = above, common_before = common_above;
        }
    }
    sums->edits += edits[is.count];
    sums->reference += (double)is.count;
    if (common[is.count] > 0)
        sums->overlap += 2 * common[is.count] / (double)(said.count + is.count);
    sums->texts++;
}

/* What is summed of each pair: n-grams of all lengths; or an alignment; or the overlap of
 * one length, which is added to the last. */
enum { ALL_GRAMS, ALIGNMENT, OVERLAP };

/* States: tokens of the predictions and of the references, a row each; parameter: the
 * token that is padding. */
static int texts_sum(const pl_gathered_t *state, double padding, int what,
                     text_sums_t *sums, pl_error_t *err)
{
    const size_t width = state[0].columns + state[1].columns + 1,
                 texts = state[0].columns ? state[0].count / state[0].columns : 0;
    double *memory = pl_alloc_array(4 * width, sizeof *memory);
    *sums = (text_sums_t){.texts = 0};
    for (size_t k = 0; memory && k < texts; k++) {
        const tokens_t said = tokens_of(&state[0], k, padding, memory),
                       is = tokens_of(&state[1], k, padding, memory + width);
        if (what == ALIGNMENT)
            alignment_add(sums, said, is, memory + 2 * width, memory + 3 * width);
        else if (what == ALL_GRAMS)
            grams_add(sums, said, is);
        else
            overlap_add(sums, said, is, (size_t)(what - OVERLAP));
    }
    const bool has_memory = memory != NULL;
    pl_free(memory);
    return has_memory ? PL_OK : pl_no_memory(err);
}

/* Papineni et al., "BLEU: a method for automatic evaluation of machine translation",
 * 2002, of the whole corpus with up to four words and one reference. */
static int bleu_result(const pl_gathered_t *state, int states, double parameter,
                       double *value, pl_error_t *err)
{
    (void)states;
    text_sums_t sums;
    double logs = 0;
    int code = texts_sum(state, parameter, ALL_GRAMS, &sums, err);
    for (int n = 0; n < GRAMS; n++)
        logs += log(sums.found[n] / sums.said[n]) / GRAMS;
    const double brief = sums.predicted > sums.reference
                             ? 0
                             : 1 - sums.reference / sums.predicted;
    *value = sums.found[GRAMS - 1] > 0 ? exp(brief + logs) : 0;
    return code;
}

/* Lin, "ROUGE: a package for automatic evaluation of summaries", 2004: the mean of the F1
 * of each pair: of n-grams, or of the longest common subsequence. */
static int rouge_result(const pl_gathered_t *state, double padding, int what,
                        double *value, pl_error_t *err)
{
    text_sums_t sums;
    int code = texts_sum(state, padding, what, &sums, err);
    *value = sums.overlap / sums.texts;
    return code;
}

static int rouge_1_result(const pl_gathered_t *state, int states, double parameter,
                          double *value, pl_error_t *err)
{
    (void)states;
    return rouge_result(state, parameter, OVERLAP + 1, value, err);
}

static int rouge_2_result(const pl_gathered_t *state, int states, double parameter,
                          double *value, pl_error_t *err)
{
    (void)states;
    return rouge_result(state, parameter, OVERLAP + 2, value, err);
}

static int rouge_l_result(const pl_gathered_t *state, int states, double parameter,
                          double *value, pl_error_t *err)
{
    (void)states;
    return rouge_result(state, parameter, ALIGNMENT, value, err);
}

static int word_error_rate_result(const pl_gathered_t *state, int states,
                                  double parameter, double *value, pl_error_t *err)
{
    (void)states;
    text_sums_t sums;
    int code = texts_sum(state, parameter, ALIGNMENT, &sums, err);
    *value = sums.edits / sums.reference;
    return code;
}

/* ---- the components ---- */

#define METRIC(called, result_of, about) \
    static const pl_metric_ops_t called##_metric = {.name = #called, \
                                                    .help = about, \
                                                    .result = result_of}
METRIC(spearman, spearman_result, "correlation of the ranks of x and target");
METRIC(retrieval_precision, precision_result, "share of the first k that are relevant");
METRIC(retrieval_recall, recall_result, "share of the relevant among the first k");
METRIC(retrieval_mrr, reciprocal_rank_result, "mean of 1 / place of the first relevant");
METRIC(retrieval_map, average_precision_result, "mean of each query's average precision");
METRIC(retrieval_ndcg, ndcg_result, "discounted gain, relative to the best order");
METRIC(bleu, bleu_result, "shares of 1 to 4 tokens in a row that the reference has");
METRIC(rouge_1, rouge_1_result, "tokens that both have, relative to all");
METRIC(rouge_2, rouge_2_result, "pairs of neighbours that both have, relative to all");
METRIC(rouge_l, rouge_l_result, "longest common subsequence, relative to the lengths");
METRIC(word_error_rate, word_error_rate_result, "edits for each token of the reference");

const pl_registration_t pl_metric_components[] = {
    {"metric", &spearman_metric},
    {"metric", &retrieval_precision_metric},
    {"metric", &retrieval_recall_metric},
    {"metric", &retrieval_mrr_metric},
    {"metric", &retrieval_map_metric},
    {"metric", &retrieval_ndcg_metric},
    {"metric", &bleu_metric},
    {"metric", &rouge_1_metric},
    {"metric", &rouge_2_metric},
    {"metric", &rouge_l_metric},
    {"metric", &word_error_rate_metric},
    PL_REGISTRATIONS_END,
};
