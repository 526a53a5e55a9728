/* explain.c - paceline explain: why a run ended and how its time was spent */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/session.h"

enum {
    OPEN_SHOWN = 24,
    TOP = 6,
    COLUMN = 16,                                            /* columns before a text */
    TABLE = 80,                                             /* columns of the ranks' */
};

static const char *times(long long count, const char *thing, char text[64])
{
    snprintf(text, 64, "%lld %s%s", count, thing, cli_plural((uint64_t)count));
    return text;
}

/* Prints an entry that begins at column `at`, in lines as wide as the terminal. */
PL_PRINTF(3, 4) static void say(int at, int indent, const char *format, ...)
{
    static char text[1 << 14];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cli_wrap(text, at, indent);
}

/* "rank 1 strategy.ddp"; the actors of the engine have no rank. */
static const char *actor(const json_t *entry, const char *key, char text[96])
{
    const long long rank = cli_get_count(entry, "rank");
    if (rank >= 0)
        snprintf(text, 96, "rank %lld %s", rank, cli_get_text(entry, key));
    else
        snprintf(text, 96, "%s", cli_get_text(entry, key));
    return text;
}

/* ---- the runs ---- */

/* The beginning of the sentence about the end. */
static const char *ending_of(const char *status)
{
    static const struct {
        const char *status, *text;
    } endings[] = {{"ok", "The run ended normally"},
                   {"stopped", "The run was stopped"},
                   {"failed", "The run failed"},
                   {"cut off", "The journal ends while the run is active"},
                   {"none", "No run has started"}};
    for (size_t k = 0; k < sizeof endings / sizeof *endings; k++)
        if (!strcmp(endings[k].status, status))
            return endings[k].text;
    return status;
}

static void show_runs(const json_t *answer)
{
    size_t k;
    char steps[64];
    const json_t *entry;
    if (cli_get_count(answer, "runs") < 2)
        return;
    say(0, 0, "%lld runs; this is about run %lld; --run N chooses another",
        cli_get_count(answer, "runs"), cli_get_count(answer, "run"));
    json_array_foreach(json_object_get(answer, "list"), k, entry)
        say(0, 2, "run %lld: %s, %.3f s to %.3f s, %s%s%s", cli_get_count(entry, "run"),
            cli_get_text(entry, "status"), cli_get_number(entry, "began"),
            cli_get_number(entry, "time"),
            times(cli_get_count(entry, "global_step"), "step", steps),
            *cli_get_text(entry, "reason") ? ": " : "", cli_get_text(entry, "reason"));
    cli_print("\n");
}

/* ---- why it ended ---- */

/* The calls that failed, from the first to the last. The code of an error is shown
 * where it differs from the code before. */
static void show_chain(const json_t *chain)
{
    size_t k;
    char name[96];
    const json_t *entry;
    const char *code = "";
    json_array_foreach(chain, k, entry) {
        const bool is_new = strcmp(code, cli_get_text(entry, "code")) != 0;
        code = cli_get_text(entry, "code");
        say(0, k ? 4 : 2, "%s%s, called by %s for %s, failed at %.3f s%s%s",
            !k                                                ? ""
            : json_is_true(json_object_get(entry, "certain")) ? "because "
                                                              : "probably because ",
            actor(entry, "actor", name), cli_get_text(entry, "asked_by"),
            cli_get_text(entry, "call"), cli_get_number(entry, "time"),
            is_new ? ": " : "", is_new ? code : "");
    }
}

static void show_commands(const json_t *commands)
{
    size_t k;
    char value[64];
    const json_t *entry;
    if (json_array_size(commands))
        cli_print("\nCommands\n");
    json_array_foreach(commands, k, entry) {
        const json_t *done = json_object_get(entry, "done");
        const char *command = cli_get_text(entry, "command"),
                   *text = cli_get_text(entry, "text"),
                   *error = cli_get_text(entry, "error");
        const bool sets = !strcmp(command, "set_lr");
        snprintf(value, sizeof value, " %g%s", cli_get_number(entry, "value"),
                 json_is_true(json_object_get(entry, "is_factor")) ? " times" : "");
        say(0, 2, "%.3f s: %s%s%s%s%s, %s at step %lld%s%s",
            cli_get_number(entry, "asked"), command, sets ? value : "", *text ? " (" : "",
            text, *text ? ")" : "",
            json_is_null(done) ? "not answered"
            : *error           ? "refused"
                               : "done",
            cli_get_count(entry, "global_step"),
            *cli_get_text(entry, "checkpoint") ? ": " : "",
            cli_get_text(entry, "checkpoint"));
        if (*error)
            say(0, 4, "%s", error);
    }
}

