/* split.h - groups of ranks: those of the same color get a collective of their own */
#ifndef PL_COLLECTIVES_SPLIT_H
#define PL_COLLECTIVES_SPLIT_H

#include "strategies/collectives/actor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Belongs to the actor that splits. It stays unchanged until done(), and if `life` is
 * not 0 then, until ended(). An actor that ends earlier gets neither, as with its
 * calls. */
typedef struct pl_group_split {
    pl_address_t from;                    /* collective of all ranks, which have joined */
    int rank, size;                       /* in `from` */
    int color;                            /* 0 or more */
    pl_collective_component_t *component;  /* for the group's collective; counted */
    /* Called once, with the failure or NULL when the ranks of the group have joined. 
     * A rank that fails to open its group ends the split on all ranks, and the error
     * names it. After a failure the group's collective is of no use: pl_cancel() its
     * `life`. */
    void (*done)(void *self, struct pl_group_split *split, const pl_error_t *failure);
    /* Called once after done() if `life` was not 0 there: the group's collective has
     * ended. err NULL: as requested, by pl_cancel() of `life`. */
    void (*ended)(void *self, struct pl_group_split *split, const pl_error_t *err);

    pl_address_t group;            /* out: the group's collective */
    uint64_t life;                 /* its `start`  [0: there is none] */
    int group_rank, group_size;    /* this rank in the group: in the order of all ranks */

    /* Private; but an actor that ends before done() unrefs `buffer` in its release(). */
    pl_reg_buffer_t *buffer;                                /* counted  [NULL] */
    char address[PL_ADDRESS_TEXT];                          /* of the group  [""] */
    pl_error_t failure, end;                                /* of this rank; of `life` */
    bool is_given, is_done, has_ended;
    uint64_t joining;                                       /* the call of join  [0] */
    void (*next)(void *self, struct pl_group_split *split, const pl_body_t *body);
} pl_group_split_t;

/* All ranks of `from` call it at the same place in the order of its operations: it
 * registers memory there at once, and gathers when the group can be joined. So no
 * other operation of `from` may be requested before done(), and no other split: that
 * is PL_EBUSY. After an error nothing has begun on this rank, and done() is not
 * called; done() reports later failures. */
PL_API int pl_collective_split(void *self, pl_group_split_t *split, pl_error_t *err);

#ifdef __cplusplus
}
#endif

#endif
