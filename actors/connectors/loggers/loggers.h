/* loggers.h - the loggers that are built in
 *
 * Each is one file with one table, found by name like a user's own. */
#ifndef PL_LOGGERS_H
#define PL_LOGGERS_H

#include "paceline.h"

extern const pl_logger_ops_t pl_csv_logger;
extern const pl_logger_ops_t pl_jsonl_logger;
extern const pl_logger_ops_t pl_tensorboard_logger;

/* A run goes on, and its file has lost what the checkpoint speaks of. */
void pl_say_lost_lines(const char *path);

/* Whether a file has as many bytes as the checkpoint speaks of, but others: it is not to
 * be cut. */
bool pl_is_another_file(const char *path, uint64_t size, uint32_t sum);

/* Gives such a one another name, PATH.1 or the next, and says so, also when it cannot:
 * false. */
bool pl_put_log_aside(const char *path);

/* All of them, for pl_init(). */
extern const pl_registration_t pl_logger_components[];

#endif
