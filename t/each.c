/* each.c - a program for t/script.t, of which every process has its say
 *
 *     each same | differ | stage | early | leave | die | metric | blocked
 *
 * It trains on data of its own, which no file tells of.  Every process prints its number,
 * how the run was and after how many steps; "differ": their options are not the same;
 * "stage": nor is what they do; "early": one ends before it trains; "leave": one does not
 * train again as the others do; "die": one is killed in its second epoch, once;
 * "metric": one logs under another name; "blocked": the second run of the program cannot
 * listen and is tried again, then one is killed in it, once. */
#include <event2/event.h>
#include <fcntl.h>
#include <glob.h>
#include <paceline.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLES = 48 };

static const char *how = "same";
static int status = 1, runs;

static const char run[] =
    "{\"module\": {\"name\": \"mlp\", \"hidden\": [4], \"classes\": 2},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 1e-2},"
    " \"data\": {\"name\": \"memory\", \"source\": \"points\", \"batch_size\": 4, "
    "\"val_split\": 0.25},"
    " \"trainer\": {\"max_epochs\": 2, \"devices\": 2, \"launcher\": \"script\","
    " \"default_root_dir\": \"each\", \"accelerator\": {\"name\": \"cpu\", "
    "\"threads\": 1}}}";

/* The last one that is started, of rank 1. */
static bool is_other(const char *when)
{
    return !strcmp(how, when) && pl_rank() == 2;
}

static void line_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    const pl_node_t logits = pl_linear(g, "fc", pl_input(g, "x"), 2);
    pl_output(g, "logits", logits);
    if (stage == PL_PREDICT)
        return;
    pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), NULL));
    pl_log(g, is_other("metric") ? "recall" : "acc",
           pl_accuracy(g, logits, pl_input(g, "y"), NULL), PL_ON_EPOCH);
}

static const pl_module_ops_t line = {.name = "line", .size = 1, .step = line_step};

static int points_read(void *user, const pl_read_request_t *request, void *const field[],
                       pl_error_t *err)
{
    (void)user, (void)err;
    float(*x)[2] = field[0];
    int64_t *y = field[1];
    for (int k = 0; k < request->count; k++) {
        y[k] = request->index[k] % 2;
        x[k][y[k]] = (float)request->index[k] / SAMPLES;
        x[k][!y[k]] = 0;
    }
    if ((is_other("die") || (is_other("blocked") && runs == 1)) && request->epoch == 1
        && open("died", O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0)
        kill(getpid(), SIGKILL);
    return PL_OK;
}

/* A folder takes the place of the socket where the processes call, or gives it back. */
static void calls_block(bool is_blocked)
{
    char pattern[300];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/pl-*", getenv("TMPDIR"));
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1) {
        snprintf(pattern, sizeof pattern, "%s/calls", found.gl_pathv[0]);
        unlink(pattern);
        if (is_blocked ? mkdir(pattern, 0700) : rmdir(pattern))
            perror(pattern);
    }
    globfree(&found);
}

static bool runs_again(void)
{
    static int failed;
    const bool is_blocked = !strcmp(how, "blocked");
    failed += status;
    runs += !status || !is_blocked;
    if (is_blocked && pl_rank() == 0 && runs == 1 && failed < 2)
        calls_block(!status);
    return runs < 2
           && (is_blocked ? failed < 2 : !strcmp(how, "leave") && !is_other("leave"));
}

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *base)
{
    pl_error_t err = {0};
    status = strcmp(result->status, "ok") != 0;
    printf("%d %s %llu\n", pl_rank(), result->status,
           (unsigned long long)result->global_step);
    fflush(stdout);
    if (status && pl_rank() == 0)
        fprintf(stderr, "%s\n", result->error.text);
    if (!runs_again() || pl_trainer_fit(trainer, on_done, base, &err) != PL_OK)
        event_base_loopbreak(base);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    const pl_memory_data_t points = {.samples = SAMPLES,
                                     .field_count = 2,
                                     .field = {{"x", PL_F32, PL_SHAPE(2)},
                                               {"y", PL_I64, {0}}},
                                     .read = points_read};
    static const pl_registration_t components[] = {{"module", &line},
                                                   PL_REGISTRATIONS_END};
    int code = pl_init(&argc, &argv, components, &err);
    how = argc > 1 ? argv[1] : how;
    if (is_other("early"))
        return 0;
    struct event_base *base = event_base_new();
    pl_engine_t *engine = code == PL_OK ? pl_engine_new(base, &err) : NULL;
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    if (options && is_other("differ"))
        pl_options_set(options, "optimizer.lr", "1e-3", &err);
    if (options && !strcmp(how, "metric"))
        pl_options_set(options, "module", "line", &err);
    pl_trainer_t *trainer = options && pl_memory_data("points", &points, &err) == PL_OK
                                ? pl_trainer_new(engine, options, &err)
                                : NULL;
    if (trainer && is_other("stage"))
        code = pl_trainer_validate(trainer, "none.safetensors", on_done, base, &err);
    else if (trainer)
        code = pl_trainer_fit(trainer, on_done, base, &err);
    if (trainer && code == PL_OK)
        event_base_dispatch(base);
    if (err.code != PL_OK)
        fprintf(stderr, "each: %s\n", err.text);
    pl_options_free(options);
    pl_engine_free(engine);
    event_base_free(base);
    return status;
}
