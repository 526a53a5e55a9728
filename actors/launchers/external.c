/* external.c - ranks that another program has started: a scheduler, mpirun, paceline
 * launch
 *
 * Each process has requested the run by itself.  The process of rank zero coordinates: it
 * listens at the rendezvous, is rank zero itself, and has a proxy for each other rank.
 * The others connect, get their work by message, and at the end receive the result, which
 * answers the run that they requested.
 *
 * The runs of a process are counted: the second run of one process joins the second
 * run of all others.  If the scheduler has started the processes again, the
 * run-directory index of rank zero says which run continues from which directory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "accelerators/accelerator.h"
#include "accelerators/actor.h"
#include "actors/launchers/bootstrap.h"
#include "actors/launchers/rank_client.h"
#include "actors/launchers/rank_links.h"
#include "actors/launchers/restarts.h"
#include "actors/request.h"
#include "actors/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/random.h"
#include "base/run.h"
#include "transport/port_holder.h"
#include "config.h"

enum {
    ENDPOINT = 300,
    LOOK_MS = 100,                /* between looks for ranks that have ended, to join, and
                                     for the answer of a name server */
    LOOKUP_MS = 10,               /* in which most look-ups end */
};

typedef struct external {
    pl_participant_t participant;                  /* other ranks; its ranks: rank zero */
    pl_environment_t environment;
    int sharers;                                        /* of the processors it may use */
    char endpoint[ENDPOINT];
    pl_keys_t keys;
    bool has_keys;
    char *traits;                                       /* from pl_json_write() */
    pl_job_t *own;                                      /* counted: requested here */
    uint64_t run;                                       /* [0: received from rank zero] */
    uint32_t incarnation;                               /* which run of the process */
    int64_t until;                                      /* all must have joined */
    double join_timeout;                                /* s */
    const char *rendezvous, *job_key, *port_range;      /* options  ["": environment] */
    /* Of rank zero: */
    int training;                                         /* which of the process; 0:
                                                             the run is none */
    pl_result_broadcast_t *broadcast;                     /* [the run is not over] */
    pl_lookup_t *lookup;                                  /* of its host  [NULL: none] */
    pl_call_t *run_call;                                  /* waits for it  [NULL: none] */
    pl_job_t *job;                                        /* of that call */
} external_t;

/* ---- Rank zero ---- */

static uint64_t rank_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                           pl_error_t *err)
{
    const external_t *x = (const external_t *)ranks;
    const pl_start_t start = {.options = "",
                              .ranks = (uint32_t)x->sharers,
                              .local_rank = (uint32_t)x->environment.local_rank};
    if (rank->number)
        return pl_proxy_start(ranks, rank, life, err);
    rank->stuck_text = "; its thread cannot be ended and its memory is kept";
    return pl_spawn(ranks, &pl_worker, pl_as_rank(0), &start, life, &rank->worker, err);
}

static void broadcast_begin(pl_ranks_t *ranks)
{
    external_t *x = (external_t *)ranks;
    x->broadcast = pl_result_broadcast(ranks, 1);
}

static void run_dir_record(pl_ranks_t *ranks, const char *path)
{
    const external_t *x = (const external_t *)ranks;
    if (x->training)
        pl_run_dir_index_add(x->training, path);
}

/* ---- The job, its address and its key ---- */

static int endpoint_find(external_t *x, pl_error_t *err)
{
    const char *from_environment = x->environment.endpoint, *given = x->rendezvous,
               *file = *x->job_key ? x->job_key : getenv("PACELINE_JOB_KEY_FILE");
    char other[ENDPOINT];
    if (!*from_environment && !*given)
        return pl_fail(err, PL_EINVAL,
                       "%s started the ranks, but no variable names the address where "
                       "they connect: set PACELINE_ENDPOINT to the HOST:PORT of rank 0 "
                       "(or MASTER_ADDR and MASTER_PORT, if RANK and WORLD_SIZE are "
                       "set)",
                       x->environment.source);
    int code = pl_rendezvous_read(*from_environment ? from_environment : given,
                                  x->endpoint, ENDPOINT, err);
    if (code == PL_OK && *from_environment && *given) {
        code = pl_rendezvous_read(given, other, ENDPOINT, err);
        if (code == PL_OK && strcmp(other, x->endpoint))
            code = pl_fail(err, PL_EINVAL,
                           "trainer.launcher.rendezvous is \"%s\", but the environment "
                           "sets the address %s: remove one of them",
                           given, from_environment);
    }
    x->has_keys = file && *file;
    if (code == PL_OK && x->has_keys)
        return pl_keys_read(file, &x->keys, err);
    if (code != PL_OK || pl_rendezvous_is_near(x->endpoint))
        return code;
    return pl_fail(err, PL_EINVAL,
                   "ranks that connect to %s, beyond this machine, need the key of the "
                   "job: set PACELINE_JOB_KEY_FILE to a file that paceline launch "
                   "--job-key has created, the same on all nodes",
                   x->endpoint);
}

