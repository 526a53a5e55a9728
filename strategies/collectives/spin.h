/* spin.h - how long to look for another rank before sleeping
 *
 * To be woken takes many times as long as to see that another has come, but who looks
 * keeps a processor from others.  So one looks for a moment, which grows while that is
 * worth it and shrinks while it is not; for longer after having woken another: two that
 * wait for each other's waking would never be awake together.  With fewer processors than
 * ranks nobody looks: it would keep the others from coming. */
#ifndef PL_COLLECTIVES_SPIN_H
#define PL_COLLECTIVES_SPIN_H

#include <stdint.h>

typedef struct pl_spin {
    int64_t max, now;                                       /* ns; max 0: none */
    int64_t rang;                                           /* when another was woken */
    int64_t since;                                          /* when sleep began; 0: it has
                                                               not */
} pl_spin_t;

/* Of one of so many ranks on this machine. */
void pl_spin_init(pl_spin_t *p, int64_t max_us, int ranks);
/* Until when to look, from now on; 0: not at all. */
int64_t pl_spin_until(const pl_spin_t *p);
/* It was not enough; what was waited for has come. */
void pl_spin_ends(pl_spin_t *p);
void pl_spin_learns(pl_spin_t *p);

#endif
