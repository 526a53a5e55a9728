/* resume.c - tests that a run killed at any instant and resumed ends with the same bits
 *
 * The runs are processes of this program's own, killed by SIGKILL at random times
 * (PACELINE_SEED repeats them, PACELINE_KILLS says how many of each module; `make soak`
 * asks for many). */
#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "paceline.h"
#include "tap.h"

const pl_registration_t *mlp_plugin(void), *gpt_plugin(void);
extern char **environ;

#define CHANGED_NET "PACELINE_T_CHANGED_NET"
#define STOP_AT "PACELINE_T_STOP_AT"

enum { KILLS = 7, PATH = 600, SIDE = 6, STOPPED = 2 };

/* ---- what is trained: a module with state and chance, data that change ---- */

static void net_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    const pl_conv_options_t conv = {.kernel = 3};
    pl_node_t x = pl_conv2d(g, "conv", pl_input(g, "x"), 4, &conv);
    x = pl_batch_norm(g, "norm", x, 0.1, 1e-5);
    x = getenv(CHANGED_NET) ? pl_tanh(g, x) : pl_relu(g, x);
    x = pl_dropout(g, pl_flatten(g, pl_max_pool2d(g, x, 2, 2, 0), 1), 0.2);
    x = pl_linear(g, "fc", x, 3);
    pl_output(g, "logits", x);
    if (stage == PL_PREDICT)
        return;
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
    pl_log(g, "acc", pl_accuracy(g, x, pl_input(g, "y"), NULL), PL_ON_EPOCH);
}

static const pl_module_ops_t net = {.name = "net", .size = 1, .step = net_step};

/* The rest of each other epoch is passed over. */
static int skipper_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)err;
    request->skip = event->epoch % 2 && event->batch >= 6;
    return PL_OK;
}

static const pl_callback_ops_t skipper = {.name = "skipper",
                                          .size = 1,
                                          .points = PL_AT(TRAIN_BATCH_END),
                                          .on = skipper_on};

/* As a validation after that step begins, or that step or a later one has been made, the
 * program stops the run. */
static struct {
    int asked;                                              /* an eventfd */
    sem_t reported;
} stopping = {.asked = -1};

static int stopper_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    const char *at = getenv(STOP_AT);
    const uint64_t step = at ? strtoull(at, NULL, 10) : 0;
    const bool is_step = point == PL_HOOK_TRAIN_BATCH_END && !event->validates
                         && event->global_step >= step;
    (void)self, (void)request, (void)err;
    if (at
        && (is_step
            || (point == PL_HOOK_VALIDATION_START && event->global_step == step))) {
        eventfd_write(stopping.asked, 1);
        sem_wait(&stopping.reported);
    }
    return PL_OK;
}

static const pl_callback_ops_t stopper = {.name = "stopper",
                                          .size = 1,
                                          .points = PL_AT(VALIDATION_START)
                                                    | PL_AT(TRAIN_BATCH_END),
                                          .on = stopper_on};

static void on_asked(evutil_socket_t fd, short what, void *trainer)
{
    eventfd_t count;
    (void)what;
    eventfd_read(fd, &count);
    pl_trainer_stop(trainer, "the program", NULL);
    sem_post(&stopping.reported);
}

/* Pictures of three kinds, each with noise of its own in each epoch. */
static int pictures_read(void *user, const pl_read_request_t *request,
                         void *const field[], pl_error_t *err)
{
    (void)user, (void)err;
    float *x = field[0];
    int64_t *y = field[1];
    for (int i = 0; i < request->count; i++) {
        uint64_t noise = request->seed + 977 * request->epoch
                         + 31 * (uint64_t)request->index[i] + 1;
        y[i] = request->index[i] % 3;
        for (int k = 0; k < SIDE * SIDE; k++) {
            noise = noise * 6364136223846793005u + 1442695040888963407u;
            *x++ = (float)((k + y[i]) % 3) + (float)(noise >> 40) / (float)(1 << 24);
        }
    }
    return PL_OK;
}

/* Without a shuffle: not finite in two batches, one behind the other, of each epoch. */
static int spoiled_read(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    int code = pictures_read(user, request, field, err);
    float *x = field[0];
    for (int i = 0; i < request->count; i++) {
        const int64_t first = 20 - 12 * (int64_t)(request->epoch % 2);
        if (request->index[i] >= first && request->index[i] < first + 8)
            x[i * SIDE * SIDE] = NAN;
    }
    return code;
}

static bool components_register(void)
{
    static const pl_registration_t own[] = {{"module", &net},
                                            {"callback", &skipper},
                                            {"callback", &stopper},
                                            PL_REGISTRATIONS_END};
    static const pl_memory_data_t pictures = {
        .samples = 50,
        .field_count = 2,
        .field = {{"x", PL_F32, {3, {1, SIDE, SIDE}}}, {"y", PL_I64, {0}}},
        .data_info = "{\"classes\": 3}",
        .read = pictures_read};
    pl_memory_data_t spoiled = pictures;
    spoiled.read = spoiled_read;
    return pl_init(NULL, NULL, own, NULL) == PL_OK
           && pl_register(mlp_plugin(), NULL) == PL_OK
           && pl_register(gpt_plugin(), NULL) == PL_OK
           && pl_memory_data("pictures", &pictures, NULL) == PL_OK
           && pl_memory_data("spoiled", &spoiled, NULL) == PL_OK;
}

