/* scarce.h - memory that runs out when a test says so */
#ifndef T_SCARCE_H
#define T_SCARCE_H

#include <stdbool.h>

/* Counts Paceline's and jansson's memory from now on; before anything else. */
void scarce_init(void);
/* Paceline's alone: jansson's parser, of which runs need much, cannot do without. */
void scarce_init_own(void);
/* Lets the n-th request from now fail, once; 0: none does. */
void scarce_fail(int n);
/* None fails any more. */
void scarce_stop(void);
/* Whether it came to that since scarce_fail(). */
bool scarce_failed(void);
/* Blocks in use. */
long scarce_live(void);

/* Runs work(user) with the first, second, … request failing until none does; work
 * returns an error code, which must be PL_ENOMEM or, where the lack is reported
 * otherwise, 0; and nothing may stay behind.  Reports two tests. */
void scarce_try(int (*work)(void *user), void *user, const char *name);

#endif
