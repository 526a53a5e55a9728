/* environment.c - which rank of which job this process is, when another program has
 * started it
 *
 * Each source is a row of a table: the names of its variables, and functions for what
 * is in no single variable.  Conventions as documented by each: torchrun ("Environment
 * Variables"), Slurm (srun(1)), Open MPI (mpirun(1)), Hydra (its PMI), LSF (Job Step
 * Manager), Kubernetes ("Indexed Job"), PyTorch ("Environment variable
 * initialization"). */
#include "actors/launchers/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

typedef char *(*get_t)(const char *name);

/* Names of the variables of a source  [NULL: it has none for that]. */
typedef struct environment_source {
    const char *name;
    const char *rank, *world_size, *local_rank, *local_world_size, *node_rank;
    const char *host, *port, *job, *restarts;
    const char *binding;                          /* set, and not to "none": each rank has
                                                     processors of its own */
    const char *needs;                            /* another that must be set as well */
    bool (*is_meant)(get_t get);                  /* [rank and `needs` are set] */
    int (*find)(pl_environment_t *e, get_t get, pl_error_t *err);  /* the rest  [none] */
    /* If no source is complete: what is wrong with this one  [see alone_check()]. */
    int (*miss)(get_t get, pl_error_t *err);
} environment_source_t;

static const char *text_of(get_t get, const char *name)
{
    const char *text = name ? get(name) : NULL;
    return text && *text ? text : NULL;
}

/* A variable that is not set leaves *number as it is. */
static int number_read(get_t get, const char *name, int min, int *number, pl_error_t *err)
{
    const char *text = text_of(get, name);
    if (!text)
        return PL_OK;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < min || value > 1 << 24)
        return pl_fail(err, PL_EINVAL,
                       "%s is \"%.40s\": set it to a whole number from %d", name, text,
                       min);
    *number = (int)value;
    return PL_OK;
}

/* The port of a job whose number all its processes know. */
static int job_port(const char *job)
{
    size_t length = strlen(job), from = length > 4 ? length - 4 : 0;
    return PL_ENVIRONMENT_PORT + atoi(job + from) % 10000;
}

static void endpoint_set(pl_environment_t *e, const char *host, int port)
{
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(e->endpoint, sizeof e->endpoint,
             is_v6 ? "tcp://[%.200s]:%d" : "tcp://%.200s:%d", host, port);
}

/* ---- Functions of single sources ---- */

static bool slurm_has_job(get_t get)
{
    const char *job = text_of(get, "SLURM_JOB_NAME");
    return text_of(get, "SLURM_NTASKS")
           && !(job && (!strcmp(job, "bash") || !strcmp(job, "interactive")));
}

/* A batch script has the variables of the tasks too, but it is not a task. */
static bool slurm_is_meant(get_t get)
{
    return slurm_has_job(get) && text_of(get, "SLURM_STEP_ID");
}

static int slurm_miss(get_t get, pl_error_t *err)
{
    int tasks = 1;
    int code = slurm_has_job(get) ? number_read(get, "SLURM_NTASKS", 1, &tasks, err)
                                  : PL_OK;
    if (code != PL_OK || tasks == 1)
        return code;
    return pl_fail(err, PL_EINVAL,
                   "Slurm has allocated %d tasks (SLURM_NTASKS), but this process is "
                   "not one of them: start it with srun, or set trainer.launcher to a "
                   "launcher that starts ranks, such as \"spawn\"",
                   tasks);
}

/* torchrun names every run without a name "none".  If it listens at the port itself, the
 * port beside it is used. */
static int torchrun_find(pl_environment_t *e, get_t get, pl_error_t *err)
{
    const char *listens = text_of(get, "TORCHELASTIC_USE_AGENT_STORE");
    const char *host = text_of(get, "MASTER_ADDR");
    int port = PL_ENVIRONMENT_PORT;
    if (!strcmp(e->job, "none"))
        e->job[0] = '\0';
    if (!host || !listens || strcmp(listens, "True") != 0)
        return PL_OK;
    int code = number_read(get, "MASTER_PORT", 1, &port, err);
    endpoint_set(e, host, port < 65535 ? port + 1 : port - 1);
    return code;
}

