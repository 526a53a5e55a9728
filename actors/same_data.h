/* same_data.h - whether all ranks of a run have found the same data */
#ifndef PL_SAME_DATA_H
#define PL_SAME_DATA_H

#include "runtime/payload.h"

/* Samples and fields of each stage, one a line; pl_text_free(); NULL: out of memory. */
char *pl_data_say(const pl_batch_signature_t *signature);
/* A rank's against rank zero's, as told by that: an error says in what they differ. */
int pl_data_compare(const char *own, const char *first, int rank, pl_error_t *err);

#endif
