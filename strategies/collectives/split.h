/* split.h - groups of ranks: those of the same color get a collective of their own */
#ifndef PL_COLLECTIVES_SPLIT_H
#define PL_COLLECTIVES_SPLIT_H

#include "strategies/collectives/actor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the actor that splits: alive until the group's collective has ended. */
typedef struct pl_split {
    pl_address_t from;                    /* collective of all ranks, which have met */
    int rank, size;                       /* in that */
    int color;
    pl_collective_part_t *part;           /* that the group's is started with; counted */
    /* To be called once: the ranks of the group have met, or why not.  After a failure
     * ended() follows where `life` is not 0. */
    void (*done)(void *self, struct pl_split *split, const pl_error_t *failure);
    /* The group's collective has ended; err NULL: as it was asked to, by pl_cancel() of
     * `life`. */
    void (*ended)(void *self, struct pl_split *split, const pl_error_t *err);

    pl_address_t group;                   /* out: the group's collective, */
    uint64_t life;                        /* its `start`  [0: there is none], */
    int group_rank, group_size;           /* this rank there: in the order of all ranks */

    pl_lent_t *lent;                      /* its own, as is what follows */
    char address[PL_ADDRESS_TEXT];
    bool is_done;
} pl_split_t;

/* All ranks of `from` call it, in the same order as its operations. */
PL_API int pl_collective_split(void *self, pl_split_t *split, pl_error_t *err);

#ifdef __cplusplus
}
#endif

#endif
