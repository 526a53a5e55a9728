/* mpi_none.c - the MPI collective of a build without MPI
 *
 * It has the same options, so that a run file is right or wrong in every build, and
 * its error says what is missing. */
#include "strategies/collectives/mpi.h"

static int mpi_open(void *self, const pl_collective_context_t *context,
                    char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    (void)self, (void)context, (void)address, (void)descriptor;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "Paceline was built without MPI: apt-get install libmpich-dev or "
                   "libopenmpi-dev, configure and build again");
}

static void mpi_ignore(void *self)
{
    (void)self;
}

static void mpi_abort(void *self, const pl_error_t *why)
{
    (void)self, (void)why;
}

static const pl_collective_ops_t mpi_collective = {
    .name = "mpi",
    .help = MPI_HELP,
    .size = sizeof(mpi_options_t),
    .options = mpi_table,
    .own_order = mpi_own_order,
    .open = mpi_open,
    .advance = mpi_ignore,
    .abort = mpi_abort,
    .close = mpi_ignore,
};

PL_PLUGIN({"collective", &mpi_collective})
