/* request.c - what a run asks for, held against what there is, before anything starts
 *
 * Each option by itself was judged where the run was read.  Here is what shows only when
 * it is known what is to be done, by which parts and where. */
#include "actors/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/writer.h"
#include "actors/launchers/environment.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/run_check.h"
#include "base/stages.h"
#include "base/utf8.h"
#include "runtime/descriptors.h"

/* Where nobody says how ranks are started, somebody may have started them. */
const pl_actor_ops_t *pl_request_launcher(const pl_job_t *job, pl_error_t *err)
{
    pl_environment_t environment;
    const char *name = pl_options_choice(job->options, "trainer.launcher", "");
    if (*name)
        return pl_part_find("launcher", name, err);
    if (pl_environment_read(&environment, getenv, err) != PL_OK)
        return NULL;
    return pl_part_find("launcher", environment.source ? "external" : "inline", err);
}

/* What the environment says wrongly is told where it is checked. */
int pl_request_ranks(const pl_job_t *job)
{
    const pl_actor_ops_t *launcher = pl_request_launcher(job, NULL);
    pl_environment_t environment;
    if (launcher && launcher->joins
        && pl_environment_read(&environment, getenv, NULL) == PL_OK && environment.source)
        return environment.world_size;
    return job->prompt || job->trainer->devices.most <= 1
               ? 1
               : (int)job->trainer->devices.most;
}

const pl_actor_ops_t *pl_request_strategy(const pl_job_t *job, pl_error_t *err)
{
    const char *usual = pl_trainer_is_elastic(job->trainer) ? "elastic"
                        : pl_request_ranks(job) > 1         ? "ddp"
                                                            : "single",
               *name = pl_options_choice(job->options, "trainer.strategy", usual);
    return pl_part_find("strategy", name, err);
}

/* ---- what was started ---- */

/* A number of the run against that of who has started the ranks. */
static int told_check(const pl_job_t *job, const char *key, pl_span_t wanted, int there,
                      const char *source, pl_error_t *err)
{
    char path[32];
    const bool is_node = strcmp(key, "devices") != 0;
    const char *what = is_node ? "node" : "rank";
    char given[PL_JSON_SHOWN];
    if (!wanted.most || !there || (wanted.least <= there && there <= wanted.most))
        return PL_OK;
    snprintf(path, sizeof path, "trainer.%s", key);
    return pl_options_fail(err, PL_EINVAL, job->options, path,
                           "\"%s\" is %s, but %s has started %d %s%s%s: leave it out, "
                           "or start as many",
                           path,
                           pl_json_show(pl_options_value(job->options, path), given),
                           source, there, what, there == 1 ? "" : "s", is_node ? "" : " on each node");
}

static int world_check(const pl_job_t *job, const pl_actor_ops_t *launcher,
                       pl_error_t *err)
{
    const pl_trainer_options_t *t = job->trainer;
    pl_environment_t e;
    if (!launcher->joins && t->num_nodes > 1)
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.num_nodes",
                               "\"trainer.num_nodes\" is %lld, but launcher \"%s\" "
                               "works on one: start the program by paceline launch on "
                               "each node",
                               (long long)t->num_nodes, launcher->name);
    int code = pl_environment_read(&e, getenv, err);
    if (code != PL_OK || !e.source)
        return launcher->joins ? code : PL_OK;
    if (!launcher->joins && e.world_size > 1)
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.launcher",
                               "%s has started %d ranks, and launcher \"%s\" would start "
                               "more in each: leave \"trainer.launcher\" out",
                               e.source, e.world_size, launcher->name);
    if (!launcher->joins)
        return PL_OK;
    if (job->prompt && e.world_size > 1)
        return pl_fail(err, PL_EINVAL,
                       "%s has started %d ranks, but writing on from a prompt takes one: "
                       "start one process, such as by the program alone",
                       e.source, e.world_size);
    const int local = e.local_world_size;
    if (!local && e.world_size > 1 && pl_options_device(job->options, 0) >= 0)
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.devices",
                               "\"trainer.devices\" is a list, but %s does not say how "
                               "many of the %d ranks are on each node: leave "
                               "\"trainer.devices\" out",
                               e.source, e.world_size);
    code = told_check(job, "devices", t->devices, local, e.source, err);
    return code == PL_OK
               ? told_check(job, "num_nodes", (pl_span_t){t->num_nodes, t->num_nodes},
                            local ? (e.world_size + local - 1) / local : 0, e.source, err)
               : code;
}

