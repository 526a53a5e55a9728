/* collective_emulated.h - a collective that moves memory of emulated GPUs, for tests
 *
 * Registered as "emulated".  Memory of the host is moved by a "best" within.  On a
 * device each rank has a stream of its own, which runs in any order that fences allow:
 * an operation takes the elements that are there when it runs, and writes when all
 * ranks have given. */
#ifndef T_COLLECTIVE_EMULATED_H
#define T_COLLECTIVE_EMULATED_H

#include <stdbool.h>

extern const struct pl_collective_ops emu_collective;

/* Planted faults. */
extern bool emu_forgets_after;                  /* it does not wait for its `after` */
extern bool emu_forgets_fence;                  /* it gives no fence */
extern int emu_fails_at;                        /* which operation of rank 1 fails  [0] */

/* Operations on devices so far, and those that were over on rank 0 before what a later
 * one of them waits for; reset by their reader.  Atomic. */
extern int emu_operations, emu_overlaps;
/* Those that left each rank its chunk of the sums alone, on all ranks; and those that
 * gathered chunks and were over on rank 0 before what a later one of the same update
 * waits for.  Atomic. */
extern int emu_scatters, emu_gathers_overlap;

#endif