/* "2(x3),1": two tasks on each of three nodes, one on the fourth. */
static int slurm_tasks_on(const char *text, int node)
{
    while (text && *text) {
        char *end;
        long tasks = strtol(text, &end, 10), nodes = 1;
        if (!strncmp(end, "(x", 2)) {
            nodes = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < nodes)
            return tasks > 0 && tasks < 1 << 24 ? (int)tasks : 0;
        node -= (int)nodes;
        text = *end == ',' ? end + 1 : NULL;
    }
    return 0;
}

static int slurm_find(pl_environment_t *e, get_t get, pl_error_t *err)
{
    const char *list = text_of(get, "SLURM_STEP_NODELIST");
    const char *tasks = text_of(get, "SLURM_STEP_TASKS_PER_NODE");
    const char *step = text_of(get, "SLURM_STEP_ID");
    const int port = job_port(e->job);
    const bool has_job = e->job[0];
    char host[201];
    if (has_job && step)
        snprintf(e->job + strlen(e->job), sizeof e->job - strlen(e->job), ".%s", step);
    if (e->node_rank >= 0)
        e->local_world_size = slurm_tasks_on(tasks ? tasks
                                                   : text_of(get, "SLURM_TASKS_PER_NODE"),
                                             e->node_rank);
    if (!list)
        list = text_of(get, "SLURM_NODELIST");
    if (!list)
        list = text_of(get, "SLURM_JOB_NODELIST");
    if (!list || !has_job)
        return PL_OK;
    int code = pl_node_list_get(list, 0, host, sizeof host, err);
    if (code == PL_OK)
        endpoint_set(e, host, port);
    return code;
}

/* Hydra names no job.  If all ranks are on one machine, the nearest proxy of Hydra among
 * their ancestors, also beyond a script, is the same one. */
static int hydra_find(pl_environment_t *e, get_t get, pl_error_t *err)
{
    enum { DEPTH_MAX = 32 };
    char path[48], name[17];                          /* the kernel keeps 15 characters */
    long id, parent = getppid();
    unsigned long long began;                   /* ticks since the start of the machine */
    (void)get, (void)err;
    for (int k = 0; k < DEPTH_MAX && e->local_world_size == e->world_size && parent > 1;
         k++) {
        snprintf(path, sizeof path, "/proc/%ld/stat", parent);
        FILE *file = fopen(path, "re");
        const bool is_read =
            file
            && fscanf(file,
                      "%ld (%16[^)]) %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u "
                      "%*d %*d %*d %*d %*d %*d %llu",
                      &id, name, &parent, &began)
                   == 4;
        if (file)
            fclose(file);
        if (is_read && !strcmp(name, "hydra_pmi_proxy"))
            snprintf(e->job, sizeof e->job, "hydra-%ld-%llu", id, began);
        if (!is_read || *e->job)
            break;
    }
    return PL_OK;
}

/* Names that PyTorch reads ("env://"); Kubeflow's PyTorchJob and many scripts set
 * them.  A world of one rank is a single process. */
static bool plain_is_meant(get_t get)
{
    int size = 0;
    return text_of(get, "RANK") && text_of(get, "WORLD_SIZE")
           && (number_read(get, "WORLD_SIZE", 1, &size, NULL) != PL_OK || size > 1
               || strcmp(text_of(get, "RANK"), "0") != 0);
}

static int plain_find(pl_environment_t *e, get_t get, pl_error_t *err)
{
    const bool has_host = text_of(get, "MASTER_ADDR"),
               has_port = text_of(get, "MASTER_PORT");
    (void)e;
    if (has_host == has_port)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "RANK, WORLD_SIZE and %s are set, but %s is not: set it to the %s of "
                   "rank 0",
                   has_host ? "MASTER_ADDR" : "MASTER_PORT",
                   has_host ? "MASTER_PORT" : "MASTER_ADDR", has_host ? "port" : "host");
}