static int devices_check(const pl_job_t *job, const char *role,
                         const pl_actor_ops_t *part, pl_error_t *err)
{
    if (!part)
        return PL_ENOTFOUND;
    if (!part->devices_most || pl_request_ranks(job) <= part->devices_most)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, "trainer.devices",
                           "%s is %d, but %s \"%s\" works with at most %d: lower it or "
                           "name another \"trainer.%s\"%s",
                           json_is_integer(pl_options_value(job->options,
                                                            "trainer.devices"))
                               ? "\"trainer.devices\""
                               : "the number of ranks",
                           pl_request_ranks(job), role, part->name, part->devices_most,
                           role, strcmp(role, "strategy") ? "" : ", such as \"ddp\"");
}

static int ranks_check(const pl_job_t *job, pl_error_t *err)
{
    const int ranks = pl_request_ranks(job);
    if (ranks <= PL_RANKS_MOST)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, "trainer.devices",
                           "the run is to have %d ranks: at most %d can be", ranks,
                           PL_RANKS_MOST);
}

/* One option says it, the other is how. */
static int elastic_check(const pl_job_t *job, pl_error_t *err)
{
    const pl_actor_ops_t *strategy = pl_request_strategy(job, err);
    const bool wanted = pl_trainer_is_elastic(job->trainer);
    if (!strategy)
        return err->code;
    if (strategy->elastic && !wanted)
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.strategy",
                               "strategy \"%s\" is taken with "
                               "\"trainer.deterministic\" \"elastic\": set that",
                               strategy->name);
    if (!wanted || strategy->elastic)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, "trainer.strategy",
                           "with strategy \"%s\" the bits depend on the number of "
                           "ranks, and \"trainer.deterministic\" is \"elastic\": leave "
                           "\"trainer.strategy\" out",
                           strategy->name);
}

/* Steps that ranks take by themselves are not the place to wait for each other. */
static int norms_check(const pl_job_t *job, pl_error_t *err)
{
    const pl_actor_ops_t *strategy = pl_request_strategy(job, err);
    if (!strategy)
        return err->code;
    if (!strategy->apart || !job->trainer->sync_batchnorm)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, "trainer.sync_batchnorm",
                           "\"trainer.sync_batchnorm\" has ranks meet in the middle of "
                           "each step, and with strategy \"%s\" each takes steps by "
                           "itself: remove it, or take another \"trainer.strategy\", "
                           "such as \"ddp\"",
                           strategy->name);
}

static int shards_check(const pl_job_t *job, pl_error_t *err)
{
    const int64_t shards = job->trainer->micro_shards;
    if (!pl_trainer_is_elastic(job->trainer) || pl_request_ranks(job) <= shards)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options,
                           "trainer.strategy.micro_shards",
                           "%d ranks share out %lld micro-shards: there must be as many, "
                           "so lower \"trainer.devices\"; another "
                           "\"trainer.strategy.micro_shards\" is another run",
                           pl_request_ranks(job), (long long)shards);
}

/* Batches of the program's get no further than its own process, and nobody asks
 * callbacks there or goes back. */
