/* record_arguments.c - the arguments of recorded calls, from JSON */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "tensor/graph.h"
#include "tensor/operators.h"
#include "tensor/record.h"

enum { LIST_MAX = 100000 };                                 /* elements */

/* Whether the text of an error says which function it is: "conv takes x", or "c: conv
 * takes x". */
static bool text_names(const char *text, const char *function, int length)
{
    const char *after = strstr(text, ": ");
    for (int k = 0; k < 2 && text; k++, text = after ? after + 2 : NULL)
        if (length && !strncmp(text, function, (size_t)length)
            && (text[length] == ' ' || text[length] == ':'))
            return true;
    return false;
}

void pl_recorded_fail(pl_recorded_t *r, const char *format, ...)
{
    char text[PL_ERROR_TEXT];
    va_list args;
    if (r->error.code)
        return;
    va_start(args, format);
    pl_text_print(text, sizeof text, format, args);
    va_end(args);
    const char *function = r->function ? r->function : "";
    const size_t whole = strlen(function);
    /* linear_with is linear with options, and in Python no name of its own */
    const bool has_options = whole > 5 && !strcmp(function + whole - 5, "_with");
    int shown = (int)(has_options ? whole - 5 : whole);
    if (text_names(text, function, shown))
        shown = 0;
    pl_fail(&r->error, PL_EINVAL, "%s%s%.*s%s%s", r->at ? r->at : "", r->at ? ": " : "",
            shown, function, shown ? ": " : "", text);
}

bool pl_recorded_is_ready(const pl_recorded_t *r)
{
    return r->g && !r->error.code;
}

/* An argument that is there; null counts as missing. */
static const json_t *argument_of(pl_recorded_t *r, const char *name, bool required)
{
    const json_t *value = json_object_get(r->arguments, name);
    if (value && !json_is_null(value))
        return value;
    if (required)
        pl_recorded_fail(r, "the argument \"%s\" is missing", name);
    return NULL;
}

/* Fails: the argument is not `what`. */
static bool refuse(pl_recorded_t *r, const char *name, const char *what,
                   const json_t *value)
{
    char shown[PL_JSON_SHOWN];
    pl_recorded_fail(r, "%s takes %s, not %s", name, what, pl_json_show(value, shown));
    return false;
}

/* ---- One value ---- */

static bool number_read(const json_t *value, double *number)
{
    const char *text = json_string_value(value);
    if (json_is_number(value))
        *number = json_number_value(value);
    else if (text && (!strcmp(text, "inf") || !strcmp(text, "-inf")))
        *number = *text == '-' ? -INFINITY : INFINITY;
    else
        return false;
    return true;
}

bool pl_recorded_bool(pl_recorded_t *r, const char *name, bool required, bool *value)
{
    const json_t *given = argument_of(r, name, required);
    if (!given || !json_is_boolean(given))
        return given && refuse(r, name, "true or false", given);
    *value = json_is_true(given);
    return true;
}

bool pl_recorded_i64(pl_recorded_t *r, const char *name, bool required, int64_t *value)
{
    const json_t *given = argument_of(r, name, required);
    if (!given || !json_is_integer(given))
        return given && refuse(r, name, "a whole number", given);
    *value = json_integer_value(given);
    return true;
}

bool pl_recorded_int(pl_recorded_t *r, const char *name, bool required, int *value)
{
    int64_t number;
    if (!pl_recorded_i64(r, name, required, &number))
        return false;
    if (number < INT_MIN || number > INT_MAX)
        return refuse(r, name, "a number of 32 bits",
                      json_object_get(r->arguments, name));
    *value = (int)number;
    return true;
}

bool pl_recorded_real(pl_recorded_t *r, const char *name, bool required, double *value)
{
    const json_t *given = argument_of(r, name, required);
    return given && (number_read(given, value) || refuse(r, name, "a number", given));
}

const char *pl_recorded_text(pl_recorded_t *r, const char *name, bool required)
{
    const json_t *given = argument_of(r, name, required);
    if (given && !json_is_string(given))
        refuse(r, name, "a text", given);
    return json_string_value(given);
}

bool pl_recorded_shape(pl_recorded_t *r, const char *name, bool required,
                       pl_shape_t *value)
{
    size_t count;
    const int64_t *sizes = pl_recorded_i64s(r, name, required, &count);
    if (!sizes)
        return false;
    if (count > PL_DIMS)
        return refuse(r, name, "as many sizes as a tensor has axes at most",
                      json_object_get(r->arguments, name));
    *value = (pl_shape_t){.rank = (int)count};
    memcpy(value->dim, sizes, count * sizeof *sizes);
    return true;
}