static int plain_miss(get_t get, pl_error_t *err)
{
    if (!text_of(get, "RANK") || text_of(get, "WORLD_SIZE"))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "RANK is %.40s, but WORLD_SIZE is not set: set WORLD_SIZE to the "
                   "number of ranks, or unset RANK to run one process",
                   text_of(get, "RANK"));
}

/* The lines of the rank file are hosts; the first is the launching host. */
static int lsf_find(pl_environment_t *e, get_t get, pl_error_t *err)
{
    const char *path = get("LSB_DJOB_RANKFILE");
    char host[201] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return pl_fail(err, PL_EINVAL, "LSB_DJOB_RANKFILE: cannot read %.200s", path);
    const bool is_there = fscanf(file, "%*[^\n] %200s", host) == 1;
    fclose(file);
    if (!is_there)
        return pl_fail(err, PL_EINVAL,
                       "LSB_DJOB_RANKFILE: %.200s has no second line, which names the "
                       "host of rank 0",
                       path);
    endpoint_set(e, host, job_port(e->job));
    return PL_OK;
}

/* The host name of a pod is "${job}-${index}".  A pod does not know its subdomain, unless
 * the description of the job sets SUBDOMAIN. */
static int kubernetes_find(pl_environment_t *e, get_t get, pl_error_t *err)
{
    (void)err;
    const char *pod = text_of(get, "HOSTNAME"), *dash = pod ? strrchr(pod, '-') : NULL;
    const char *subdomain = text_of(get, "SUBDOMAIN");
    e->local_rank = 0;
    e->local_world_size = 1;
    e->node_rank = e->rank;
    if (!dash || atoi(dash + 1) != e->rank)
        return PL_OK;
    char host[201];
    snprintf(e->job, sizeof e->job, "%.*s", (int)(dash - pod), pod);
    snprintf(host, sizeof host, "%s-0%s%.100s", e->job, subdomain ? "." : "",
             subdomain ? subdomain : "");
    if (subdomain)
        endpoint_set(e, host, PL_ENVIRONMENT_PORT);
    return PL_OK;
}

/* ---- The sources, in the order in which they are tried ---- */

static const environment_source_t paceline = {
    .name = "Paceline",
    .rank = "PACELINE_RANK",
    .world_size = "PACELINE_WORLD_SIZE",
    .local_rank = "PACELINE_LOCAL_RANK",
    .local_world_size = "PACELINE_LOCAL_WORLD_SIZE",
    .node_rank = "PACELINE_NODE_RANK",
    .job = "PACELINE_RUN_ID",
    .restarts = "PACELINE_RESTART_COUNT",
};

