/* loggers.h - the loggers that are built in
 *
 * Each is one file with one table, found by name like a user's own. */
#ifndef PL_LOGGERS_H
#define PL_LOGGERS_H

#include "paceline.h"

extern const pl_logger_ops_t pl_csv_logger;
extern const pl_logger_ops_t pl_jsonl_logger;
extern const pl_logger_ops_t pl_tensorboard_logger;

/* A run goes on, and its file is not the one that the checkpoint speaks of. */
void pl_say_lost_lines(const char *path);

/* All of them, for pl_init(). */
extern const pl_registration_t pl_logger_parts[];

#endif