static void show_end(const json_t *answer)
{
    const json_t *end = json_object_get(answer, "end");
    const json_t *entry;
    json_t *rank;
    size_t i;
    const char *reason = cli_get_text(end, "reason");
    char steps[64];
    cli_print("Why it ended\n");
    say(0, 2, "%s at %.3f s, after %s%s%s", ending_of(cli_get_text(end, "status")),
        cli_get_number(end, "time"),
        times(cli_get_count(end, "global_step"), "step", steps), *reason ? ": " : ".",
        reason);
    show_chain(json_object_get(end, "chain"));
    json_array_foreach(json_object_get(end, "events"), i, entry)
        say(0, 2, "%.3f s: rank %lld %s (%s; process %lld on %s, step %lld)%s",
            cli_get_number(entry, "time"), cli_get_count(entry, "rank"),
            cli_get_text(entry, "event"), cli_get_text(entry, "cause"),
            cli_get_count(entry, "process"), cli_get_text(entry, "host"),
            cli_get_count(entry, "global_step"),
            json_is_true(json_object_get(entry, "recovered")) ? "; the run continued"
                                                              : "");
    if (!json_is_true(json_object_get(answer, "whole")))
        say(0, 2, "%s", cli_get_text(answer, "damage"));
    if (cli_get_count(answer, "missing"))
        say(0, 2, "%s missing: the following may be inexact.",
            times(cli_get_count(answer, "missing"), "message", steps));
    json_array_foreach(json_object_get(answer, "unsure"), i, rank)
        say(0, 2, "Messages of rank %lld may be missing: its process died.",
            (long long)json_integer_value(rank));
    if (cli_get_count(answer, "passed_over"))
        say(0, 2, "%s of another version skipped.",
            times(cli_get_count(answer, "passed_over"), "message", steps));
    show_commands(json_object_get(end, "commands"));
}

/* ---- in one sentence ---- */

static const char *const stages[] = {"data",      "forward", "backward", "collective",
                                     "optimizer", "engine",  "paused"};
enum { STAGES = sizeof stages / sizeof *stages, PAUSED = STAGES - 1 };

/* The stage that took most of the time of the steps, and its share. */
static const char *largest_stage(const json_t *answer, double *share)
{
    json_t *rank;
    size_t i;
    double spent[STAGES] = {0}, sum = 0;
    int max = 0;
    const json_t *ranks = json_object_get(json_object_get(answer, "times"), "ranks");
    json_array_foreach(ranks, i, rank)
        for (int k = 0; k < PAUSED; k++)
            spent[k] += cli_get_number(rank, stages[k]);
    for (int k = 0; k < PAUSED; k++) {
        sum += spent[k];
        max = spent[k] > spent[max] ? k : max;
    }
    *share = sum > 0 ? spent[max] / sum : 0;
    return stages[max];
}

enum { STEPS, EVALUATION, CHECKPOINTS, REST, KINDS };
static const char *const kind_names[KINDS] = {"training steps",
                                              "validation and prediction",
                                              "writing checkpoints", "start and end"};

static double sum_of(const json_t *work);

