/* option.c - one option: its range, its value from JSON, and the check of its table
 * entry */
#include "base/option.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/suggestion.h"
#include "base/run.h"

#define INTS_MAX ((int)(sizeof((pl_ints_t *)0)->value / sizeof(int64_t)))
#define REALS_MAX (sizeof((pl_reals_t *)0)->value / sizeof(double))
#define TEXTS_MAX (sizeof((pl_texts_t *)0)->text / sizeof(char *))

/* ---- Ranges ---- */

/* The JSON number in [from, to); an empty text is no end. */
static int end_parse(const char *from, const char *to, pl_range_end_t *end,
                     pl_error_t *err)
{
    *end = (pl_range_end_t){.there = from < to,
                            .open = end->open,
                            .text = from,
                            .length = (int)(to - from)};
    if (!end->there)
        return PL_OK;
    pl_error_t why = {0};
    json_t *value = pl_json_value(from, (size_t)(to - from), &why);
    if (!value && why.code == PL_ENOMEM)
        return pl_fail(err, PL_ENOMEM, "%s", why.text);
    if (!json_is_number(value)) {
        json_decref(value);
        return pl_fail(err, PL_EINVAL, "%.*s is not a number", (int)(to - from), from);
    }
    end->whole = json_is_integer(value);
    end->integer = json_integer_value(value);
    end->number = json_number_value(value);
    json_decref(value);
    return PL_OK;
}

int pl_range_parse(const char *text, pl_range_t *range, pl_error_t *err)
{
    pl_range_t parsed = {0};
    *range = parsed;
    if (!text)
        return PL_OK;
    const char *from = text, *to = text + strlen(text), *dots = strstr(text, "..");
    if (!dots)
        return pl_fail(err, PL_EINVAL, "a range has the form 1.. or (0..1], not %s",
                       text);
    if (*from == '(' || *from == '[')
        parsed.low.open = *from++ == '(';
    if (to[-1] == ')' || to[-1] == ']')
        parsed.high.open = *--to == ')';
    int rc = end_parse(from, dots, &parsed.low, err);
    if (rc == PL_OK)
        rc = end_parse(dots + 2, to, &parsed.high, err);
    if (rc == PL_OK)
        *range = parsed;
    return rc;
}

char *pl_range_words(const pl_range_t *range, char words[PL_RANGE_WORDS])
{
    const pl_range_end_t *low = &range->low, *high = &range->high;
    int used = 0;
    words[0] = '\0';
    if (low->there)
        used = snprintf(words, PL_RANGE_WORDS, " %s %.*s%s", low->open ? "above" : "from",
                        low->length, low->text,
                        high->there && low->open     ? ","
                        : !high->there && !low->open ? " up"
                                                     : "");
    if (high->there && used < PL_RANGE_WORDS) {
        const char *word = low->there && !low->open ? high->open ? "to below" : "to"
                           : high->open             ? "below"
                                                    : "up to";
        snprintf(words + used, (size_t)(PL_RANGE_WORDS - used), " %s %.*s", word,
                 high->length, high->text);
    }
    return words;
}

/* -1, 0 or 1: value is below, at or above the end. */
static int compare(double value, int64_t integer, bool is_integer,
                   const pl_range_end_t *end)
{
    if (is_integer && end->whole)
        return (integer > end->integer) - (integer < end->integer);
    return (value > end->number) - (value < end->number);
}

static bool holds(const pl_range_t *range, double value, int64_t integer, bool is_integer)
{
    const int low = compare(value, integer, is_integer, &range->low),
              high = compare(value, integer, is_integer, &range->high);
    if (range->low.there && (low < 0 || (low == 0 && range->low.open)))
        return false;
    return !range->high.there || high < 0 || (high == 0 && !range->high.open);
}

bool pl_range_holds_integer(const pl_range_t *range, int64_t value)
{
    return holds(range, (double)value, value, true);
}

