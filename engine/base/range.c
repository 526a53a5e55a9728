/* range.c - the numbers an option takes */
#include "base/range.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"

/* The JSON number in [from, to); nothing there is no end. */
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

/* -1, 0, 1 as value is below, at or above the end. */
static int compare_integer(int64_t value, const pl_range_end_t *end)
{
    if (end->whole)
        return (value > end->integer) - (value < end->integer);
    return ((double)value > end->number) - ((double)value < end->number);
}

static int compare_number(double value, const pl_range_end_t *end)
{
    return (value > end->number) - (value < end->number);
}

static bool is_inside(const pl_range_t *range, int against_low, int against_high)
{
    if (range->low.there && (against_low < 0 || (against_low == 0 && range->low.open)))
        return false;
    return !range->high.there || against_high < 0
           || (against_high == 0 && !range->high.open);
}

bool pl_range_holds_integer(const pl_range_t *range, int64_t value)
{
    return is_inside(range, compare_integer(value, &range->low),
                     compare_integer(value, &range->high));
}

bool pl_range_holds_number(const pl_range_t *range, double value)
{
    return is_inside(range, compare_number(value, &range->low),
                     compare_number(value, &range->high));
}
