/* csv_words.c - free texts of a table as features: how often their words occur
 *
 * A term is a word or two words beside each other.  Words are letters, digits and all
 * that is not ASCII; capital letters of ASCII are as small ones.  The most frequent terms
 * of the rows to train on are features: (1 + log(count)) * log(1 + rows / rows with it),
 * scaled so that the squares of a row's features sum to NORM^2 (tf-idf: Salton and
 * Buckley, "Term-weighting approaches in automatic text retrieval", 1988). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/datasets/csv_parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"

/* Longer words, such as addresses, are no terms. */
#define WORD_MAX 40
/* Different terms that are counted; later ones are rare. */
#define COUNTED_MAX 1000000
/* As large as some numbers of deviation 1, so that texts weigh as much as those. */
#define NORM 4.0

typedef struct term {
    const char *text;
    json_int_t rows;                                        /* that have it */
} term_t;

static bool is_part(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
           || (unsigned char)c >= 0x80;
}

/* Fills an empty object with the terms of a text and their counts. */
static int count_terms(json_t *terms, const char *text)
{
    char term[2 * WORD_MAX + 2] = "";
    size_t before = 0;                                      /* length of the word before,
                                                               which `term` begins with */
    json_object_clear(terms);
    for (size_t length; *text; text += length) {
        for (length = 0; is_part(text[length]);)
            length++;
        if (length > WORD_MAX)
            before = 0;
        if (!length || length > WORD_MAX) {
            length += !length;
            continue;
        }
        char *word = term + before + (before > 0);
        if (before)
            term[before] = ' ';
        for (size_t k = 0; k < length; k++)
            word[k] = (char)(text[k] >= 'A' && text[k] <= 'Z' ? text[k] + 32 : text[k]);
        word[length] = '\0';
        if (csv_count_text(terms, word) || (before && csv_count_text(terms, term)))
            return PL_ENOMEM;
        memmove(term, word, length + 1);
        before = length;
    }
    return PL_OK;
}

static int compare_terms(const void *a, const void *b)
{
    const term_t *x = a, *y = b;
    return x->rows != y->rows ? (x->rows < y->rows) - (x->rows > y->rows)
                              : strcmp(x->text, y->text);
}

/* Keeps the most frequent of the terms that `rows` rows have. */
static int keep_terms(const csv_dataset_t *csv, json_t *counts, int64_t rows,
                      csv_recipe_t *recipe)
{
    term_t *term = pl_alloc_array(json_object_size(counts) + 1, sizeof *term);
    const char *text;
    json_t *count;
    int64_t kept = 0;
    int failed = !term;
    recipe->values = json_object();
    recipe->weights = json_array();
    json_object_foreach(failed ? NULL : counts, text, count)
        if (json_integer_value(count) >= csv->options.rare)
            term[kept++] = (term_t){text, json_integer_value(count)};
    if (!failed)
        qsort(term, (size_t)kept, sizeof *term, compare_terms);
    kept = kept < csv->options.terms ? kept : csv->options.terms;
    for (int64_t k = 0; k < kept && !failed; k++) {
        const double weight = log(1 + (double)rows / (double)term[k].rows);
        failed = json_object_set_new(recipe->values, term[k].text, json_integer(k))
                 || json_array_append_new(recipe->weights, json_real(weight));
    }
    pl_free(term);
    return failed ? PL_ENOMEM : PL_OK;
}

int csv_learn_words(const csv_dataset_t *csv, const pl_data_split_t *split, int k,
                    pl_error_t *err)
{
    json_t *counts = json_object(), *terms = json_object(), *count;
    int code = counts && terms ? PL_OK : PL_ENOMEM;
    int64_t rows = 0;
    for (int64_t row = 0; row < csv->rows && !code; row++) {
        const char *cell = pl_table_cell(&csv->table, row, csv->columns.from[k]), *term;
        if (pl_data_split_holds(split, row))
            continue;
        if (!pl_utf8_ok(cell, strlen(cell))) {
            code = csv_wrong_cell(csv, row, csv->columns.from[k], "UTF-8", err);
            break;
        }
        rows++;
        code = count_terms(terms, cell);
        json_object_foreach(code ? NULL : terms, term, count)
            if (!code
                && (json_object_size(counts) < COUNTED_MAX
                    || json_object_get(counts, term)))
                code = csv_count_text(counts, term) ? PL_ENOMEM : PL_OK;
    }
    if (!code)
        code = keep_terms(csv, counts, rows, &csv->learnt.recipe[k]);
    json_decref(counts);
    json_decref(terms);
    return code == PL_ENOMEM ? pl_no_memory(err) : code;
}

int csv_fill_words(csv_dataset_t *csv, int k, int at, pl_error_t *err)
{
    const csv_recipe_t *recipe = &csv->learnt.recipe[k];
    json_t *terms = json_object(), *count;
    int code = terms ? PL_OK : PL_ENOMEM;
    for (int64_t row = 0; row < csv->rows && !code; row++) {
        float *x = csv->samples.x + row * csv->learnt.features + at;
        const char *term;
        double squares = 0;
        code = count_terms(terms, pl_table_cell(&csv->table, row, csv->columns.from[k]));
        json_object_foreach(code ? NULL : terms, term, count) {
            const json_t *place = json_object_get(recipe->values, term);
            if (!place)
                continue;
            const size_t to = (size_t)json_integer_value(place);
            const double value = (1 + log((double)json_integer_value(count)))
                                 * json_number_value(json_array_get(recipe->weights, to));
            x[to] = (float)value;
            squares += value * value;
        }
        for (int i = 0; i < recipe->width && squares > 0; i++)
            x[i] *= (float)(NORM / sqrt(squares));
    }
    json_decref(terms);
    return code ? pl_no_memory(err) : PL_OK;
}