/* What must be equal on all ranks for the same bits. */
static int traits_find(external_t *x, const pl_job_t *job, pl_error_t *err)
{
    pl_device_info_t info;
    char threads[16];
    int code = pl_accelerator_describe(job, x->sharers, x->environment.local_rank, &info,
                                       err);
    if (code != PL_OK)
        return code;
    const char *model = strrchr(info.model, ',');
    snprintf(threads, sizeof threads, "%d", info.threads);
    const pl_batch_signature_t *sent = job->manual_signature;
    char *batches = pl_request_fields(sent ? sent->stage[PL_TRAIN].field : NULL,
                                      sent ? sent->stage[PL_TRAIN].field_count : 0);
    if (!batches)
        return pl_no_memory(err);
    json_t *traits = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "stage",
                               pl_stages[job->stage].verb, "form of a program's batches",
                               batches, "instruction set",
                               model ? model + 1 + strspn(model + 1, " ") : info.model,
                               "compute library", info.library, "threads per rank",
                               threads, "version", PACKAGE_VERSION);
    x->traits = traits ? pl_json_write(traits, PL_JSON_COMPACT) : NULL;
    json_decref(traits);
    pl_text_free(batches);
    return x->traits ? PL_OK : pl_no_memory(err);
}

/* The run has the same number in all processes of the job, and in no other job there.  If
 * the job has no name, rank zero draws the number, and the others receive it. */
static int place_find(external_t *x, pl_error_t *err)
{
    static uint32_t runs;                                   /* of this process; atomic */
    pl_environment_t *e = &x->environment;
    int code = pl_environment_read(e, getenv, err);
    if (code == PL_OK && !e->source)
        code = pl_fail(err, PL_EINVAL,
                       "the launcher \"external\" needs ranks that another program has "
                       "started: use paceline launch, or set PACELINE_RANK and "
                       "PACELINE_WORLD_SIZE");
    if (code == PL_OK)
        code = pl_ports_set(*x->port_range ? x->port_range
                                           : getenv("PACELINE_PORT_RANGE"),
                            err);
    if (code == PL_OK)
        code = endpoint_find(x, err);
    if (code != PL_OK)
        return code;
    x->sharers = e->is_bound           ? 1
                 : e->local_world_size ? e->local_world_size
                                       : e->world_size;
    uint64_t named = pl_hash(PL_HASH_EMPTY, e->job, strlen(e->job));
    const bool draws = !e->job[0] && !e->rank;
    if (draws && getrandom(&named, sizeof named, 0) != sizeof named)
        code = pl_fail(err, PL_EIO, "cannot read random numbers: %s", strerror(errno));
    const uint64_t key[] = {named, (uint64_t)e->restarts};
    if (e->job[0] || draws)
        x->run = pl_hash(PL_HASH_EMPTY, key, sizeof key) | 1;
    x->incarnation = __atomic_add_fetch(&runs, 1, __ATOMIC_RELAXED);
    x->until = pl_now() + (int64_t)(x->join_timeout * PL_SECOND);
    const bool is_known = e->is_own && e->rank;             /* paceline launch logs it */
    pl_log_line(is_known ? PL_LOG_DEBUG : PL_LOG_INFO, e->rank, pl_actor_name(x),
                "rank %d of %d, set by %s; the ranks connect at %s", e->rank,
                e->world_size, e->source, x->endpoint);
    return code;
}

/* Ranks on several machines encrypt their collective with a key of this run. */
static int job_place(external_t *x, pl_lookup_t *lookup, pl_job_t *job, pl_error_t *err)
{
    char host[PL_RENDEZVOUS_HOST];
    int code = pl_rendezvous_own_host(lookup, x->environment.rank == 0, host, err);
    if (code != PL_OK)
        return code;
    job->host = pl_text("%s", host);
    job->key = pl_alloc(PL_KEY_BYTES);
    if (!job->host || !job->key)
        return pl_no_memory(err);
    const uint64_t run = x->environment.rank == 0 ? x->run
                                                  : x->participant.client.spec.run;
    return pl_keys_collective(&x->keys, run, x->incarnation, job->key, err);
}

