/* mover.h - a collective that moves memory of emulated GPUs, for tests
 *
 * Registered as "mover".  Memory of the host is moved by a "best" within.  On a device
 * each rank has a stream of its own, which runs in any order that fences allow: an
 * operation takes what is there when it runs, and writes when all ranks have given. */
#ifndef T_MOVER_H
#define T_MOVER_H

#include <stdbool.h>

extern const struct pl_collective_ops mover_collective;

/* Planted faults. */
extern bool mover_forgets_after;     /* it does not wait for what is to be there before */
extern bool mover_forgets_fence;     /* it does not say what is to be waited for */
extern int mover_fails_at;           /* which operation of rank 1 fails  [0] */

/* Operations on devices so far, and those that were over on rank 0 before what a later
 * one of them waits for; reset by who reads them.  Atomic. */
extern int mover_operations, mover_overlaps;
/* Those that left each rank its chunk of the sums alone, on all ranks; and those that
 * gathered chunks and were over on rank 0 before what a later one of the same update
 * waits for.  Atomic. */
extern int mover_scatters, mover_gathers_overlap;

#endif
