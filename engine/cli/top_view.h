/* top_view.h - what paceline top and monitor show of a run's state */
#ifndef CLI_TOP_VIEW_H
#define CLI_TOP_VIEW_H

#include <jansson.h>
#include <stdbool.h>

enum { CLI_VIEW_LINES = 128, CLI_VIEW_WIDTH = 256, CLI_VIEW_TEXT = 1024 };

typedef enum cli_style { CLI_PLAIN, CLI_STRONG, CLI_HEAD, CLI_BAD } cli_style_t;

enum { CLI_CURVE = 128 };

/* The training loss of a run since it is watched: when there are too many values, two
 * neighbours become their mean. */
typedef struct cli_curve {
    double value[CLI_CURVE], sum;                /* sum: of those gathered for the next */
    int count, gathered, stride;
    double number, step;                             /* of the run [0: none], newest */
    double first_step, first_seconds;                /* when it was seen first to train */
} cli_curve_t;

/* Of a state that has just come. */
void cli_curve_take(cli_curve_t *curve, const json_t *state);

typedef struct cli_view {
    int columns, rows, count;
    bool has_actors;                               /* they are shown, and how they talk */
    const cli_curve_t *curve;
    struct {
        cli_style_t style;
        char text[CLI_VIEW_WIDTH];
    } line[CLI_VIEW_LINES];
} cli_view_t;

/* Of two states of the topic "state"; rates are of what lies between them, `before` may
 * be the same. */
void cli_view_make(cli_view_t *view, const json_t *before, const json_t *now);
/* A further line (printf), cut where the terminal ends. */
void cli_view_line(cli_view_t *view, cli_style_t style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same in one line of so many columns [0: as many as it takes]: progress, time left,
 * loss, speed, CPU use, and the loss's curve. */
void cli_view_brief(char text[CLI_VIEW_TEXT], const json_t *before, const json_t *now,
                    const cli_curve_t *curve, int columns);

/* The run that is looked at: the newest of those that go on, else of all; NULL: none. */
const json_t *cli_view_run(const json_t *state);
/* "run 0001 ended well after 40 steps"; how it ended, or "" while it goes on. */
const char *cli_view_end(const json_t *run, char text[CLI_VIEW_TEXT]);

#endif