bool pl_range_holds_number(const pl_range_t *range, double value)
{
    return holds(range, value, 0, false);
}

const char *const pl_mode_names[] = {"min", "max"};

typedef int (*read_t)(const pl_option_t *option, const json_t *value, void *field,
                      pl_error_t *err);

/* ---- Values ---- */

/* `takes an integer from 1 up or "auto", not 0`; range  [none applies] */
static int fail_value(const pl_option_t *option, const json_t *value, const char *kind,
                      const pl_range_t *range, pl_error_t *err)
{
    char shown[PL_JSON_SHOWN], words[PL_RANGE_WORDS] = "";
    bool or_auto = option->type != PL_OPTION_COMPONENT && pl_option_is_automatic(option);
    if (range)
        pl_range_words(range, words);
    return pl_fail(err, PL_EINVAL, "takes %s%s%s, not %s", kind, words,
                   or_auto ? " or \"auto\"" : "", pl_json_show(value, shown));
}

/* Whether the value is an integer in range, also as 1e2, which is a real in JSON. */
static bool is_meant(const json_t *value, const pl_range_t *range)
{
    double number = json_number_value(value);
    return json_is_number(value) && fabs(number) < 1e15 && number == floor(number)
           && pl_range_holds_integer(range, (int64_t)number);
}

static int read_integer(const pl_option_t *option, const json_t *value, void *field,
                        pl_error_t *err)
{
    char words[PL_RANGE_WORDS];
    pl_range_t range;
    int rc = pl_range_parse(option->range, &range, err);
    if (rc != PL_OK)
        return rc;
    int64_t integer = json_integer_value(value);
    bool is_switch = option->fallback && !strcmp(option->fallback, "false");
    if (json_is_boolean(value) && is_switch) {
        *(int64_t *)field = json_is_true(value);
        return PL_OK;
    }
    if (!json_is_integer(value) || !pl_range_holds_integer(&range, integer))
        return is_meant(value, &range)
                   ? pl_fail(err, PL_EINVAL, "takes an integer%s: write %.0f",
                             pl_range_words(&range, words), json_real_value(value))
                   : fail_value(option, value, "an integer", &range, err);
    *(int64_t *)field = integer;
    return PL_OK;
}

/* A list of device numbers stands for as many devices. */
static int read_devices(const json_t *list, pl_span_t *span, pl_error_t *err)
{
    enum { MAX = 1024 };                                    /* ranks of a run */
    const size_t count = json_array_size(list);
    char shown[PL_JSON_SHOWN];
    if (count < 1 || count > MAX)
        return pl_fail(err, PL_EINVAL,
                       "is a list of %zu device numbers: give 1 to %d, such as [0, 2]",
                       count, MAX);
    for (size_t k = 0; k < count; k++) {
        const json_t *number = json_array_get(list, k);
        if (!json_is_integer(number) || json_integer_value(number) < 0
            || json_integer_value(number) > INT_MAX)
            return pl_fail(err, PL_EINVAL,
                           "is a list of device numbers, integers from 0, and entry %zu "
                           "is %s",
                           k, pl_json_show(number, shown));
        for (size_t before = 0; before < k; before++)
            if (json_equal(json_array_get(list, before), number))
                return pl_fail(err, PL_EINVAL,
                               "lists device %s twice: each rank needs a device of its "
                               "own",
                               pl_json_show(number, shown));
    }
    *span = (pl_span_t){(int64_t)count, (int64_t)count};
    return PL_OK;
}

