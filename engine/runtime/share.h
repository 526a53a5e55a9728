/* share.h - a rank's share of the processors of this machine */
#ifndef PL_RUNTIME_SHARE_H
#define PL_RUNTIME_SHARE_H

#include <stdbool.h>

/* Keeps the calling thread, and those it starts from now on, on one of `parts` equal
 * parts of the processors that it may use.  Fine where that is not possible, or there are
 * fewer than parts: it stays as it is. */
void pl_share_take(int part, int parts);

/* Whether this thread is kept on such a part; and what one that was started by another is
 * told of that. */
bool pl_share_is_taken(void);
void pl_share_inherit(bool taken);

#endif
