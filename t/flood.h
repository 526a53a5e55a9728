/* flood.h - many connections to a port of this process, by another one */
#ifndef T_FLOOD_H
#define T_FLOOD_H

#include <stdbool.h>
#include <sys/resource.h>

struct event_base;
struct pl_process;

enum { FLOOD = 900 };

typedef struct flood {
    struct event_base *base;
    struct pl_process *process;
    struct rlimit was;
} flood_t;

/* This process may have a third of the descriptors that all connections would take from
 * here to the end.  Its program must begin with flood_if_asked(). */
void flood_begin(flood_t *flood, const char *endpoint);
void flood_end(flood_t *flood);
/* Whether no connection waits at the port to be accepted: the kernel drops later ones as
 * long as its queue is full, and their next try comes after many seconds. */
bool flood_is_drained(const char *endpoint);
/* Calls turn for some seconds, in which descriptors must be left for a run. */
void flood_check(void (*turn)(void));

/* Does not return where this process is the flood. */
void flood_if_asked(int argc, char **argv);

#endif