/* ---- a run in a process of its own ---- */

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    if (strcmp(result->status, "ok"))
        fprintf(stderr, "%s: %s\n", result->status, result->error.text);
    *(int *)user = !strcmp(result->status, "stopped") ? STOPPED
                                                      : strcmp(result->status, "ok") != 0;
}

static void log_line(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    fprintf(stderr, "%s\n", text);
}

/* from: "" a new run, "last", or a checkpoint. */
static int child(const char *file, const char *from)
{
    pl_error_t err = {0};
    int end = -1;
    struct event_base *base = event_base_new();
    pl_log_hook(log_line, PL_LOG_WARNING, NULL);
    pl_engine_t *engine = components_register() ? pl_engine_new(base, &err) : NULL;
    pl_options_t *options = engine ? pl_options_load(file, &err) : NULL;
    pl_trainer_t *trainer = options ? pl_trainer_new(engine, options, &err) : NULL;
    int code = trainer ? PL_OK : PL_EINVAL;
    stopping.asked = eventfd(0, EFD_CLOEXEC);
    sem_init(&stopping.reported, 0, 0);
    struct event *asked = event_new(base, stopping.asked, EV_READ | EV_PERSIST, on_asked,
                                    trainer);
    event_add(asked, NULL);
    if (trainer && *from)
        code = pl_trainer_resume(trainer, strcmp(from, "last") ? from : NULL, on_done,
                                 &end, &err);
    else if (trainer)
        code = pl_trainer_fit(trainer, on_done, &end, &err);
    alarm(60);
    while (code == PL_OK && end < 0 && event_base_loop(base, EVLOOP_ONCE) == 0)
        ;
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    event_free(asked);
    pl_options_free(options);
    pl_engine_free(engine);
    event_base_free(base);
    return end < 0 ? 1 : end;
}

