/* mpi_process.h - MPI in this process: begun once and ended with the process */
#ifndef PL_COLLECTIVES_MPI_PROCESS_H
#define PL_COLLECTIVES_MPI_PROCESS_H

#include <mpi.h>

#include "paceline.h"

typedef struct mpi_process {
    MPI_Comm data, notes;                                   /* all ranks, for each kind */
    MPI_Op max_float, max_double;                           /* a NaN is the greatest */
} mpi_process_t;

extern mpi_process_t mpi_process;

/* PL_EIO with MPI's own words, unless it went well. */
int mpi_fail(int code, const char *what, pl_error_t *err);
/* For one rank of this process; waits until all ranks' processes have begun. */
int mpi_take(pl_error_t *err);
/* What an operation that was given up may still write to is left behind; then there is no
 * MPI in this process any more  [nothing is]. */
void mpi_leave(void *behind);

#endif
