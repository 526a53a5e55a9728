/* top.c - paceline top: a run on the whole terminal, redrawn four times a second
 *
 * The process of the run publishes its state under a topic of its own. This file
 * receives the states, draws them, and sends keys as commands. It stays when the run
 * or its process has ended, and shows the next run that publishes there. */
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "config.h"

#ifdef HAVE_NCURSES

#include <curses.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/endpoint_client.h"
#include "cli/json.h"
#include "cli/top_view.h"
#include "cli/watch.h"

enum { STATES = 8 };                            /* kept for rates: those of two seconds */
static const double DRAW = 0.25, SILENCE = 3, LOOK = 1, NOTED = 8;  /* s */

typedef struct top {
    const cli_top_t *arguments;
    cli_endpoint_client_t stream, commands;
    json_t *state[STATES];                           /* newest first  [none] */
    double came, asked, drawn;                       /* s: newest state; "list"; screen */
    bool is_paused, is_sure;                         /* sure: the next y stops the run */
    char note[CLI_VIEW_WIDTH];                       /* about the last key or reply */
    double noted;                                    /* s: when; 0: none */
    bool wants_end, is_dirty, has_actors;
    cli_curve_t curve;
} top_t;

/* ---- states and replies ---- */

static void states_forget(top_t *top)
{
    for (int k = 0; k < STATES; k++) {
        json_decref(top->state[k]);
        top->state[k] = NULL;
    }
}

/* Whether there is no rate between two states of the stream: another engine has another
 * clock, one without viewers counts its messages from 0, and a run may go back to a
 * checkpoint or begin again. */
static bool is_another(const json_t *message, const json_t *message_before)
{
    const json_t *state = json_object_get(message, "state"),
                 *before = json_object_get(message_before, "state"),
                 *run = cli_view_run(message), *run_before = cli_view_run(message_before);
    return cli_get_number(state, "wall") != cli_get_number(before, "wall")
           || cli_get_number(state, "messages") < cli_get_number(before, "messages")
           || (cli_get_count(run, "number") == cli_get_count(run_before, "number")
               && cli_get_count(run, "step") < cli_get_count(run_before, "step"));
}

static void take_states(top_t *top)
{
    size_t length;
    const char *text;
    while ((text = cli_receive(&top->stream, &length))) {
        json_t *state = json_loadb(text, length, 0, NULL);
        if (!json_is_object(json_object_get(state, "state"))) {
            json_decref(state);
            continue;
        }
        if (is_another(state, top->state[0]))
            states_forget(top);
        json_decref(top->state[STATES - 1]);
        memmove(top->state + 1, top->state, (STATES - 1) * sizeof *top->state);
        top->state[0] = state;
        cli_curve_take(&top->curve, state);
        top->came = cli_now();
    }
}

static void note(top_t *top, const char *text)
{
    snprintf(top->note, sizeof top->note, "%s", text);
    top->noted = cli_now();
    top->is_dirty = true;
}

/* Replies to "list", which follow() sends, say whether the run is paused. */
static void take_replies(top_t *top)
{
    size_t length;
    const char *text;
    if (!top->arguments->control)
        return;
    cli_wait(&top->commands, -1, 0);
    while ((text = cli_receive(&top->commands, &length))) {
        char words[CLI_VIEW_WIDTH];
        json_t *reply = json_loadb(text, length, 0, NULL);
        const json_t *runs = json_object_get(reply, "runs"),
                     *run = json_array_get(runs, json_array_size(runs) - 1);
        if (json_is_array(runs)) {
            top->is_paused = !strcmp(cli_get_text(run, "state"), "paused");
        } else {
            cli_reply_words(reply, words, sizeof words);
            note(top, words);
            top->asked = 0;
        }
        json_decref(reply);
    }
}

/* ---- keys ---- */

static bool may_command(const top_t *top)
{
    return top->arguments->control && top->commands.connected && !top->commands.parted;
}

static void send_command(top_t *top, const char *request, const char *text)
{
    if (top->commands.refused)
        note(top, "the socket of --control takes no commands");
    else if (!may_command(top))
        note(top, "no run takes commands there");
    else if (cli_send(&top->commands, request))
        note(top, text);
}

static void command_key(top_t *top, int key)
{
    const bool was_sure = top->is_sure;
    top->is_sure = false;
    if (!top->arguments->control && strchr("pgsx", key))
        note(top, "this key needs --control");
    else if (key == 'p' && !top->is_paused)
        send_command(top, "{\"command\":\"pause\"}", "pausing after this step");
    else if (key == 'g' || key == 'p')
        send_command(top, "{\"command\":\"continue\"}", "continuing");
    else if (key == 's')
        send_command(top, "{\"command\":\"save\"}", "saving after this step");
    else if (key == 'y' && was_sure)
        send_command(top, "{\"command\":\"stop\"}", "stopping after this step");
    else if (was_sure)
        note(top, "the run continues");
    if (key == 'x' && top->arguments->control) {
        top->is_sure = true;
        note(top, "stop the run? press y");
    }
}

static void take_keys(top_t *top)
{
    for (int key; (key = getch()) != ERR;) {
        if (key == KEY_RESIZE)
            top->is_dirty = true;
        else if (key == 'q' || key == 'Q')
            top->wants_end = true;
        else if (key == 'a' || key == 'A')
            top->has_actors = !top->has_actors, top->is_dirty = true;
        else if (key == '\f')
            clearok(curscr, TRUE), top->is_dirty = true;
        else if (key > ' ' && key < 0x7f)
            command_key(top, key);
    }
}

/* ---- drawing ---- */

