/* process.h - child processes: starts, reads, watches and ends them
 *
 * A child is started by exec, never by fork alone: OpenMP, CUDA, ZeroMQ and libevent
 * do not survive a fork.  It gets no descriptor but its standard ones, an empty
 * standard input, no blocked signal, and its own process group: Ctrl-C in a terminal
 * reaches the program that started it, which decides.  A pidfd reports the death, so
 * no signal handler is needed and SIGCHLD stays the program's.
 *
 * All calls are on the thread of the loop.  That thread must live as long as the child:
 * the kernel ends a child that has requested it when the thread that started it ends. */
#ifndef PL_TRANSPORT_PROCESS_H
#define PL_TRANSPORT_PROCESS_H

#include "paceline.h"

typedef struct pl_process pl_process_t;

/* How a child ended. */
typedef struct pl_death {
    bool is_known;                   /* false: other code in this process has reaped it */
    int status;                      /* exit status; -1: it did not exit by itself */
    int signal;                      /* signal that ended it; 0: none */
} pl_death_t;

typedef struct pl_process_spec {
    const char *program;                                    /* [argv[0]] */
    /* Up to NULL; the program is searched along PATH unless it has a slash. */
    const char *const *argv;
    /* Up to NULL: "NAME=VALUE" adds or replaces a variable, "NAME" removes it.  [the
     * variables of this process] */
    const char *const *environment;
    /* A line of its standard error has arrived, without its end; a longer one than
     * PL_PROCESS_LINE arrives in pieces.  Must not free the process.  [only kept] */
    void (*on_line)(void *user, const char *line);
    /* Called once, after its last line; may free the process.  [not called] */
    void (*on_death)(void *user, const pl_death_t *death);
    void *user;
} pl_process_spec_t;

#define PL_PROCESS_LINE 4096
#define PL_PROCESS_TAIL 4096

/* Starts a child; copies what it needs from the spec.  PL_ENOTFOUND: no such program, or
 * it is not executable; PL_EBUSY: no more processes or descriptors. */
pl_process_t *pl_process_start(const pl_process_spec_t *spec, struct event_base *loop,
                               pl_error_t *err);
/* Ends it by SIGKILL if it lives, and waits up to a second; on_death is not called. */
void pl_process_free(pl_process_t *process);

int pl_process_id(const pl_process_t *process);
/* The end of its standard error, complete lines if possible, PL_PROCESS_TAIL bytes at
 * most; "": it has written nothing.  Valid until the next turn of the loop. */
const char *pl_process_tail(pl_process_t *process);
/* Signals it and what it has started in its group; no effect when it is dead. */
void pl_process_signal(pl_process_t *process, int signal);

/* "was killed by SIGSEGV", "exited with status 1", …; returns text. */
#define PL_DEATH_TEXT 128
const char *pl_death_text(const pl_death_t *death, char text[PL_DEATH_TEXT]);

/* Called early in a child: from now on it dies with its parent.  PL_EPEER: the parent has
 * ended already, and the child must end.  No effect in a process that pl_process_start()
 * has not started. */
int pl_process_follow_parent(pl_error_t *err);

#endif
