/* suggestion.h - the name that a misspelled word probably means
 *
 * An error that names the right word saves a look into the manual.  Offer every known
 * name, then take the sentence; no memory is allocated. */
#ifndef PL_BASE_SUGGESTION_H
#define PL_BASE_SUGGESTION_H

#include <stdbool.h>
#include <stddef.h>

#include "paceline.h"

#define PL_SUGGESTION_TEXT 300

typedef struct pl_nearest {
    const char *wanted;                         /* the given word; borrowed */
    const char *name;                           /* the nearest so far  [none]; borrowed */
    int distance;                               /* edits from wanted to name */
    bool full;                                  /* no space is left in known */
    size_t length;                              /* of known */
    char known[PL_SUGGESTION_TEXT - 20];        /* "a, b, c", as far as they fit */
} pl_suggestion_t;

void pl_suggestion_init(pl_suggestion_t *nearest, const char *wanted);
void pl_suggestion_offer(pl_suggestion_t *nearest, const char *name);

/* Whether there is more to say than the list of names. */
bool pl_suggestion_is_sure(const pl_suggestion_t *nearest);

/* The sentence: the counterpart of a name of another engine (compat.def), else `did you
 * mean "hidden"?` if a name is near, else `known are a, b, c`. */
const char *pl_suggestion_text(const pl_suggestion_t *nearest,
                               char text[PL_SUGGESTION_TEXT]);

/* The key of a run file for a word of another engine: "trainer.max_epochs" for "epochs";
 * NULL: none. */
const char *pl_compat_key(const char *word);

/* Paceline's name of a component of another engine: "cosine" for "CosineAnnealingLR";
 * returns any other word itself. */
const char *pl_compat_component(const char *word);

/* How a layer of another engine is written here: "global_pool" for
 * "GlobalAveragePooling2D"; NULL: unknown. */
const char *pl_compat_layer(const char *word);

/* Whether two names differ only in case, '_' and 1d, 2d or 3d: "BatchNorm2d" and
 * "batch_norm". */
bool pl_is_same_name(const char *a, const char *b);

/* What to do instead of an option of another engine that has no counterpart; NULL:
 * unknown. */
const char *pl_compat_advice(const char *word);

/* The number of edits (a letter added, dropped, changed, or two swapped) between two
 * names, regardless of case; long names count as far apart. */
int pl_edit_distance(const char *a, const char *b);

#endif