/* The reason why nothing new is shown; "": the state is new. */
static const char *silence_text(const top_t *top, char text[CLI_VIEW_WIDTH])
{
    char end[CLI_VIEW_TEXT];
    const char *at = top->arguments->endpoint;
    const json_t *run = cli_view_run(top->state[0]);
    strcpy(text, "");
    if (top->stream.refused && !top->stream.connected)
        snprintf(text, CLI_VIEW_WIDTH, "the socket at %s publishes no stream", at);
    else if (!top->stream.connected)
        snprintf(text, CLI_VIEW_WIDTH, "no run publishes at %s yet; waiting", at);
    else if (top->stream.parted && *cli_view_end(run, end))
        snprintf(text, CLI_VIEW_WIDTH, "the process has ended; waiting for another");
    else if (top->stream.parted)
        snprintf(text, CLI_VIEW_WIDTH,
                 "the process has ended without reporting it; "
                 "waiting for another");
    else if (!top->state[0])
        snprintf(text, CLI_VIEW_WIDTH,
                 "a run publishes there, but no message has come yet");
    else if (cli_now() - top->came > SILENCE)
        snprintf(text, CLI_VIEW_WIDTH, "silent for %.0f s", cli_now() - top->came);
    return text;
}

static void draw_footer(const top_t *top, int rows, int columns)
{
    char silence[CLI_VIEW_WIDTH];
    const bool is_noted = top->noted > 0 && cli_now() - top->noted < NOTED;
    silence_text(top, silence);
    if (is_noted || *silence) {
        attron(A_BOLD);
        mvaddnstr(rows - 2, 0, is_noted ? top->note : silence, columns);
        attroff(A_BOLD);
    }
    attron(A_REVERSE);
    mvhline(rows - 1, 0, ' ', columns);
    mvaddnstr(rows - 1, 0,
              !may_command(top) ? "q quit  a actors"
              : top->is_paused  ? "q quit  p continue  s save  x stop  a actors"
                                : "q quit  p pause  s save  x stop  a actors",
              columns);
    attroff(A_REVERSE);
}

static void draw(top_t *top)
{
    static const attr_t attributes[] = {[CLI_PLAIN] = A_NORMAL,
                                        [CLI_STRONG] = A_BOLD,
                                        [CLI_HEAD] = A_UNDERLINE,
                                        [CLI_BAD] = A_BOLD | A_REVERSE};
    static cli_view_t view;
    int rows, columns, oldest = STATES - 1;
    getmaxyx(stdscr, rows, columns);
    while (oldest > 0 && !top->state[oldest])
        oldest--;
    view = (cli_view_t){.columns = columns,
                        .rows = rows > 3 ? rows - 2 : 1,
                        .has_actors = top->has_actors,
                        .curve = &top->curve};
    erase();
    if (top->state[0])
        cli_view_make(&view, top->state[oldest], top->state[0]);
    for (int k = 0; k < view.count; k++) {
        attrset(attributes[view.line[k].style]);
        mvaddnstr(k, 0, view.line[k].text,
                  (int)cli_bytes_of(view.line[k].text, view.columns));
    }
    attrset(A_NORMAL);
    if (rows > 2)
        draw_footer(top, rows, columns);
    refresh();
    top->drawn = cli_now();
    top->is_dirty = false;
}

/* ---- the command ---- */

static void follow(top_t *top)
{
    while (!top->wants_end && !cli_signalled()) {
        const double left = top->drawn + DRAW - cli_now();
        if (left <= 0 || top->is_dirty)
            draw(top);
        cli_wait(&top->stream, STDIN_FILENO, left > 0 ? left : DRAW);
        take_states(top);
        take_replies(top);
        if (may_command(top) && cli_now() - top->asked >= LOOK) {
            top->asked = cli_now();
            cli_send(&top->commands, "{\"command\":\"list\"}");
        }
        take_keys(top);
    }
}

static int screen_open(pl_error_t *err)
{
    const char *kind = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return pl_fail(err, PL_EINVAL,
                       "top needs a terminal: use paceline monitor, which prints lines");
    setlocale(LC_CTYPE, "");
    const bool is_open = newterm(NULL, stdout, stdin) != NULL;
    const char *cursor = is_open ? tigetstr("cup") : NULL;  /* TERM=dumb has none */
    if (!cursor || cursor == (const char *)-1) {
        if (is_open)
            endwin();
        return pl_fail(err, PL_EINVAL, "top cannot draw on a terminal \"%s\": set TERM",
                       kind ? kind : "");
    }
    cbreak();
    noecho();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    curs_set(0);
    return PL_OK;
}

int cli_top(const cli_top_t *arguments)
{
    char end[CLI_VIEW_TEXT] = "";
    top_t top = {.arguments = arguments};
    pl_error_t err = {0};
    int status = CLI_WRONG;
    int code = cli_connect(&top.stream, CLI_STREAM, arguments->endpoint, &err);
    if (code == PL_OK)
        code = cli_subscribe(&top.stream, "state", &err);
    if (code == PL_OK && arguments->control)
        code = cli_connect(&top.commands, CLI_COMMANDS, arguments->control, &err);
    if (code == PL_OK) {
        cli_watch_signals();
        code = screen_open(&err);
    }
    if (code == PL_OK) {
        follow(&top);
        endwin();
        status = cli_signal_status();
        if (*cli_view_end(cli_view_run(top.state[0]), end))
            cli_print("%s\n", end);
    } else {
        cli_failure(&err, false);
    }
    states_forget(&top);
    cli_disconnect(&top.stream);
    cli_disconnect(&top.commands);
    return status;
}

#else

int cli_top(const cli_top_t *arguments)
{
    (void)arguments;
    pl_error_t err;
    pl_fail(&err, PL_EINVAL,
            "top needs ncurses, and this build has none: use paceline monitor, or build "
            "again with configure --with-ncurses");
    cli_failure(&err, false);
    return CLI_WRONG;
}

#endif