/* The job of rank 0 gets the form of the batches that this process's program sends.  The
 * link has found the number of the host of rank zero: no name server is asked, which
 * might not answer within the lease. */
static int participant_job(void *self, pl_job_t *job, pl_error_t *err)
{
    external_t *x = self;
    char endpoint[ENDPOINT];
    const pl_job_t *own = x->own;
    job->manual_signature = pl_object_ref(own->manual_signature);
    job->enable_checkpointing = own->enable_checkpointing;
    job->manual_data_info = own->manual_data_info ? pl_strdup(own->manual_data_info)
                                                  : NULL;
    if (own->manual_data_info && !job->manual_data_info)
        return pl_no_memory(err);
    if (pl_rendezvous_is_near(x->endpoint))
        return PL_OK;
    int code = pl_link_endpoint(x->participant.client.link, endpoint, sizeof endpoint,
                                err);
    pl_lookup_t *lookup = code == PL_OK ? pl_lookup_start(endpoint, err) : NULL;
    if (!lookup)
        return err->code;
    pl_lookup_wait(lookup, x->until);
    code = job_place(x, lookup, job, err);
    pl_lookup_leave(lookup);
    return code;
}

/* ---- Ranks that will not join ---- */

/* A rank that ends with status 0 before it joins fails only the ranks that wait for
 * it. */
static void finished_ranks_check(void *self)
{
    external_t *x = self;
    pl_rank_links_t *links = x->participant.ranks.links;
    const bool is_host = x->environment.rank == 0;
    char text[PL_ERROR_TEXT];
    bool waits = !is_host && pl_participant_waits(&x->participant);
    if (waits && pl_finished_ranks_find(0, text, sizeof text)) {
        pl_participant_lose(&x->participant, PL_ESTATE, text);
        return;
    }
    for (int k = 1; is_host && k < x->environment.world_size; k++) {
        if (pl_link_state(links->calls, k) != PL_LINK_AWAITED)
            continue;
        waits = true;
        if (x->participant.ranks.run && pl_finished_ranks_find(k, text, sizeof text))
            pl_rank_links_abort(links, k, text);
    }
    if (waits)
        pl_after(x, LOOK_MS, finished_ranks_check, NULL);
}

/* ---- The launcher ---- */

static int external_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err)
{
    static const pl_ranks_ops_t ops = {.start = rank_start,
                                       .broadcast_result = broadcast_begin,
                                       .run_dir = run_dir_record};
    external_t *x = self;
    const pl_environment_t *e = &x->environment;
    pl_ranks_t *ranks = &x->participant.ranks;
    (void)call;
    x->own = pl_object_ref(body->start.context);
    int code = place_find(x, err);
    if (code == PL_OK)
        code = traits_find(x, (const pl_job_t *)body->start.context, err);
    if (code != PL_OK)
        return code;
    const pl_keys_t *keys = x->has_keys ? &x->keys : NULL;
    if (e->rank == 0) {
        const pl_rank_links_spec_t spec = {.count = e->world_size,
                                           .join_ms = pl_milliseconds(x->join_timeout),
                                           .endpoint = x->endpoint,
                                           .keys = keys,
                                           .traits = x->traits,
                                           .run = x->run,
                                           .takes_any = !e->job[0],
                                           .incarnation = x->incarnation};
        pl_ranks_init(ranks, &ops, body);
        ranks->count = ranks->min = ranks->max = e->world_size;
        ranks->links = pl_rank_links_new(x, &spec, err);
        code = ranks->links ? PL_OK : err->code;
    } else {
        x->participant.coordinator = "rank 0's";
        const pl_rank_client_spec_t spec = {.calls = x->endpoint,
                                            .keys = keys,
                                            .traits = x->traits,
                                            .host = "rank 0",
                                            .times.has_lease = true,
                                            .run = x->run,
                                            .incarnation = x->incarnation,
                                            .rank = e->rank,
                                            .world_size = e->world_size,
                                            .local_rank = e->local_rank,
                                            .sharers = x->sharers,
                                            .on_job = participant_job};
        code = pl_participant_open(&x->participant, &spec, x->until, err);
    }
    if (code == PL_OK && pl_finished_ranks_are_reported())
        finished_ranks_check(x);
    if (code == PL_OK)
        pl_actor_ready(self);
    return code;
}

/* The job as all ranks get it: with their number, and continued where it was cut off.  A
 * run that rolls back belongs to the training before. */
