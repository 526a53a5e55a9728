/* environment.c - tests of actors/launchers/environment.c: each source by its own
 * variables, and what contradicts itself; of bootstrap.c: a name that is not resolved */
#include "actors/launchers/bootstrap.h"

#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tap.h"

static const char *const *variables;                        /* "NAME=VALUE" up to NULL */

static char *get(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *v = variables; v && *v; v++)
        if (!strncmp(*v, name, length) && (*v)[length] == '=')
            return (char *)*v + length + 1;
    return NULL;
}

static pl_environment_t e;
static pl_error_t err;

static int read_all(const char *const *all)
{
    variables = all;
    e = (pl_environment_t){0};
    err = (pl_error_t){0};
    int code = pl_environment_read(&e, get, &err);
    if (code != PL_OK)
        tap_diag("%s", err.text);
    return code;
}

#define READ(...) read_all((const char *const[]){__VA_ARGS__, NULL})

static void is_place(const char *source, int rank, int world, int local, int local_world,
                     int node)
{
    is_text(e.source, source, "%s is the source", source);
    ok(e.rank == rank && e.world_size == world, "rank %d of %d", e.rank, e.world_size);
    ok(e.local_rank == local && e.local_world_size == local_world, "on the node %d of %d",
       e.local_rank, e.local_world_size);
    is_int(e.node_rank, node, "which is node %d", e.node_rank);
}

/* ---- each source ---- */

static void an_empty_environment_has_no_launcher(void)
{
    is_int(READ("HOME=/root", "MASTER_ADDR=n", "MASTER_PORT=1"), PL_OK,
           "nor is that an error");
    ok(!e.source, "no source");
}

static void torchrun_is_understood(void)
{
    READ("TORCHELASTIC_RUN_ID=job7", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
         "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "MASTER_ADDR=node1", "MASTER_PORT=29500",
         "TORCHELASTIC_RESTART_COUNT=2");
    is_place("torchrun", 5, 8, 1, 4, 1);
    is_text(e.endpoint, "tcp://node1:29500", "the launcher's place");
    is_text(e.job, "job7", "its name");
    is_int(e.restarts, 2, "restarts");
    READ("TORCHELASTIC_RUN_ID=x", "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=fe80::1",
         "MASTER_PORT=80");
    is_text(e.endpoint, "tcp://[fe80::1]:80", "an IPv6 address stands in brackets");
    READ("TORCHELASTIC_RUN_ID=none", "RANK=0", "WORLD_SIZE=1");
    is_text(e.job, "", "runs without a name are not one job");
    READ("TORCHELASTIC_RUN_ID=x", "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=n",
         "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True");
    is_text(e.endpoint, "tcp://n:29501", "beside the port that torchrun holds itself");
}

static void slurm_is_understood(void)
{
    READ("SLURM_NTASKS=7", "SLURM_PROCID=6", "SLURM_LOCALID=0", "SLURM_NODEID=3",
         "SLURM_JOB_ID=1234567", "SLURM_STEP_ID=12", "SLURM_JOB_NAME=train.sh",
         "SLURM_STEP_NODELIST=n[08-10,12]", "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
         "SLURM_NODELIST=other");
    is_place("Slurm", 6, 7, 0, 1, 3);
    is_text(e.endpoint, "tcp://n08:19567", "first node, 15000 and the job's last digits");
    is_text(e.job, "1234567.12", "each srun of a job is a run of its own");
    ok(!e.is_bound, "ranks share the processors");
    READ("SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NODEID=0",
         "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_NODELIST=gpu3,gpu4",
         "SLURM_TASKS_PER_NODE=2(x2)", "SLURM_CPU_BIND_TYPE=mask_cpu:");
    ok(e.is_bound, "or have some of their own");
    is_place("Slurm", 1, 4, 1, 2, 0);
    is_text(e.endpoint, "tcp://gpu3:15012", "of the job when the step says nothing");
    READ("SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_STEP_ID=0",
         "SLURM_CPU_BIND_TYPE=none");
    ok(!e.is_bound, "which a user may not intend");
    READ("SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_JOB_NAME=bash");
    ok(!e.source, "a shell that was asked for is no rank");
    READ("SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_STEP_ID=0",
         "SLURM_JOB_NAME=interactive");
    ok(!e.source, "by either of its names");
}

