/* explain.c - paceline explain: what a journal says of its run, for people */
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum { OPEN_SHOWN = 24, TOP = 6 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static long long count_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

/* "rank 1 strategy.ddp"; the engine's own actors are of no rank. */
static void print_actor(const json_t *entry, const char *key)
{
    const long long rank = count_of(entry, "rank");
    if (rank >= 0)
        cli_print("rank %lld %s", rank, text_of(entry, key));
    else
        cli_print("%s", text_of(entry, key));
}

/* ---- why it ended ---- */

static void show_chain(const json_t *chain)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(chain, k, entry) {
        cli_print(k ? "    because " : "  ");
        print_actor(entry, "actor");
        cli_print(", asked by %s to %s, failed at %.3f s: %s\n",
                  text_of(entry, "asked_by"), text_of(entry, "call"),
                  number_of(entry, "time"), text_of(entry, "code"));
    }
}

static void show_events(const json_t *events)
{
    size_t k;
    const json_t *entry;
    json_array_foreach(events, k, entry)
        cli_print("  %.3f s: rank %lld %s (%s; process %lld on %s, step %lld)\n",
                  number_of(entry, "time"), count_of(entry, "rank"),
                  text_of(entry, "event"), text_of(entry, "cause"),
                  count_of(entry, "process"), text_of(entry, "host"),
                  count_of(entry, "global_step"));
}

static void show_end(const json_t *answer)
{
    static const struct {
        const char *status, *text;
    } ways[] = {{"ok", "It ended well"},
                {"stopped", "It was stopped"},
                {"failed", "It failed"},
                {"cut off", "The journal ends while it was under way"},
                {"none", "No run was begun"}};
    const json_t *end = json_object_get(answer, "end");
    const char *status = text_of(end, "status"), *reason = text_of(end, "reason");
    cli_print("Why it ended\n");
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
        if (!strcmp(ways[k].status, status))
            cli_print("  %s at %.3f s, after %lld steps%s%s\n", ways[k].text,
                      number_of(end, "time"), count_of(end, "global_step"),
                      *reason ? ": " : ".", reason);
    show_chain(json_object_get(end, "chain"));
    show_events(json_object_get(end, "events"));
    if (!json_is_true(json_object_get(answer, "whole")))
        cli_print("  %s\n", text_of(answer, "damage"));
    if (count_of(answer, "missing"))
        cli_print("  %lld messages are missing: what follows may be inexact.\n",
                  count_of(answer, "missing"));
    if (count_of(answer, "passed_over"))
        cli_print("  %lld messages of another version were passed over.\n",
                  count_of(answer, "passed_over"));
}

/* ---- what each was doing then, and who waited for whom ---- */

static void show_open(const json_t *then)
{
    const json_t *open = json_object_get(then, "open"), *entry;
    size_t k;
    cli_print("\nWhat was under way at %.3f s\n", number_of(then, "time"));
    if (!json_array_size(open))
        cli_print("  nothing\n");
    json_array_foreach(open, k, entry) {
        if (k == OPEN_SHOWN && json_array_size(open) > OPEN_SHOWN + 1) {
            cli_print("  and %zu more: --json has all\n",
                      json_array_size(open) - OPEN_SHOWN);
            break;
        }
        cli_print("  %*s", (int)(2 * count_of(entry, "depth")), "");
        print_actor(entry, "actor");
        cli_print(": %s, for %s, for %.3f s\n", text_of(entry, "call"),
                  text_of(entry, "for"), number_of(entry, "seconds"));
    }
}

static void show_waits(const json_t *waits)
{
    size_t k;
    const json_t *entry;
    cli_print("\nWho waited for whom\n");
    json_array_foreach(waits, k, entry) {
        if (k == TOP)
            break;
        cli_print("  %10.3f s  %s for ", number_of(entry, "seconds"),
                  text_of(entry, "who"));
        print_actor(entry, "for");
        cli_print(": %s, %lld times, %.3f s at most\n", text_of(entry, "call"),
                  count_of(entry, "calls"), number_of(entry, "longest"));
    }
}

/* ---- where the time went ---- */

static const char *const parts[] = {"data",       "forward",   "backward",
                                    "collective", "optimizer", "engine"};
enum { PARTS = sizeof parts / sizeof *parts };

static void show_rank(const json_t *rank)
{
    double sum = 0;
    for (int k = 0; k < PARTS; k++)
        sum += number_of(rank, parts[k]);
    cli_print("  rank %-4lld", count_of(rank, "rank"));
    for (int k = 0; k < PARTS; k++)
        cli_print("  %10.1f %%", sum > 0 ? 100 * number_of(rank, parts[k]) / sum : 0);
    cli_print("  %10.3f s\n", sum);
}

static void show_times(const json_t *times)
{
    const json_t *ranks = json_object_get(times, "ranks"), *entry;
    size_t k;
    cli_print("\nWhere the time of its steps went\n  %-9s", "");
    for (int part = 0; part < PARTS; part++)
        cli_print("  %12s", parts[part]);
    cli_print("  %12s\n", "all");
    json_array_foreach(ranks, k, entry)
        show_rank(entry);
    if (count_of(times, "slowest") >= 0)
        cli_print("  The slowest is rank %lld: the others wait for it.\n",
                  count_of(times, "slowest"));
    cli_print("\nTime of actors' own\n");
    json_array_foreach(json_object_get(times, "actors"), k, entry) {
        if (k == TOP)
            break;
        cli_print("  %10.3f s  ", number_of(entry, "seconds"));
        print_actor(entry, "actor");
        cli_print(", %lld calls\n", count_of(entry, "calls"));
    }
}

int cli_explain(const cli_explain_t *arguments)
{
    pl_error_t err = {0};
    char *text = pl_journal_explain(arguments->journal, &err);
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
    show_end(answer);
    show_open(json_object_get(answer, "then"));
    show_waits(json_object_get(json_object_get(answer, "times"), "waits"));
    show_times(json_object_get(answer, "times"));
    json_decref(answer);
    return CLI_DONE;
}