static pl_job_t *job_here(external_t *x, const pl_job_t *job, pl_error_t *err)
{
    static int trainings;                                   /* of this process; atomic */
    const pl_environment_t *e = &x->environment;
    const int local = e->local_world_size;
    const bool is_even = local > 0 && e->world_size % local == 0;  /* 0: not known */
    char *folder = NULL;
    pl_error_t none = {0};
    x->training = pl_job_is_training(job)
                      ? __atomic_add_fetch(&trainings, 1, __ATOMIC_RELAXED)
                      : 0;
    const bool was_cut_off = e->restarts && x->training;
    if (was_cut_off)
        folder = pl_run_dir_index_find(x->training, &none);
    *err = none;
    const char *came_to = was_cut_off && !folder ? "" : folder;
    pl_job_t *own = err->code
                        ? NULL
                        : pl_job_again(job, came_to, is_even ? local : e->world_size,
                                       is_even ? e->world_size / local : 1, err);
    pl_free(folder);
    return own;
}

static void host_begin(external_t *x)
{
    pl_error_t err = {0};
    pl_call_t *call = x->run_call;
    const pl_body_t body = {.run = {.job = &x->job->object}};
    int code = x->lookup ? job_place(x, x->lookup, x->job, &err) : PL_OK;
    x->run_call = NULL;
    if (code == PL_OK)
        code = pl_ranks_run(x, call, &body, &err);
    if (code != PL_OK)
        pl_call_fail(call, &err);
}

static void lookup_look(void *self)
{
    external_t *x = self;
    if (x->run_call && !pl_lookup_wait(x->lookup, pl_now()) && pl_now() < x->until
        && pl_after(x, LOOK_MS, lookup_look, NULL) == PL_OK)
        return;
    if (x->run_call)
        host_begin(x);
}

static int external_run(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    external_t *x = self;
    if (x->environment.rank)
        return pl_participant_run(self, call, body, err);
    x->job = job_here(x, (const pl_job_t *)body->run.job, err);
    if (!x->job)
        return err->code;
    if (!pl_rendezvous_is_near(x->endpoint)
        && !(x->lookup = pl_lookup_start(x->endpoint, err)))
        return err->code;
    x->run_call = call;
    if (x->lookup && !pl_lookup_wait(x->lookup, pl_now() + LOOKUP_MS * PL_MILLISECOND))
        lookup_look(x);
    else
        host_begin(x);
    return PL_OK;
}

static int external_stop(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    external_t *x = self;
    if (x->run_call) {
        pl_error_t stopped = {0};
        pl_fail(&stopped, PL_ECANCELLED,
                "%s, while the name server had not answered for the rendezvous %s",
                body->stop.reason, x->endpoint);
        pl_call_fail(x->run_call, &stopped);
        x->run_call = NULL;
        return pl_reply_stop(call, &(pl_stop_reply_t){0});
    }
    return pl_participant_stop(self, call, body, err);
}

static void external_release(void *self)
{
    external_t *x = self;
    pl_result_broadcast_free(x->broadcast);
    pl_lookup_leave(x->lookup);
    pl_object_unref(x->job);
    pl_object_unref(x->own);
    pl_participant_release(&x->participant);
    pl_text_free(x->traits);
    pl_keys_forget(&x->keys);
}

static const pl_option_t external_options[] = {
    PL_TEXT(external_t, rendezvous, "\"\"", NULL,
            "HOST:PORT at which rank 0 listens; empty: from PACELINE_ENDPOINT or the "
            "scheduler"),
    PL_TEXT(external_t, job_key, "\"\"", NULL,
            "file with the key of the job; empty: from PACELINE_JOB_KEY_FILE"),
    PL_TEXT(external_t, port_range, "\"\"", NULL,
            "ports at which ranks listen besides the rendezvous port, such as "
            "20000-20100; empty: from PACELINE_PORT_RANGE, or any port"),
    PL_FLOAT(external_t, join_timeout, "60", "0.001..86400",
             "seconds until all ranks must have joined"),
    PL_OPTIONS_END,
};

static const pl_handler_t external_handlers[] = {
    PL_ON(start, external_start),       PL_ON(run, external_run),
    PL_ON(stop, external_stop),         PL_ON(control, pl_participant_control),
    PL_ON(watch, pl_participant_watch), PL_HANDLERS_END,
};

const pl_actor_ops_t pl_external_launcher = {
    .name = "external",
    .help = "ranks that were started by a scheduler, mpirun or paceline launch",
    .size = sizeof(external_t),
    .options = external_options,
    .role = "launcher",
    .level = PL_LEVEL_LAUNCHER,
    .handlers = external_handlers,
    .in_process = true,
    .externally_started = true,
    .release = external_release,
};
