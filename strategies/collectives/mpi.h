/* mpi.h - the options of the MPI collective, with MPI or without, and mpi_process.c */
#ifndef PL_COLLECTIVES_MPI_H
#define PL_COLLECTIVES_MPI_H

#include "strategies/collectives/collective.h"

#define MPI_HELP "the cluster's own MPI, under its mpirun; needs a build with it"

typedef struct mpi_options {
    int64_t spin_us;
} mpi_options_t;

static inline bool mpi_own_order(const void *self)
{
    (void)self;
    return true;
}

static const pl_option_t mpi_table[] = {
    PL_INT(mpi_options_t, spin_us, "100", "0..10000",
           "microseconds to poll for other ranks before sleeping"),
    PL_OPTIONS_END};

/* ---- mpi_process.c, where <mpi.h> was included before ---- */

#ifdef MPI_VERSION

typedef struct mpi_process {
    MPI_Comm data, notes;                /* over all ranks: one for data, one for notes */
    MPI_Op max_float, max_double;        /* with a NaN as the greatest */
} mpi_process_t;

extern mpi_process_t mpi_process;

/* PL_EIO with the text of MPI, unless the code is MPI_SUCCESS. */
int mpi_fail(int code, const char *what, pl_error_t *err);
/* Begins MPI for one rank of this process; waits until the processes of all ranks have
 * begun it. */
int mpi_take(pl_error_t *err);
/* Ends the use by a rank. `behind` is memory that an aborted operation may still
 * write to: it is never freed, and this process does not use MPI again  [no operation
 * was aborted]. */
void mpi_leave(void *behind);

#endif

#endif
