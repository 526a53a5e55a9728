/* suggestion.h - the name that was probably meant
 *
 * An error that knows the right word saves a look into the manual.  Offer every known
 * name in turn, then ask for the sentence; nothing is allocated. */
#ifndef PL_BASE_SUGGESTION_H
#define PL_BASE_SUGGESTION_H

#include <stdbool.h>
#include <stddef.h>

#include "paceline.h"

#define PL_SUGGESTION_TEXT 300

typedef struct pl_nearest {
    const char *wanted;                         /* what was given; borrowed */
    const char *name;                           /* the nearest so far  [none]; borrowed */
    int distance;                               /* edits from wanted to name */
    bool full;                                  /* known takes no more */
    size_t length;                              /* of known */
    char known[PL_SUGGESTION_TEXT - 20];        /* "a, b, c", as far as there is room */
} pl_suggestion_t;

void pl_suggestion_init(pl_suggestion_t *nearest, const char *wanted);
void pl_suggestion_offer(pl_suggestion_t *nearest, const char *name);

/* Whether it knows more than a list of names. */
bool pl_suggestion_is_sure(const pl_suggestion_t *nearest);

/* What is here in the place of a name of another engine (compat.def), else `did you mean
 * "hidden"?` when something is near, else `known are a, b, c`. */
const char *pl_suggestion_text(const pl_suggestion_t *nearest,
                               char text[PL_SUGGESTION_TEXT]);

/* The key of a run file, such as "trainer.max_epochs", that a word of another engine,
 * such as "epochs", stands for; NULL: none. */
const char *pl_compat_key(const char *word);

/* The name here of a component of another engine: "cosine" for "CosineAnnealingLR"; any
 * other word is returned. */
const char *pl_compat_component(const char *word);

/* What to do instead of an option of another engine that has no counterpart; NULL:
 * unknown. */
const char *pl_compat_advice(const char *word);

/* Edits (a letter added, dropped, changed, or two swapped) between two names; upper and
 * lower case are equal; long names count as far apart. */
int pl_edit_distance(const char *a, const char *b);

#endif
