/* output.h - results on standard output, everything else on standard error
 *
 * Lines of standard error may come from any thread while a progress line is shown; this
 * file keeps them apart. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <jansson.h>
#include <paceline.h>
#include <stdio.h>

typedef enum cli_status {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_WRONG = 2,
    CLI_LOST = 75,                         /* another rank is gone; paceline launch starts
                                              all ranks again */
    CLI_INTERRUPTED = 130
} cli_status_t;

/* Examines the terminal, ignores SIGPIPE and receives the log of Paceline. Called once,
 * before anything else. */
void cli_output_begin(void);
/* Shows informative log lines too, such as the table of the model. */
void cli_show_information(void);
/* Writes buffered output. Returns the exit status: CLI_FAILED if a write failed,
 * otherwise `status`. */
int cli_output_end(int status);

/* Prints to standard output; only rank 0 prints. */
void cli_print(const char *format, ...) PL_PRINTF(1, 2);
void cli_flush(void);
/* Writes a value in one line, each number with the fewest digits that read back as the
 * same. False: out of memory. */
bool cli_write_json(FILE *to, const json_t *value);
/* Prints a JSON object as one line and flushes it; consumes the object. */
void cli_print_json(json_t *object);
/* Whether a write to standard output has failed; its reader may have gone. */
bool cli_output_gone(void);

/* Prints one line to standard error: "paceline: …". */
void cli_error(const char *format, ...) PL_PRINTF(1, 2);
/* Whether a line comes from cli_error(). */
bool cli_is_error(const char *line);
/* The same without "paceline: ". */
void cli_note(const char *format, ...) PL_PRINTF(1, 2);

/* Draws the line at the bottom of the terminal in place of the line before; "" removes
 * it. */
void cli_live_line(const char *text);
/* Whether the terminal can redraw a line. */
bool cli_has_live_line(void);

/* Columns of the terminal of stdout or stderr; 0: it is no terminal. */
int cli_columns(FILE *stream);
bool cli_has_colour(void);
bool cli_has_utf8(void);

/* Columns for running text on standard output: those of the terminal within limits, or
 * 80. */
int cli_width(void);
/* Prints running text in lines, each behind `indent` spaces; the first one begins at
 * column `at`. */
void cli_wrap(const char *text, int at, int indent);
/* Prints "name             text" behind `indent` spaces: wrapped on a terminal, otherwise
 * in one line. */
void cli_print_fact(const char *name, const char *text, int indent);

/* Bytes of the first `columns` characters of a text in UTF-8. */
size_t cli_bytes_of(const char *text, int columns);
/* A metric with that many decimals; a very large or small one with an exponent: "0.4123",
 * "1.139e+28", "8.1e-05", "not finite". */
const char *cli_number(double value, int decimals, char text[24]);
/* "s" unless count is 1: "%u epoch%s". */
const char *cli_plural(uint64_t count);
/* "1.6 KiB", "240 MiB". */
const char *cli_bytes(double bytes, char text[24]);
/* "0:42", "1:02:03". */
const char *cli_clock(double seconds, char text[24]);
/* The name to type for this command: "paceline", "./build/paceline". */
const char *cli_program(void);

#endif
