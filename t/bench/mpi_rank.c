/* mpi_rank.c - the peer of t/bench/collectives: a rank of whatever MPI mpicc stands for
 *
 * Compiled by the benchmark itself, where there is an mpicc.  Each line of the first
 * rank's standard input, "BYTES TIMES", is so many all_reduces of float32; it prints
 * microseconds for one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 << 20 };

int main(int argc, char **argv)
{
    int rank, length;
    long order[2];
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    float *data = calloc(1, MOST);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    for (char *c = version; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    if (rank == 0)
        printf("%s\n", strncmp(version, "MPICH", 5) ? version : "MPICH"), fflush(stdout);
    for (;;) {
        if (rank == 0 && scanf("%ld %ld", &order[0], &order[1]) != 2)
            order[1] = 0;
        MPI_Bcast(order, 2, MPI_LONG, 0, MPI_COMM_WORLD);
        if (!order[1])
            break;
        int count = (int)(order[0] / 4);
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (long k = 0; k < order[1]; k++)
            MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%g\n", (MPI_Wtime() - began) / (double)order[1] * 1e6),
                fflush(stdout);
    }
    MPI_Finalize();
    free(data);
    return 0;
}
