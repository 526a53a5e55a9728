/* run_files.c - tests of the files that a run writes and reads:
 * actors/connectors/writer.c, weights.c, run_dir.c, checkpoint.c */
#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/writer.h"
#include "base/clock.h"
#include "queen.h"
#include "files.h"
#include "formats/safetensors.h"
#include "scarce.h"
#include "tap.h"

static pl_job_t *job;
static pl_address_t writer, checkpoint;
static asked_t writer_life, checkpoint_life;
static char run_dir[PATH_MAX - 64];

/* ---- the rig ---- */

static char *in_run_dir(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    return path;
}

static void name_run_dir(const char *name)
{
    snprintf(run_dir, sizeof run_dir, "%s/%s", tap_folder(), name);
}

/* The writer, and the connector that writes to run_dir. */
static void spawn_all(void)
{
    char options[PATH_MAX + 64];
    writer = queen_spawn(&pl_io_writer, &(pl_start_t){.options = ""}, &writer_life);
    snprintf(options, sizeof options, "{\"run_dir\": \"%s\"}", run_dir);
    pl_start_t reported = {.options = options, .context = &job->object};
    pl_peers_add(&reported.peers, "writer", writer);
    checkpoint = queen_spawn(&pl_checkpoint_connector, &reported, &checkpoint_life);
}

static void start(void)
{
    queen_open();
    spawn_all();
}

/* The same in a new folder of that name. */
static void start_in(const char *name)
{
    name_run_dir(name);
    mkdir(run_dir, 0777);
    start();
}

static struct rlimit no_limit;

static void limit_files(rlim_t bytes)
{
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, no_limit.rlim_max});
}

static void unlimit_files(void)
{
    setrlimit(RLIMIT_FSIZE, &no_limit);
}

static int warnings;
static char warning[PL_ERROR_TEXT + 100];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)rank, (void)actor, (void)user;
    if (level != PL_LOG_WARNING)
        return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

/* ---- weights ---- */

static pl_weights_t *weights_sample(void)
{
    const float numbers[] = {1, -2, 3.5f, 1e-40f, 5, 6};
    pl_weights_t *weights = pl_weights_new(NULL);
    pl_weights_add(weights, "fc.weight", pl_shape(2, 2, 3), PL_F32, numbers, NULL);
    pl_weights_add(weights, "fc.bias", pl_shape(1, 2), PL_F32, numbers + 1, NULL);
    pl_weights_add(weights, "scale", pl_shape(0), PL_F32, numbers + 2, NULL);
    weights->module = pl_text("{\"name\":\"mlp\",\"hidden\":[8]}");
    weights->data_info = pl_text("{\"classes\":2}");
    return weights;
}

static asked_t *save(pl_weights_t *weights)
{
    const pl_save_t fields = {.weights = &weights->object};
    return queen_call(checkpoint, PL_MESSAGE_save, &fields);
}

static asked_t *load(const char *path)
{
    return queen_call(writer, PL_MESSAGE_read_weights, &(pl_read_weights_t){path});
}

static bool weights_equal(const pl_weights_t *a, const pl_weights_t *b)
{
    if (!a || !b || a->count != b->count)
        return false;
    for (int k = 0; k < a->count; k++) {
        const pl_output_t *s = &a->tensor[k], *t = &b->tensor[k];
        size_t bytes = sizeof(float);
        for (int axis = 0; axis < s->shape.rank; axis++)
            bytes *= (size_t)s->shape.dim[axis];
        if (strcmp(s->name, t->name) || s->shape.rank != t->shape.rank
            || memcmp(s->shape.dim, t->shape.dim, sizeof *s->shape.dim * 2)
            || memcmp(s->data, t->data, bytes))
            return false;
    }
    return true;
}

static void weights_come_back_as_they_were(void)
{
    start_in("weights");
    pl_weights_t *weights = weights_sample();
    is_text(save(weights)->text, in_run_dir("model.safetensors"), "with its path");
    const pl_weights_t *back = (pl_weights_t *)load(run_dir)->object;
    ok(weights_equal(weights, back), "from the run directory");
    is_text(back->module, weights->module, "with the module");
    is_text(back->data_info, weights->data_info, "and what the data knew");
    back = (pl_weights_t *)load(in_run_dir("model.safetensors"))->object;
    ok(weights_equal(weights, back), "from the file");
    pl_safetensors_t file;
    pl_safetensors_open(in_run_dir("model.safetensors"), &file, NULL);
    is_text(pl_safetensors_metadata(&file, "format"), "paceline", "it names its program");
    pl_safetensors_close(&file);
    pl_object_unref(weights);
    queen_close();
}