static int own_check(const pl_job_t *job, const pl_actor_ops_t *launcher, pl_error_t *err)
{
    if (!launcher->here)
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.launcher",
                               "launcher \"%s\" has its ranks in other processes, where "
                               "batches that the program sends itself do not get: leave "
                               "\"trainer.launcher\" out, for \"inline\"",
                               launcher->name);
    if (pl_request_ranks(job) > 1 && launcher->joins)
        return pl_fail(err, PL_EINVAL,
                       "%d ranks were started, and batches that the program sends itself "
                       "are for one: start one process, such as by the program alone",
                       pl_request_ranks(job));
    if (pl_request_ranks(job) > 1)
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.devices",
                               "there would be %d ranks, and batches that the program "
                               "sends itself are for one: set \"trainer.devices\" to 1",
                               pl_request_ranks(job));
    if (pl_options_count(job->options, "callbacks") > 0)
        return pl_options_fail(err, PL_EINVAL, job->options, "callbacks",
                               "a loop of the program's own asks no \"callbacks\": do "
                               "there what they would do");
    if (!strcmp(job->trainer->nan_policy, "rollback"))
        return pl_options_fail(err, PL_EINVAL, job->options, "trainer.nan_policy",
                               "a loop of the program's own does not go back by itself: "
                               "\"trainer.nan_policy\" is to be \"stop\", for an error "
                               "of the step alone, or \"skip\"");
    return PL_OK;
}

static int parts_check(const pl_job_t *job, pl_error_t *err)
{
    bool trains = job->stage == PL_TRAIN;
    int code = pl_options_needs(job->options, "module", "module", err);
    if (code == PL_OK && !job->prompt && !job->own)
        code = pl_options_needs_source(job->options, job->stage, err);
    if (code == PL_OK && trains)
        code = pl_options_needs(job->options, "optimizer", "optimizer", err);
    if (code == PL_OK)
        code = devices_check(job, "strategy", pl_request_strategy(job, err), err);
    if (code == PL_OK)
        code = elastic_check(job, err);
    if (code == PL_OK)
        code = norms_check(job, err);
    if (code == PL_OK)
        code = shards_check(job, err);
    const pl_actor_ops_t *launcher = pl_request_launcher(job, err);
    if (code == PL_OK)
        code = devices_check(job, "launcher", launcher, err);
    if (code == PL_OK)
        code = ranks_check(job, err);
    if (code == PL_OK)
        code = world_check(job, launcher, err);
    if (code == PL_OK && job->own)
        code = own_check(job, launcher, err);
    else if (code == PL_OK && launcher->elsewhere)
        code = pl_run_check(job->options, PL_CHECK_ELSEWHERE, err);
    return code;
}

bool pl_request_writes(const pl_job_t *job)
{
    const bool measures = job->stage == PL_VALIDATE || job->stage == PL_TEST,
               logs = !pl_options_value(job->options, "loggers")
                      || pl_options_count(job->options, "loggers") > 0;
    if (job->own && !job->keeps)
        return false;
    return !job->trainer->fast_dev_run
           && (measures ? logs : job->stage == PL_TRAIN && !job->tuning.num_training);
}

char *pl_request_root(const pl_job_t *job, pl_error_t *err)
{
    const char *given = job->trainer->default_root_dir;
    char *root = job->stage == PL_TRAIN ? pl_text("%s", given)
                                        : pl_text("%s%s%s", given, *given ? "/" : "",
                                                  pl_stages[job->stage].verb);
    if (!root)
        pl_no_memory(err);
    return root;
}

const char *pl_request_name(const pl_job_t *job)
{
    return job->stage == PL_TRAIN ? job->trainer->run_name : "";
}

/* The size of batches is what a search changes. */
static int search_check(const pl_job_t *job, pl_error_t *err)
{
    if (!job->tuning.batch_size || !pl_trainer_is_elastic(job->trainer))
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, "trainer.deterministic",
                           "\"trainer.deterministic\" is \"elastic\", which fixes "
                           "the size of batches: search without");
}

static int name_check(const pl_job_t *job, pl_error_t *err)
{
    const pl_trainer_options_t *trainer = job->trainer;
    pl_error_t why = {0};
    pl_environment_t e;
    const bool is_again = pl_environment_read(&e, getenv, NULL) == PL_OK && e.restarts,
               writes = job->stage == PL_TRAIN && !job->resumes && !is_again
                        && !job->tuning.num_training && pl_rank() == 0;
    if (!writes || !*trainer->run_name
        || pl_run_dir_is_free(trainer->default_root_dir, trainer->run_name, &why)
               == PL_OK)
        return PL_OK;
    return pl_options_fail(err, why.code, job->options, "trainer.run_name", "%s",
                           why.text);
}

