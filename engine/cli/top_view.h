/* top_view.h - the state of a run, as lines of paceline top and monitor
 *
 * A state is a message of the topic "state". */
#ifndef CLI_TOP_VIEW_H
#define CLI_TOP_VIEW_H

#include <jansson.h>
#include <stdbool.h>

enum { CLI_VIEW_LINES = 128, CLI_VIEW_WIDTH = 256, CLI_VIEW_TEXT = 1024 };

typedef enum cli_style { CLI_PLAIN, CLI_STRONG, CLI_HEAD, CLI_BAD } cli_style_t;

enum { CLI_CURVE = 128 };

/* The training loss of a run since this process observes it. When it is full, each two
 * neighbours become their mean. */
typedef struct cli_curve {
    double value[CLI_CURVE], sum;          /* sum: of those gathered for the next value */
    int count, gathered, stride;
    double number, step;                              /* of the run [0: none]; newest */
    double first_step, first_seconds;                 /* of the first state that trains */
} cli_curve_t;

/* Adds a state that has just come. */
void cli_curve_take(cli_curve_t *curve, const json_t *state);

typedef struct cli_view {
    int columns, rows, count;
    bool has_actors;                                    /* the table of actors is shown */
    const cli_curve_t *curve;
    struct {
        cli_style_t style;
        char text[CLI_VIEW_WIDTH];
    } line[CLI_VIEW_LINES];
} cli_view_t;

/* Fills the lines. Rates are those between the two states; `before` may be the same. */
void cli_view_make(cli_view_t *view, const json_t *before, const json_t *now);
/* Adds a line, cut where the terminal ends. */
void cli_view_line(cli_view_t *view, cli_style_t style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One line of so many columns [0: any number]: progress, time left, loss, speed, CPU use,
 * and the curve of the loss. */
void cli_view_brief(char text[CLI_VIEW_TEXT], const json_t *before, const json_t *now,
                    const cli_curve_t *curve, int columns);

/* The run that is shown: the newest active one, otherwise the newest  [none]. */
const json_t *cli_view_run(const json_t *state);
/* "run 0001 is complete after 40 steps"; "" while the run is active. */
const char *cli_view_end(const json_t *run, char text[CLI_VIEW_TEXT]);

/* ---- between top_view.c and top_tables.c ---- */

enum { CLI_CELL = 40 };                                  /* bytes of a number or a cell */

/* "12", "1.2k", "34M". */
const char *cli_view_number(double value, char text[CLI_CELL]);
/* A number a second; "-" without time. */
const char *cli_view_rate(double count, double seconds, char text[CLI_CELL]);
const char *cli_view_duration(double seconds, char text[CLI_CELL]);

/* Tables; `steps` and `seconds` lie between the two states. */
void cli_view_ranks(cli_view_t *view, const json_t *before, const json_t *now,
                    double steps);
void cli_view_actors(cli_view_t *view, const json_t *before, const json_t *now,
                     double seconds);

#endif
