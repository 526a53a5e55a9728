/* callbacks.h - the callbacks that are built in
 *
 * Each is one file with its options and one table, found by name like a user's own. */
#ifndef PL_CALLBACKS_H
#define PL_CALLBACKS_H

#include "paceline.h"

extern const pl_callback_ops_t pl_progress_callback;

#endif
