/* option.h - one option: what its table entry allows, and a JSON value put into a
 * component's struct
 *
 * Files, --set, defaults and what the data knows all come through pl_option_read(), so
 * that a value means the same wherever it was written. */
#ifndef PL_BASE_OPTION_H
#define PL_BASE_OPTION_H

#include <jansson.h>
#include <stdbool.h>

#include "paceline.h"

/* Room for a field of any type. */
typedef union pl_field_value {
    int64_t integer;
    double number;
    bool truth;
    const char *text;
    pl_ints_t ints;
    pl_reals_t reals;
    pl_texts_t texts;
    pl_amount_t amount;
    pl_choice_t choice;
} pl_field_value_t;

/* Writes the value into *field, which is of the option's type; texts are borrowed from
 * value.  A component and groups are only looked at for their form, and not
 * written.  The error starts with
 * a verb, for the caller to put the key before: `takes an integer from 1 up, not 0`. */
int pl_option_read(const pl_option_t *option, const json_t *value, void *field,
                   pl_error_t *err);

/* The entry of that name, or NULL; a NULL table is empty. */
const pl_option_t *pl_option_find(const pl_option_t *table, const char *name);

/* The default as JSON, to be decref'd: null when it must be given. */
json_t *pl_option_fallback(const pl_option_t *option, pl_error_t *err);

/* Whether the default is "auto" in the sense of: taken from what the data knows. */
bool pl_option_is_automatic(const pl_option_t *option);
/* Whether the value says so. */
bool pl_is_auto(const json_t *value);

/* Finds the mistakes of a component's author: a default out of range, a field outside the
 * struct, a name twice. */
int pl_option_table_check(const char *role, const pl_component_t *component,
                          pl_error_t *err);

/* The number of batches that an amount allows of so many that there are. */
uint32_t pl_amount_of(pl_amount_t amount, uint32_t batches);

#endif