static pid_t child_begin(const char *file, const char *from)
{
    pid_t pid = 0;
    posix_spawn_file_actions_t actions;
    char *arguments[] = {(char *)"resume", (char *)"child", (char *)file, (char *)from,
                         NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "child.log",
                                     O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Kills it after so long [negative: lets it end] -> 0 it ended well, 1 badly, STOPPED, -1
 * it was killed. */
static int child_end(pid_t pid, double after)
{
    int status = 0;
    if (after >= 0) {
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)(after * 1e3));
        close(fd);
        kill(pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
}

static int run_whole(const char *file, const char *from)
{
    return child_end(child_begin(file, from), -1);
}

/* ---- what a run has left ---- */

static bool same_file(const char *a, const char *b, const char *name)
{
    char path[2 * PATH];
    size_t sizes[2];
    snprintf(path, sizeof path, "%s/%s", a, name);
    uint8_t *one = file_get(path, &sizes[0]);
    snprintf(path, sizeof path, "%s/%s", b, name);
    uint8_t *other = file_get(path, &sizes[1]);
    bool same = one && other && sizes[0] == sizes[1] && !memcmp(one, other, sizes[0]);
    free(one), free(other);
    return same;
}

/* The lines of metrics.jsonl without the time. */
static json_t *log_of(const char *run_dir)
{
    char path[2 * PATH];
    size_t size;
    json_t *all = json_array();
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    char *text = (char *)file_get(path, &size), *rest = text;
    for (char *line; rest && *rest && (line = strsep(&rest, "\n"));) {
        json_t *object = json_loads(line, 0, NULL);
        json_object_del(object, "time");
        json_array_append_new(all, object);
    }
    free(text);
    return all;
}

static bool same_log(const char *a, const char *b)
{
    json_t *one = log_of(a), *other = log_of(b);
    bool same = json_array_size(one) > 3 && json_equal(one, other);
    json_decref(one), json_decref(other);
    return same;
}

static json_t *manifest_of(const char *run_dir, const char *name)
{
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/checkpoints/%s/manifest.json", run_dir, name);
    return json_load_file(path, 0, NULL);
}

/* The counts of all loops, of a checkpoint of a run. */
static json_t *counts_of(const char *run_dir, const char *name)
{
    static const char *const loops[] = {NULL, "epoch", "validate"};
    json_t *all = json_object(), *manifest = manifest_of(run_dir, name),
           *progress = json_object_get(manifest, "progress");
    for (int k = 0; k < 3; k++)
        json_object_update(all,
                           json_object_get(loops[k] ? json_object_get(progress, loops[k])
                                                    : progress,
                                           "counts"));
    json_decref(manifest);
    return all;
}

static bool same_counts(const char *a, const char *b, const char *name)
{
    json_t *one = counts_of(a, name), *other = counts_of(b, name);
    bool same = json_object_size(one) >= 3 && json_equal(one, other);
    json_decref(one), json_decref(other);
    return same;
}

/* Every checkpoint of a is in b, tensor for tensor and count for count. */
static bool same_checkpoints(const char *a, const char *b)
{
    char folder[PATH + 16], name[PATH];
    int count = 0, same = 0;
    snprintf(folder, sizeof folder, "%s/checkpoints", a);
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        snprintf(name, sizeof name, "checkpoints/%s/model.safetensors", entry->d_name);
        bool model = same_file(a, b, name);
        snprintf(name, sizeof name, "checkpoints/%s/optimizer.safetensors",
                 entry->d_name);
        same += model && same_file(a, b, name) && same_counts(a, b, entry->d_name);
    }
    if (entries)
        closedir(entries);
    return count && same == count;
}

static void show_child_log(void)
{
    size_t size;
    char *text = (char *)file_get("child.log", &size);
    tap_diag("%s", text && *text ? text : "the process said nothing");
    free(text);
}

/* ---- the runs ---- */

typedef struct subject {
    const char *name, *text;                               /* of the run file; root: %s */
} subject_t;

#define CHECKPOINTS \
    "\"callbacks\": [{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 2, " \
    "\"save_top_k\": 1, \"save_last\": true}, {\"name\": \"model_checkpoint\", " \
    "\"monitor\": \"val_loss\", \"save_top_k\": 2, \"filename\": " \
    "\"best-{epoch}-{step}\"}]"
#define PICTURES \
    "\"data\": {\"name\": \"memory\", \"source\": \"pictures\", \"batch_size\": 4, " \
    "\"val_split\": 0.2, \"workers\": 2}"

#define GOES_BACK(when) \
    "{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, " \
    "\"data\": {\"name\": \"memory\", \"source\": \"spoiled\", \"batch_size\": 4, " \
    "\"shuffle\": false}, " \
    "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}, " \
    "\"callbacks\": [\"stopper\", {\"name\": \"model_checkpoint\", " when "}], " \
    "\"trainer\": {\"max_epochs\": 5, \"nan_policy\": \"rollback\", " \
    "\"log_every_n_steps\": 1, \"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, " \
    "\"default_root_dir\": \"%s\"}}"

static const subject_t subjects[] = {
    {"an mlp",
     "{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, " PICTURES ", "
     "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}, "
     "\"averaging\": {\"name\": \"ema\", \"decay\": 0.9}, " CHECKPOINTS
     ", \"trainer\": {\"max_epochs\": 5, \"val_check_interval\": 3, "
     "\"log_every_n_steps\": 3, \"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
     "\"default_root_dir\": \"%s\"}}"},
    {"a cnn with batch norm, dropout and noise, in steps of three batches",
     "{\"module\": \"net\", " PICTURES ", "
     "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.01}, "
     "\"scheduler\": {\"name\": \"reduce_on_plateau\", \"patience\": 0, "
     "\"factor\": 0.7, \"threshold\": 0.05, \"warmup_steps\": 3}, "
     "\"averaging\": {\"name\": \"swa\", \"start\": 1}, " CHECKPOINTS
     ", \"trainer\": {\"max_epochs\": 5, \"accumulate_grad_batches\": 3, "
     "\"val_check_interval\": 0.5, \"log_every_n_steps\": 1, "
     "\"accelerator\": {\"name\": \"cpu\", \"threads\": 2}, "
     "\"default_root_dir\": \"%s\"}}"},
    {"a gpt",
     "{\"module\": {\"name\": \"gpt\", \"layers\": 1, \"heads\": 2, \"width\": 8, "
     "\"dropout\": 0.1}, \"data\": {\"name\": \"text\", \"path\": \"text.txt\", "
     "\"context\": 8, \"vocabulary\": \"char\", \"windows\": \"random\", "
     "\"val_split\": 0.1, \"batch_size\": 4}, "
     "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.01}, " CHECKPOINTS
     ", \"trainer\": {\"max_steps\": 30, \"gradient_clip_val\": 1.0, "
     "\"val_check_interval\": 7, \"limit_val_batches\": 2, \"log_every_n_steps\": 4, "
     "\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
     "\"default_root_dir\": \"%s\"}}"},
    {"an mlp in float16 whose loss is scaled by too much at first",
     "{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, " PICTURES ", "
     "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.01}, " CHECKPOINTS
     ", \"trainer\": {\"max_epochs\": 5, \"log_every_n_steps\": 1, \"precision\": "
     "{\"name\": \"16-true\", \"init_scale\": 1e9, \"growth_interval\": 8}, "
     "\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
     "\"default_root_dir\": \"%s\"}}"},
    {"a cnn whose callbacks freeze, accumulate and skip",
     "{\"module\": \"net\", " PICTURES ", "
     "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.01, \"weight_decay\": 0.1}, "
     "\"callbacks\": [\"skipper\", {\"name\": \"gradient_accumulation_scheduler\", "
     "\"epochs\": [1, 3], \"batches\": [2, 3]}, {\"name\": \"finetuning\", "
     "\"freeze\": \"conv* norm*\", \"epochs\": [2, 4], \"unfreeze\": "
     "\"norm*; conv*\"}, {\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1, "
     "\"save_top_k\": 1, \"save_last\": true}], "
     "\"trainer\": {\"max_epochs\": 5, \"log_every_n_steps\": 2, "
     "\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
     "\"default_root_dir\": \"%s\"}}"},
    {"an mlp whose rate, momentum and weight decay follow sequences",
     "{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, " PICTURES ", "
     "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9, "
     "\"weight_decay\": 0.1}, \"scheduler\": {\"name\": \"sequential\", "
     "\"milestones\": [5, 11], \"schedules\": [{\"name\": \"ramp\"}, "
     "{\"name\": \"chained\", \"schedules\": [\"cosine\", {\"name\": "
     "\"exponential\", \"gamma\": 0.9}]}, {\"name\": \"reduce_on_plateau\", "
     "\"patience\": 0, \"threshold\": 0.2}]}, \"momentum_scheduler\": {\"name\": "
     "\"ramp\", \"start_factor\": 0}, \"weight_decay_scheduler\": {\"name\": "
     "\"sequential\", \"interval\": \"epoch\", \"milestones\": [2], "
     "\"schedules\": [\"constant\", \"cosine\"]}, " CHECKPOINTS
     ", \"trainer\": {\"max_epochs\": 5, \"val_check_interval\": 3, "
     "\"log_every_n_steps\": 1, \"accelerator\": {\"name\": \"cpu\", \"threads\": "
     "1}, \"default_root_dir\": \"%s\"}}"},
    {"an mlp that goes back, twice in a row",
     GOES_BACK("\"save_last\": true, \"every_n_train_steps\": 8")},
};

static subject_t ends_at(const char *text, const char *end)
{
    static char changed[2048];
    const char *at = strstr(text, "\"max_epochs\": 5");
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, end,
             at + strlen("\"max_epochs\": 5"));
    return (subject_t){"another end", changed};
}

