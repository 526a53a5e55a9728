/* within_step.h - tests that any module passes whose ranks wait for each other within a
 * step: they train as one rank does, and one that dies ends all */
#ifndef T_WITHIN_STEP_H
#define T_WITHIN_STEP_H

#include "rig.h"

/* Makes one run of a rank and one of three, with the same samples in a step, on the CPU;
 * trainer: further members; what else rig_spec_t has. Their losses and weights may be
 * that far apart. */
#define three_train_as_one(within, trainer, ...) \
    three_train_as_one_do(within, trainer, &(rig_spec_t){__VA_ARGS__})
void three_train_as_one_do(double within, const char *trainer, const rig_spec_t *spec);

/* Compares a run of one rank with a run of several ranks. */
void ranks_differ_by(const rig_result_t *one, const rig_result_t *many, double within,
                     const char *what);

/* All collectives, buckets and strategies give three ranks the same bits. */
void bits_are_the_same_whatever_moves_them(const char *module, const char *trainer);

/* Three ranks that are processes have the bits of threads. */
void processes_have_the_bits_of_threads(const char *module, const char *trainer,
                                        int samples);

/* An operator that returns its input, in whose sixth call the process dies whose rank
 * $TRAP names ("rank 1"). */
extern const pl_operator_ops_t trap;

/* Each of three ranks dies in that operator of the module; all end at once, and the
 * error names it. */
void a_rank_in_the_trap_ends_all(const char *module, const char *trainer);

#endif
