/* far.h - runs whose ranks are processes: data that each of them makes by itself, and
 * ends that come to it
 *
 *   {"name": "far", "samples": 40, "record": 13, "then": "SIGKILL"}
 *
 * The rank that reads that record, from 1, says "the end of rank N" to its standard
 * error and sends itself the signal, or exits ("exit 7"), or does nothing any more
 * ("spin"), or spins at its exit ("linger"), or continues (any other word); once for
 * all processes if there is a "mark", a file that is not there yet; or "times" so
 * often; to "rank" alone, if that is said, which may then be with any record.  The
 * same comes to a child before it is a rank when the environment says FAR_EARLY, or,
 * of rank 1 when it is started for the second time, FAR_EARLY_1_2.  "later": "torn":
 * the record cannot be read once the mark is there.  "opens" is an end too, which
 * comes to each rank, or to "rank" alone, as it opens the data. */
#ifndef T_FAR_H
#define T_FAR_H

#include "rig.h"

/* As rig_init(); "far" is known too.  In a child this does not return. */
void far_init(const pl_registration_t *more);

/* The number of this process's child that is a rank; 0: there is none. */
int far_process(int rank);
/* How many children it has. */
int far_children(void);

/* Runs of so many ranks. */
typedef struct far_spec {
    const char *launcher;                 /* JSON  ["spawn", which starts once] */
    const char *strategy;                 /* JSON  ["ddp"] */
    int ranks;                            /* [2] */
    int min;                              /* the least number to continue with  [ranks] */
    int samples;                          /* [24] */
    int batch_size;                       /* [4] */
    int record;                           /* [none] */
    const char *then;
    const char *data;                                       /* further members  [""] */
    rig_spec_t rig;                                         /* what else there is */
} far_spec_t;

#define far_new(...) far_make(&(far_spec_t){__VA_ARGS__})
rig_t *far_make(const far_spec_t *spec);

#endif
