/* progress.c - the progress of a run, on standard error
 *
 * On a terminal one line is redrawn, at most ten times a second; elsewhere a line is
 * printed every few seconds. Both consist of the same pieces; the least important ones
 * are left out where the terminal is narrow. A finished epoch or validation always leaves
 * a line of its own: it is a result. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/output.h"
#include "cli/session.h"

enum {
    PIECES = 16,
    BAR_MIN = 6,
    BAR_MAX = 24,
    BAR_WANTED = 60                     /* columns: from here on the bar is more important
                                           than some pieces */
};

/* Ranks of the pieces of a result. */
enum { RANK_LOSS = 1, RANK_TIME = 30, RANK_OTHER = 40, RANK_STEP = 90 };

#define LOADER "/dataloader_idx_"
#define SECOND INT64_C(1000000000)
#define REDRAW (SECOND / 10)
#define PLAIN_EVERY (3 * SECOND)
#define RATE_WINDOW (SECOND / 2)

/* A piece of the line; the piece of the highest rank is left out first. */
typedef struct progress_piece {
    int rank;
    char text[64];
} progress_piece_t;

typedef struct pieces {
    int count;
    progress_piece_t piece[PIECES];
} pieces_t;

static void add(pieces_t *pieces, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(pieces_t *pieces, int rank, const char *format, ...)
{
    va_list args;
    if (pieces->count == PIECES)
        return;
    progress_piece_t *piece = &pieces->piece[pieces->count++];
    piece->rank = rank;
    va_start(args, format);
    vsnprintf(piece->text, sizeof piece->text, format, args);
    va_end(args);
}

static int width_of(const pieces_t *pieces)
{
    int width = 0;
    for (int k = 0; k < pieces->count; k++)
        width += (int)strlen(pieces->piece[k].text) + (width ? 2 : 0);
    return width;
}

/* Leaves out pieces until the rest fits. */
static void fit_into(pieces_t *pieces, int columns)
{
    while (pieces->count > 1 && width_of(pieces) > columns) {
        int worst = 0;
        for (int k = 1; k < pieces->count; k++)
            if (pieces->piece[k].rank > pieces->piece[worst].rank)
                worst = k;
        memmove(&pieces->piece[worst], &pieces->piece[worst + 1],
                (size_t)(pieces->count - worst - 1) * sizeof *pieces->piece);
        pieces->count--;
    }
}

static void join(const pieces_t *pieces, int from, char *text, size_t capacity)
{
    size_t at = 0;
    text[0] = '\0';
    for (int k = from; k < pieces->count && at < capacity; k++)
        at += (size_t)snprintf(text + at, capacity - at, "%s%s", k > from ? "  " : "",
                               pieces->piece[k].text);
}

/* ---- the pieces ---- */

static int digits(uint64_t number)
{
    return snprintf(NULL, 0, "%llu", (unsigned long long)number);
}

static void add_epoch(pieces_t *pieces, const cli_progress_t *p, const pl_progress_t *now)
{
    if (p->max_epochs > 0 && p->max_epochs < 1000000)
        add(pieces, 0, "epoch %*u/%lld", digits((uint64_t)p->max_epochs), now->epoch + 1,
            (long long)p->max_epochs);
    else
        add(pieces, 0, "epoch %u", now->epoch + 1);
}

static void add_batch(pieces_t *pieces, int rank, const char *word,
                      const pl_progress_t *now)
{
    if (now->batches)
        add(pieces, rank, "%s%*u/%u", word, digits(now->batches), now->batch,
            now->batches);
    else
        add(pieces, rank, "%sbatch %u", word, now->batch);
}

static void add_step(pieces_t *pieces, int rank, const pl_progress_t *now)
{
    add(pieces, rank, "step %*llu", now->total_steps ? digits(now->total_steps) : 1,
        (unsigned long long)now->global_step);
}

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* "val_loss 0.4123", or with several sources "val_loss/1 0.4123", for each metric of a
 * validation. The first loss is the most important one, then the other losses. */
static void add_validation(pieces_t *pieces, json_t *metrics)
{
    const char *name;
    json_t *value;
    char number[24];
    int losses = 0, others = 0;
    json_object_foreach(metrics, name, value) {
        if (!starts(name, "val_") || !json_is_number(value))
            continue;
        const char *source = strstr(name, LOADER);
        int rank = starts(name, "val_loss") ? RANK_LOSS + 2 * losses++
                                            : RANK_OTHER + others++;
        add(pieces, rank, "%.*s%s%s %s",
            source ? (int)(source - name) : (int)strlen(name), name, source ? "/" : "",
            source ? source + strlen(LOADER) : "",
            cli_number(json_number_value(value), 4, number));
    }
}

static void add_loss(pieces_t *pieces, int rank, const char *name, int decimals,
                     const json_t *loss)
{
    char number[24];
    if (json_is_number(loss))
        add(pieces, rank, "%s %s", name,
            cli_number(json_number_value(loss), decimals, number));
}

/* "lr 6.4e-4" */
static void add_lr(pieces_t *pieces, int rank, json_t *metrics)
{
    char text[24];
    const char *name;
    json_t *value;
    json_object_foreach(metrics, name, value) {
        if (!starts(name, "lr-") || !json_is_number(value))
            continue;
        snprintf(text, sizeof text, "%.1e", json_number_value(value));
        char *zero = strstr(text, "e-0");
        if (zero)
            memmove(zero + 2, zero + 3, strlen(zero + 2));
        add(pieces, rank, "lr %s", text);
        return;
    }
}

/* ---- the bar ---- */

static size_t draw_bar(double share, int width, char *text, size_t capacity)
{
    int full = (int)(share * width + 0.5);
    size_t at = 0;
    const char *colour = cli_has_colour() ? "\033[36m" : "",
               *pale = cli_has_colour() ? "\033[90m" : "";
    at += (size_t)snprintf(text + at, capacity - at, "  %s", colour);
    for (int k = 0; k < width; k++)
        at += (size_t)snprintf(text + at, capacity - at, "%s%s", k == full ? pale : "",
                               cli_has_utf8() ? (k < full ? "━" : "─")
                                              : (k < full ? "#" : "."));
    at += (size_t)snprintf(text + at, capacity - at, "%s", *colour ? "\033[0m" : "");
    return at;
}

/* Draws the first piece, a bar where there is room, and the other pieces. */
static void draw(pieces_t *pieces, const pl_progress_t *now)
{
    char line[1024];
    const double share = now->batches                       /* of the epoch's batches */
                             ? fmin(1, (double)now->batch / now->batches)
                             : -1;                          /* unknown */
    int columns = cli_columns(stderr) - 3;                  /* the terminal may add ^C */
    fit_into(pieces, columns < BAR_WANTED ? columns : columns - BAR_MIN - 2);
    int left = columns - width_of(pieces) - 2;
    size_t at = (size_t)snprintf(line, sizeof line, "%.*s", columns > 0 ? columns : 0,
                                 pieces->piece[0].text);
    if (share >= 0 && left >= BAR_MIN)
        at += draw_bar(share, left < BAR_MAX ? left : BAR_MAX, line + at,
                       sizeof line - at);
    if (pieces->count > 1) {
        at += (size_t)snprintf(line + at, sizeof line - at, "  ");
        join(pieces, 1, line + at, sizeof line - at);
    }
    cli_live_line(line);
}

/* ---- lines ---- */

static void print_line(cli_progress_t *p, pieces_t *pieces, int64_t time)
{
    char line[1024];
    if (p->bar)
        fit_into(pieces, cli_columns(stderr) - 1);
    join(pieces, 0, line, sizeof line);
    p->reported = time;
    if (p->bar)
        cli_live_line("");                                  /* it is out of date */
    cli_note("%s", line);
}

static void show_train(cli_progress_t *p, const pl_progress_t *now, json_t *metrics,
                       int64_t time)
{
    pieces_t pieces = {0};
    char clock[24];
    const json_t *ranks = json_object_get(metrics, "ranks");
    const double spread = json_number_value(json_object_get(ranks, "spread"));
    const uint64_t done = now->global_step - p->first_step,
                   left = now->total_steps - now->global_step;
    const double seconds = (double)(time - p->began) / SECOND;
    add_epoch(&pieces, p, now);
    add_batch(&pieces, 3, "", now);
    add_step(&pieces, 6, now);
    add_loss(&pieces, 1, "loss", 3, json_object_get(metrics, "train_loss"));
    add_lr(&pieces, 5, metrics);
    if (p->rate > 0)
        add(&pieces, 4, p->rate < 10 ? "%.1f%s" : "%.0f%s", p->rate,
            p->bar ? "/s" : " batches/s");
    if (spread > 0.2)                             /* all ranks wait for the slowest one */
        add(&pieces, 7, "rank %d +%.0f%%",
            (int)json_integer_value(json_object_get(ranks, "slowest")), spread * 100);
    if (now->total_steps > now->global_step && done && time - p->began >= SECOND)
        add(&pieces, 2, "%s left",
            cli_clock(seconds / (double)done * (double)left, clock));
    if (p->bar)
        draw(&pieces, now);
    else
        print_line(p, &pieces, time);
}

/* A pass over other data, or the return to a checkpoint, which has no batches. */
static void show_other(cli_progress_t *p, const pl_progress_t *now, int64_t time)
{
    pieces_t pieces = {0};
    if (now->global_step || now->total_steps)               /* within a fit */
        add_epoch(&pieces, p, now);
    if (!strcmp(now->event, "rollback"))
        add(&pieces, 1, "rollback to a checkpoint");
    else
        add_batch(&pieces, 1,
                  !strcmp(now->event, "predict") ? "predicting "
                  : !strcmp(now->event, "test")  ? "testing "
                                                 : "validating ",
                  now);
    if (p->bar)
        draw(&pieces, now);
    else
        print_line(p, &pieces, time);
}

/* An epoch that ended with a validation has its line already. */
static void show_result(cli_progress_t *p, const pl_progress_t *now, json_t *metrics,
                        int64_t time)
{
    pieces_t pieces = {0};
    char clock[24];
    bool validated = !strcmp(now->event, "validated");
    if (!validated && p->result_step == now->global_step)
        return;
    p->result_step = now->global_step;
    const json_t *loss = now->batch == now->batches
                             ? json_object_get(metrics, "train_loss_epoch")
                             : NULL;
    add_epoch(&pieces, p, now);
    add_step(&pieces, RANK_STEP, now);
    add_loss(&pieces, RANK_LOSS + 1, "train_loss", 4,
             loss ? loss : json_object_get(metrics, "train_loss"));
    if (validated)
        add_validation(&pieces, metrics);
    add(&pieces, RANK_TIME, "%s", cli_clock((double)(time - p->began) / SECOND, clock));
    print_line(p, &pieces, time);
}

/* The rate is smoothed over some seconds; time of a validation in between does not
 * count. */
static void measure_rate(cli_progress_t *p, const pl_progress_t *now, int64_t time)
{
    if (!p->rate_time || now->epoch != p->rate_epoch || now->batch < p->rate_batch) {
        p->rate_time = time;
        p->rate_batch = now->batch;
        p->rate_epoch = now->epoch;
    }
    if (time - p->rate_time < RATE_WINDOW)
        return;
    double newest = (double)(now->batch - p->rate_batch) * SECOND
                    / (double)(time - p->rate_time);
    p->rate = p->rate > 0 ? 0.7 * p->rate + 0.3 * newest : newest;
    p->rate_time = time;
    p->rate_batch = now->batch;
}

/* ---- entry points ---- */

void cli_progress_begin(cli_progress_t *p, const pl_options_t *options)
{
    char *wanted = pl_options_get(options, "trainer.enable_progress_bar"),
         *fast = pl_options_get(options, "trainer.fast_dev_run"),
         *epochs = pl_options_get(options, "trainer.max_epochs"), *end = NULL;
    const long long max = epochs ? strtoll(epochs, &end, 10) : 0;
    const bool is_fast = fast && strcmp(fast, "false") && strcmp(fast, "0"),
               is_number = end && end != epochs && !*end;
    *p = (cli_progress_t){.bar = cli_has_live_line()
                                 && !(wanted && !strcmp(wanted, "false")),
                          .max_epochs = is_fast     ? 1
                                        : is_number ? max
                                                    : 0};
    pl_text_free(wanted);
    pl_text_free(fast);
    pl_text_free(epochs);
}

void cli_progress_show(cli_progress_t *p, const pl_progress_t *now)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t time = t.tv_sec * SECOND + t.tv_nsec;
    const bool train = !strcmp(now->event, "train"),
               result = !strcmp(now->event, "validated") || !strcmp(now->event, "epoch");
    /* The time of a run that was started again counts from its restart, as in its
     * result. */
    if (!p->began || now->global_step < p->newest_step) {
        p->began = p->reported = time;
        p->first_step = now->global_step;
    }
    p->newest_step = now->global_step;
    if (train)
        measure_rate(p, now, time);
    if (!result && (p->bar ? time - p->drawn < REDRAW : time - p->reported < PLAIN_EVERY))
        return;
    json_t *metrics = json_loads(now->metrics ? now->metrics : "", JSON_REJECT_DUPLICATES,
                                 NULL);
    if (result)
        show_result(p, now, metrics, time);
    else if (train)
        show_train(p, now, metrics, time);
    else if (strcmp(now->event, "text"))
        show_other(p, now, time);
    if (!result)
        p->drawn = time;
    json_decref(metrics);
}
