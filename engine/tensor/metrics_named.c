/* metrics_named.c - metrics of a run file, by name
 *
 * An entry is a name with, in any order, a number and a kind of average: "fbeta 2
 * weighted".  A module logs all of them with one call. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "tensor/operators.h"

typedef pl_metric_t counted_t(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                              const pl_classes_options_t *options);
typedef pl_metric_t scored_t(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                             int64_t bins, const pl_classes_options_t *options);
typedef pl_metric_t measured_t(pl_graph_t *g, pl_node_t x, pl_node_t target);

enum {
    CLASS = 1 << PL_TASK_CLASS,
    LABELS = 1 << PL_TASK_LABELS,
    VALUE = 1 << PL_TASK_VALUE
};

/* Which function makes a metric; without one it has a case of its own in
 * metric_make(). */
static const struct {
    const char *name;
    unsigned tasks;
    counted_t *counted;
    scored_t *scored;
    measured_t *measured;
} metrics[] = {
    {"acc", CLASS | LABELS, .counted = NULL},
    {"balanced_acc", CLASS | LABELS, .counted = pl_accuracy_of_classes},
    {"precision", CLASS | LABELS, .counted = pl_precision},
    {"recall", CLASS | LABELS, .counted = pl_recall},
    {"f1", CLASS | LABELS, .counted = pl_f1},
    {"fbeta", CLASS | LABELS, .counted = NULL},
    {"specificity", CLASS | LABELS, .counted = pl_specificity},
    {"jaccard", CLASS | LABELS, .counted = pl_jaccard},
    {"hamming", CLASS | LABELS, .counted = pl_hamming},
    {"mcc", CLASS | LABELS, .counted = pl_mcc},
    {"kappa", CLASS | LABELS, .counted = pl_cohen_kappa},
    {"confusion", CLASS | LABELS, .counted = pl_confusion_matrix},
    {"auroc", CLASS | LABELS, .scored = pl_auroc},
    {"average_precision", CLASS | LABELS, .scored = pl_average_precision},
    {"roc", CLASS | LABELS, .scored = pl_roc},
    {"pr_curve", CLASS | LABELS, .scored = pl_pr_curve},
    {"calibration_error", CLASS, .scored = pl_calibration_error},
    {"perplexity", CLASS, .counted = NULL},
    {"mse", VALUE, .measured = pl_mse},
    {"rmse", VALUE, .measured = pl_rmse},
    {"mae", VALUE, .measured = pl_mae},
    {"r2", VALUE, .measured = pl_r2},
    {"explained_variance", VALUE, .measured = pl_explained_variance},
    {"spearman", VALUE, .measured = pl_spearman},
    {"pearson", VALUE, .measured = pl_pearson},
    {"concordance", VALUE, .measured = pl_concordance},
    {"mape", VALUE, .measured = pl_mape},
    {"smape", VALUE, .measured = pl_smape},
    {"msle", VALUE, .measured = pl_msle},
};
enum { LEAST_BINS = 10, METRICS = sizeof metrics / sizeof *metrics };

static const char *const averages[] = {"macro", "micro", "weighted", "classes"};

/* An entry, read. */
typedef struct entry {
    int metric;                                             /* number in the table */
    double number;                                          /* 0: none */
    pl_average_t average;
    char name[48];                                          /* as logged: "fbeta_2" */
} entry_t;

/* All names for the tasks, with commas between them. */
static const char *names_for(unsigned tasks, char text[static 512])
{
    size_t length = 0;
    text[0] = '\0';
    for (int k = 0; k < METRICS; k++)
        if (metrics[k].tasks & tasks)
            length += (size_t)snprintf(text + length, 512 - length, "%s%s",
                                       length ? ", " : "", metrics[k].name);
    return text;
}

/* Few bins would be a curve of few points, and the number would look like a class. */
static int number_check(int metric, double number, const char *text, pl_error_t *err)
{
    const char *name = metrics[metric].name;
    if (metrics[metric].scored && (number < LEAST_BINS || number != floor(number)))
        return pl_fail(err, PL_EINVAL,
                       "the metric \"%s\" takes its number of bins, a whole number "
                       "of at least %d; \"%s classes\" logs each class",
                       text, LEAST_BINS, name);
    if (!strcmp(name, "acc") && number != floor(number))
        return pl_fail(err, PL_EINVAL,
                       "the metric \"%s\" takes a whole number k: one of the k "
                       "likeliest classes has to be right",
                       text);
    if (!metrics[metric].scored && strcmp(name, "acc") && strcmp(name, "fbeta"))
        return pl_fail(err, PL_EINVAL,
                       "the metric \"%s\" takes no number; \"%s classes\" logs each "
                       "class, if it counts classes",
                       text, name);
    return PL_OK;
}