static void text_write(void)
{
    FILE *file = fopen("text.txt", "w");
    for (int k = 0; k < 4000; k++)
        fputc("abcdefgh i\n"[(k * k + k / 7) % 11], file);
    fclose(file);
}

/* The run file of a subject in a root of its own; -> its path. */
static const char *run_file(const subject_t *subject, const char *root)
{
    static char path[4][PATH];
    static int slot;
    char text[2048];
    slot = (slot + 1) % 4;
    snprintf(text, sizeof text, subject->text, root);
    snprintf(path[slot], PATH, "%s.json", root);
    FILE *file = fopen(path[slot], "w");
    fputs(text, file);
    fclose(file);
    return path[slot];
}

/* ---- killed at random ---- */

static uint64_t dice;

static double chance(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (double)(dice >> 11) / (double)(UINT64_C(1) << 53);
}

/* The run directory that was begun last. */
static void newest_of(const char *root, char run_dir[PATH])
{
    char latest[PATH];
    snprintf(latest, sizeof latest, "%s/latest", root);
    char *path = pl_run_path(latest);
    if (!strcmp(path, latest))
        tap_diag("%s: no run", root);
    snprintf(run_dir, PATH, "%s", path);
    pl_text_free(path);
}

/* Kills and resumes until it ends by itself -> how many times it was killed, at most
 * `most`; -1: it failed. */
static int run_broken(const char *file, double whole, int max)
{
    int kills = 0, end;
    const char *from = "";
    do {
        double after = kills < max ? chance() * whole : -1;
        end = child_end(child_begin(file, from), after);
        kills += end == -1;
        from = "last";
    } while (end == -1);
    return end == 0 ? kills : -1;
}

static bool is_same(const char *straight, const char *broken)
{
    bool weights = same_file(straight, broken, "model.safetensors"),
         checkpoints = same_checkpoints(straight, broken),
         metrics = same_log(straight, broken);
    if (!(weights && checkpoints && metrics))
        tap_diag("%s differs:%s%s%s", broken, weights ? "" : " weights",
                 checkpoints ? "" : " checkpoints", metrics ? "" : " metrics");
    return weights && checkpoints && metrics;
}

static void killed_at_any_instant(const subject_t *subject, int wanted)
{
    char straight[PATH], broken[PATH], root[64];
    int kills = 0, differ = 0, runs = 0;
    double began = seconds();
    snprintf(root, sizeof root, "straight-%d", (int)(subject - subjects));
    bool ended = run_whole(run_file(subject, root), "") == 0;
    double whole = seconds() - began;
    newest_of(root, straight);
    while (ended && kills < wanted) {
        snprintf(root, sizeof root, "broken-%d-%d", (int)(subject - subjects), runs++);
        int more = run_broken(run_file(subject, root), whole, wanted - kills);
        newest_of(root, broken);
        ended = more >= 0;
        kills += more;
        differ += !is_same(straight, broken);
    }
    if (!ended)
        show_child_log();
    ok(ended, "%s ends, killed %d times in %d runs", subject->name, kills, runs);
    is_int(differ, 0, "with the same weights, optimizer, checkpoints and metrics");
}

static void a_run_killed_at_any_instant_ends_with_the_same_bits(void)
{
    const char *seed = getenv("PACELINE_SEED"), *kills = getenv("PACELINE_KILLS");
    dice = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    tap_diag("PACELINE_SEED=%llu", (unsigned long long)dice);
    for (size_t k = 0; k < sizeof subjects / sizeof *subjects; k++)
        killed_at_any_instant(&subjects[k], kills ? atoi(kills) : KILLS);
}

/* ---- stopped while it validates ---- */

/* Within a step, and at the ends of two epochs. */
static void a_validation_that_a_stop_cut_short_is_made_by_the_resumed_run(void)
{
    static const char *const steps[] = {"1", "4", "12"};
    char text[2048], straight[PATH], broken[PATH];
    snprintf(text, sizeof text, "%s", subjects[1].text);
    const char *callbacks = strstr(subjects[1].text, "\"callbacks\": [")
                            + strlen("\"callbacks\": [");
    snprintf(text, sizeof text, "%.*s\"stopper\", %s",
             (int)(callbacks - subjects[1].text), subjects[1].text, callbacks);
    const subject_t subject = {"stopped", text};
    run_whole(run_file(&subject, "unstopped"), "");
    for (int k = 0; k < 3; k++) {
        setenv(STOP_AT, steps[k], 1);
        is_int(run_whole(run_file(&subject, "stopped"), k ? "last" : ""), STOPPED,
               "stopped after step %s", steps[k]);
    }
    unsetenv(STOP_AT);
    ok(run_whole(run_file(&subject, "stopped"), "last") == 0, "it continues to its end");
    newest_of("unstopped", straight), newest_of("stopped", broken);
    ok(is_same(straight, broken), "as if it had not been stopped");
}