/* Seconds of each kind, of the rank with most of it; kinds may overlap. */
static void timings_find(const json_t *answer, double spent[KINDS], double *all)
{
    json_t *entry;
    size_t i;
    double writing[2] = {0};
    const json_t *times_of = json_object_get(answer, "times");
    spent[STEPS] = spent[EVALUATION] = spent[CHECKPOINTS] = 0;
    *all = cli_get_number(answer, "seconds") - cli_get_number(times_of, "paused");
    json_array_foreach(json_object_get(times_of, "ranks"), i, entry) {
        const json_t *evaluation = json_object_get(entry, "evaluation");
        spent[STEPS] = fmax(spent[STEPS],
                            sum_of(entry) - cli_get_number(entry, "paused"));
        spent[EVALUATION] =
            fmax(spent[EVALUATION],
                 sum_of(evaluation) - cli_get_number(evaluation, "paused"));
    }
    json_array_foreach(json_object_get(times_of, "waits"), i, entry) {
        const char *call = cli_get_text(entry, "call");
        const int which = !strcmp(call, "write_weights");
        if (which || !strcmp(call, "write_checkpoint"))
            writing[which] = fmax(writing[which], cli_get_number(entry, "seconds"));
    }
    spent[CHECKPOINTS] = writing[0] + writing[1];
    spent[REST] = *all - spent[STEPS] - spent[EVALUATION] - spent[CHECKPOINTS];
}

/* "; training steps took 80 % of 12.0 s, most of it backward", or "". */
static const char *longest_kind(const json_t *answer, char text[160])
{
    double spent[KINDS], all, share;
    const char *stage = largest_stage(answer, &share);
    int max = 0;
    timings_find(answer, spent, &all);
    for (int k = 0; k < KINDS; k++)
        max = spent[k] > spent[max] ? k : max;
    text[0] = '\0';
    if (!(all > 0) || !(share > 0))
        return text;
    const double percent = 100 * spent[max] / all;
    int length = snprintf(text, 160, "; %s took %.0f %% of %.*f s", kind_names[max],
                          percent < 100 ? percent : 100, all < 1000 ? 3 : 1, all);
    if (max == STEPS)
        snprintf(text + length, 160 - (size_t)length, ", and %s %.0f %% of a step", stage,
                 100 * share);
    return text;
}

static void show_sentence(const json_t *answer)
{
    const json_t *end = json_object_get(answer, "end"), *death = NULL, *entry;
    const char *status = cli_get_text(end, "status"),
               *reason = cli_get_text(end, "reason");
    const long long step = cli_get_count(end, "global_step");
    char steps[64], took[160], where[64] = "before its first step ended";
    int first_line = (int)strcspn(reason, "\n");            /* without its full stop */
    size_t k;
    if (first_line && reason[first_line - 1] == '.')
        first_line--;
    json_array_foreach(json_object_get(end, "events"), k, entry)
        if (!death && !strcmp(cli_get_text(entry, "event"), "died")
            && !json_is_true(json_object_get(entry, "recovered")))
            death = entry;                              /* the death that ended the run */
    if (step > 0)
        snprintf(where, sizeof where, "at step %lld", step + 1);
    if (!strcmp(status, "none"))
        say(0, 0, "The journal has no run.");
    else if (!strcmp(status, "failed") && death)
        say(0, 0, "The run failed %s: rank %lld %s.", where, cli_get_count(death, "rank"),
            cli_get_text(death, "cause"));
    else if (!strcmp(status, "failed"))
        say(0, 0, "The run failed %s: %.*s.", where, first_line, reason);
    else if (!strcmp(status, "cut off"))
        say(0, 0, "The journal ends while the run is active, after %s.",
            times(step, "step", steps));
    else
        say(0, 0, "The run %s after %s%s.",
            !strcmp(status, "ok") ? "ended normally" : "was stopped",
            times(step, "step", steps), longest_kind(answer, took));
    cli_print("\n");
}

/* ---- open calls at the end, and waits ---- */

static void show_open(const json_t *then)
{
    const json_t *open = json_object_get(then, "open"), *entry;
    size_t k;
    char name[96];
    cli_print("\nOpen calls at %.3f s\n", cli_get_number(then, "time"));
    if (!json_array_size(open))
        cli_print("  none\n");
    json_array_foreach(open, k, entry) {
        if (k == OPEN_SHOWN && json_array_size(open) > OPEN_SHOWN + 1) {
            cli_print("  and %zu more: --json prints all\n",
                      json_array_size(open) - OPEN_SHOWN);
            break;
        }
        say(0, 2 + 2 * (int)cli_get_count(entry, "depth"), "%s: %s, for %s, for %.3f s",
            actor(entry, "actor", name), cli_get_text(entry, "call"),
            cli_get_text(entry, "for"), cli_get_number(entry, "seconds"));
    }
}

