/* moments.h - what a data set did to the numbers of "x", told in its data info
 *
 * Whoever answers for other samples with the same weights has to do the same to them. */
#ifndef PL_DATASETS_MOMENTS_H
#define PL_DATASETS_MOMENTS_H

#include <jansson.h>

/* The fact: [[mean, factor], …], one for each number of a sample, or one for all. */
#define PL_MOMENTS "standardize"

/* x = (value - mean) * factor */
typedef struct pl_moments {
    double mean, factor;
} pl_moments_t;

/* Fills moments [size of the list]; -1, or the place of a pair that is none. */
int pl_moments_read(const json_t *list, pl_moments_t *moments);

/* The data info, not empty, with these among them; both from pl_text().  Consumes
 * *data_info_p. NULL: out of memory. */
char *pl_moments_tell(char **data_info_p, const pl_moments_t *moments, int count);

static inline float pl_moments_apply(const pl_moments_t *moments, double value)
{
    return (float)((value - moments->mean) * moments->factor);
}

#endif