/* What a run goes on in is told and kept as JSON. */
static int resume_check(const pl_job_t *job, pl_error_t *err)
{
    if (!job->resume || pl_utf8_ok(job->resume, strlen(job->resume)))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "cannot go on from %s: the path is not UTF-8: rename it", job->resume);
}

/* Threads and files of the ranks of this process: what the worker, data and loggers
 * start; a save, a directory that is held, and a collective, with both ends of the
 * connections between two ranks, take some.  A rank that is another process takes a
 * handle of it, its standard error and links. */
static int descriptors_check(const pl_job_t *job, pl_error_t *err)
{
    enum { OF_REMOTE = 8 };
    const pl_actor_ops_t *launcher = pl_request_launcher(job, err);
    if (!launcher)
        return err->code;
    const int64_t workers = job->data->workers, world = pl_request_ranks(job),
                  ranks = !launcher->here    ? 0
                          : launcher->joins ? 1
                                            : world;
    const bool listed = pl_options_value(job->options, "loggers") != NULL,
               trains = job->stage == PL_TRAIN, writes = pl_request_writes(job);
    const int64_t loggers = !writes  ? 0
                            : listed ? pl_options_count(job->options, "loggers")
                                     : 1,
                  others = 3 + trains + (world > 1),
                  meeting = world > 1 ? ranks * (6 + 2 * world) : 0;
    return pl_descriptors_for(ranks * (others + workers) + loggers,
                              ranks * workers + loggers + 4 * writes + meeting
                                  + OF_REMOTE * (world - ranks),
                              err);
}

/* Of several sources each has figures of its own, and none is called as of one alone. */
static int monitor_check(const pl_job_t *job, const char *part, pl_error_t *err)
{
    char key[128];
    const uint32_t loaders = pl_options_loaders(job->options, PL_VALIDATE);
    snprintf(key, sizeof key, "%s.monitor", part);
    char *monitor = pl_options_get(job->options, key);
    const bool is_of_one = monitor && !strcmp(monitor, "val_loss");
    pl_text_free(monitor);
    if (loaders < 2 || !is_of_one)
        return PL_OK;
    return pl_options_fail(err, PL_EINVAL, job->options, key,
                           "\"%s\": there is no figure \"val_loss\", as %u sources are "
                           "validated on: take one of \"val_loss/dataloader_idx_0\" to "
                           "\"val_loss/dataloader_idx_%u\"",
                           key, loaders, loaders - 1);
}

static int monitors_check(const pl_job_t *job, pl_error_t *err)
{
    char part[96];
    const char *step;
    json_t *of_step;
    const json_t *scheduler = pl_options_value(job->options, "scheduler");
    int code = PL_OK;
    const int count = pl_options_count(job->options, "callbacks");
    for (int k = 0; k < count && code == PL_OK; k++) {
        snprintf(part, sizeof part, "callbacks.%d", k);
        code = monitor_check(job, part, err);
    }
    if (code != PL_OK || !pl_is_by_step(scheduler))
        return code == PL_OK ? monitor_check(job, "scheduler", err) : code;
    json_object_foreach((json_t *)scheduler, step, of_step) {
        snprintf(part, sizeof part, "scheduler.%s", step);
        if (code == PL_OK)
            code = monitor_check(job, part, err);
    }
    return code;
}

int pl_request_check(const pl_job_t *job, pl_error_t *err)
{
    int code = parts_check(job, err);
    if (code == PL_OK)
        code = search_check(job, err);
    if (code == PL_OK)
        code = name_check(job, err);
    if (code == PL_OK)
        code = resume_check(job, err);
    if (code == PL_OK && job->stage == PL_TRAIN && !job->tuning.num_training)
        code = monitors_check(job, err);
    return code == PL_OK ? descriptors_check(job, err) : code;
}

char *pl_request_options(const pl_job_t *job, const char *path, pl_error_t *err)
{
    char *text = pl_options_get(job->options, path);       /* a name alone is no object */
    if (text && *text != '{')
        *text = '\0';
    if (!text)
        pl_no_memory(err);
    return text;
}