static void show_waits(const json_t *answer)
{
    const json_t *waits = json_object_get(json_object_get(answer, "times"), "waits");
    size_t k;
    char name[96], count[64];
    const json_t *entry;
    cli_print("\nWaits for other actors\n");
    say(0, 2,
        "In %.3f s. Of nested waits only the innermost counts; simultaneous waits of one "
        "actor count once; waits of different actors overlap.",
        cli_get_number(answer, "seconds"));
    json_array_foreach(waits, k, entry) {
        if (k == TOP)
            break;
        cli_print("  %10.3f s  ", cli_get_number(entry, "seconds"));
        say(COLUMN, COLUMN, "%s for %s: %s, %s, %.3f s at most",
            cli_get_text(entry, "caller"), actor(entry, "for", name),
            cli_get_text(entry, "call"),
            times(cli_get_count(entry, "calls"), "time", count),
            cli_get_number(entry, "longest"));
    }
}

/* ---- the time ---- */

/* Columns of a stage: its heading, or 100 %. */
static int width_of(int stage)
{
    const int width = (int)strlen(stages[stage]);
    return width < 6 ? 6 : width;
}

static double sum_of(const json_t *work)
{
    double sum = 0;
    for (int k = 0; k < STAGES; k++)
        sum += cli_get_number(work, stages[k]);
    return sum;
}

/* A row of the table, or a sentence where the terminal is too narrow for it. */
static void show_rank(long long rank, const json_t *work)
{
    const double sum = sum_of(work);
    double share[STAGES];
    char text[256] = "";
    for (int k = 0; k < STAGES; k++)
        share[k] = sum > 0 ? 100 * cli_get_number(work, stages[k]) / sum : 0;
    if (cli_width() >= TABLE) {
        cli_print("  rank %-4lld", rank);
        for (int k = 0; k < STAGES; k++)
            cli_print(" %*.1f%%", width_of(k) - 1, share[k]);
        cli_print(" %7.*f s\n", sum < 1000 ? 3 : 1, sum);
        return;
    }
    for (int k = 0; k < STAGES; k++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, " %s %.1f%%,", stages[k], share[k]);
    }
    say(0, 2, "rank %lld:%s of %.*f s", rank, text, sum < 1000 ? 3 : 1, sum);
}

/* The table of the ranks that did any such work; key: the member of a rank with it
 * [the rank itself]. */
static void show_work(const json_t *ranks, const char *key, const char *title)
{
    size_t k;
    const json_t *rank, *work;
    bool has_title = false;
    json_array_foreach(ranks, k, rank) {
        work = key ? json_object_get(rank, key) : rank;
        if (!(sum_of(work) > 0))
            continue;
        if (!has_title) {
            cli_print("\n");
            say(0, 0, "%s", title);
        }
        if (!has_title && cli_width() >= TABLE) {
            cli_print("  %-9s", "");
            for (int stage = 0; stage < STAGES; stage++)
                cli_print(" %*s", width_of(stage), stages[stage]);
            cli_print(" %9s\n", "all");
        }
        has_title = true;
        show_rank(cli_get_count(rank, "rank"), work);
    }
}

/* The shares of which the first sentence names the largest. */
static void show_shares(const json_t *answer)
{
    double spent[KINDS], all;
    timings_find(answer, spent, &all);
    if (!(all > 0))
        return;
    cli_print("\nTime of the run\n");
    for (int k = 0; k < KINDS; k++)
        if (spent[k] > 0) {
            cli_print("  %9.3f s  %3.0f %%  ", spent[k], 100 * fmin(1, spent[k] / all));
            cli_wrap(kind_names[k], 22, 22);
        }
}