/* An integer, "MIN:MAX" or a list of device numbers. */
static int read_span(const pl_option_t *option, const json_t *value, void *field,
                     pl_error_t *err)
{
    pl_span_t *span = field;
    pl_range_t range;
    int64_t min, max;
    int end = -1;
    if (json_is_array(value))
        return read_devices(value, span, err);
    if (!json_is_string(value)) {
        int rc = read_integer(option, value, &max, err);
        if (rc == PL_OK)
            *span = (pl_span_t){max, max};
        return rc;
    }
    int rc = pl_range_parse(option->range, &range, err);
    if (rc != PL_OK)
        return rc;
    const char *text = json_string_value(value);
    if (sscanf(text, "%9" SCNd64 ":%9" SCNd64 "%n", &min, &max, &end) != 2
        || text[end] != '\0' || min > max || !pl_range_holds_integer(&range, min)
        || !pl_range_holds_integer(&range, max))
        return fail_value(option, value,
                          "a list of device numbers, or an integer or \"MIN:MAX\"",
                          &range, err);
    *span = (pl_span_t){min, max};
    return PL_OK;
}

static int read_number(const pl_option_t *option, const json_t *value, void *field,
                       pl_error_t *err)
{
    pl_range_t range;
    int rc = pl_range_parse(option->range, &range, err);
    if (rc != PL_OK)
        return rc;
    double number = json_number_value(value);
    bool may_be_none = option->fallback && !strcmp(option->fallback, "null");
    if (json_is_null(value) && may_be_none) {
        *(double *)field = NAN;
        return PL_OK;
    }
    if (!json_is_number(value) || !pl_range_holds_number(&range, number))
        return fail_value(option, value, "a number", &range, err);
    *(double *)field = number;
    return PL_OK;
}

static int read_truth(const pl_option_t *option, const json_t *value, void *field,
                      pl_error_t *err)
{
    if (!json_is_boolean(value))
        return fail_value(option, value, "true or false", NULL, err);
    *(bool *)field = json_is_true(value);
    return PL_OK;
}

/* Copies the first word of *choices, "relu|gelu|tanh", and moves *choices behind it;
 * false at the end or if the word is too long. */
static bool next_choice(const char **choices, char word[64])
{
    size_t length = strcspn(*choices, "|");
    if (length == 0 || length >= 64)
        return false;
    memcpy(word, *choices, length);
    word[length] = '\0';
    *choices += length + ((*choices)[length] == '|');
    return true;
}

/* The place of a word among the choices, from 0; -1: it is none of them. */
static int choice_find(const char *choices, const char *text)
{
    char word[64];
    for (int k = 0; next_choice(&choices, word); k++)
        if (!strcmp(word, text))
            return k;
    return -1;
}

/* A text, or a word as a text or as its place.  true and false may be among the words. */
static int read_text(const pl_option_t *option, const json_t *value, void *field,
                     pl_error_t *err)
{
    const char *text = json_is_true(value)    ? "true"
                       : json_is_false(value) ? "false"
                                              : json_string_value(value);
    const int place = text && option->range ? choice_find(option->range, text) : -1;
    if (option->type == PL_OPTION_WORD && place >= 0) {
        *(int *)field = place;
        return PL_OK;
    }
    if (place >= 0 || (json_is_string(value) && !option->range)) {
        *(const char **)field = text;
        return PL_OK;
    }
    if (!json_is_string(value))
        return fail_value(option, value, option->range ? option->range : "text", NULL,
                          err);
    char best[64] = "", word[64], shown[PL_JSON_SHOWN];
    int min = 3;
    for (const char *choices = option->range; next_choice(&choices, word);) {
        int distance = pl_edit_distance(text, word);
        if (distance < min) {
            min = distance;
            strcpy(best, word);
        }
    }
    return pl_fail(err, PL_EINVAL, "takes %s, not %s%s%s%s", option->range,
                   pl_json_show(value, shown), *best ? ": did you mean \"" : "", best,
                   *best ? "\"?" : "");
}

