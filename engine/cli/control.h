/* control.h - commands to a run of another process: as requests, and answers in words */
#ifndef CLI_CONTROL_H
#define CLI_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What a reply says, as a line without its end; whether it was carried out. */
bool cli_reply_words(const json_t *reply, char *text, size_t capacity);

#endif
