/* mpi.h - the MPI collective as run files know it, with MPI or without */
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

#endif