static const environment_source_t sources[] = {
    {
        .name = "torchrun",
        .needs = "TORCHELASTIC_RUN_ID",
        .rank = "RANK",
        .world_size = "WORLD_SIZE",
        .local_rank = "LOCAL_RANK",
        .local_world_size = "LOCAL_WORLD_SIZE",
        .node_rank = "GROUP_RANK",
        .host = "MASTER_ADDR",
        .port = "MASTER_PORT",
        .job = "TORCHELASTIC_RUN_ID",
        .restarts = "TORCHELASTIC_RESTART_COUNT",
        .find = torchrun_find,
    },
    {
        .name = "Slurm",
        .is_meant = slurm_is_meant,
        .rank = "SLURM_PROCID",
        .world_size = "SLURM_NTASKS",
        .local_rank = "SLURM_LOCALID",
        .node_rank = "SLURM_NODEID",
        .job = "SLURM_JOB_ID",
        .restarts = "SLURM_RESTART_COUNT",
        .binding = "SLURM_CPU_BIND_TYPE",
        .find = slurm_find,
        .miss = slurm_miss,
    },
    {
        .name = "Open MPI",
        .needs = "OMPI_COMM_WORLD_SIZE",
        .rank = "OMPI_COMM_WORLD_RANK",
        .world_size = "OMPI_COMM_WORLD_SIZE",
        .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
        .local_world_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
        .job = "PMIX_NAMESPACE",
        .binding = "OMPI_MCA_orte_bound_at_launch",
    },
    {
        .name = "MPICH",
        .needs = "PMI_SIZE",
        .rank = "PMI_RANK",
        .world_size = "PMI_SIZE",
        .local_rank = "MPI_LOCALRANKID",
        .local_world_size = "MPI_LOCALNRANKS",
        .find = hydra_find,
    },
    {
        .name = "LSF",
        .needs = "LSB_DJOB_RANKFILE",
        .rank = "JSM_NAMESPACE_RANK",
        .world_size = "JSM_NAMESPACE_SIZE",
        .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
        .local_world_size = "JSM_NAMESPACE_LOCAL_SIZE",
        .job = "LSB_JOBID",
        .find = lsf_find,
    },
    {
        .name = "Kubernetes",
        .rank = "JOB_COMPLETION_INDEX",
        .world_size = "PACELINE_WORLD_SIZE",
        .find = kubernetes_find,
    },
    {
        .name = "the environment",
        .is_meant = plain_is_meant,
        .rank = "RANK",
        .world_size = "WORLD_SIZE",
        .local_rank = "LOCAL_RANK",
        .local_world_size = "LOCAL_WORLD_SIZE",
        .host = "MASTER_ADDR",
        .port = "MASTER_PORT",
        .find = plain_find,
        .miss = plain_miss,
    },
};

enum { SOURCES = sizeof sources / sizeof *sources };

static bool is_there(const environment_source_t *source, get_t get)
{
    if (source->is_meant)
        return source->is_meant(get);
    return text_of(get, source->rank) && (!source->needs || text_of(get, source->needs));
}

/* ---- Reading one source ---- */

static int must_be_set(const environment_source_t *source, const char *name, get_t get,
                       pl_error_t *err)
{
    if (text_of(get, name))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "%s started this process, but %s is not set: set it, or unset the "
                   "other variables of %s",
                   source->name, name, source->name);
}

static int numbers_read(pl_environment_t *e, const environment_source_t *s, get_t get,
                        pl_error_t *err)
{
    const struct {
        const char *name;
        int min, *number;
    } numbers[] = {
        {s->rank, 0, &e->rank},
        {s->world_size, 1, &e->world_size},
        {s->local_rank, 0, &e->local_rank},
        {s->local_world_size, 1, &e->local_world_size},
        {s->node_rank, 0, &e->node_rank},
        {s->restarts, 0, &e->restarts},
    };
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        int code = number_read(get, numbers[k].name, numbers[k].min, numbers[k].number,
                               err);
        if (code != PL_OK)
            return code;
    }
    return PL_OK;
}

/* Whether a rank is less than the number of ranks  [size 0: not known]. */
static int range_check(const char *name, int value, const char *size_name, int size,
                       pl_error_t *err)
{
    if (!size || value < size)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "%s is %d and %s is %d: the first must be less than the second", name,
                   value, size_name, size);
}