static int read_integers(const pl_option_t *option, const json_t *value, void *field,
                         pl_error_t *err)
{
    static const char kind[] = "a list of at most 16 integers";
    char words[PL_RANGE_WORDS], shown[PL_JSON_SHOWN];
    pl_range_t range;
    int rc = pl_range_parse(option->range, &range, err);
    if (rc != PL_OK)
        return rc;
    pl_ints_t ints = {.count = (int)json_array_size(value)};
    bool fits = json_is_array(value) && json_array_size(value) <= (size_t)INTS_MAX;
    for (int i = 0; fits && i < ints.count; i++) {
        const json_t *entry = json_array_get(value, (size_t)i);
        ints.value[i] = json_integer_value(entry);
        fits = json_is_integer(entry) && pl_range_holds_integer(&range, ints.value[i]);
    }
    if (fits)
        *(pl_ints_t *)field = ints;
    if (fits || !is_meant(value, &range))
        return fits ? PL_OK : fail_value(option, value, kind, &range, err);
    return pl_fail(err, PL_EINVAL, "takes %s%s, not %s: write [%.0f]", kind,
                   pl_range_words(&range, words), pl_json_show(value, shown),
                   json_number_value(value));
}

static int read_numbers(const pl_option_t *option, const json_t *value, void *field,
                        pl_error_t *err)
{
    static const char kind[] = "a list of at most 64 numbers";
    char words[PL_RANGE_WORDS], shown[PL_JSON_SHOWN];
    pl_range_t range;
    int rc = pl_range_parse(option->range, &range, err);
    if (rc != PL_OK)
        return rc;
    pl_reals_t reals = {.count = (int)json_array_size(value)};
    bool fits = json_is_array(value) && json_array_size(value) <= REALS_MAX;
    for (int i = 0; fits && i < reals.count; i++) {
        const json_t *entry = json_array_get(value, (size_t)i);
        reals.value[i] = json_number_value(entry);
        fits = json_is_number(entry) && pl_range_holds_number(&range, reals.value[i]);
    }
    if (fits)
        *(pl_reals_t *)field = reals;
    if (fits || !json_is_number(value)
        || !pl_range_holds_number(&range, json_number_value(value)))
        return fits ? PL_OK : fail_value(option, value, kind, &range, err);
    pl_json_show(value, shown);
    return pl_fail(err, PL_EINVAL, "takes %s%s, not %s: write [%s]", kind,
                   pl_range_words(&range, words), shown, shown);
}

static int read_texts(const pl_option_t *option, const json_t *value, void *field,
                      pl_error_t *err)
{
    pl_texts_t texts = {0};
    const char *name;
    json_t *text;
    bool fits = json_is_object(value) && json_object_size(value) <= TEXTS_MAX;
    json_object_foreach((json_t *)value, name, text) {
        fits = fits && json_is_string(text);
        if (!fits)
            break;
        texts.name[texts.count] = name;
        texts.text[texts.count++] = json_string_value(text);
    }
    if (!fits)
        return fail_value(option, value, "an object of at most 8 texts", NULL, err);
    *(pl_texts_t *)field = texts;
    return PL_OK;
}

/* 1 is a count of one, 1.0 the whole. */
static int read_amount(const pl_option_t *option, const json_t *value, void *field,
                       pl_error_t *err)
{
    static const char kind[] = "a share up to 1.0 or a whole count";
    pl_range_t range;
    int rc = pl_range_parse(option->range, &range, err);
    if (rc != PL_OK)
        return rc;
    pl_amount_t amount = {.value = json_number_value(value),
                          .is_share = json_is_real(value)};
    if (!json_is_number(value) || amount.value < 0
        || (amount.is_share && amount.value > 1))
        return fail_value(option, value, kind, &range, err);
    if (!pl_range_holds_number(&range, amount.value))
        return fail_value(option, value, kind, &range, err);
    *(pl_amount_t *)field = amount;
    return PL_OK;
}

static int read_interval(const pl_option_t *option, const json_t *value, void *field,
                         pl_error_t *err)
{
    int64_t duration = 0;
    if (!json_is_string(value))
        return read_amount(option, value, field, err);
    int rc = pl_duration_read(json_string_value(value), &duration, err);
    if (rc == PL_OK)
        *(pl_amount_t *)field = (pl_amount_t){.value = (double)duration / 1e9,
                                              .is_time = true};
    return rc;
}

