/* children.c - the ranks of one node, for one attempt: children that are told their place
 *
 * What they do is theirs; they find each other by what they are told here.  Only what was
 * started here is ever sent a signal. */
#include "actors/launchers/children.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/launchers/last_words.h"
#include "base/alloc.h"
#include "base/error.h"
#include "runtime/process.h"

enum { VARIABLE = PATH_MAX + 64 };

typedef struct child {
    pl_children_t *all;
    int rank;
    pl_process_t *process;                                  /* [has ended] */
} child_t;

struct pl_children {
    pl_children_spec_t spec;
    int living;
    int reported;                            /* status of the failure that was; 0: none */
    uint64_t sent;                           /* signals, a bit each */
    child_t child[];                         /* [count] */
};

/* ---- the end ---- */

/* What a shell would say. */
static int status_of(const pl_death_t *death)
{
    return death->signal ? 128 + death->signal : death->is_known ? death->status : 0;
}

/* A shell says so of what it has started.  Who was asked to end is not started again. */
static bool may_pass(int status)
{
    const int signal = status - 128;
    return status == PL_STATUS_LOST
           || (signal > 0 && signal < NSIG && signal != SIGINT && signal != SIGTERM
               && signal != SIGHUP);
}

/* Who was sent a signal and ends by it has not failed before the others. */
static bool is_cause(const pl_children_t *all, int status)
{
    const int signal = status - 128;
    return status != PL_STATUS_LOST
           && (signal <= 0 || signal >= 64 || !(all->sent >> signal & 1));
}

static bool is_news(const pl_children_t *all, int status)
{
    return !all->reported || (all->reported == PL_STATUS_LOST && is_cause(all, status));
}

static void tell_failed(pl_children_t *all, const child_t *child, const pl_death_t *death)
{
    char text[PL_DEATH_TEXT];
    pl_failure_t failure = {.status = status_of(death),
                            .may_pass = may_pass(status_of(death))};
    pl_fail(&failure.error, PL_EDIED, "rank %d (process %d) %s", child->rank,
            pl_process_id(child->process), pl_death_text(death, text));
    pl_last_words(child->process, all->spec.on_line != NULL, &failure.error);
    all->reported = failure.status;
    all->spec.on_failed(all->spec.user, &failure);
}

static void one_left(pl_children_t *all, const child_t *child)
{
    pl_error_t said;
    pl_fail(&said, PL_EDIED, "rank %d (process %d) exited with status 0 before it joined",
            child->rank, pl_process_id(child->process));
    pl_last_words(child->process, false, &said);
    all->spec.on_left(all->spec.user, child->rank, said.text);
}

static void child_died(void *user, const pl_death_t *death)
{
    child_t *child = user;
    pl_children_t *all = child->all;
    const int status = status_of(death);
    if (!status)
        one_left(all, child);
    else if (is_news(all, status))
        tell_failed(all, child, death);
    pl_process_free(child->process);
    child->process = NULL;
    if (--all->living == 0)
        all->spec.on_end(all->spec.user);
}

static void child_line(void *user, const char *line)
{
    const child_t *child = user;
    if (child->all->spec.on_line)
        child->all->spec.on_line(child->all->spec.user, child->rank, line);
}

void pl_children_signal(pl_children_t *all, int number)
{
    all->sent |= UINT64_C(1) << number;
    for (int k = 0; k < all->spec.count; k++)
        if (all->child[k].process)
            pl_process_signal(all->child[k].process, number);
}

/* ---- what ranks are told ---- */

typedef char variable_t[VARIABLE];

/* Of a text that is not there, its name alone, which takes it out of the environment. */
static void texts_put(variable_t *at, const pl_children_spec_t *s)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"PACELINE_ENDPOINT", s->endpoint},
                 {"PACELINE_JOB_KEY_FILE", s->job_key},
                 {"PACELINE_RUN_DIR_INDEX", s->run_dir_index},
                 {"PACELINE_FINISHED_RANKS", s->finished_ranks},
                 {"PACELINE_RUN_ID", s->job}};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        snprintf(at[k], VARIABLE, *texts[k].text ? "%s=%s" : "%s", texts[k].name,
                 texts[k].text);
}

static int child_start(child_t *child, int local_rank, struct event_base *loop,
                       pl_error_t *err)
{
    enum { NUMBERS = 6, VARIABLES = NUMBERS + 5 };
    const pl_children_spec_t *s = &child->all->spec;
    const struct {
        const char *name;
        int number;
    } numbers[NUMBERS] = {{"PACELINE_RANK", child->rank},
                          {"PACELINE_WORLD_SIZE", s->nodes * s->count},
                          {"PACELINE_LOCAL_RANK", local_rank},
                          {"PACELINE_LOCAL_WORLD_SIZE", s->count},
                          {"PACELINE_NODE_RANK", s->node_rank},
                          {"PACELINE_RESTART_COUNT", (int)s->attempt - 1}};
    variable_t *text = pl_alloc_array(VARIABLES, sizeof *text);
    const char *variable[VARIABLES + 1] = {NULL};
    if (!text)
        return pl_no_memory(err);
    for (int k = 0; k < NUMBERS; k++)
        snprintf(text[k], VARIABLE, "%s=%d", numbers[k].name, numbers[k].number);
    texts_put(text + NUMBERS, s);
    for (int k = 0; k < VARIABLES; k++)
        variable[k] = text[k];
    const pl_process_spec_t spec = {.argv = s->argv,
                                    .environment = variable,
                                    .on_line = child_line,
                                    .on_death = child_died,
                                    .user = child};
    child->process = pl_process_start(&spec, loop, err);
    pl_free(text);
    return child->process ? PL_OK : pl_error_prefix(err, "rank %d", child->rank);
}

/* ---- life ---- */

pl_children_t *pl_children_start(const pl_children_spec_t *spec, struct event_base *loop,
                                 pl_error_t *err)
{
    pl_children_t *all = pl_alloc(sizeof *all + (size_t)spec->count * sizeof *all->child);
    int code = all ? PL_OK : pl_no_memory(err);
    if (all)
        all->spec = *spec;
    for (int k = 0; k < spec->count && code == PL_OK; k++) {
        all->child[k] = (child_t){.all = all, .rank = spec->node_rank * spec->count + k};
        code = child_start(&all->child[k], k, loop, err);
        all->living += code == PL_OK;
    }
    if (code == PL_OK)
        return all;
    pl_children_free(all);
    return NULL;
}

void pl_children_free(pl_children_t *all)
{
    if (!all)
        return;
    for (int k = 0; k < all->spec.count; k++)
        pl_process_free(all->child[k].process);
    pl_free(all);
}
