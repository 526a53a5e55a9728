/* option.h - one option: its range, its value from JSON, and the check of its table entry
 *
 * Run files, --set, defaults and data info are all read by pl_option_read(), so that a
 * value means the same in each of them. */
#ifndef PL_BASE_OPTION_H
#define PL_BASE_OPTION_H

#include <jansson.h>
#include <stdbool.h>

#include "paceline.h"

/* Space for a field of any type. */
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
    int word;
} pl_field_value_t;

/* Writes the value into *field, which has the option's type; texts are borrowed from
 * value.  Of components and groups only the form is checked; nothing is written.  The
 * error begins with a verb, and the caller puts the key before it: `takes an integer from
 * 1 up, not 0`. */
int pl_option_read(const pl_option_t *option, const json_t *value, void *field,
                   pl_error_t *err);

/* The entry of that name, or NULL; a NULL table is empty. */
const pl_option_t *pl_option_find(const pl_option_t *table, const char *name);

/* The default as JSON, a new reference; null if the option is required. */
json_t *pl_option_fallback(const pl_option_t *option, pl_error_t *err);

/* Whether the default is "auto", which stands for the data info of the same name. */
bool pl_option_is_automatic(const pl_option_t *option);

/* Whether an integer may be 0: data without info for an automatic one then means 0. */
bool pl_option_may_be_zero(const pl_option_t *option);
/* Whether the value is the text "auto". */
bool pl_is_auto(const json_t *value);

/* Finds the mistakes of a component's author: a default out of range, a field outside the
 * struct, a name twice. */
int pl_option_table_check(const char *role, const pl_component_t *component,
                          pl_error_t *err);

/* Words that options of several components take. */
#define PL_STEP_OR_EPOCH "step|epoch"
typedef enum pl_unit { PL_UNIT_STEP, PL_UNIT_EPOCH } pl_unit_t;
#define PL_MIN_OR_MAX "min|max"
typedef enum pl_mode { PL_MODE_MIN, PL_MODE_MAX } pl_mode_t;
extern const char *const pl_mode_names[];                   /* "min", "max" */

/* How many of a number of batches an amount allows. */
uint32_t pl_amount_of(pl_amount_t amount, uint32_t batches);

/* ---- Ranges ---- */

/* One end of the numbers that an option takes: "1..", "0..1", "(0..1]", "[0..1)".  Whole
 * numbers stay integers: a seed of 63 bits does not fit a double. */
typedef struct {
    bool there, open, whole;
    int64_t integer;                                        /* when whole */
    double number;
    const char *text;                      /* [length] as it was written, without a NUL */
    int length;
} pl_range_end_t;

typedef struct {
    pl_range_end_t low, high;
} pl_range_t;

/* Reads a range  [NULL: every number].  PL_EINVAL: text is not a range. */
int pl_range_parse(const char *text, pl_range_t *range, pl_error_t *err);

/* The range in words that follow a noun: " from 1 to 16", " above 0", "". */
#define PL_RANGE_WORDS 64
char *pl_range_words(const pl_range_t *range, char words[PL_RANGE_WORDS]);

bool pl_range_holds_integer(const pl_range_t *range, int64_t value);
bool pl_range_holds_number(const pl_range_t *range, double value);

#endif