static void show_times(const json_t *answer)
{
    const json_t *times_of = json_object_get(answer, "times"), *entry,
                 *ranks = json_object_get(times_of, "ranks");
    size_t k;
    char name[96], count[64];
    show_shares(answer);
    show_work(ranks, NULL, "Time of the training steps, by stage");
    if (cli_get_count(times_of, "slowest") >= 0)
        say(0, 2, "The slowest is rank %lld: the others wait for it.",
            cli_get_count(times_of, "slowest"));
    show_work(ranks, "evaluation", "Time of validation, test and prediction, by stage");
    if (cli_get_number(times_of, "paused") > 0)
        say(0, 2,
            "The run was paused for %.3f s of %.3f s; the following does not count that.",
            cli_get_number(times_of, "paused"), cli_get_number(answer, "seconds"));
    cli_print("\n");
    say(0, 0, "Time of the actors, without waits for other actors");
    json_array_foreach(json_object_get(times_of, "actors"), k, entry) {
        if (k == TOP)
            break;
        cli_print("  %10.3f s  ", cli_get_number(entry, "seconds"));
        say(COLUMN, COLUMN, "%s, %s", actor(entry, "actor", name),
            times(cli_get_count(entry, "calls"), "call", count));
    }
}

/* The kinds of launches with most of the bytes that a replay reads and writes. */
static void show_kinds(json_t *kinds, double bytes)
{
    char text[(TOP + 1) * 64] = "";
    size_t at = 0;
    double rest = 100;
    for (int shown = 0; shown < TOP && json_array_size(kinds); shown++) {
        size_t max = 0, k;
        const json_t *kind;
        json_array_foreach(kinds, k, kind)
            if (cli_get_number(kind, "bytes")
                > cli_get_number(json_array_get(kinds, max), "bytes"))
                max = k;
        kind = json_array_get(kinds, max);
        const double share = bytes > 0 ? 100 * cli_get_number(kind, "bytes") / bytes : 0;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld %s (%.0f %%%s)",
                               shown ? ", " : "", cli_get_count(kind, "launches"),
                               cli_get_text(kind, "name"), share,
                               shown ? "" : " of the bytes");
        rest -= share;
        json_array_remove(kinds, max);
    }
    if (json_array_size(kinds))
        snprintf(text + at, sizeof text - at, ", and %zu more kinds (%.0f %%)",
                 json_array_size(kinds), rest > 0 ? rest : 0);
    say(0, 4, "%s", text);
}

static void show_plans(const json_t *answer)
{
    const json_t *plans = json_object_get(answer, "plans"), *plan;
    size_t k;
    char moved[24], arena[24];
    if (!json_array_size(plans))
        return;
    cli_print("\n");
    say(0, 0,
        "Plans of the device: launches of a replay, with the bytes that they read and "
        "write, by kind");
    json_array_foreach(plans, k, plan) {
        const long long from_cache = cli_get_count(plan, "from_cache"),
                        compiled = cli_get_count(plan, "pieces") - from_cache;
        char batch[40] = "", pieces[64], kept[48] = "";
        if (cli_get_count(plan, "samples"))
            snprintf(batch, sizeof batch, ", batches of %lld",
                     cli_get_count(plan, "samples"));
        if (cli_get_count(plan, "stored"))
            snprintf(kept, sizeof kept, ", %lld from the cache", from_cache);
        say(0, 2, "%s%s: %lld launch%s, %s, values %s; %s compiled in %.1f s%s",
            cli_get_text(plan, "name"), batch, cli_get_count(plan, "launches"),
            cli_get_count(plan, "launches") == 1 ? "" : "es",
            cli_bytes(cli_get_number(plan, "bytes"), moved),
            cli_bytes(cli_get_number(plan, "arena"), arena),
            times(compiled, "piece", pieces), cli_get_number(plan, "seconds"), kept);
        show_kinds(json_object_get(plan, "kinds"), cli_get_number(plan, "bytes"));
    }
}

int cli_explain(const cli_explain_t *arguments)
{
    pl_error_t err = {0};
    char *text = pl_journal_explain_run(arguments->journal, (uint64_t)arguments->run,
                                        &err);
    json_t *answer = text ? json_loads(text, 0, NULL) : NULL;
    pl_text_free(text);
    if (!answer) {
        cli_failure(&err, arguments->json);
        return CLI_WRONG;
    }
    if (arguments->json) {
        cli_print_json(answer);
        return CLI_DONE;
    }
    show_sentence(answer);
    show_runs(answer);
    show_end(answer);
    show_open(json_object_get(answer, "then"));
    show_waits(answer);
    show_times(answer);
    show_plans(answer);
    json_decref(answer);
    return CLI_DONE;
}