static void a_batch_script_of_slurm_is_no_rank(void)
{
    is_int(READ("SLURM_NTASKS=1", "SLURM_PROCID=0", "SLURM_JOB_ID=7"), PL_OK,
           "it may train by itself");
    ok(!e.source, "as no rank");
    is_int(READ("SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=7"), PL_EINVAL,
           "where others could, srun was forgotten");
    like(err.text, "4 tasks.*SLURM_NTASKS.*srun.*trainer.launcher", "and is named");
    READ("SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=7", "OMPI_COMM_WORLD_SIZE=4",
         "OMPI_COMM_WORLD_RANK=2");
    is_text(e.source, "Open MPI", "mpirun in one starts ranks");
}

static void open_mpi_is_understood(void)
{
    READ("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2",
         "OMPI_COMM_WORLD_LOCAL_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
         "PMIX_NAMESPACE=prterun-n1-77@1", "PACELINE_ENDPOINT=tcp://127.0.0.1:4000");
    is_place("Open MPI", 2, 4, 2, 4, 0);
    is_text(e.endpoint, "tcp://127.0.0.1:4000", "the place is given");
    is_text(e.job, "prterun-n1-77@1", "the job");
    ok(!e.is_bound, "ranks share the processors");
    READ("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2",
         "OMPI_MCA_orte_bound_at_launch=1");
    ok(e.is_bound, "or have some of their own");
}

static void mpich_is_understood(void)
{
    READ("PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2");
    is_place("MPICH", 3, 4, 1, 2, -1);
    is_text(e.endpoint, "", "it tells no place");
    is_text(e.job, "", "and no name");
    READ("PMI_RANK=3", "PMI_SIZE=4", "PACELINE_ENDPOINT=n:1", "PACELINE_RUN_ID=mine");
    is_text(e.endpoint, "n:1", "which may be given");
    is_text(e.job, "mine", "both");
    READ("PMI_RANK=0");
    ok(!e.source, "a rank without a size is none");
}

static void lsf_is_understood(void)
{
    char path[256], variable[300];
    snprintf(path, sizeof path, "%s/ranks", tap_folder());
    snprintf(variable, sizeof variable, "LSB_DJOB_RANKFILE=%s", path);
    FILE *file = fopen(path, "w");
    fputs("login\nc1\nc1\nc2\nc2\nc2\n", file);
    fclose(file);
    READ("LSB_JOBID=98765", variable, "JSM_NAMESPACE_SIZE=5", "JSM_NAMESPACE_RANK=4",
         "JSM_NAMESPACE_LOCAL_RANK=2", "JSM_NAMESPACE_LOCAL_SIZE=3");
    is_place("LSF", 4, 5, 2, 3, -1);
    is_text(e.endpoint, "tcp://c1:23765", "the second line of the rank file");
    is_text(e.job, "98765", "the job");
    READ("LSB_JOBID=98765", variable);
    ok(!e.source, "a job's script is no rank");
    file = fopen(path, "w");
    fputs("login\n", file);
    fclose(file);
    is_int(READ("LSB_JOBID=1", variable, "JSM_NAMESPACE_SIZE=5", "JSM_NAMESPACE_RANK=4"),
           PL_EINVAL, "one of a host alone is refused");
    like(err.text, "LSB_DJOB_RANKFILE.*no second line", "with its variable");
    is_int(READ("LSB_JOBID=1", "LSB_DJOB_RANKFILE=/no/such", "JSM_NAMESPACE_SIZE=5",
                "JSM_NAMESPACE_RANK=4"),
           PL_EINVAL, "one that cannot be read is named");
    like(err.text, "LSB_DJOB_RANKFILE.*/no/such", "with its variable");
}

static void kubernetes_is_understood(void)
{
    READ("JOB_COMPLETION_INDEX=2", "PACELINE_WORLD_SIZE=3", "HOSTNAME=my-job-2",
         "SUBDOMAIN=svc");
    is_place("Kubernetes", 2, 3, 0, 1, 2);
    is_text(e.endpoint, "tcp://my-job-0.svc:15000", "the first pod");
    is_text(e.job, "my-job", "the job");
    is_int(READ("JOB_COMPLETION_INDEX=2"), PL_EINVAL, "it does not tell how many");
    like(err.text, "Kubernetes.*PACELINE_WORLD_SIZE", "what to set is said");
}

static void rank_and_world_size_alone_are_understood(void)
{
    READ("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
         "MASTER_ADDR=job-master-0", "MASTER_PORT=23456");
    is_place("the environment", 5, 8, 1, 4, -1);
    is_text(e.endpoint, "tcp://job-master-0:23456", "where rank 0 is");
    is_text(e.job, "", "the job has no name");
    READ("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=1");
    is_place("the environment", 1, 2, 0, 0, -1);
    READ("RANK=1", "WORLD_SIZE=2", "PACELINE_ENDPOINT=n:1");
    is_text(e.endpoint, "n:1", "or the place is given");
    is_int(READ("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=m", "MASTER_PORT=1"), PL_OK,
           "a world of one rank");
    ok(!e.source, "is a program by itself");
    READ("RANK=2", "WORLD_SIZE=4", "PMI_RANK=2", "PMI_SIZE=4");
    is_text(e.source, "MPICH", "every other source comes before");
}