/* ---- a run that goes back ---- */

static const char *const going_back[] = {GOES_BACK("\"every_n_train_steps\": 8"),
                                         GOES_BACK("\"monitor\": \"train_loss\"")};

/* Before and between the steps that fail, and right after the one that is passed over. */
static void a_rollback_is_the_same_after_an_end(void)
{
    static const int ends[] = {3, 6, 7, 15, 16};
    char straight[PATH], broken[PATH], text[2048], end[32], root[32];
    for (int k = 0; k < 10; k++) {
        const subject_t whole = {"goes back", going_back[k % 2]};
        snprintf(root, sizeof root, "back-%d", k % 2);
        if (k < 2)
            ok(run_whole(run_file(&whole, root), "") == 0, "a run that goes back");
        newest_of(root, straight);
        snprintf(root, sizeof root, "back-%d-%d", k % 2, ends[k / 2]);
        snprintf(end, sizeof end, "\"max_steps\": %d", ends[k / 2]);
        snprintf(text, sizeof text, "%s", ends_at(whole.text, end).text);
        run_whole(run_file(&(subject_t){"cut", text}, root), "");
        run_whole(run_file(&whole, root), "last");
        newest_of(root, broken);
        ok(same_file(straight, broken, "model.safetensors"),
           "the same weights as of %d steps and the rest", ends[k / 2]);
    }
}

static void a_rollback_is_the_same_after_stops(void)
{
    static const char *const steps[] = {"2", "6", "9", "15", "17"};
    char straight[PATH], broken[PATH], root[32];
    for (int k = 0; k < 2; k++) {
        const subject_t whole = {"goes back", going_back[k]};
        snprintf(root, sizeof root, "back-%d", k);
        newest_of(root, straight);
        snprintf(root, sizeof root, "back-stops-%d", k);
        for (int i = 0; i < 5; i++) {
            setenv(STOP_AT, steps[i], 1);
            is_int(run_whole(run_file(&whole, root), i ? "last" : ""), STOPPED,
                   "stopped after step %s", steps[i]);
        }
        unsetenv(STOP_AT);
        ok(run_whole(run_file(&whole, root), "last") == 0, "it continues to its end");
        newest_of(root, broken);
        ok(is_same(straight, broken), "as if it had not been stopped");
    }
}

/* ---- from each checkpoint ---- */

/* A subject with all checkpoints kept, to another end. */
static subject_t all_kept_of(const subject_t *subject, const char *end)
{
    static char text[2048];
    const char *top = strstr(subject->text, "\"save_top_k\": 1"),
               *max = strstr(subject->text, "\"max_epochs\": 5");
    snprintf(text, sizeof text, "%.*s\"save_top_k\": -1%.*s%s%s",
             (int)(top - subject->text), subject->text,
             (int)(max - top - strlen("\"save_top_k\": 1")),
             top + strlen("\"save_top_k\": 1"), end, max + strlen("\"max_epochs\": 5"));
    return (subject_t){"all kept", text};
}

static subject_t all_kept(const char *end)
{
    return all_kept_of(&subjects[1], end);
}

static void each_leads_to_the_same_end(const subject_t *subject, const char *root)
{
    char run_dir[PATH], from[2 * PATH], weights[PATH + 32];
    int count = 0, same = 0;
    subject_t all = all_kept_of(subject, "\"max_epochs\": 5");
    const char *file = run_file(&all, root);
    ok(run_whole(file, "") == 0, "%s that keeps all checkpoints", subject->name);
    newest_of(root, run_dir);
    snprintf(weights, sizeof weights, "%s/model.safetensors", run_dir);
    size_t size;
    uint8_t *end = file_get(weights, &size);
    json_t *log = log_of(run_dir);
    snprintf(from, sizeof from, "%s/checkpoints", run_dir);
    DIR *entries = opendir(from);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, "epoch=", 6))
            continue;
        count++;
        snprintf(from, sizeof from, "%s/checkpoints/%s", run_dir, entry->d_name);
        bool ended = run_whole(file, from) == 0;
        size_t now_size;
        uint8_t *now = file_get(weights, &now_size);
        json_t *now_log = log_of(run_dir);
        bool equal = ended && now_size == size && !memcmp(now, end, size)
                     && json_equal(log, now_log);
        same += equal;
        if (!equal)
            tap_diag("not from %s", from);
        if (!ended)
            show_child_log();
        json_decref(now_log);
        free(now);
    }
    closedir(entries);
    ok(count > 8, "%d checkpoints: within epochs and at their ends", count);
    is_int(same, count, "from each the run comes to the same weights and metrics");
    json_decref(log);
    free(end);
}

static void every_checkpoint_leads_to_the_same_end(void)
{
    each_leads_to_the_same_end(&subjects[1], "each");
    each_leads_to_the_same_end(&subjects[4], "requests");
}

/* ---- counts ---- */

static bool has_counts(const json_t *counts, const char *name, int begun, int completed)
{
    const json_t *of = json_object_get(counts, name);
    int ready = -1, started = -1, processed = -1, done = -1;
    json_unpack((json_t *)of, "{s:i, s:i, s:i, s:i}", "ready", &ready, "started",
                &started, "processed", &processed, "completed", &done);
    if (ready == begun && started == begun && processed == completed && done == completed)
        return true;
    tap_diag("%s: %d %d %d %d", name, ready, started, processed, done);
    return false;
}

