/* bootstrap.h - how the processes of a job find each other: folders of sockets, variables
 * of the environment, and addresses */
#ifndef PL_LAUNCHERS_BOOTSTRAP_H
#define PL_LAUNCHERS_BOOTSTRAP_H

#include "runtime/runtime.h"
#include "transport/endpoint.h"
#include "transport/lookup.h"

/* ---- Folders ---- */

/* Makes a folder that only this user can enter, and a descriptor that holds its lock; to
 * be removed also after a failure. */
int pl_folder_make(char folder[PL_SOCKET_FOLDER], int *lock, pl_error_t *err);
/* Removes a folder with its sockets, and its lock  ["" and -1: none]. */
void pl_folder_remove(const char *folder, int lock);

/* An endpoint in a folder. */
typedef enum pl_folder_file {
    PL_FOLDER_CALLS,
    PL_FOLDER_BULK,
    PL_FOLDER_STREAM,
    PL_FOLDER_CALLS_BULK,
    PL_FOLDER_CALLS_STREAM,
    PL_FOLDER_RUN_DIR_INDEX,                                /* files */
    PL_FOLDER_FINISHED_RANKS,
    PL_FOLDER_RUN_HISTORY,
    PL_FOLDER_FILES
} pl_folder_file_t;
#define PL_FOLDER_PATH (PL_SOCKET_FOLDER + 24)
const char *pl_folder_path(const char *folder, pl_folder_file_t file,
                           char text[PL_FOLDER_PATH]);

/* ---- The variable that a launcher of Paceline sets ---- */

typedef struct pl_bootstrap {
    int rank, world_size;
    uint64_t run;
    uint32_t incarnation;
    int64_t began;                         /* zero of the stream's time, ns of pl_now() */
    int log_level;                         /* least urgent level that the log has */
    int grace_ms;                          /* of pl_runtime_t */
    int past_runs;                         /* runs of the program that were over when its
                                              process was started */
    char folder[PL_SOCKET_FOLDER];
} pl_bootstrap_t;

#define PL_BOOTSTRAP "PACELINE_BOOTSTRAP"           /* of a process that is only a rank */
#define PL_BOOTSTRAP_IN_SCRIPT "PACELINE_SCRIPT"    /* of one that runs the program */
#define PL_BOOTSTRAP_TEXT 256

/* Writes a variable of the environment of that name. */
void pl_bootstrap_write(const pl_bootstrap_t *bootstrap, const char *name,
                        char text[PL_BOOTSTRAP_TEXT]);
/* Reads its value; false: there is none  [text NULL]. */
bool pl_bootstrap_read(const char *text, pl_bootstrap_t *bootstrap);
/* Prepares the runtime of the process of that rank. */
void pl_bootstrap_enter(const pl_bootstrap_t *bootstrap, pl_runtime_t *runtime);
/* The bootstrap of this process if it executes the program for a rank; NULL: it does
 * not. */
const pl_bootstrap_t *pl_bootstrap_in_script(void);

/* ---- The rendezvous of processes that another program has started ---- */

/* "tcp://HOST:PORT", "HOST:PORT" or "ipc://FILE" as all ranks have it, with
 * "localhost" as a number.  PL_EINVAL: it is no address. */
int pl_rendezvous_read(const char *text, char *endpoint, size_t capacity,
                       pl_error_t *err);
/* Whether only this machine reaches the address. */
bool pl_rendezvous_is_near(const char *endpoint);

/* Where rank zero listens: for calls, and for bulk data and the stream at any port.  A
 * host name may resolve to an address that only the host itself reaches, so rank zero
 * listens at all its addresses then. */
int pl_rendezvous_places(const char *endpoint, char *calls, char *bulk, char *stream,
                         size_t capacity, pl_error_t *err);
/* The address at which other ranks reach what listens at `place` there. */
void pl_rendezvous_find(const char *endpoint, const char *place, char *at,
                        size_t capacity);

/* Another address on the host of rank zero, at a port that was free just now. */
int pl_rendezvous_beside(const char *endpoint, char *at, size_t capacity,
                         pl_error_t *err);

/* The numeric address at which other ranks reach this machine; for rank zero, which
 * listens, one that other machines reach.  Errors as of pl_lookup_result(). */
#define PL_RENDEZVOUS_HOST 64
int pl_rendezvous_own_host(pl_lookup_t *lookup, bool listens,
                           char host[PL_RENDEZVOUS_HOST], pl_error_t *err);

/* The k-th host of a list as Slurm writes it, "n[01-10,12],gpu3"; k from 0.  PL_EINVAL:
 * it is no such list, or has fewer. */
int pl_node_list_get(const char *list, int k, char *host, size_t capacity,
                     pl_error_t *err);

/* ---- Which rank of which job this process is, when another program has started it:
 * environment.c ----
 *
 * Schedulers and launchers set environment variables, each with its own names.
 * Paceline's own names win; then the first source that is found counts.  If another
 * source contradicts it, the error has both names. */

#define PL_ENVIRONMENT_PORT \
    15000                                        /* and the last four digits of the job's
                                                    number, if no variable names a port */

typedef struct pl_environment {
    const char *source;                /* "Slurm"  [NULL: no source is found, and the rest
                                          does not count] */
    bool is_own;                       /* the source is Paceline's own variables */
    int rank, world_size;
    int local_rank, local_world_size;  /* on this node; the size is 0 when not known */
    int node_rank;                     /* -1: not known */
    bool is_bound;                     /* it has processors of its own */
    char endpoint[256];                /* "tcp://HOST:PORT" where rank 0's launcher is
                                          found; "": not known, it has to be given */
    char job[64];                      /* what the source calls the job, the same in all
                                          its processes and in no other job there  [""] */
    int restarts;                      /* how often the source has started this job
                                          again */
} pl_environment_t;

/* Reads it through getenv(), or through `get` in tests.  PL_EINVAL: a variable that is no
 * number or out of range, one that is missing beside another, or two that contradict each
 * other; the error has the names and values. */
int pl_environment_read(pl_environment_t *environment, char *(*get)(const char *name),
                        pl_error_t *err);

#endif
