/* loggers.h - the built-in loggers, and how their files continue in a resumed run
 *
 * Each is one file with one table, and is found by name like a user's. */
#ifndef PL_LOGGERS_H
#define PL_LOGGERS_H

#include "paceline.h"

extern const pl_logger_ops_t pl_csv_logger;
extern const pl_logger_ops_t pl_jsonl_logger;
extern const pl_logger_ops_t pl_tensorboard_logger;

/* Warns that lines from before the checkpoint are missing. */
void pl_warn_lost_lines(const char *path);

/* The first `size` bytes of a file are not those that the checkpoint refers to: the file
 * must not be cut. */
bool pl_is_another_file(const char *path, uint64_t size, uint32_t sum);

/* Renames such a file to PATH.1 or the next free number, and logs it; false: it could
 * not. */
bool pl_put_log_aside(const char *path);

/* All of them, for pl_init(). */
extern const pl_registration_t pl_logger_components[];

#endif
