/* crowd.h - many viewers of a stream, in a process of their own */
#ifndef T_CROWD_H
#define T_CROWD_H

#include <stdbool.h>
#include <sys/types.h>

/* What all of them together have got; shared with their process. */
typedef struct crowd_seen {
    long long lines;                                        /* atomic */
    long long marked;                                       /* atomic: with that text */
} crowd_seen_t;

typedef struct crowd {
    pid_t process;
    crowd_seen_t *seen;
} crowd_t;

/* So many viewers of the whole stream at an endpoint, which may come later; lines with
 * the text mark are counted apart  [none]; yields: they run only on idle
 * processors.  They end with this process.  Before threads are made. */
void crowd_start(crowd_t *crowd, const char *endpoint, int viewers, const char *mark,
                 bool yields);
long long crowd_lines(const crowd_t *crowd);
long long crowd_marked(const crowd_t *crowd);
void crowd_stop(crowd_t *crowd);

#endif
