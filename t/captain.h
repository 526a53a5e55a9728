/* captain.h - ranks with collectives that are actors, for tests: one actor, the
 * captain, in the place of all ranks' strategies has a collective for each rank */
#ifndef T_CAPTAIN_H
#define T_CAPTAIN_H

#include "runtime/reactor.h"
#include "strategies/collectives/actor.h"

enum { RANKS = 3, ELEMENTS = 5000 };

typedef struct reported {
    int order;                                      /* in which the answer came, from 1 */
    int code;
    char text[PL_ERROR_TEXT];
} reported_t;

typedef struct captain {
    pl_address_t rank[RANKS];
    uint64_t life[RANKS];
    char address[RANKS][PL_ADDRESS_TEXT];
    pl_reg_buffer_t *buffer[RANKS];                         /* counted */
    int answers, late, wanted;
} captain_t;

extern pl_reactor_t *captain_reactor;
extern captain_t *captain;
extern reported_t reported[RANKS][4];                       /* context of calls */
extern reported_t ended[RANKS];

/* The collectives are there; they have joined, and each has memory for ELEMENTS of
 * float32. */
void captain_open(void);
void captain_join(void);
void captain_close(void);

/* Until so many answers have come; an answer that a test takes itself is counted.  In
 * time, or a test has failed. */
void wait_for(int answers);
void count(captain_t *c);
/* Whether that comes to be in time. */
bool comes(bool (*what)(void));

pl_collective_component_t *component_of(const char *collective);  /* counted */

/* Calls; their answers go to reported[rank][k]. */
pl_how_t how(int rank, int k, int total_ms);
void join(int rank, int k, int total_ms);
void captain_alloc(int rank, int k);
uint64_t all_reduce(int rank, int k, uint64_t offset, uint64_t elements, int total_ms);
void barrier(int rank, int k, int total_ms);

#endif