bool pl_recorded_word(pl_recorded_t *r, const char *name, bool required,
                      const pl_recorded_word_t *words, bool flags, int *value)
{
    const char *text = pl_recorded_text(r, name, required);
    int number = 0;
    if (!text)
        return false;
    for (const char *at = text; at; at = flags ? strchr(at, '|') : NULL) {
        at += *at == '|';
        const size_t length = flags ? strcspn(at, "|") : strlen(at);
        const pl_recorded_word_t *word = words;
        while (word->name
               && (strncmp(word->name, at, length) || word->name[length] != '\0'))
            word++;
        if (!word->name) {
            char known[160] = "";
            for (word = words; word->name && strlen(known) < 120; word++)
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%.30s",
                         *known ? ", " : "one of ", word->name);
            return refuse(r, name, known, json_object_get(r->arguments, name));
        }
        number |= word->number;
    }
    *value = number;
    return true;
}

/* ---- Values of earlier calls ---- */

static bool value_read(pl_recorded_t *r, const char *name, const json_t *given,
                       pl_recorded_kind_t kind, pl_recorded_value_t *value)
{
    const char *what = kind == PL_RECORDED_NODE ? "node" : "loss or metric";
    const json_int_t number = json_is_integer(given) ? json_integer_value(given) : -1;
    if (number < 0 || number >= r->value_count) {
        char shown[PL_JSON_SHOWN];
        pl_recorded_fail(r,
                         "%s takes a %s: the number of an earlier call, below %d, not %s",
                         name, what, r->value_count, pl_json_show(given, shown));
        return false;
    }
    *value = r->value[number];
    if (value->kind == kind && !value->is_skipped)
        return true;
    pl_recorded_fail(r, "%s takes a %s, and call %lld makes %s", name, what,
                     (long long)number,
                     value->is_skipped                   ? "nothing in this stage"
                     : value->kind == PL_RECORDED_NODE   ? "a node"
                     : value->kind == PL_RECORDED_METRIC ? "a loss or metric"
                                                         : "no value");
    return false;
}

bool pl_recorded_node(pl_recorded_t *r, const char *name, bool required, pl_node_t *value)
{
    const json_t *given = argument_of(r, name, required);
    pl_recorded_value_t earlier;
    if (!given || !value_read(r, name, given, PL_RECORDED_NODE, &earlier))
        return false;
    *value = earlier.node;
    return true;
}

bool pl_recorded_metric(pl_recorded_t *r, const char *name, bool required,
                        pl_metric_t *value)
{
    const json_t *given = argument_of(r, name, required);
    pl_recorded_value_t earlier;
    if (!given || !value_read(r, name, given, PL_RECORDED_METRIC, &earlier))
        return false;
    *value = earlier.metric;
    return true;
}

/* ---- Lists ---- */

static const json_t *element_at(const json_t *list, size_t k)
{
    return json_is_array(list) ? json_array_get(list, k) : list;
}

/* Memory until the call's end; NULL: an error. */
static void *hold(pl_recorded_t *r, size_t count, size_t size)
{
    if (r->held_count == PL_RECORDED_HELD) {
        pl_recorded_fail(r, "a call takes at most %d lists", PL_RECORDED_HELD);
        return NULL;
    }
    void *array = pl_alloc_array(count, size);
    if (!array)
        pl_no_memory(r->error.code ? NULL : &r->error);
    return array ? r->held[r->held_count++] = array : NULL;
}

/* An array for the elements of an argument; NULL: not given, or too long. */
static void *list_hold(pl_recorded_t *r, const char *name, bool required, size_t size,
                       const json_t **list, size_t *count)
{
    *list = argument_of(r, name, required);
    *count = !*list ? 0 : json_is_array(*list) ? json_array_size(*list) : 1;
    if (!*list)
        return NULL;
    if (*count > LIST_MAX) {
        pl_recorded_fail(r, "%s has at most %d elements, not %zu", name, LIST_MAX,
                         *count);
        return NULL;
    }
    return hold(r, *count > PL_DIMS ? *count : PL_DIMS, size);
}

/* RFC 4648, section 4. */
const void *pl_recorded_base64(pl_recorded_t *r, const char *name, size_t *size)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *text = pl_recorded_text(r, name, false);
    const size_t length = text ? strlen(text) : 0,
                 padding = length < 2 ? 0 : (text[length - 1] == '=')
                                                + (text[length - 2] == '=');
    uint8_t *bytes = text ? hold(r, length / 4 + 1, 3) : NULL;
    uint32_t four = 0;
    bool is_right = length % 4 == 0;
    for (size_t k = 0; bytes && is_right && k < length; k++) {
        const char *digit = k < length - padding ? strchr(digits, text[k]) : digits;
        is_right = digit;
        four = four << 6 | (uint32_t)(is_right ? digit - digits : 0);
        for (size_t i = 0; k % 4 == 3 && i < 3; i++)
            bytes[k / 4 * 3 + i] = (uint8_t)(four >> (16 - 8 * i));
    }
    if (!is_right)
        pl_recorded_fail(r, "%s takes bytes in base64", name);
    *size = length / 4 * 3 - padding;
    return is_right ? bytes : NULL;
}