static int read_component(const pl_option_t *option, const json_t *value, void *field,
                          pl_error_t *err)
{
    (void)field;
    const json_t *name = json_is_object(value) ? json_object_get(value, "name") : value;
    bool none = json_is_null(value) && option->fallback
                && !strcmp(option->fallback, "null");
    if (none || json_is_string(name) || (json_is_object(value) && !name))
        return PL_OK;
    return fail_value(option, value, "a name or an object with a \"name\"", NULL, err);
}

static int read_groups(const pl_option_t *option, const json_t *value, void *field,
                       pl_error_t *err)
{
    (void)field;
    bool fits = json_is_array(value);
    for (size_t i = 0; i < json_array_size(value); i++)
        fits = fits && json_is_object(json_array_get(value, i));
    return fits ? PL_OK : fail_value(option, value, "a list of objects", NULL, err);
}

static int read_json(const pl_option_t *option, const json_t *value, void *field,
                     pl_error_t *err)
{
    (void)option, (void)value, (void)field, (void)err;
    return PL_OK;
}

static int read_components(const pl_option_t *option, const json_t *value, void *field,
                           pl_error_t *err)
{
    size_t count = json_array_size(value);
    int code = PL_OK;
    if (!json_is_array(value))
        return read_component(option, value, field, err);
    if (count < 1 || count > PL_INSTANCES)
        return pl_fail(err, PL_EINVAL, "takes a list of 1 to %d, not of %zu",
                       PL_INSTANCES, count);
    for (size_t k = 0; k < count && code == PL_OK; k++)
        code = json_is_null(json_array_get(value, k))
                   ? fail_value(option, json_array_get(value, k),
                                "names, or objects with a \"name\"", NULL, err)
                   : read_component(option, json_array_get(value, k), field, err);
    return code;
}

int pl_option_read(const pl_option_t *option, const json_t *value, void *field,
                   pl_error_t *err)
{
    static const read_t readers[] = {
        [PL_OPTION_INT] = read_integer,         [PL_OPTION_FLOAT] = read_number,
        [PL_OPTION_BOOL] = read_truth,          [PL_OPTION_TEXT] = read_text,
        [PL_OPTION_INTS] = read_integers,       [PL_OPTION_AMOUNT] = read_amount,
        [PL_OPTION_COMPONENT] = read_component, [PL_OPTION_REALS] = read_numbers,
        [PL_OPTION_TEXTS] = read_texts,         [PL_OPTION_GROUPS] = read_groups,
        [PL_OPTION_INTERVAL] = read_interval,   [PL_OPTION_COMPONENTS] = read_components,
        [PL_OPTION_SPAN] = read_span,           [PL_OPTION_WORD] = read_text,
        [PL_OPTION_JSON] = read_json,
    };
    return readers[option->type](option, value, field, err);
}

/* ---- Defaults ---- */

const pl_option_t *pl_option_find(const pl_option_t *table, const char *name)
{
    for (; table && table->name; table++)
        if (!strcmp(table->name, name))
            return table;
    return NULL;
}

json_t *pl_option_fallback(const pl_option_t *option, pl_error_t *err)
{
    return option->fallback
               ? pl_json_value(option->fallback, strlen(option->fallback), err)
               : json_null();
}

bool pl_option_is_automatic(const pl_option_t *option)
{
    const bool has_words = option->type == PL_OPTION_TEXT
                           || option->type == PL_OPTION_WORD,
               a_word_like_others = has_words && option->range
                                    && choice_find(option->range, "auto") >= 0;
    return option->fallback && !strcmp(option->fallback, "\"auto\"")
           && !a_word_like_others;
}