/* 10 batches of an epoch in 4 steps, and twice 3 of a validation. */
static void loops_continue_their_counts(void)
{
    char run_dir[PATH], middle[PATH + 32];
    subject_t whole = all_kept("\"max_epochs\": 5");
    ok(run_whole(run_file(&whole, "counts"), "") == 0, "a run in steps of three batches");
    newest_of("counts", run_dir);
    snprintf(middle, sizeof middle, "%s/checkpoints/epoch=1-step=6", run_dir);
    json_t *end = counts_of(run_dir, "last");
    ok(has_counts(end, "epochs", 5, 4) && has_counts(end, "batches", 50, 50)
           && has_counts(end, "steps", 20, 20) && has_counts(end, "val_batches", 30, 30),
       "counts epochs, batches, optimizer steps and batches of validations");
    subject_t part = all_kept("\"max_steps\": 8");
    ok(run_whole(run_file(&part, "counts"), middle) == 0, "two steps more from a middle");
    json_t *then = counts_of(run_dir, "last");
    ok(has_counts(then, "epochs", 2, 1) && has_counts(then, "batches", 20, 20)
           && has_counts(then, "steps", 8, 8) && has_counts(then, "val_batches", 12, 12),
       "are counted from there");
    whole = all_kept("\"max_epochs\": 5");
    ok(run_whole(run_file(&whole, "counts"), "last") == 0, "and to the end");
    json_t *again = counts_of(run_dir, "last");
    ok(json_equal(end, again), "they come to the same");
    snprintf(middle, sizeof middle, "%s/checkpoints/epoch=1-step=8", run_dir);
    ok(run_whole(run_file(&whole, "counts"), middle) == 0, "from the end of an epoch");
    json_t *third = counts_of(run_dir, "last");
    ok(json_equal(end, third), "as well: nothing is validated before it continues");
    json_decref(end), json_decref(then), json_decref(again), json_decref(third);
}

/* ---- what may change ---- */

static bool child_has_said(const char *text)
{
    size_t size;
    char *said = (char *)file_get("child.log", &size);
    bool found = said && strstr(said, text);
    free(said);
    return found;
}

static bool child_said(const char *text)
{
    bool found = child_has_said(text);
    if (!found)
        show_child_log();
    return found;
}

static subject_t changed(const char *from, const char *to)
{
    static char text[2048];
    const char *at = strstr(subjects[0].text, from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - subjects[0].text),
             subjects[0].text, to, at + strlen(from));
    return (subject_t){"changed", text};
}

static void a_run_may_be_made_longer_but_not_another(void)
{
    char one[PATH], two[PATH];
    run_whole(run_file(&subjects[0], "long"), "");
    subject_t part = changed("\"max_epochs\": 5", "\"max_epochs\": 2");
    run_whole(run_file(&part, "longer"), "");
    ok(run_whole(run_file(&subjects[0], "longer"), "last") == 0,
       "more epochs are trained");
    newest_of("long", one), newest_of("longer", two);
    ok(same_file(one, two, "model.safetensors"), "as if they had been wanted before");
    subject_t other = changed("\"lr\": 0.1", "\"lr\": 0.2");
    ok(run_whole(run_file(&other, "longer"), "last") == 1,
       "another learning rate is not");
    ok(child_said("\"optimizer.lr\" was 0.1 and is 0.2"), "and is named");
    other = changed("\"decay\": 0.9", "\"decay\": 0.8");
    ok(run_whole(run_file(&other, "longer"), "last") == 1, "nor is another average");
    ok(child_said("\"averaging.decay\" was 0.9 and is 0.8"), "which is named as well");
}

/* A run begins with the weights of module.init_from; it does not resume them. */
static void a_run_begun_with_weights_of_another_can_be_resumed(void)
{
    char one[PATH], two[PATH];
    run_whole(run_file(&subjects[0], "given"), "");
    newest_of("given", one);
    char module[PATH + 64];
    snprintf(module, sizeof module, "\"mlp\", \"init_from\": \"%s/model.safetensors\"",
             one);
    subject_t whole = changed("\"mlp\"", module);
    run_whole(run_file(&whole, "taken"), "");
    newest_of("taken", one);
    static char text[2048];
    snprintf(text, sizeof text, "%s", whole.text);
    char *epochs = strstr(text, "\"max_epochs\": 5");
    epochs[strlen("\"max_epochs\": ")] = '2';
    subject_t part = {"part", text};
    ok(run_whole(run_file(&part, "parts"), "last") == 0
           && child_said("starts from the beginning"),
       "a run begins with weights of another");
    whole = changed("\"mlp\"", module);
    ok(run_whole(run_file(&whole, "parts"), "last") == 0, "and is made longer");
    newest_of("parts", two);
    is_text(two, "parts/0001", "from its own checkpoint");
    ok(same_file(one, two, "model.safetensors"), "to the same end");
}

/* From an older checkpoint than "last", which stays the one that it was. */
static bool is_refused(const char *file, const char *run_dir, const char *older,
                       const char *why)
{
    json_t *before = manifest_of(run_dir, "last");
    bool refused = run_whole(file, older) == 1 && child_said(why);
    json_t *after = manifest_of(run_dir, "last");
    bool same = before && json_equal(before, after);
    json_decref(before), json_decref(after);
    return refused && same;
}