pl_node_t *pl_recorded_nodes(pl_recorded_t *r, const char *name, bool required,
                             size_t *count)
{
    const json_t *list;
    pl_node_t *array = list_hold(r, name, required, sizeof *array, &list, count);
    pl_recorded_value_t earlier;
    for (size_t k = 0; array && k < *count; k++) {
        if (!value_read(r, name, element_at(list, k), PL_RECORDED_NODE, &earlier))
            return NULL;
        array[k] = earlier.node;
    }
    return array;
}

pl_metric_state_t *pl_recorded_states(pl_recorded_t *r, const char *name, bool required,
                                      size_t *count)
{
    static const char *const words[] = {"sum", "max", "min", "gather"};
    const json_t *list;
    pl_metric_state_t *array = list_hold(r, name, required, sizeof *array, &list, count);
    pl_recorded_value_t value;
    if (array && (!json_is_array(list) || *count > PL_METRIC_STATES)) {
        pl_recorded_fail(r, "%s takes a list of at most %d states, not %zu", name,
                         PL_METRIC_STATES, *count);
        return NULL;
    }
    for (size_t k = 0; array && k < *count; k++) {
        const json_t *one = json_array_get(list, k);
        const char *word = json_string_value(json_array_get(one, 1));
        int which = 0;
        while (which < 4 && (!word || strcmp(words[which], word)))
            which++;
        if (which == 4) {
            refuse(r, name, "states [node, \"sum\", \"max\", \"min\" or \"gather\"]",
                   one);
            return NULL;
        }
        if (!value_read(r, name, json_array_get(one, 0), PL_RECORDED_NODE, &value))
            return NULL;
        array[k] = (pl_metric_state_t){value.node, (pl_combine_t)which};
    }
    return array;
}

int64_t *pl_recorded_i64s(pl_recorded_t *r, const char *name, bool required,
                          size_t *count)
{
    const json_t *list;
    int64_t *array = list_hold(r, name, required, sizeof *array, &list, count);
    for (size_t k = 0; array && k < *count; k++) {
        if (!json_is_integer(element_at(list, k))) {
            refuse(r, name, "whole numbers", list);
            return NULL;
        }
        array[k] = json_integer_value(element_at(list, k));
    }
    return array;
}

int *pl_recorded_ints(pl_recorded_t *r, const char *name, bool required, size_t *count)
{
    const json_t *list;
    int *array = list_hold(r, name, required, sizeof *array, &list, count);
    for (size_t k = 0; array && k < *count; k++) {
        const json_int_t number = json_integer_value(element_at(list, k));
        if (!json_is_integer(element_at(list, k)) || number < INT_MIN
            || number > INT_MAX) {
            refuse(r, name, "whole numbers of 32 bits", list);
            return NULL;
        }
        array[k] = (int)number;
    }
    return array;
}

double *pl_recorded_reals(pl_recorded_t *r, const char *name, bool required,
                          size_t *count)
{
    const json_t *list;
    double *array = list_hold(r, name, required, sizeof *array, &list, count);
    for (size_t k = 0; array && k < *count; k++)
        if (!number_read(element_at(list, k), &array[k])) {
            refuse(r, name, "numbers", list);
            return NULL;
        }
    return array;
}

bool pl_recorded_numbers(pl_recorded_t *r, const char *name, bool required,
                         int64_t *values, size_t max)
{
    size_t count;
    const int64_t *array = pl_recorded_i64s(r, name, required, &count);
    if (array && count > max)
        pl_recorded_fail(r, "%s takes at most %zu numbers, not %zu", name, max, count);
    for (size_t k = 0; array && k < count && count <= max; k++) {
        values[k] = array[k];
        if (array[k] || count == 1)
            continue;
        values[k] = PL_UNPADDED;
        if (!strstr(name, "padding"))
            return refuse(r, name, "sizes of at least 1",
                          json_object_get(r->arguments, name));
    }
    return array && count <= max;
}

void pl_recorded_is_of_rank(pl_recorded_t *r, const char *name, size_t count, pl_node_t x)
{
    if (!pl_recorded_is_ready(r))
        return;
    const int rank = pl_shape_of(r->g, x).rank;
    if (count != (size_t)rank)
        pl_recorded_fail(r, "%s takes a number for each of the %d axes of x, not %zu",
                         name, rank, count);
}