bool pl_option_may_be_zero(const pl_option_t *option)
{
    pl_range_t range;
    return option->range && pl_range_parse(option->range, &range, NULL) == PL_OK
           && pl_range_holds_integer(&range, 0);
}

bool pl_is_auto(const json_t *value)
{
    return json_is_string(value) && !strcmp(json_string_value(value), "auto");
}

/* ---- Tables ---- */

static const size_t field_bytes[] = {
    [PL_OPTION_INT] = sizeof(int64_t),
    [PL_OPTION_FLOAT] = sizeof(double),
    [PL_OPTION_BOOL] = sizeof(bool),
    [PL_OPTION_TEXT] = sizeof(const char *),
    [PL_OPTION_INTS] = sizeof(pl_ints_t),
    [PL_OPTION_AMOUNT] = sizeof(pl_amount_t),
    [PL_OPTION_COMPONENT] = sizeof(pl_choice_t),
    [PL_OPTION_REALS] = sizeof(pl_reals_t),
    [PL_OPTION_TEXTS] = sizeof(pl_texts_t),
    [PL_OPTION_GROUPS] = sizeof(const char *),
    [PL_OPTION_INTERVAL] = sizeof(pl_amount_t),
    [PL_OPTION_SPAN] = sizeof(pl_span_t),
    [PL_OPTION_WORD] = sizeof(int),
    [PL_OPTION_JSON] = sizeof(const char *),
    [PL_OPTION_COMPONENTS] = sizeof(pl_instances_t),
};

/* The mistakes in one entry of a component's table; err is not NULL. */
static int entry_check(const pl_component_t *component, const pl_option_t *option,
                       pl_error_t *err)
{
    pl_range_t range;
    pl_field_value_t field;
    const size_t types = sizeof field_bytes / sizeof *field_bytes,
                 bytes = (size_t)option->type < types ? field_bytes[option->type] : 0;
    if (bytes == 0)
        return pl_fail(err, PL_EINVAL, "has an unknown type");
    if (option->offset > component->size || component->size - option->offset < bytes)
        return pl_fail(err, PL_EINVAL, "lies outside the component's struct of %zu bytes",
                       component->size);
    if (!strcmp(option->name, "name")
        || pl_option_find(component->options, option->name) != option)
        return pl_fail(err, PL_EINVAL, "has the name of another key");
    if (option->type == PL_OPTION_WORD && !option->range)
        return pl_fail(err, PL_EINVAL, "has no words");
    if (option->type != PL_OPTION_TEXT && option->type != PL_OPTION_WORD
        && option->type != PL_OPTION_COMPONENT && option->type != PL_OPTION_COMPONENTS
        && pl_range_parse(option->range, &range, err) != PL_OK)
        return err->code;
    if (option->type == PL_OPTION_COMPONENT && option->fallback
        && strcmp(option->fallback, "\"auto\"") && strcmp(option->fallback, "null"))
        return pl_fail(err, PL_EINVAL,
                       "names a component: its default can only be \"auto\" or null");
    if (!option->fallback || pl_option_is_automatic(option))
        return PL_OK;
    json_t *fallback = pl_option_fallback(option, err);
    int rc = fallback ? pl_option_read(option, fallback, &field, err) : err->code;
    json_decref(fallback);
    return rc;
}

int pl_option_table_check(const char *role, const pl_component_t *component,
                          pl_error_t *err)
{
    for (const pl_option_t *option = component->options; option && option->name;
         option++) {
        pl_error_t why = {0};
        int rc = entry_check(component, option, &why);
        if (rc != PL_OK)
            return pl_fail(err, rc, "option \"%s\" of %s \"%s\": %s", option->name, role,
                           component->name, why.text);
    }
    return PL_OK;
}

uint32_t pl_amount_of(pl_amount_t amount, uint32_t batches)
{
    double allowed = amount.is_share ? floor(amount.value * batches) : amount.value;
    return allowed < batches ? (uint32_t)allowed : batches;
}
