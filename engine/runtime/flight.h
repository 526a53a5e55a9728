/* flight.h - objects on their way through a message
 *
 * A message carries no pointers.  An object in flight stands in a table and travels as
 * its number, so a number that is not in the table (in a forged or damaged frame) finds
 * nothing. */
#ifndef PL_RUNTIME_FLIGHT_H
#define PL_RUNTIME_FLIGHT_H

#include "runtime/actor.h"

/* Puts a new reference of object into the table; -> its number, 0 for NULL or when memory
 * is out (*err says so). */
uint64_t pl_flight_enter(pl_object_t *object, pl_error_t *err);
/* The object of a number, borrowed from the table; NULL when there is none. */
pl_object_t *pl_flight_find(uint64_t number);
/* Takes the object out of the table and drops the table's reference. */
void pl_flight_leave(uint64_t number);
/* How many are in the table: for tests of leaks. */
int pl_flight_count(void);

#endif
