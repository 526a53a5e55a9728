/* wire.h - a wire between a socket that listens on a port and those that connect to it,
 * for tests that cut it */
#ifndef T_WIRE_H
#define T_WIRE_H

#include <stdbool.h>

struct event_base;

/* Where to connect to, instead of there; its bytes pass while that loop turns. */
const char *wire_open(struct event_base *base, const char *endpoint);
void wire_close(void);

void wire_cut(void);                           /* all connections; new ones may be made */
void wire_cut_near(void);                      /* only the connecting side notices it */
void wire_cut_for_good(void);                  /* none may */
void wire_hold(bool holds);                    /* nothing passes */
void wire_delay(int milliseconds);             /* what passes takes so long */

#endif