static void a_resume_that_is_refused_changes_nothing(void)
{
    char run_dir[PATH], older[2 * PATH], held_by[64];
    subject_t whole = all_kept("\"max_epochs\": 2");
    const char *file = run_file(&whole, "refused");
    run_whole(file, "");
    newest_of("refused", run_dir);
    snprintf(older, sizeof older, "%s/checkpoints/epoch=0-step=2", run_dir);
    int held = open(run_dir, O_RDONLY | O_DIRECTORY);
    flock(held, LOCK_EX);
    snprintf(held_by, sizeof held_by, "process %d is training in this directory",
             (int)getpid());
    ok(is_refused(file, run_dir, older, held_by), "by the run that trains there: %s",
       held_by);
    close(held);
    subject_t other = all_kept("\"max_epochs\": 2, \"seed\": 4");
    ok(is_refused(run_file(&other, "refused"), run_dir, older, "\"trainer.seed\" was"),
       "by what has changed");
}

/* Without checkpoints on request; it ends three batches behind a step, 8 steps in all. */
#define CUT(name) \
    "{\"module\": \"net\", " PICTURES ", " \
    "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.01}, \"callbacks\": [" name "], " \
    "\"trainer\": {\"max_epochs\": 5, \"accumulate_grad_batches\": 3, " \
    "\"limit_val_batches\": 0, \"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, " \
    "\"default_root_dir\": \"%s\"}}"

static void resumes_exactly(const char *text, const char *root)
{
    char straight[PATH], longer[PATH], name[64];
    snprintf(name, sizeof name, "%s-straight", root);
    subject_t whole = ends_at(text, "\"max_steps\": 13");
    ok(run_whole(run_file(&whole, name), "") == 0, "13 steps in one go");
    newest_of(name, straight);
    subject_t part = ends_at(text, "\"max_steps\": 6");
    ok(run_whole(run_file(&part, root), "") == 0, "6 steps, in the middle of an epoch");
    whole = ends_at(text, "\"max_steps\": 13");
    ok(run_whole(run_file(&whole, root), "last") == 0
           && !child_has_said("from the beginning"),
       "and from there to 13");
    newest_of(root, longer);
    ok(same_file(straight, longer, "model.safetensors"), "come to the same weights");
}

static void a_run_that_ended_within_an_epoch_resumes_to_the_same_bits(void)
{
    resumes_exactly(CUT(""), "cut");
    resumes_exactly(CUT("{\"name\": \"model_checkpoint\", \"monitor\": \"train_loss\"}"),
                    "cut-listed");
}

static json_int_t last_step_of(const char *run_dir)
{
    json_t *log = log_of(run_dir);
    const json_t *end = json_array_get(log, json_array_size(log) - 1);
    const json_int_t step = json_integer_value(json_object_get(end, "global_step"));
    json_decref(log);
    return step;
}

static void a_timer_of_the_resumed_run_counts(void)
{
    static const char *const text = CUT("{\"name\": \"timer\", \"duration\": "
                                        "\"00:00:00:01\", \"every_n_steps\": 1}");
    char run_dir[PATH], more[2048], end[64];
    subject_t part = ends_at(text, "\"max_steps\": 1000000");
    is_int(run_whole(run_file(&part, "timer"), ""), STOPPED, "its time is over");
    newest_of("timer", run_dir);
    const json_int_t steps = last_step_of(run_dir);
    is_int(run_whole(run_file(&part, "timer"), "last"), STOPPED, "still so");
    snprintf(end, sizeof end, "\"max_steps\": %lld", (long long)steps + 20);
    snprintf(more, sizeof more, "%s", ends_at(text, end).text);
    memcpy(strstr(more, "00:00:00:01"), "00:10", 5);
    is_int(run_whole(run_file(&(subject_t){"longer", more}, "timer"), "last"), 0,
           "a longer one lets it continue");
    is_int(last_step_of(run_dir), steps + 20, "to its end");
}

/* No metric is ever so much better: each validation that counts lowers the rate, and
 * three would stop the run. */
static subject_t seldom_validated(const char *epochs)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, " PICTURES ", "
             "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1}, "
             "\"scheduler\": {\"name\": \"reduce_on_plateau\", \"patience\": 0, "
             "\"threshold\": 0.99}, \"callbacks\": [{\"name\": \"early_stopping\", "
             "\"min_delta\": 100}, {\"name\": \"model_checkpoint\"}], "
             "\"trainer\": {\"max_epochs\": %s, \"check_val_every_n_epoch\": 2, "
             "\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
             "\"default_root_dir\": \"%%s\"}}",
             epochs);
    return (subject_t){"seldom validated", text};
}

static void the_last_validation_counts_only_if_it_was_due(void)
{
    char one[PATH], two[PATH];
    subject_t subject = seldom_validated("7");
    ok(run_whole(run_file(&subject, "seldom"), "") == 0, "epochs 2, 4, 6 and the last");
    subject = seldom_validated("3");
    run_whole(run_file(&subject, "seldom-longer"), "");
    subject = seldom_validated("7");
    ok(run_whole(run_file(&subject, "seldom-longer"), "last") == 0,
       "the metric of epoch 3, which ended the first part, stops nothing");
    newest_of("seldom", one), newest_of("seldom-longer", two);
    ok(same_file(one, two, "model.safetensors"), "nor does it lower the rate");
}

