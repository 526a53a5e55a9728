/* board.h - what the stream has said by now, in bounded memory: what the page and the
 * metrics are made of */
#ifndef PL_SIGHT_BOARD_H
#define PL_SIGHT_BOARD_H

#include "runtime/tap.h"
#include "sight/known.h"

typedef struct pl_board pl_board_t;

/* began: the runtime's, the zero of the stream's time. */
pl_board_t *pl_board_new(int64_t began, pl_error_t *err);
void pl_board_free(pl_board_t *board);

/* What a tap of the hub gets.  Any thread, each of these: they share a lock. */
void pl_board_record(pl_board_t *board, const pl_tap_record_t *record);
void pl_board_gap(pl_board_t *board, uint64_t count);
void pl_board_log(pl_board_t *board, pl_log_level_t level, int rank, const char *actor,
                  const char *text);

/* Runs that have gone on since before the board was there, and how many there were;
 * before anything is recorded. */
void pl_board_recall(pl_board_t *board, pl_known_t *known);

/* How many runs go on. */
int pl_board_living(pl_board_t *board);

/* Items behind `since` (0: from the first on) with the newest of everything else, as a
 * JSON object; *until is the number of its last item.  more: there are more points behind
 * it than one object holds  [NULL].  pl_text_free() frees it; NULL: out of memory. */
char *pl_board_json(pl_board_t *board, uint64_t since, uint64_t *until, bool *more);

/* All of it in one object, with at most a thousand points of each run; as above. */
char *pl_board_state(pl_board_t *board);

/* In Prometheus' text format, version 0.0.4; as above. */
char *pl_board_metrics(pl_board_t *board);

#endif
