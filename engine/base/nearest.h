/* nearest.h - the name somebody may have meant
 *
 * An error that knows the right word saves a look into the manual.  Offer every known
 * name in turn, then ask for the sentence; nothing is allocated. */
#ifndef PL_BASE_NEAREST_H
#define PL_BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

#include "paceline.h"

#define PL_NEAREST_TEXT 300

typedef struct pl_nearest {
    const char *wanted;                         /* what was given; borrowed */
    const char *name;                           /* the nearest so far  [none]; borrowed */
    int distance;                               /* edits from wanted to name */
    bool full;                                  /* known takes no more */
    size_t length;                              /* of known */
    char known[PL_NEAREST_TEXT - 20];           /* "a, b, c", as far as there is room */
} pl_nearest_t;

void pl_nearest_init(pl_nearest_t *nearest, const char *wanted);
void pl_nearest_offer(pl_nearest_t *nearest, const char *name);

/* Whether it knows more than a list of names. */
bool pl_nearest_is_sure(const pl_nearest_t *nearest);

/* What is here in the place of a name of another engine (foreign.def), else `did you mean
 * "hidden"?` when something is near, else `known are a, b, c`. */
const char *pl_nearest_text(const pl_nearest_t *nearest, char text[PL_NEAREST_TEXT]);

/* The key of a run file, such as "trainer.max_epochs", that a word of another engine,
 * such as "epochs", stands for; NULL: none. */
const char *pl_synonym(const char *word);

/* The name here of a component of another engine: "cosine" for "CosineAnnealingLR"; any
 * other word is returned. */
const char *pl_component_here(const char *word);

/* What to do instead of an option of another engine that has no counterpart; NULL:
 * unknown. */
const char *pl_foreign(const char *word);

/* Edits (a letter added, dropped, changed, or two swapped) between two names; upper and
 * lower case are equal; long names count as far apart. */
int pl_edit_distance(const char *a, const char *b);

#endif