/* Writes a file of one tensor as another program might. */
static const char *foreign(const char *name, const char *tensor, pl_dtype_t dtype,
                           const void *data)
{
    const pl_safetensors_source_t source = {tensor, dtype, {1, {2}}, data};
    const pl_safetensors_content_t content = {.tensor = &source, .count = 1};
    pl_safetensors_write(in_run_dir(name), &content, NULL);
    return in_run_dir(name);
}

static void foreign_files_are_read_as_far_as_they_fit(void)
{
    char long_name[100];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    start_in("foreign");
    const pl_weights_t *weights =
        (pl_weights_t *)load(foreign("f64.safetensors", "w", PL_F64, (double[]){1.5, -2}))
            ->object;
    ok(weights && weights->tensor[0].dtype == PL_F64 && weights->tensor[0].wide[0] == 1.5
           && weights->tensor[0].wide[1] == -2,
       "doubles stay doubles");
    ok(weights && !weights->module && !weights->data_info,
       "nothing is known of a module");
    like(load(foreign("i64.safetensors", "w", PL_I64, (int64_t[]){1, 2}))->error.text,
         "i64.safetensors: tensor \"w\" is I64", "integers are no weights");
    const char *path = foreign("long.safetensors", long_name, PL_F32, (float[]){1, 2});
    is_int(load(path)->error.code, PL_EUNSUPPORTED, "nor are names cut");
    queen_close();
}

static void weights_that_are_not_there_are_named(void)
{
    start_in("none");
    like(load(run_dir)->error.text, "none: there are no weights", "a directory");
    is_int(load(run_dir)->error.code, PL_ENOTFOUND, "with its code");
    like(load(in_run_dir("x.safetensors"))->error.text, "none/x.safetensors", "a file");
    const char *broken = file_put_text("none/model.safetensors", "no such thing");
    is_int(load(broken)->error.code, PL_EFORMAT, "a file that is something else");
    like(load(run_dir)->error.text, "none/model.safetensors", "is named too");
    queen_close();
}

static void a_failed_save_keeps_the_old_file(void)
{
    start_in("keep");
    pl_weights_t *weights = weights_sample(), *larger = weights_sample();
    pl_weights_add(larger, "large", pl_shape(1, 100000), PL_F32, NULL, NULL);
    save(weights);
    limit_files(65536);
    asked_t *failed = save(larger);
    unlimit_files();
    is_int(failed->error.code, PL_EIO, "a full disk");
    like(failed->error.text, "keep/model.safetensors.*unchanged", "says what is left");
    ok(weights_equal(weights, (pl_weights_t *)load(run_dir)->object), "the old weights");
    is_int(files_in(run_dir), 1, "and nothing else");
    pl_object_unref(weights);
    pl_object_unref(larger);
    queen_close();
}

static void the_end_waits_for_a_save_that_has_begun(void)
{
    asked_t asked;
    start_in("wait");
    pl_weights_t *weights = weights_sample();
    const pl_save_t fields = {.weights = &weights->object};
    queen_ask(&asked, checkpoint, PL_MESSAGE_save, &fields);
    queen_end(&checkpoint_life);
    ok(asked.ended && asked.error.code == PL_OK, "also at the end");
    is_int(files_in(run_dir), 1, "it is there");
    pl_object_unref(weights);
    queen_close();
}

static void without_a_run_directory_nothing_is_saved(void)
{
    queen_open();
    checkpoint = queen_spawn(&pl_checkpoint_connector, &(pl_start_t){.options = ""},
                             &checkpoint_life);
    pl_weights_t *weights = weights_sample();
    is_int(save(weights)->error.code, PL_ESTATE, "and that is said");
    pl_object_unref(weights);
    queen_close();
}

/* ---- run directories ---- */

static char root[PATH_MAX - 64];

static void start_root(const char *name)
{
    snprintf(root, sizeof root, "%s/%s", tap_folder(), name);
    start_in("unused");
}

static asked_t *make_in(const char *where, const char *name)
{
    const pl_make_run_dir_t fields = {where, name, "{\"run\": 1}\n", "", false};
    return queen_call(writer, PL_MESSAGE_make_run_dir, &fields);
}

/* The run has made steps. */
static void begin(const char *folder)
{
    queen_call(writer, PL_MESSAGE_run_begun, &(pl_run_begun_t){folder});
}