static int source_read(pl_environment_t *e, const environment_source_t *source, get_t get,
                       pl_error_t *err)
{
    const char *job = text_of(get, source->job), *binding = text_of(get, source->binding),
               *host = text_of(get, source->host),
               *local_size = source->local_world_size ? source->local_world_size
                                                      : "the number of ranks on the node";
    int port = PL_ENVIRONMENT_PORT;
    *e = (pl_environment_t){.source = source->name,
                            .is_own = source == &paceline,
                            .node_rank = -1,
                            .is_bound = binding && strcmp(binding, "none") != 0};
    snprintf(e->job, sizeof e->job, "%s", job ? job : "");
    int code = must_be_set(source, source->rank, get, err);
    if (code == PL_OK)
        code = must_be_set(source, source->world_size, get, err);
    if (code == PL_OK)
        code = numbers_read(e, source, get, err);
    if (code == PL_OK)
        code = range_check(source->rank, e->rank, source->world_size, e->world_size, err);
    if (code == PL_OK)
        code = number_read(get, source->port, 1, &port, err);
    if (code == PL_OK && port > 65535)
        code = pl_fail(err, PL_EINVAL, "%s is %d: a port is at most 65535", source->port,
                       port);
    if (code == PL_OK && host)
        endpoint_set(e, host, port);
    if (code == PL_OK && source->find)
        code = source->find(e, get, err);
    if (code == PL_OK)
        code = range_check(source->local_rank ? source->local_rank : "local rank",
                           e->local_rank, local_size, e->local_world_size, err);
    if (code == PL_OK && e->local_world_size > e->world_size)
        code = pl_fail(err, PL_EINVAL,
                       "%s is %d and %s is %d: a node cannot have more ranks than all "
                       "nodes together",
                       local_size, e->local_world_size, source->world_size,
                       e->world_size);
    if (code == PL_OK && e->local_world_size == e->world_size && e->node_rank < 0)
        e->node_rank = 0;
    return code;
}

/* ---- Sources that contradict each other ---- */

static int agree(const environment_source_t *a, const char *a_name, int a_value,
                 const environment_source_t *b, const char *b_name, int b_value,
                 pl_error_t *err)
{
    if (a_value == b_value)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "%s sets %s to %d, but %s sets %s to %d: unset one of them, or set "
                   "PACELINE_RANK and PACELINE_WORLD_SIZE",
                   a->name, a_name, a_value, b->name, b_name, b_value);
}

static int others_agree(const pl_environment_t *e, const environment_source_t *chosen,
                        get_t get, pl_error_t *err)
{
    for (const environment_source_t *s = chosen + 1; s < sources + SOURCES; s++) {
        pl_environment_t other = {0};
        if (!is_there(s, get) || !text_of(get, s->world_size))
            continue;
        int code = numbers_read(&other, s, get, err);
        if (code == PL_OK && e->local_world_size > 1
            && other.world_size * (int64_t)e->local_world_size == e->world_size)
            continue;   /* its tasks are nodes, on which `chosen` has started the ranks */
        if (code == PL_OK)
            code = agree(chosen, chosen->rank, e->rank, s, s->rank, other.rank, err);
        if (code == PL_OK)
            code = agree(chosen, chosen->world_size, e->world_size, s, s->world_size,
                         other.world_size, err);
        if (code != PL_OK)
            return code;
    }
    int own = e->world_size;                 /* without a rank, the only number of ours */
    int code = number_read(get, paceline.world_size, 1, &own, err);
    return code != PL_OK ? code
                         : agree(&paceline, paceline.world_size, own, chosen,
                                 chosen->world_size, e->world_size, err);
}

/* One of several processes that does not know its rank would train alone. */
static int alone_check(const environment_source_t *source, get_t get, pl_error_t *err)
{
    int size = 1;
    const char *lacks = !text_of(get, source->rank) ? source->rank : source->needs;
    if (source->miss)
        return source->miss(get, err);
    int code = number_read(get, source->world_size, 1, &size, err);
    if (code != PL_OK || size == 1)
        return code;
    return pl_fail(err, PL_EINVAL,
                   "%s is %d, but %s is not set, so this process does not know its "
                   "rank: set it, or unset %s to run one process",
                   source->world_size, size, lacks, source->world_size);
}

/* Variables that show that a process is one of several ranks, but tell too little to join
 * the others: with the least value that a single process does not have, and with what is
 * needed to join the others. */
