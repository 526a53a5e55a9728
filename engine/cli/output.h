/* output.h - results on standard output, all else on standard error
 *
 * Lines of standard error may come from any thread while a progress line stands there;
 * this file keeps them apart. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <jansson.h>
#include <paceline.h>
#include <stdio.h>

typedef enum cli_status {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_WRONG = 2,
    CLI_LOST = 75,                     /* another rank is gone; paceline launch starts all
                                          again */
    CLI_INTERRUPTED = 130
} cli_status_t;

/* Looks at the terminal and takes over SIGPIPE and Paceline's log; once, before
 * anything else. */
void cli_output_begin(void);
/* Shows log lines that only inform, too: the table of the model, what the device is. */
void cli_show_information(void);
/* Writes out what is left; the status to leave with, which a failed write turns into
 * CLI_FAILED. */
int cli_output_end(int status);

/* To standard output (printf); of several ranks the first alone writes there. */
void cli_print(const char *format, ...) PL_PRINTF(1, 2);
void cli_flush(void);
/* One JSON object as a line, at once; consumes it. */
void cli_print_json(json_t *object);
/* Whether nobody reads standard output any more, or it could not be written. */
bool cli_output_gone(void);

/* One line (printf) to standard error: "paceline: …". */
void cli_error(const char *format, ...) PL_PRINTF(1, 2);
/* Whether a line is one of those. */
bool cli_is_error(const char *line);
void cli_note(const char *format, ...) PL_PRINTF(1, 2);

/* The one line at the bottom of the terminal that is drawn again and again; "" removes
 * it. */
void cli_live_line(const char *text);
/* Whether there may be one: a terminal that can redraw. */
bool cli_has_live_line(void);

/* Columns of standard error's or standard output's terminal; 0: it is none. */
int cli_columns(FILE *stream);
bool cli_has_colour(void);
bool cli_has_utf8(void);

/* Columns for running text on standard output: 80 unless its terminal says otherwise. */
int cli_width(void);
/* Running text to standard output in lines, each behind `indent` blanks; the first stands
 * at column `at` already. */
void cli_wrap(const char *text, int at, int indent);
/* "name             text" behind `indent` blanks; the text in lines on a terminal, and in
 * one line for other programs. */
void cli_print_fact(const char *name, const char *text, int indent);

/* Bytes of the first `columns` characters of UTF-8. */
size_t cli_bytes_of(const char *text, int columns);
/* A metric: with so many decimals, above a million with four digits: "0.4123",
 * "1.139e+28", "not finite". */
const char *cli_number(double value, int decimals, char text[24]);
/* The ending of a noun: "%u epoch%s". */
const char *cli_plural(uint64_t count);
/* "1.6 KiB", "240 MiB". */
const char *cli_bytes(double bytes, char text[24]);
/* "0:42", "1:02:03". */
const char *cli_clock(double seconds, char text[24]);
/* The name to type for this command: "paceline", "./build/paceline". */
const char *cli_program(void);

#endif