static int entry_read(const char *text, unsigned tasks, entry_t *entry, pl_error_t *err)
{
    char words[sizeof entry->name], all[512], *rest;
    *entry = (entry_t){.metric = -1};
    if (!text || strlen(text) >= sizeof words)
        return pl_fail(err, PL_EINVAL,
                       "\"metrics\" is a list of names, such as [\"acc\", \"f1 "
                       "weighted\"], of up to %d characters",
                       (int)sizeof words - 1);
    strcpy(words, text);
    for (char *word = strtok_r(words, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest)) {
        char *end;
        const double number = strtod(word, &end);
        int average = 0;
        while (average < 4 && strcmp(word, averages[average]) != 0)
            average++;
        const size_t length = strlen(entry->name);
        snprintf(entry->name + length, sizeof entry->name - length, "%s%s",
                 length ? "_" : "", word);
        for (int k = 0; k < METRICS && !length; k++)
            if (!strcmp(metrics[k].name, word) && metrics[k].tasks & tasks)
                entry->metric = k;
        if (entry->metric < 0)
            return pl_fail(err, PL_EINVAL, "\"%s\" is no metric of %s; there are %s",
                           word,
                           tasks == VALUE  ? "values"
                           : tasks & VALUE ? "classes, labels or values"
                           : tasks & CLASS ? "classes"
                                           : "labels",
                           names_for(tasks, all));
        if (!length)
            continue;
        if (average < 4)
            entry->average = (pl_average_t)average;
        else if (!*end && number > 0) {
            const int code = number_check(entry->metric, number, text, err);
            if (code != PL_OK)
                return code;
            entry->number = number;
        } else
            return pl_fail(err, PL_EINVAL,
                           "\"%s\" of the metric \"%s\" is neither a number above 0 nor "
                           "macro, micro, weighted or classes",
                           word, text);
    }
    return PL_OK;
}

/* Scores from 0 to 1 are computed once for all metrics that take them. */
static pl_metric_t metric_make(pl_graph_t *g, const entry_t *e, pl_node_t x,
                               pl_node_t target, pl_node_t scores,
                               const pl_classes_options_t *options)
{
    const char *name = metrics[e->metric].name;
    const pl_classes_options_t o = {options->has_ignore, options->ignore_index,
                                    e->average};
    const pl_cross_entropy_options_t ignore = {.has_ignore = options->has_ignore,
                                               .ignore_index = options->ignore_index};
    if (metrics[e->metric].counted)
        return metrics[e->metric].counted(g, x, target, &o);
    if (metrics[e->metric].scored)
        return metrics[e->metric].scored(g, scores, target, (int64_t)e->number, &o);
    if (metrics[e->metric].measured)
        return metrics[e->metric].measured(g, x, target);
    if (!strcmp(name, "fbeta"))
        return pl_fbeta(g, x, target, e->number > 0 ? e->number : 1, &o);
    if (!strcmp(name, "perplexity"))
        return pl_perplexity(pl_cross_entropy(g, x, target, &ignore));
    return e->number > 1 ? pl_accuracy_top(g, x, target, (int64_t)e->number, &ignore)
                         : pl_accuracy(g, x, target, &ignore);
}

/* Reads each entry of the list; logs it, if there is a graph. */
static int names_each(pl_graph_t *g, const char *names, pl_task_t task, pl_node_t x,
                      pl_node_t target, const pl_classes_options_t *options,
                      pl_error_t *err)
{
    const unsigned tasks = g ? 1u << task : CLASS | LABELS | VALUE;
    json_t *list = pl_json_value(names, strlen(names), NULL), *one;
    entry_t entry;
    size_t k;
    int code = json_is_array(list) ? PL_OK : entry_read(NULL, tasks, &entry, err);
    pl_node_t scores = PL_NO_NODE;
    json_array_foreach(list, k, one) {
        code = code == PL_OK ? entry_read(json_string_value(one), tasks, &entry, err)
                             : code;
        if (code != PL_OK || !g)
            continue;
        if (metrics[entry.metric].scored && scores.id < 0)
            scores = task == PL_TASK_CLASS ? pl_softmax(g, x) : pl_sigmoid(g, x);
        pl_log(g, entry.name, metric_make(g, &entry, x, target, scores, options),
               PL_ON_EPOCH);
    }
    json_decref(list);
    return code;
}

int pl_metrics_check(const char *names, pl_error_t *err)
{
    return !strcmp(names, "null") ? PL_OK
                                  : names_each(NULL, names, PL_TASK_CLASS, PL_NO_NODE,
                                               PL_NO_NODE, NULL, err);
}

void pl_log_metrics(pl_graph_t *g, const char *names, pl_task_t task, pl_node_t x,
                    pl_node_t target, const pl_classes_options_t *options)
{
    const pl_classes_options_t none = {0};
    pl_error_t err = {0};
    if (names_each(g, names, task, x, target, options ? options : &none, &err) != PL_OK)
        pl_graph_fail(g, err.code, "metrics: %s", err.text);
}
