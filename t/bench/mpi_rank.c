/* mpi_rank.c - the peer of t/bench/collectives: a rank of whatever MPI mpicc stands for
 *
 *     mpi_rank FIFO
 *
 * Compiled by the benchmark itself, where there is an mpicc.  Each line of the first
 * rank's standard input, "BYTES TIMES", is so many all_reduces of float32; it prints
 * microseconds for one.  The other gets it by the FIFO: in MPI it would keep a
 * processor busy with waiting while others are measured. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 256 << 20 };

int main(int argc, char **argv)
{
    int rank, length;
    long order[2];
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    float *data = malloc(BYTES_MAX);
    for (size_t k = 0; k < BYTES_MAX / sizeof *data; k++)
        data[k] = (float)(k % 1000);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    for (char *c = version; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    if (rank == 0)
        printf("%s\n", strncmp(version, "MPICH", 5) ? version : "MPICH"), fflush(stdout);
    FILE *orders = rank ? fopen(argv[1], "r") : stdin,
         *pass_on = rank ? NULL : fopen(argv[1], "w");
    while (fscanf(orders, "%ld %ld", &order[0], &order[1]) == 2) {
        if (pass_on)
            fprintf(pass_on, "%ld %ld\n", order[0], order[1]), fflush(pass_on);
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
    if (pass_on)
        fclose(pass_on);
    MPI_Finalize();
    free(data);
    return 0;
}