static const char *text_in(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void a_run_knows_the_runs_that_it_resumes(void)
{
    char run_dir[PATH];
    json_t *of[3];
    subject_t part = changed("\"max_epochs\": 5", "\"max_epochs\": 1");
    run_whole(run_file(&part, "origin"), "");
    newest_of("origin", run_dir);
    of[0] = manifest_of(run_dir, "last");
    part = changed("\"max_epochs\": 5", "\"max_epochs\": 2");
    run_whole(run_file(&part, "origin"), "last");
    of[1] = manifest_of(run_dir, "last");
    run_whole(run_file(&subjects[0], "origin"), "last");
    of[2] = manifest_of(run_dir, "last");
    const json_t *first = json_object_get(of[1], "resumed"),
                 *second = json_object_get(of[2], "resumed");
    ok(strlen(text_in(of[0], "run_id")) == 16 && !json_object_get(of[0], "resumed"),
       "the first resumes none");
    ok(json_array_size(first) == 1 && json_array_size(second) == 2,
       "the next from one, the third from two");
    is_text(text_in(json_array_get(second, 0), "run_id"), text_in(of[0], "run_id"),
            "the first");
    is_text(text_in(json_array_get(second, 1), "run_id"), text_in(of[1], "run_id"),
            "and the second");
    is_int(json_integer_value(json_object_get(json_array_get(second, 1), "global_step")),
           json_integer_value(json_object_get(of[1], "global_step")), "at its step");
    for (int k = 0; k < 3; k++)
        json_decref(of[k]);
}

static void a_module_that_was_changed_is_noticed(void)
{
    subject_t part = all_kept("\"max_epochs\": 2");
    run_whole(run_file(&part, "module"), "");
    part = all_kept("\"max_epochs\": 3");
    ok(run_whole(run_file(&part, "module"), "last") == 0
           && !child_has_said("a step computes something else"),
       "of the same nothing is said");
    setenv(CHANGED_NET, "1", 1);
    part = all_kept("\"max_epochs\": 4");
    ok(run_whole(run_file(&part, "module"), "last") == 0, "another one resumes");
    unsetenv(CHANGED_NET);
    ok(child_said("a step computes something else"), "with a warning");
}

static void without_a_checkpoint_a_run_starts_from_the_beginning(void)
{
    char run_dir[PATH];
    ok(run_whole(run_file(&subjects[0], "fresh"), "last") == 0, "there is no run yet");
    ok(child_said("the run starts from the beginning"), "which is said");
    newest_of("fresh", run_dir);
    is_text(run_dir, "fresh/0001", "in a directory of its own");
}

static void the_newest_run_that_has_a_checkpoint_is_taken(void)
{
    char run_dir[PATH];
    subject_t part = changed("\"max_epochs\": 5", "\"max_epochs\": 2");
    run_whole(run_file(&part, "hidden"), "");
    part = changed("\"max_epochs\": 5", "\"max_epochs\": 5, \"limit_train_batches\": 0");
    ok(run_whole(run_file(&part, "hidden"), "") == 1, "a start that fails");
    newest_of("hidden", run_dir);
    is_text(run_dir, "hidden/0001", "is not what latest points to");
    ok(run_whole(run_file(&subjects[0], "hidden"), "last") == 0
           && !child_has_said("from the beginning"),
       "nor does it hide the run before");
    ok(child_said("hidden/0002 has no checkpoint"), "which is said");
}

static void a_damaged_checkpoint_is_skipped(void)
{
    char run_dir[PATH], whole[PATH], path[2 * PATH];
    run_whole(run_file(&subjects[0], "whole"), "");
    run_whole(run_file(&subjects[0], "damaged"), "");
    newest_of("damaged", run_dir), newest_of("whole", whole);
    snprintf(path, sizeof path, "%s/checkpoints/last/optimizer.safetensors", run_dir);
    truncate(path, 300);
    ok(run_whole("damaged.json", "last") == 0, "the one before it is taken");
    ok(child_said("last/optimizer.safetensors: has 300 bytes"), "and it is named");
    ok(same_file(whole, run_dir, "model.safetensors"), "with the same end");
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "child"))
        return child(argv[2], argv[3]);
    if (chdir(tap_folder()) != 0)
        return 1;
    text_write();
    run(a_validation_that_a_stop_cut_short_is_made_by_the_resumed_run);
    run(a_rollback_is_the_same_after_an_end);
    run(a_rollback_is_the_same_after_stops);
    run(every_checkpoint_leads_to_the_same_end);
    run(loops_continue_their_counts);
    run(a_run_may_be_made_longer_but_not_another);
    run(a_run_begun_with_weights_of_another_can_be_resumed);
    run(a_resume_that_is_refused_changes_nothing);
    run(a_run_that_ended_within_an_epoch_resumes_to_the_same_bits);
    run(a_timer_of_the_resumed_run_counts);
    run(the_last_validation_counts_only_if_it_was_due);
    run(a_run_knows_the_runs_that_it_resumes);
    run(a_module_that_was_changed_is_noticed);
    run(without_a_checkpoint_a_run_starts_from_the_beginning);
    run(the_newest_run_that_has_a_checkpoint_is_taken);
    run(a_damaged_checkpoint_is_skipped);
    run(a_run_killed_at_any_instant_ends_with_the_same_bits);
    return tap_done();
}
