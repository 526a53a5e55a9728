/* process.h - other programs as children of this one: started, heard, watched, ended
 *
 * A child is started by exec, never by fork alone: OpenMP, CUDA, ZeroMQ and libevent do
 * not survive a fork.  It gets no descriptor of ours beside its standard ones, nothing
 * from standard input, no blocked signal, and a process group of its own: Ctrl-C in a
 * terminal is for the program that started it, which knows what it means.  A death is
 * seen through a pidfd, so no signal handler is needed and SIGCHLD stays the host's.
 *
 * All on the thread whose loop it is given; that thread must live as long as the child
 * shall: the kernel ends a child that has asked for it when the thread that started it
 * ends. */
#ifndef PL_TRANSPORT_PROCESS_H
#define PL_TRANSPORT_PROCESS_H

#include "paceline.h"

typedef struct pl_process pl_process_t;

/* How a child ended. */
typedef struct pl_death {
    bool is_known;            /* false: somebody else in this process has waited for it */
    int status;               /* that it exited with; -1: it did not exit by itself */
    int signal;               /* that ended it; 0: none */
} pl_death_t;

typedef struct pl_process_spec {
    const char *program;                                    /* [argv[0]] */
    /* Up to NULL; the program is looked for along PATH unless it has a slash. */
    const char *const *argv;
    /* Up to NULL: "NAME=VALUE" beside or in place of what this process has, "NAME" to
     * leave that out.  [as this process] */
    const char *const *environment;
    /* A line of its standard error has come, without its end; what is longer than
     * PL_PROCESS_LINE comes in pieces.  Must not free the process.  [only kept] */
    void (*on_line)(void *user, const char *line);
    /* Once, after its last line; may free the process.  [nobody asks] */
    void (*on_death)(void *user, const pl_death_t *death);
    void *user;
} pl_process_spec_t;

#define PL_PROCESS_LINE 4096
#define PL_PROCESS_TAIL 4096

/* Starts a child; copies what it needs of the spec.  PL_ENOTFOUND: there is no such
 * program, or it may not be run; PL_EBUSY: no more processes or descriptors. */
pl_process_t *pl_process_start(const pl_process_spec_t *spec, struct event_base *loop,
                               pl_error_t *err);
/* Ends it by SIGKILL if it still lives, and waits for that up to a second; on_death is
 * not called. */
void pl_process_free(pl_process_t *process);

int pl_process_id(const pl_process_t *process);
/* The newest of its standard error, whole lines where there are, PL_PROCESS_TAIL bytes at
 * most; "" when it has said nothing.  Until the next turn of the loop. */
const char *pl_process_tail(pl_process_t *process);
/* To it and to what it has started in its group.  Nothing when it is dead. */
void pl_process_signal(pl_process_t *process, int signal);

/* "was killed by SIGSEGV", "exited with status 1", …; returns text. */
#define PL_DEATH_TEXT 128
const char *pl_death_text(const pl_death_t *death, char text[PL_DEATH_TEXT]);

/* In a child, early: from now on it dies with the one that started it.  PL_EPEER: that
 * one is gone already, and the child is to end.  Does nothing in a process that
 * pl_process_start() has not started. */
int pl_process_follow_parent(pl_error_t *err);

#endif
