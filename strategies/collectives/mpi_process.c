/* mpi_process.c - MPI in this process: begun by the first rank that needs it, ended
 * with the process
 *
 * One rank of a process can use it. Each run may use another thread, but one at a
 * time: MPI_THREAD_SERIALIZED. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "strategies/collectives/mpi.h"

static const int64_t PATIENCE = 2 * PL_SECOND;

mpi_process_t mpi_process;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool begun, ours, taken;           /* MPI has begun; we began it; a rank uses it */
static void *left_behind;                 /* kept, so that leak checkers see it */

int mpi_fail(int code, const char *what, pl_error_t *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return PL_OK;
    MPI_Error_string(code, text, &length);
    return pl_fail(err, PL_EIO, "MPI cannot %s: %.200s", what, text);
}

#define MAX(name, type) \
    static void name(void *in, void *out, int *count, MPI_Datatype *datatype) \
    { \
        (void)datatype; \
        const type *a = in; \
        type *b = out; \
        for (int i = 0; i < *count; i++) \
            b[i] = a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]; \
    }

MAX(max_float, float)
MAX(max_double, double)

/* The next run of this process may use another thread, but one at a time. */
static int mpi_begin(pl_error_t *err)
{
    int is = 0, level = MPI_THREAD_SERIALIZED, code = MPI_Initialized(&is);
    if (code == MPI_SUCCESS && !is)
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    else if (code == MPI_SUCCESS)
        code = MPI_Query_thread(&level);
    if (code != MPI_SUCCESS)
        return mpi_fail(code, "begin", err);
    ours |= !is;
    if (level < MPI_THREAD_SERIALIZED)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "this MPI does not allow calls from several threads in turn: "
                       "Paceline needs MPI_THREAD_SERIALIZED");
    code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi_process.data);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi_process.notes);
    if (code == MPI_SUCCESS)
        code = MPI_Op_create(max_float, 1, &mpi_process.max_float);
    if (code == MPI_SUCCESS)
        code = MPI_Op_create(max_double, 1, &mpi_process.max_double);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(mpi_process.data, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(mpi_process.notes, MPI_ERRORS_RETURN);
    code = mpi_fail(code, "prepare its communicators", err);
    begun = code == PL_OK;
    return code;
}

int mpi_take(pl_error_t *err)
{
    int code = PL_OK;
    pthread_mutex_lock(&lock);
    if (taken)
        code = pl_fail(err, PL_EUNSUPPORTED,
                       "mpi is in use in this process: each rank needs a process of its "
                       "own, which mpirun starts, and mpi has no groups of ranks");
    else if (left_behind)
        code = pl_fail(
            err, PL_ESTATE,
            "an operation of MPI was aborted in this process: start the process again");
    else if (!begun)
        code = mpi_begin(err);
    taken |= code == PL_OK;
    pthread_mutex_unlock(&lock);
    return code;
}

void mpi_leave(void *behind)
{
    pthread_mutex_lock(&lock);
    taken = false;
    if (behind)
        left_behind = behind;
    pthread_mutex_unlock(&lock);
}

/* Waits until the processes of all ranks end, but not forever for those that cannot:
 * when the first process ends, mpirun may kill the others before they have reported
 * their error. Then receives the notes that are left: MPI complains of messages that
 * were not received. */
__attribute__((destructor)) static void mpi_end(void)
{
    char note[512];
    MPI_Request request;
    MPI_Status status;
    int is = 0;
    if (!ours || !begun || MPI_Finalized(&is) != MPI_SUCCESS || is)
        return;
    const int64_t until = pl_now() + PATIENCE;
    is = MPI_Ibarrier(mpi_process.notes, &request) != MPI_SUCCESS;
    while (!is && pl_now() < until && MPI_Test(&request, &is, MPI_STATUS_IGNORE) == 0)
        sched_yield();
    is = 1;
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi_process.notes, &is, &status)
               == MPI_SUCCESS
           && is
           && MPI_Recv(note, sizeof note, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                       mpi_process.notes, MPI_STATUS_IGNORE)
                  == MPI_SUCCESS)
        continue;
    if (!left_behind)
        MPI_Finalize();
}
