/* bare.h - libevent and ZeroMQ without actors: what the runtime is measured against */
#ifndef T_BENCH_BARE_H
#define T_BENCH_BARE_H

#include <stddef.h>

/* A client on this thread with a DEALER, a server on another with a ROUTER, both in
 * libevent loops that watch ZMQ_FD as it must be watched. */
void bare_open(size_t message_bytes);
void bare_close(void);

/* Seconds for so many round trips, one after the other. */
double bare_round_trips(int count);
/* Seconds for so many messages from the server, by orders of 1000 each, of which several
 * are open. */
double bare_messages(int count);

#endif