static const char *in_root(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static const char *latest(void)
{
    static char name[PATH_MAX];
    char *path = pl_run_path(in_root("latest"));
    const bool is_name = strcmp(path, in_root("latest")) != 0;
    snprintf(name, sizeof name, "%s", is_name ? strrchr(path, '/') + 1 : "");
    pl_text_free(path);
    return name;
}

static void runs_are_numbered(void)
{
    start_root("numbered/deep//down");
    is_text(make_in(root, "")->text, in_root("0001"), "the first, its root made");
    is_text(latest(), "", "latest points to none before it has begun");
    begin(in_root("0001"));
    is_text(latest(), "0001", "then to it");
    char slashed[PATH_MAX];
    snprintf(slashed, sizeof slashed, "%s//", root);
    is_text(make_in(slashed, "")->text, in_root("0002"), "the second");
    is_text(latest(), "0001", "latest waits");
    begin(in_root("0002"));
    is_text(latest(), "0002", "and goes with it");
    mkdir(in_root("0107"), 0777);
    mkdir(in_root("12x"), 0777);
    is_text(make_in(root, "")->text, in_root("0108"), "after a gap");
    size_t size;
    char *text = (char *)file_get(in_root("0108/run.json"), &size);
    ok(text && size == 11 && !memcmp(text, "{\"run\": 1}\n", 11), "the run lies in it");
    free(text);
    queen_close();
}

static void a_run_may_have_a_name(void)
{
    start_root("named");
    is_text(make_in(root, "first")->text, in_root("first"), "it gets it");
    begin(in_root("first"));
    is_text(latest(), "first", "latest points to it");
    asked_t *again = make_in(root, "first");
    is_int(again->error.code, PL_EEXIST, "no run gets it again");
    like(again->error.text, "named/first: a run of that name exists", "with the reason");
    mkdir(in_root("empty"), 0777);
    is_int(make_in(root, "empty")->error.code, PL_EEXIST,
           "an empty one may belong to a run which has just begun");
    pl_error_t err = {0};
    is_int(pl_run_dir_is_free(root, "first", &err), PL_EEXIST, "it shows beforehand");
    like(err.text, "named/first: a run of that name exists", "in the same words");
    is_int(pl_run_dir_is_free(root, "third", &err), PL_OK, "as does a free one");
    queen_close();
}

static void two_runs_at_once_get_two_directories(void)
{
    enum { RUNS = 25 };
    static asked_t asked[2][RUNS], other_life;
    start_root("both");
    const pl_start_t none = {.options = ""};
    pl_address_t both[2] = {writer, queen_spawn(&pl_io_writer, &none, &other_life)};
    const pl_make_run_dir_t fields = {root, "", "{}", "", false};
    for (int k = 0; k < RUNS; k++)
        for (int w = 0; w < 2; w++)
            queen_ask(&asked[w][k], both[w], PL_MESSAGE_make_run_dir, &fields);
    int same = 0, failed = 0;
    for (int k = 0; k < RUNS; k++)
        for (int w = 0; w < 2; w++) {
            queen_wait(&asked[w][k]);
            failed += asked[w][k].error.code != PL_OK;
        }
    for (int k = 0; k < RUNS; k++)
        for (int other = 0; other < RUNS; other++)
            same += !strcmp(asked[0][k].text, asked[1][other].text);
    is_int(failed, 0, "each gets one");
    is_int(same, 0, "no run gets another's");
    is_int(files_in(root), 2 * RUNS, "nothing else is there");
    queen_close();
}

static bool directories_seem_empty;

/* In the place of the C library's. */
struct dirent *readdir(DIR *directory)
{
    struct dirent *(*real)(DIR *);
    *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    return directories_seem_empty ? NULL : real(directory);
}

static void a_number_taken_by_another_run_is_skipped(void)
{
    start_root("taken");
    make_in(root, "");
    make_in(root, "");
    directories_seem_empty = true;
    asked_t *made = make_in(root, "");
    directories_seem_empty = false;
    is_text(made->text, in_root("0003"), "the next that is free");
    queen_close();
}

static void an_impossible_root_is_refused(void)
{
    start_root("refused");
    file_put_text("a_file", "");
    snprintf(root, sizeof root, "%s/a_file", tap_folder());
    like(make_in(root, "")->error.text, "a_file: a file has the name", "a file");
    like(make_in(in_root("deeper"), "")->error.text, "a_file.*: a file has the name",
         "below a file");
    snprintf(root, sizeof root, "%s/locked", tap_folder());
    mkdir(root, 0555);
    if (geteuid() == 0)
        tap_skip("the superuser may write everywhere");
    else
        like(make_in(root, "")->error.text, "locked/0001: no permission", "no right");
    queen_close();
}

static void a_full_disk_leaves_no_directory(void)
{
    start_root("no_room");
    make_in(root, "");
    begin(in_root("0001"));
    limit_files(4);
    asked_t *failed = make_in(root, "");
    unlimit_files();
    is_int(failed->error.code, PL_EIO, "a full disk");
    like(failed->error.text, "no_room/0002/run.json", "the error names the file");
    is_int(files_in(root), 2, "nothing is left of the attempt");
    is_text(latest(), "0001", "latest points to the run before");
    queen_close();
}

/* Programs that look through a root follow links and find a run twice. */
static void latest_is_a_file_that_paths_may_have_in_them(void)
{
    struct stat what;
    char within[PATH_MAX];
    start_root("pointed");
    make_in(root, "");
    begin(in_root("0001"));
    ok(lstat(in_root("latest"), &what) == 0 && S_ISREG(what.st_mode), "a file, no link");
    snprintf(within, sizeof within, "%s", in_root("latest/checkpoints/last"));
    char *path = pl_run_path(within);
    is_text(path, in_root("0001/checkpoints/last"), "in a path it is the run's name");
    pl_text_free(path);
    path = pl_run_path(in_root("latest.2"));
    is_text(path, in_root("latest.2"), "another name is none");
    pl_text_free(path);
    unlink(in_root("latest"));
    symlink("0001", in_root("latest"));
    path = pl_run_path(in_root("latest"));
    is_text(path, in_root("latest"), "a link of an older version is followed as ever");
    pl_text_free(path);
    begin(in_root("0001"));
    ok(lstat(in_root("latest"), &what) == 0 && S_ISREG(what.st_mode), "and replaced");
    queen_close();
}

static void a_run_does_not_need_the_link(void)
{
    start_root("linkless");
    make_in(root, "");
    mkdir(in_root("latest"), 0777);
    warnings = 0;
    is_text(make_in(root, "")->text, in_root("0002"), "a directory in its place");
    begin(in_root("0002"));
    is_int(warnings, 1, "is only warned of");
    is_int(files_in(root), 3, "and no link is left over");
    queen_close();
}

/* ---- what a kill has left ---- */

static void put_in(const char *folder, const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", in_root(folder), name);
    fclose(fopen(path, "w"));
}

static void files_of_a_killed_run_are_removed_by_the_next(void)
{
    char part[64];
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    waitpid(gone, NULL, 0);
    start_root("left");
    make_in(root, "");
    begin(in_root("0001"));
    put_in(".", ".latest-0001"), put_in(".", ".latest-0007");
    mkdir(in_root("again"), 0777);
    snprintf(part, sizeof part, ".model.safetensors.%ld-3.part", (long)gone);
    put_in("again", part);
    snprintf(part, sizeof part, ".metrics.csv.%ld-4.part", (long)getpid());
    put_in("again", part);
    snprintf(part, sizeof part, ".metrics.csv.%ld-4.part", (long)getppid());
    put_in("again", part);
    put_in("again", ".mine.part"), put_in("again", "run.json");
    pl_make_run_dir_t fields = {root, "again", "", in_root("again"), false};
    queen_call(writer, PL_MESSAGE_make_run_dir, &fields);
    begin(in_root("again"));
    is_int(files_in(in_root("again")), 4, "of files only those without a writer");
    snprintf(part, sizeof part, "again/.model.safetensors.%ld-3.part", (long)gone);
    ok(access(in_root(part), F_OK) != 0, "goes");
    ok(access(in_root(".latest-0007"), F_OK) != 0,
       "so do names that no run writes any more");
    ok(access(in_root(".latest-0001"), F_OK) == 0, "but not those of a run in training");
    queen_close();
}

/* ---- memory ---- */

static bool saves_and_loads(int nth)
{
    pl_weights_t *weights = weights_sample();
    queen_open();
    scarce_fail(nth);
    spawn_all();
    const int codes[] = {make_in(root, "")->error.code, save(weights)->error.code,
                         load(run_dir)->error.code};
    scarce_stop();
    queen_close();
    pl_object_unref(weights);
    return !codes[0] && !codes[1] && !codes[2];
}

static void every_call_ends_whichever_allocation_fails(void)
{
    snprintf(root, sizeof root, "%s/scarce", tap_folder());
    name_run_dir("scarce_run");
    mkdir(run_dir, 0777);
    queen_lacks_memory(saves_and_loads, 100);
}

int main(void)
{
    scarce_init();
    signal(SIGXFSZ, SIG_IGN);
    job = queen_job("{}");
    getrlimit(RLIMIT_FSIZE, &no_limit);
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    run(weights_come_back_as_they_were);
    run(foreign_files_are_read_as_far_as_they_fit);
    run(weights_that_are_not_there_are_named);
    run(a_failed_save_keeps_the_old_file);
    run(the_end_waits_for_a_save_that_has_begun);
    run(without_a_run_directory_nothing_is_saved);
    run(runs_are_numbered);
    run(a_run_may_have_a_name);
    run(two_runs_at_once_get_two_directories);
    run(a_number_taken_by_another_run_is_skipped);
    run(an_impossible_root_is_refused);
    run(a_full_disk_leaves_no_directory);
    run(latest_is_a_file_that_paths_may_have_in_them);
    run(a_run_does_not_need_the_link);
    run(files_of_a_killed_run_are_removed_by_the_next);
    run(every_call_ends_whichever_allocation_fails);
    pl_object_unref(job);
    return tap_done();
}