static const struct {
    const char *name;
    int min;                                                /* of a size 2, of a rank 1 */
    const char *needed[2];
} signs[] = {
    {"LOCAL_RANK", 1, {"RANK", "WORLD_SIZE"}},
    {"LOCAL_WORLD_SIZE", 2, {"RANK", "WORLD_SIZE"}},
    {"NODE_RANK", 1, {"RANK", "WORLD_SIZE"}},
    {"GROUP_RANK", 1, {"RANK", "WORLD_SIZE"}},
    {"SLURM_PROCID", 1, {"SLURM_NTASKS", "SLURM_STEP_ID"}},
    {"OMPI_COMM_WORLD_RANK", 1, {"OMPI_COMM_WORLD_SIZE"}},
    {"OMPI_COMM_WORLD_LOCAL_RANK", 1, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", 2, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
    {"PMI_RANK", 1, {"PMI_SIZE"}},
    {"MPI_LOCALRANKID", 1, {"PMI_RANK", "PMI_SIZE"}},
    {"MPI_LOCALNRANKS", 2, {"PMI_RANK", "PMI_SIZE"}},
    {"JSM_NAMESPACE_RANK", 1, {"JSM_NAMESPACE_SIZE", "LSB_DJOB_RANKFILE"}},
    {"JSM_NAMESPACE_LOCAL_RANK", 1, {"JSM_NAMESPACE_RANK", "LSB_DJOB_RANKFILE"}},
    {"PMIX_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"MV2_COMM_WORLD_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"MV2_COMM_WORLD_SIZE", 2, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PALS_RANKID", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"FLUX_TASK_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PACELINE_LOCAL_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PACELINE_NODE_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PACELINE_LOCAL_WORLD_SIZE", 2, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
};

static int sign_fail(get_t get, const char *name, const char *const needed[2],
                     pl_error_t *err)
{
    static const char *const own[2] = {"PACELINE_RANK", "PACELINE_WORLD_SIZE"};
    const bool has[2] = {text_of(get, needed[0]), !needed[1] || text_of(get, needed[1])};
    char missing[80];
    if (has[0] && has[1])
        return sign_fail(get, name, own, err);
    if (has[0] || has[1])
        snprintf(missing, sizeof missing, "%s is", needed[has[0]]);
    else
        snprintf(missing, sizeof missing, "%s and %s are", needed[0], needed[1]);
    return pl_fail(err, PL_EINVAL,
                   "%s is %.40s, so this process is one of several ranks, but %s not "
                   "set: set what is missing, or set trainer.launcher to \"inline\" to "
                   "train alone",
                   name, text_of(get, name), missing);
}

int pl_environment_read(pl_environment_t *environment, get_t get, pl_error_t *err)
{
    pl_environment_t e = {.node_rank = -1};
    const char *endpoint = text_of(get, "PACELINE_ENDPOINT"),
               *job = text_of(get, paceline.job);
    const environment_source_t *s = text_of(get, paceline.rank) ? &paceline : sources;
    while (s != &paceline && s < sources + SOURCES && !is_there(s, get))
        s++;
    const bool is_found = s == &paceline || s < sources + SOURCES;
    int code = is_found ? source_read(&e, s, get, err) : alone_check(&paceline, get, err);
    if (code == PL_OK && is_found && s != &paceline)
        code = others_agree(&e, s, get, err);
    for (s = sources; s < sources + SOURCES && code == PL_OK && !is_found; s++)
        code = alone_check(s, get, err);
    for (size_t k = 0; k < sizeof signs / sizeof *signs && code == PL_OK && !is_found;
         k++) {
        const char *text = text_of(get, signs[k].name);
        if (text && atoi(text) >= signs[k].min)
            code = sign_fail(get, signs[k].name, signs[k].needed, err);
    }
    if (code != PL_OK)
        return code;
    if (endpoint && strlen(endpoint) >= sizeof e.endpoint)
        return pl_fail(err, PL_EINVAL, "PACELINE_ENDPOINT is too long");
    if (endpoint)
        snprintf(e.endpoint, sizeof e.endpoint, "%s", endpoint);
    if (job)
        snprintf(e.job, sizeof e.job, "%s", job);
    *environment = e;
    return PL_OK;
}