static void a_rank_never_trains_alone_because_a_variable_is_missing(void)
{
    static const struct {
        const char *const all[5];
        const char *text;
    } wrong[] = {
        {{"RANK=1", "MASTER_ADDR=m", "MASTER_PORT=1"},
         "RANK is 1, but WORLD_SIZE is not set"},
        {{"WORLD_SIZE=4"}, "WORLD_SIZE is 4, but RANK is not set"},
        {{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=m"},
         "MASTER_ADDR are set, but MASTER_PORT is not"},
        {{"RANK=1", "WORLD_SIZE=4", "MASTER_PORT=7"},
         "MASTER_PORT are set, but MASTER_ADDR is not"},
        {{"RANK=1", "WORLD_SIZE=1"}, "RANK is 1 and WORLD_SIZE is 1"},
        {{"RANK=4", "WORLD_SIZE=4"}, "RANK is 4 and WORLD_SIZE is 4"},
        {{"RANK=one", "WORLD_SIZE=4"}, "RANK is \"one\""},
        {{"RANK=1", "WORLD_SIZE=many"}, "WORLD_SIZE is \"many\""},
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=4"},
         "LOCAL_WORLD_SIZE is 4 and WORLD_SIZE is 2"},
        {{"PACELINE_WORLD_SIZE=3"}, "PACELINE_WORLD_SIZE is 3, but PACELINE_RANK is not"},
        {{"PMI_SIZE=2"}, "PMI_SIZE is 2, but PMI_RANK is not set"},
        {{"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=1"},
         "LOCAL_RANK is 1, .* RANK and WORLD_SIZE are not set.*\"inline\""},
        {{"LOCAL_WORLD_SIZE=2"}, "LOCAL_WORLD_SIZE is 2, .* RANK and WORLD_SIZE are not"},
        {{"TORCHELASTIC_RUN_ID=x", "LOCAL_RANK=1"}, "RANK and WORLD_SIZE are not set"},
        {{"NODE_RANK=1"}, "NODE_RANK is 1, .* RANK and WORLD_SIZE are not set"},
        {{"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_SIZE is not set"},
        {{"PMI_RANK=1"}, "PMI_SIZE is not set"},
        {{"PMIX_RANK=1"}, "PACELINE_RANK and PACELINE_WORLD_SIZE are not set"},
        {{"PMIX_RANK=1", "PACELINE_LOCAL_RANK=0"}, "PACELINE_RANK and PACELINE_WORLD"},
        {{"SLURM_PROCID=1"}, "SLURM_NTASKS and SLURM_STEP_ID are not set"},
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0"}, "SLURM_NTASKS is not set"},
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_JOB_NAME=bash"},
         "SLURM_PROCID is 1, .* PACELINE_RANK and PACELINE_WORLD_SIZE are not set"},
        {{"JSM_NAMESPACE_RANK=1"}, "JSM_NAMESPACE_SIZE and LSB_DJOB_RANKFILE are not"},
        {{"MV2_COMM_WORLD_SIZE=2"}, "MV2_COMM_WORLD_SIZE is 2"},
        {{"PALS_RANKID=1"}, "PALS_RANKID is 1"},
        {{"FLUX_TASK_RANK=1"}, "FLUX_TASK_RANK is 1"},
        {{"JSM_NAMESPACE_RANK=1", "JSM_NAMESPACE_SIZE=2"}, "LSB_DJOB_RANKFILE is not"},
        {{"RANK=0", "WORLD_SIZE=2", "PMI_RANK=1", "PMI_SIZE=2"},
         "MPICH sets PMI_RANK to 1, but the environment sets RANK to 0"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        is_int(read_all(wrong[k].all), PL_EINVAL, "refused");
        like(err.text, wrong[k].text, "%s", wrong[k].text);
    }
}

static void the_first_rank_of_one_trains_alone(void)
{
    is_int(READ("LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "NODE_RANK=0", "PMI_RANK=0",
                "PMIX_RANK=0", "OMPI_COMM_WORLD_RANK=0", "MV2_COMM_WORLD_SIZE=1",
                "FLUX_TASK_RANK=0", "PALS_RANKID=0", "SLURM_PROCID=0"),
           PL_OK, "ranks of 0 and sizes of 1");
    ok(!e.source, "are no source");
    is_int(READ("SLURM_JOB_NAME=interactive", "SLURM_NTASKS=4", "SLURM_PROCID=0"), PL_OK,
           "nor is the shell of an allocation");
}

static void own_variables_win(void)
{
    READ("PACELINE_RANK=1", "PACELINE_WORLD_SIZE=2", "PACELINE_LOCAL_RANK=1",
         "PACELINE_LOCAL_WORLD_SIZE=2", "PACELINE_NODE_RANK=0",
         "PACELINE_ENDPOINT=ipc:///tmp/x", "PACELINE_RUN_ID=r", "TORCHELASTIC_RUN_ID=t",
         "RANK=5", "WORLD_SIZE=8");
    is_place("Paceline", 1, 2, 1, 2, 0);
    is_text(e.endpoint, "ipc:///tmp/x", "its endpoint");
    is_text(e.job, "r", "its job");
}

/* ---- what is refused ---- */

static void contradictions_are_refused_with_both_names(void)
{
    static const struct {
        const char *const all[6];
        const char *text;
    } wrong[] = {
        {{"TORCHELASTIC_RUN_ID=t", "RANK=0", "WORLD_SIZE=4", "PMI_RANK=0", "PMI_SIZE=2"},
         "torchrun sets WORLD_SIZE to 4, but MPICH sets PMI_SIZE to 2"},
        {{"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_STEP_ID=0", "OMPI_COMM_WORLD_SIZE=4",
          "OMPI_COMM_WORLD_RANK=2"},
         "Slurm sets SLURM_PROCID to 0, but Open MPI sets OMPI_COMM_WORLD_RANK to 2"},
        {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "JOB_COMPLETION_INDEX=0",
          "PACELINE_WORLD_SIZE=4"},
         "Open MPI sets OMPI_COMM_WORLD_RANK to 1, but Kubernetes sets "
         "JOB_COMPLETION_INDEX to 0"},
        {{"PMI_RANK=0", "PMI_SIZE=2", "JSM_NAMESPACE_RANK=1", "JSM_NAMESPACE_SIZE=2",
          "LSB_DJOB_RANKFILE=/x"},
         "MPICH sets PMI_RANK to 0, but LSF sets JSM_NAMESPACE_RANK to 1"},
        {{"PMI_RANK=0", "PMI_SIZE=2", "PACELINE_WORLD_SIZE=3"},
         "Paceline sets PACELINE_WORLD_SIZE to 3, but MPICH sets PMI_SIZE to 2"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        is_int(read_all(wrong[k].all), PL_EINVAL, "refused");
        like(err.text, wrong[k].text, "%s", wrong[k].text);
        like(err.text, "unset one of them, or set PACELINE_RANK", "with what to do");
    }
    is_int(READ("SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_STEP_ID=0",
                "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "PACELINE_RANK=2",
                "PACELINE_WORLD_SIZE=4"),
           PL_OK, "our own end the argument");
}

static void sources_may_agree(void)
{
    is_int(READ("SLURM_NTASKS=4", "SLURM_PROCID=2", "SLURM_STEP_ID=0", "PMI_RANK=2",
                "PMI_SIZE=4"),
           PL_OK, "srun that speaks PMI");
    is_text(e.source, "Slurm", "the first counts");
    is_int(READ("TORCHELASTIC_RUN_ID=t", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
                "LOCAL_WORLD_SIZE=4", "SLURM_NTASKS=2", "SLURM_PROCID=1",
                "SLURM_STEP_ID=0"),
           PL_OK, "torchrun as the one task of each of two nodes");
    is_place("torchrun", 5, 8, 1, 4, -1);
    is_int(READ("TORCHELASTIC_RUN_ID=t", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
                "LOCAL_WORLD_SIZE=4", "JOB_COMPLETION_INDEX=1"),
           PL_OK, "torchrun in pods that have a number");
}

static void numbers_are_checked_and_named(void)
{
    static const struct {
        const char *const all[5];
        const char *text;
    } wrong[] = {
        {{"PMI_RANK=x", "PMI_SIZE=2"}, "PMI_RANK is \"x\""},
        {{"PMI_RANK=2", "PMI_SIZE=2"}, "PMI_RANK is 2 and PMI_SIZE is 2"},
        {{"PMI_RANK=-1", "PMI_SIZE=2"}, "PMI_RANK is \"-1\""},
        {{"PMI_RANK=0", "PMI_SIZE=0"}, "PMI_SIZE is \"0\""},
        {{"PMI_RANK=0", "PMI_SIZE=99999999999999999999"}, "PMI_SIZE"},
        {{"PMI_RANK=0", "PMI_SIZE=4", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=2"},
         "MPI_LOCALRANKID is 2 and MPI_LOCALNRANKS is 2"},
        {{"PACELINE_RANK=0"}, "PACELINE_WORLD_SIZE is not set"},
        {{"TORCHELASTIC_RUN_ID=t", "RANK=1"}, "WORLD_SIZE is not set"},
        {{"TORCHELASTIC_RUN_ID=t", "RANK=1", "WORLD_SIZE=2", "MASTER_PORT=70000"},
         "MASTER_PORT is 70000"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        is_int(read_all(wrong[k].all), PL_EINVAL, "refused");
        like(err.text, wrong[k].text, "%s", wrong[k].text);
    }
}

/* ---- node lists ---- */

static void node_lists_are_read(void)
{
    static const struct {
        const char *list;
        int k;
        const char *host;
    } hosts[] = {
        {"n[01-10,12]", 0, "n01"},
        {"n[01-10,12]", 9, "n10"},
        {"n[01-10,12]", 10, "n12"},
        {"n[01-10,12],gpu3", 11, "gpu3"},
        {"a,b,c", 1, "b"},
        {"x[9-11]-ib", 2, "x11-ib"},
        {"single", 0, "single"},
        {"r[1,3]n,s[098-102]", 5, "s101"},
        {"n[01-10,12]", 11, NULL},
        {"n[01-", 0, NULL},
        {"n[]", 0, NULL},
        {"n[3-1]", 0, NULL},
        {"n[1;2]", 1, NULL},
        {"", 0, NULL},
        {",a", 0, NULL},
        {"n[1-99999999999]", 0, NULL},
        {"n]1[", 0, NULL},
        {"n[1-2", 1, NULL},
    };
    for (size_t k = 0; k < sizeof hosts / sizeof *hosts; k++) {
        char host[64] = "";
        int code = pl_node_list_get(hosts[k].list, hosts[k].k, host, sizeof host, &err);
        if (hosts[k].host)
            is_text(host, hosts[k].host, "node %d of %s", hosts[k].k, hosts[k].list);
        else
            is_int(code, PL_EINVAL, "\"%s\" has no node %d", hosts[k].list, hosts[k].k);
    }
}

/* ---- a name that is not resolved ---- */

static pthread_mutex_t unanswered = PTHREAD_MUTEX_INITIALIZER;

/* Takes the place of the C library's: the name server answers when the test says so. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    (void)host, (void)port, (void)hints, (void)found;
    pthread_mutex_lock(&unanswered);
    pthread_mutex_unlock(&unanswered);
    return EAI_AGAIN;
}

static void a_name_server_that_does_not_answer_has_a_limit(void)
{
    char own[PL_RENDEZVOUS_HOST];
    pl_error_t why = {0};
    pthread_mutex_lock(&unanswered);
    pl_lookup_t *lookup = pl_lookup_start("tcp://node0.example:15000", &why);
    ok(!pl_lookup_wait(lookup, pl_now() + PL_SECOND / 10), "the wait has a limit");
    is_int(pl_rendezvous_own_host(lookup, true, own, &why), PL_ETIMEOUT, "an error");
    pl_lookup_leave(lookup);
    pthread_mutex_unlock(&unanswered);
    like(why.text, "host \"node0.example\": the name server has not answered", "%s",
         why.text);
    lookup = pl_lookup_start("tcp://node0.example:15000", &why);
    ok(pl_lookup_wait(lookup, pl_now() + 60 * PL_SECOND), "an answer ends the wait");
    is_int(pl_rendezvous_own_host(lookup, true, own, &why), PL_ENOTFOUND,
           "a name that is not known is another error");
    like(why.text, "host \"node0.example\": ", "%s", why.text);
    pl_lookup_leave(lookup);
}

int main(void)
{
    run(an_empty_environment_has_no_launcher);
    run(torchrun_is_understood);
    run(slurm_is_understood);
    run(a_batch_script_of_slurm_is_no_rank);
    run(open_mpi_is_understood);
    run(mpich_is_understood);
    run(lsf_is_understood);
    run(kubernetes_is_understood);
    run(rank_and_world_size_alone_are_understood);
    run(a_rank_never_trains_alone_because_a_variable_is_missing);
    run(the_first_rank_of_one_trains_alone);
    run(own_variables_win);
    run(contradictions_are_refused_with_both_names);
    run(sources_may_agree);
    run(numbers_are_checked_and_named);
    run(node_lists_are_read);
    run(a_name_server_that_does_not_answer_has_a_limit);
    return tap_done();
}
