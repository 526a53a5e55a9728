/* mistakes.h - the mistakes of a run file, with their places in it */
#ifndef PL_BASE_MISTAKES_H
#define PL_BASE_MISTAKES_H

#include "base/json_path.h"
#include "paceline.h"

enum { PL_MISTAKES_MAX = 20 };

/* The mistakes of a run, in the order of the file; those without a position come
 * last. */
typedef struct pl_mistakes {
    int count;
    struct pl_mistake {
        int line, column;                                   /* line 0: no position */
        pl_error_t error;
    } mistake[PL_MISTAKES_MAX];
} pl_mistakes_t;

#define PL_MISTAKE_PATH 120                              /* bytes of a path in an error */

/* The mistake of a value or key, whose text is behind "run.json:3:18: ". */
struct pl_mistake pl_mistake_at(const pl_options_t *o, const pl_json_path_t *path,
                                pl_json_field_t field, int code, const char *text);

/* Adds a mistake. -> PL_OK; the code of the mistake if there is no room for another. */
int pl_mistakes_add(pl_mistakes_t *all, const struct pl_mistake *added);

#endif
