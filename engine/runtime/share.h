/* share.h - a rank's share of the processors of this machine */
#ifndef PL_RUNTIME_SHARE_H
#define PL_RUNTIME_SHARE_H

#include <stdbool.h>

/* Keeps the calling thread, and those it starts from now on, on one of `shares` equal
 * shares of the processors that it may use.  Fine where that is not possible, or there
 * are fewer than shares: it stays as it is. */
void pl_share_take(int share, int shares);

/* Whether this thread is kept on such a share; and what one that was started by
 * another is told of that. */
bool pl_share_is_taken(void);
void pl_share_inherit(bool taken);

#endif
