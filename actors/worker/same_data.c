/* same_data.c - whether all ranks of a run opened the same data
 *
 * Each rank opens its own data. If a file differs between machines, the ranks would make
 * different numbers of steps, of different sizes, and only their collective would
 * fail. */
#include <inttypes.h>
#include <string.h>

#include "actors/worker/parts.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "tensor/graph.h"
#include "tensor/operators.h"

/* Consumes the text. */
static char *text_add(char *text, const char *more)
{
    char *longer = text && more ? pl_text("%s%s", text, more) : NULL;
    pl_text_free(text);
    return longer;
}

static char *stage_add(char *text, const pl_batch_signature_t *signature,
                       pl_stage_t stage)
{
    char *more = pl_text("%s data of %" PRId64 " samples with", pl_stages[stage].source,
                         signature->stage[stage].samples);
    text = text_add(text, more);
    pl_text_free(more);
    for (int k = 0; k < signature->stage[stage].field_count; k++) {
        const pl_field_t *field = &signature->stage[stage].field[k];
        char shape[64];
        more = pl_text("%s %s %s %s", k ? "," : "", field->name,
                       pl_dtype_name(field->dtype), pl_shape_text(field->shape, shape));
        text = text_add(text, more);
        pl_text_free(more);
    }
    return text_add(text, "\n");
}

char *pl_data_describe(const pl_batch_signature_t *signature)
{
    char *text = pl_text("%s", "");
    for (int stage = 0; stage <= PL_PREDICT; stage++)
        if (signature->stage[stage].present)
            text = stage_add(text, signature, (pl_stage_t)stage);
    return text;
}

int pl_data_check(const char *own, const char *first, int rank, pl_error_t *err)
{
    size_t a = strcspn(own, "\n"), b = strcspn(first, "\n");
    while (*own && *first && a == b && !strncmp(own, first, a)) {
        own += a + 1;
        first += b + 1;
        a = strcspn(own, "\n");
        b = strcspn(first, "\n");
    }
    if (!*own && !*first)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "rank %d found other data than rank 0: %.*s; rank 0: %.*s; give all "
                   "ranks the same files",
                   rank, *own ? (int)a : 4, *own ? own : "none", *first ? (int)b : 4,
                   *first ? first : "none");
}
