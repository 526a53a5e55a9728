/* checkpoints.c - tests of checkpoints on disk: engine/formats/checkpoint*.c, and of the
 * actors that write and find them: actors/connectors/checkpoint*.c */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/checkpoint_io.h"
#include "base/crc32c.h"
#include "base/resume_keys.h"
#include "files.h"
#include "formats/checkpoint.h"
#include "queen.h"
#include "scarce.h"
#include "tap.h"

static pl_address_t checkpoint_io, checkpoint;
static asked_t checkpoint_io_life, checkpoint_life;
static char run_dir[PATH_MAX - 200];

/* ---- a disk that fails ---- */

static bool unreadable;                         /* nothing can be read back */
static const char *unsynced;                    /* what a path ends with  [NULL: none] */
static char trace[256];                         /* s a folder is synced, r another name */

static void trace_add(char what, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t at = strlen(trace);
    if (slash)
        snprintf(trace + at, sizeof trace - at, "%c:%.5s ", what, slash + 1);
}

int fsync(int fd)
{
    char link[64], path[PATH_MAX] = "";
    struct stat what;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0 || fstat(fd, &what) != 0)
        return -1;
    if (S_ISDIR(what.st_mode))
        trace_add('s', path);
    const size_t length = strlen(path), end = unsynced ? strlen(unsynced) : 0;
    if (end && length > end && !strcmp(path + length - end, unsynced)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    trace_add('r', to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

ssize_t pread(int fd, void *into, size_t size, off_t from)
{
    if (unreadable) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, into, size, from);
}

/* ---- the rig ---- */

static void start_in(const char *name)
{
    char options[PATH_MAX];
    queen_open();
    snprintf(run_dir, sizeof run_dir, "%s/%s", tap_folder(), name);
    mkdir(run_dir, 0777);
    pl_job_t *job = queen_job("{\"trainer\": {\"seed\": 7}}");
    checkpoint_io = queen_spawn(&pl_io_checkpoint, &(pl_start_t){.options = ""},
                                &checkpoint_io_life);
    snprintf(options, sizeof options, "{\"run_dir\": \"%s\"}", run_dir);
    pl_start_t reported = {.options = options, .context = &job->object};
    pl_peers_add(&reported.peers, "checkpoint_io", checkpoint_io);
    checkpoint = queen_spawn(&pl_checkpoint_connector, &reported, &checkpoint_life);
    pl_object_unref(job);
}

/* Of two tensors with a slot each, and a state; the numbers begin with `first`. */
static pl_weights_t *weights_of(float first, int more)
{
    pl_weights_t *weights = pl_weights_new(NULL);
    static const pl_region_t regions[] = {PL_REGION_PARAMS, PL_REGION_STATE,
                                          PL_REGION_SLOT0};
    for (int k = 0; k < 3; k++) {
        const int count = PL_REGION_ALIGN + 1 + more;
        pl_floats_t *block = pl_floats_new(PL_F32, (size_t)count, NULL);
        for (int i = 0; i < count; i++)
            block->data[i] = first + (float)(k * 8 + i) / 3;
        weights->block[regions[k]] = block;
        pl_weights_borrow(weights, regions[k], k == 1 ? "mean" : "weight",
                          pl_shape(2, 2, 3), 0, NULL);
        if (k != 1)
            pl_weights_borrow(weights, regions[k], "bias", pl_shape(1, 1 + more),
                              PL_REGION_ALIGN, NULL);
    }
    weights->module = pl_text("{\"name\":\"mlp\"}");
    weights->data_info = pl_text("{\"classes\":2}");
    weights->state = pl_text("{\"scale\":1024}");
    return weights;
}

/* Asks for a checkpoint; consumes the weights. */
static void ask_save(asked_t *asked, pl_weights_t *weights, uint64_t serial,
                     const char *names, const char *drop)
{
    const pl_save_checkpoint_t fields = {.weights = &weights->object,
                                         .epoch = 1,
                                         .global_step = 10 * serial,
                                         .serial = serial,
                                         .names = names,
                                         .drop = drop,
                                         .metrics = "{\"val_loss\": 0.25}",
                                         .progress = "{\"batch\": 3}",
                                         .callbacks = "[]",
                                         .loggers = ""};
    queen_ask(asked, checkpoint, PL_MESSAGE_save_checkpoint, &fields);
    pl_object_unref(weights);
}

static bool save_wait(const asked_t *asked)
{
    queen_wait(asked);
    return asked->body.save_checkpoint_reply.saved;
}

static bool save(uint64_t serial, const char *names, const char *drop)
{
    asked_t asked;
    ask_save(&asked, weights_of((float)serial, 0), serial, names, drop);
    return save_wait(&asked);
}

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/checkpoints/%s", run_dir, name);
    return path;
}

static bool is_there(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static pl_found_t find(void)
{
    pl_found_t found;
    pl_error_t err = {0};
    if (pl_checkpoint_find("", "", run_dir, &found, &err) != PL_OK)
        found.rejected = pl_text("%s", err.text);
    return found;
}

/* The last part of the path that is found, "" for none; refused ones go to `refused`. */
static const char *found_name(char refused[1024])
{
    static char name[64];
    pl_found_t found = find();
    snprintf(name, sizeof name, "%s", found.path ? strrchr(found.path, '/') + 1 : "");
    snprintf(refused, 1024, "%s", found.rejected ? found.rejected : "");
    pl_found_release(&found);
    return name;
}

/* ---- a checkpoint ---- */

static void a_checksum_equals_the_standards(void)
{
    uint8_t ones[32];
    memset(ones, 255, sizeof ones);
    is_int(pl_crc32c(0, "123456789", 9), 0xe3069283, "of nine digits");
    is_int(pl_crc32c(0, ones, sizeof ones), 0x62a8ab43, "of RFC 3720's ones");
    is_int(pl_crc32c(pl_crc32c(0, "1234", 4), "56789", 5), 0xe3069283, "in two pieces");
}

static void a_checksum_is_the_same_in_pieces_of_any_size(void)
{
    static uint8_t data[100003];
    uint32_t pieces = 0;
    for (size_t k = 0; k < sizeof data; k++)
        data[k] = (uint8_t)(k * k >> 7);
    for (size_t at = 0, size = 1; at < sizeof data; at += size, size = size * 3 + 1) {
        size = size < sizeof data - at ? size : sizeof data - at;
        pieces = pl_crc32c(pieces, data + at, size);
    }
    uint32_t bytes = 0;
    for (size_t k = 0; k < sizeof data; k++)
        bytes = pl_crc32c(bytes, data + k, 1);
    is_int(pl_crc32c(0, data, sizeof data), bytes, "whole and byte by byte");
    is_int(pieces, bytes, "and in pieces that grow");
}

/* Where a region has it: zeros follow. */
static bool lies_as_in_a_region(const pl_output_t *tensor)
{
    int64_t at = pl_elements(tensor->shape);
    while (at % PL_REGION_ALIGN && tensor->data[at] == 0)
        at++;
    return tensor->borrowed && (uintptr_t)tensor->data % 64 == 0
           && at % PL_REGION_ALIGN == 0;
}

static void a_checkpoint_comes_back_as_it_was(void)
{
    start_in("whole");
    ok(save(3, "first", ""), "it is saved");
    pl_found_t found = find();
    pl_weights_t *was = weights_of(3, 0);
    is_text(found.path, path_of("first"), "found in the run's folder");
    is_int(found.weights->count, was->count, "with all tensors");
    bool same = true, lies = true;
    for (int k = 0; k < was->count; k++) {
        const pl_output_t *a = &was->tensor[k],
                          *b = pl_weights_find(found.weights, a->region, a->name, k);
        lies &= b && lies_as_in_a_region(b);
        same &= b && pl_same_shape(a->shape, b->shape)
                && !memcmp(a->data, b->data, (size_t)pl_elements(a->shape) * 4);
    }
    ok(same, "bit for bit");
    ok(lies, "and lies so that a device can take it over");
    is_text(found.weights->state, was->state, "the strategy's state");
    is_text(found.weights->data_info, was->data_info, "what the data knew");
    json_t *manifest = json_loads(found.manifest, 0, NULL);
    is_int(json_integer_value(json_object_get(manifest, "global_step")), 30, "the step");
    is_int(json_integer_value(json_object_get(manifest, "seed")), 7, "the seed");
    is_int(json_integer_value(
               json_object_get(json_object_get(manifest, "progress"), "batch")),
           3, "how far the loops were");
    is_int(files_in(path_of("first")), 3, "three files");
    is_int(files_in(path_of("")), 1, "and nothing beside them");
    json_decref(manifest);
    pl_object_unref(was);
    pl_found_release(&found);
    queen_close();
}

static void the_last_saved_checkpoint_is_the_newest(void)
{
    char refused[1024];
    start_in("newest");
    save(2, "a", "");
    save(3, "b\nlast", "");
    save(1, "c", "");
    is_text(found_name(refused), "b", "by count, not by name or time");
    struct stat one, other;
    stat(path_of("b/model.safetensors"), &one);
    stat(path_of("last/model.safetensors"), &other);
    is_int(one.st_ino, other.st_ino, "what is saved twice is written once");
    save(4, "last", "");
    is_text(found_name(refused), "last", "a name is used again");
    is_int(pl_checkpoint_verify(path_of("b"), NULL), PL_OK, "the other keeps its own");
    is_int(files_in(path_of("")), 4, "what was replaced is gone");
    queen_close();
}

static void older_checkpoints_are_removed_once_the_newer_is_safe(void)
{
    start_in("older");
    save(1, "a", "");
    save(2, "b", "a");
    ok(!is_there("a") && is_there("b"), "the older one is removed");
    save(3, "c", "b\nnever\nc");
    ok(!is_there("b") && is_there("c"), "never the one that is saved");
    queen_close();
}

/* A file of another program keeps its folder from being removed. */
static void one_that_cannot_be_removed_keeps_none_of_the_others(void)
{
    start_in("foreign");
    save(1, "a", "");
    save(2, "b", "");
    fclose(fopen(path_of("a/other"), "w"));
    ok(save(3, "c", "a\nb"), "the newer one is saved");
    ok(!is_there("b"), "the second of two older ones is removed");
    is_int(files_in(path_of("")), 2, "what is left of the first stays");
    queen_close();
}

/* ---- damage ---- */

static const char *const files[] = {"manifest.json", "model.safetensors",
                                    "optimizer.safetensors"};

/* Puts the file so, and sees that the checkpoint "new" is refused by the file's name and
 * "old" taken. */
static bool is_refused(const char *file, const uint8_t *data, size_t size)
{
    char refused[1024], path[PATH_MAX], name[64];
    snprintf(name, sizeof name, "new/%s", file);
    snprintf(path, sizeof path, "%s", path_of(name));
    FILE *out = fopen(path, "w");
    fwrite(data, 1, size, out);
    fclose(out);
    return !strcmp(found_name(refused), "old") && strstr(refused, path);
}

static void a_damaged_checkpoint_is_named_and_the_previous_one_taken(void)
{
    start_in("damage");
    save(1, "old", "");
    save(2, "new", "");
    for (int k = 0; k < 3; k++) {
        char name[64];
        size_t size;
        int missed = 0;
        snprintf(name, sizeof name, "new/%s", files[k]);
        uint8_t *data = file_get(path_of(name), &size);
        for (size_t at = 0; at < size; at++) {
            static const uint8_t changes[] = {1, 32, 128, 255};
            for (int c = 0; c < 4; c++) {
                data[at] ^= changes[c];
                missed += !is_refused(files[k], data, size);
                data[at] ^= changes[c];
            }
            missed += !is_refused(files[k], data, at);
        }
        missed += !is_refused(files[k], data, size + 1);    /* with a NUL behind */
        is_int(missed, 0, "%s: %zu bytes, changed and cut", files[k], size);
        ok(!is_refused(files[k], data, size), "as it was it is taken");
        free(data);
    }
    unlink(path_of("new/manifest.json"));
    char refused[1024];
    is_text(found_name(refused), "old", "without a manifest there is no checkpoint");
    like(refused, "new/manifest.json: No such file", "and that is said");
    queen_close();
}

static void a_damaged_checkpoint_of_a_given_name_is_an_error(void)
{
    pl_found_t found;
    pl_error_t err = {0};
    start_in("named");
    file_put_text("named/run.json", "{}");
    save(1, "a", "");
    is_int(pl_checkpoint_find("", "", path_of("a"), &found, &err), PL_OK, "whole");
    is_text(found.run_dir, run_dir, "it says of which run it is");
    pl_found_release(&found);
    truncate(path_of("a/optimizer.safetensors"), 100);
    is_int(pl_checkpoint_find("", "", path_of("a"), &found, &err), PL_EFORMAT, "cut");
    like(err.text, "a/optimizer.safetensors: has 100 bytes; it was saved with",
         "by name");
    save(2, "b", "");
    truncate(path_of("b/optimizer.safetensors"), 100);
    is_int(pl_checkpoint_find("", "", run_dir, &found, &err), PL_ENOTFOUND,
           "a run without a valid one");
    like(err.text,
         "to resume from; refused: [^;]*/b/opti.*; [^;]*/a/optimizer.safetensors: ",
         "says which were refused");
    ok(!strchr(err.text, '\n'), "in one line");
    is_int(pl_checkpoint_find("", "", "/nowhere", &found, &err), PL_ENOTFOUND,
           "nor is there anything");
    queen_close();
}

/* A manifest that says another size of a file, with a checksum of its own. */
static void size_forge(const char *name, const char *bytes)
{
    size_t size;
    char *text = (char *)file_get(path_of(strstr(name, "new/")), &size),
         *number = strstr(text, "\"bytes\": ") + strlen("\"bytes\": "),
         *tail = strstr(text, ",\n  \"crc32c\"");
    char *forged = pl_text("%.*s%s%.*s", (int)(number - text), text, bytes,
                           (int)(tail - number - strspn(number, "0123456789")),
                           number + strspn(number, "0123456789"));
    char *whole = pl_text("%s,\n  \"crc32c\": \"%08x\"\n}\n", forged,
                          pl_crc32c(0, forged, strlen(forged)));
    file_put_text(name, whole);
    free(text), pl_text_free(forged), pl_text_free(whole);
}

static void a_recorded_size_is_checked_with_the_file(void)
{
    char refused[1024];
    start_in("sizes");
    save(1, "old", "");
    save(2, "new", "");
    size_forge("sizes/checkpoints/new/manifest.json", "20000000000000");
    is_text(found_name(refused), "old", "the one before is taken");
    like(refused,
         "new/[a-z]*.safetensors: has [0-9]+ bytes; it was saved with 20000000000000",
         "and it is said why");
    queen_close();
}

/* ---- disks ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void a_disk_that_is_full_costs_that_checkpoint_alone(void)
{
    char refused[1024];
    asked_t large;
    start_in("full");
    save(1, "a", "");
    limit_files(16384);
    ask_save(&large, weights_of(2, 20000), 2, "b", "a");
    ok(!save_wait(&large), "it is not saved");
    limit_files(RLIM_INFINITY);
    ok(is_there("a") && !is_there("b"), "the older one stays");
    is_int(files_in(path_of("")), 1, "nothing half is left");
    ok(save(3, "c", ""), "the next one is");
    ok(!is_there("a"), "and replaces the older one");
    is_text(found_name(refused), "c", "and is found");
    queen_close();
}

/* Both saves begin before the first fails. */
static void what_two_failed_saves_were_to_remove_goes_with_the_next(void)
{
    asked_t first, second;
    start_in("owed");
    save(1, "a", "");
    save(2, "b", "");
    limit_files(16384);
    ask_save(&first, weights_of(3, 20000), 3, "c", "a");
    ask_save(&second, weights_of(4, 20000), 4, "d", "b");
    ok(!save_wait(&first) && !save_wait(&second), "two saves fail");
    limit_files(RLIM_INFINITY);
    ok(is_there("a") && is_there("b"), "the older ones stay");
    ok(save(5, "e", ""), "the next one is saved");
    ok(!is_there("a") && !is_there("b") && is_there("e"), "and replaces both");
    queen_close();
}

static json_int_t serial_of(const char *name)
{
    json_t *manifest = pl_checkpoint_manifest(path_of(name), NULL);
    json_int_t serial = json_integer_value(json_object_get(manifest, "serial"));
    json_decref(manifest);
    return serial;
}

static void a_folder_is_synced_before_and_after_it_gets_its_name(void)
{
    char expected[64], pid[16];
    snprintf(pid, sizeof pid, "%02ld", (long)getpid());
    snprintf(expected, sizeof expected, "s:.a.%.2s r:a s:check ", pid);
    start_in("order");
    trace[0] = '\0';
    ok(save(1, "a", ""), "it is saved");
    ok(strlen(trace) > strlen(expected)
           && !strcmp(trace + strlen(trace) - strlen(expected), expected),
       "the folder is, then it is named, then the one around it");
    unsynced = "/checkpoints";
    ok(!save(2, "b", "a"), "one with a name that the disk refused is not");
    ok(is_there("a") && !is_there("b"), "nor is it there, and the older one stays");
    ok(!save(3, "a", ""), "the same under a name that is used again");
    is_int(serial_of("a"), 1, "the name still stands for the one before");
    unsynced = NULL;
    ok(save(4, "b", "a"), "the next one is");
    ok(!is_there("a") && is_there("b"), "and what was to go before goes");
    is_int(files_in(path_of("")), 1, "nothing half is left");
    queen_close();
}

static void an_unreadable_checkpoint_replaces_none(void)
{
    start_in("unread");
    save(1, "a\nlast", "");
    unreadable = true;
    ok(!save(2, "last", ""), "under a name that is used again it is not saved");
    ok(!save(3, "b", "a"), "nor in the place of an older one");
    unreadable = false;
    is_int(serial_of("last"), 1, "the name stands for the one before");
    ok(is_there("a") && !is_there("b"), "and the older one stays");
    is_int(files_in(path_of("")), 2, "nothing half is left");
    queen_close();
}

/* ---- what a run that was killed had begun ---- */

static int finish(const char *name)
{
    const pl_finish_checkpoint_t fields = {.path = path_of(name), .run_dir = run_dir};
    return queen_call(checkpoint_io, PL_MESSAGE_finish_checkpoint, &fields)->error.code;
}

/* As if it had been killed before it gave the second name and removed the first. */
static void a_save_that_had_begun_is_finished_for_the_newest_alone(void)
{
    char refused[1024], before[PATH_MAX];
    start_in("begun");
    save(1, "a", "");
    save(2, "b\nlast", "a");
    snprintf(before, sizeof before, "%s", path_of("a"));
    rename(path_of("last"), before);
    is_text(found_name(refused), "a", "found among equal states");
    ok(is_there("a") && !is_there("last"), "to find changes nothing");
    save(3, "c", "");
    is_int(finish("b"), PL_OK, "of an older one");
    ok(is_there("a") && !is_there("last"), "nothing is made or removed");
    pl_checkpoint_remove(path_of("c"), NULL);
    is_int(finish("b"), PL_OK, "of the newest");
    ok(!is_there("a") && is_there("last"), "what is not there is made, and what is to go "
                                           "goes");
    is_int(serial_of("last"), 2, "of the same state");
    queen_close();
}

static void a_name_that_leads_elsewhere_is_refused(void)
{
    start_in("elsewhere");
    save(1, "a", "");
    mkdir(path_of("../other"), 0777);
    ok(!save(2, "c\n../evil", ""), "to be written");
    ok(!is_there("../evil") && !is_there("c"), "nothing is");
    ok(save(3, "b", "../other"), "to be removed");
    ok(is_there("../other"), "it stays");
    is_int(finish("b"), PL_OK, "nor by a resumed run");
    ok(is_there("../other"), "it stays");
    queen_close();
}

static void files_of_a_killed_writer_are_removed(void)
{
    char refused[1024];
    start_in("left");
    mkdir(path_of(""), 0777);
    mkdir(path_of(".a.1-0.part"), 0777);
    fclose(fopen(path_of(".a.1-0.part/model.safetensors"), "w"));
    fclose(fopen(path_of(".a.1-0.part/.optimizer.safetensors.1-1.part"), "w"));
    is_text(found_name(refused), "", "it is no checkpoint");
    save(1, "a", "");
    is_int(files_in(path_of("")), 1, "and gone with the next");
    queen_close();
}

/* ---- options ---- */

static void keys_that_change_the_arithmetic_must_agree(void)
{
    pl_error_t err = {0};
    json_t *then = json_loads("{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, "
                              "\"trainer\": {\"seed\": 1, \"max_epochs\": 3}, "
                              "\"data\": {\"batch_size\": 4, \"workers\": 1}}",
                              0, NULL);
    json_t *same = json_loads("{\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, "
                              "\"trainer\": {\"seed\": 1, \"max_epochs\": 9}, "
                              "\"data\": {\"batch_size\": 4, \"workers\": 2}}",
                              0, NULL);
    json_t *other = json_loads("{\"module\": {\"name\": \"mlp\", \"hidden\": [9]}, "
                               "\"trainer\": {\"seed\": 2, \"max_epochs\": 3}, "
                               "\"data\": {\"batch_size\": 4}}",
                               0, NULL);
    is_int(pl_resume_check(then, same, false, &err), PL_OK,
           "how long and how fast may change");
    is_int(pl_resume_check(then, other, false, &err), PL_EINVAL, "others may not");
    like(err.text, "\"trainer.seed\" was 1 and is 2", "and are named");
    like(err.text, "\"module.hidden\" was \\[8\\] and is \\[9\\]", "all of them");
    json_decref(then), json_decref(same), json_decref(other);
}

static void differences_beyond_the_text_are_counted(void)
{
    json_t *then = json_object(), *now = json_object(), *module = json_object();
    pl_error_t err = {0};
    json_object_set_new(then, "module", json_object());
    json_object_set_new(now, "module", module);
    for (int k = 0; k < 30; k++) {
        char key[32];
        snprintf(key, sizeof key, "an_option_number_%d", k);
        json_object_set_new(module, key, json_integer(k));
    }
    is_int(pl_resume_check(then, now, false, &err), PL_EINVAL, "thirty options differ");
    like(err.text,
         " was not given and is 0, and 29 more \\(its manifest.json has all\\); change ",
         "three whole items, how many more there are, and where");
    like(err.text, " with module.init_from$", "and then what to do");
    ok(strlen(err.text) < PL_ERROR_TEXT - 100, "there is room for a path: %s", err.text);
    json_decref(then), json_decref(now);
}

typedef struct net {
    int64_t ignore_index;
} net_t;

static const pl_option_t net_options[] = {
    PL_INT(net_t, ignore_index, "-100", NULL, "target that does not count"),
    PL_OPTIONS_END,
};
static const pl_module_ops_t net = {.name = "net",
                                    .size = sizeof(net_t),
                                    .options = net_options};

static const char base_run[] =
    "{\"module\": {\"name\": \"net\", \"ignore_index\": -100}, "
    "\"data\": {\"name\": \"csv\", \"path\": \"a.csv\", \"standardize\": true, "
    "\"stratify\": false, \"drop_last\": false, \"package\": \"\"}, "
    "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}, "
    "\"trainer\": {\"seed\": 1, \"nan_limit\": 10, "
    "\"accelerator\": {\"name\": \"cpu\", \"threads\": 0}}}";

/* base_run with the keys of {"data": {…}, …}; null removes a key. */
static json_t *run_with(const char *changes)
{
    json_t *run = json_loads(base_run, 0, NULL), *all = json_loads(changes, 0, NULL),
           *section, *value;
    const char *name, *key;
    json_object_foreach(all, name, section)
        json_object_foreach(section, key, value)
            json_object_set(json_object_get(run, name), key, value);
    json_object_foreach(run, name, section) {
        void *next;
        json_object_foreach_safe(section, next, key, value)
            if (json_is_null(value))
                json_object_del(section, key);
    }
    json_decref(all);
    return run;
}

static int agree(const char *then, const char *now, bool by_content, pl_error_t *err)
{
    json_t *a = run_with(then), *b = run_with(now);
    const int code = pl_resume_check(a, b, by_content, err);
    json_decref(a), json_decref(b);
    return code;
}

static void options_missing_in_a_checkpoint_have_their_defaults(void)
{
    static const char older[] =
        "{\"module\": {\"ignore_index\": null}, "
        "\"data\": {\"stratify\": null, \"drop_last\": null, \"package\": null, "
        "\"standardize\": null}, \"optimizer\": {\"momentum\": null}, "
        "\"trainer\": {\"nan_limit\": null, \"accelerator\": {\"name\": \"cpu\"}}}";
    static const char *const others[][2] = {
        {"{\"module\": {\"ignore_index\": -1}}",
         "\"module.ignore_index\" was -100 and is -1"},
        {"{\"data\": {\"drop_last\": true}}", "\"data.drop_last\" was false and is true"},
        {"{\"data\": {\"standardize\": false}}",
         "\"data.standardize\" was true and is false"},
        {"{\"trainer\": {\"nan_limit\": 3}}", "\"trainer.nan_limit\" was 10 and is 3"}};
    pl_error_t err = {0};
    is_int(agree(older, "{\"optimizer\": {\"momentum\": 0}}", true, &err), PL_OK,
           "the run resumes: %s", err.text);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        is_int(agree(older, others[k][0], true, &err), PL_EINVAL, "not with %s",
               others[k][0]);
        like(err.text, others[k][1], "the error says why");
    }
    is_int(agree(older, "{}", true, &err), PL_EINVAL, "nor with a momentum");
    like(err.text, "the result: \"optimizer.momentum\" was 0[.0]* and is 0.9; change",
         "which alone differs");
    is_int(pl_resume_check(NULL, NULL, true, &err), PL_OK, "no run agrees with none");
}

/* The changes that make the module a graph with these calls. */
#define GRAPH(calls) \
    "{\"module\": {\"name\": \"graph\", \"ignore_index\": null, \"calls\": " calls "}}"
#define RELU "\"relu\", {\"x\": 0}"

static void what_changes_no_result_is_not_compared(void)
{
    pl_error_t err = {0};
    is_int(agree("{\"data\": {\"target\": \"auto\"}}", "{}", false, &err), PL_OK,
           "a checkpoint from when \"auto\" was the default");
    is_int(agree("{\"data\": {\"target\": \"value\"}}", "{}", false, &err), PL_EINVAL,
           "another target is another run");
    is_int(agree("{\"module\": {\"init_from\": \"first.safetensors\"}}",
                 "{\"module\": {\"init_from\": \"gone\", \"init_strict\": false}}", true,
                 &err),
           PL_OK, "the first weights: %s", err.text);
    is_int(agree(GRAPH("[[" RELU ", \"a.py:3\"]]"), GRAPH("[[" RELU ", \"b.py:4\"]]"),
                 true, &err),
           PL_OK, "places of calls in a program: %s", err.text);
    is_int(agree(GRAPH("{\"test\": [[" RELU ", \"a.py:3\"]]}"),
                 GRAPH("{\"test\": [[" RELU "]]}"), true, &err),
           PL_OK, "of a stage: %s", err.text);
    is_int(agree(GRAPH("[[" RELU "]]"), GRAPH("[[\"relu\", {\"x\": 1}]]"), true, &err),
           PL_EINVAL, "the calls are");
}

static void names_of_data_are_not_compared_where_samples_are(void)
{
    static const char *const names[][2] = {
        {"{\"data\": {\"package\": \"r-cran-mass\"}}", "{}"},
        {"{\"data\": {\"path\": \"b.csv\"}}", "{}"},
        {"{\"data\": {\"name\": \"npy\", \"x\": \"x.npy\", \"offsets\": \"o.npy\"}}",
         "{\"data\": {\"name\": \"npy\", \"x\": \"y.npy\", \"offsets\": \"p.npy\"}}"},
        {"{\"data\": {\"name\": \"idx\", \"images\": \"a-images\", \"labels\": "
         "\"a-labels\"}}",
         "{\"data\": {\"name\": \"idx\", \"images\": \"b-images\", \"labels\": "
         "\"b-labels\"}}"},
        {"{\"data\": {\"name\": \"idx\", \"images\": \"a-images\"}}",
         "{\"data\": {\"name\": \"idx\", \"prefix\": \"a-\"}}"},
    };
    pl_error_t err = {0};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        is_int(agree(names[k][0], names[k][1], true, &err), PL_OK, "%s resumes with %s",
               names[k][0], names[k][1]);
    is_int(agree(names[2][0], "{\"data\": {\"name\": \"npy\", \"x\": \"x.npy\"}}", true,
                 &err),
           PL_EINVAL, "samples that differ in length are others than those that do not");
    is_int(agree(names[1][0], names[1][1], false, &err), PL_EINVAL,
           "names are compared where samples are not");
    is_int(agree(names[0][0], names[0][1], false, &err), PL_OK,
           "the package of an error text never is");
}

/* ---- memory ---- */

static void every_call_ends_whichever_allocation_fails(void)
{
    int left_behind = 0, nth = 0;
    bool failed = true;
    for (; failed && nth < 2000; nth++) {
        char name[32];
        snprintf(name, sizeof name, "scarce%d", nth);
        long before = scarce_live();
        start_in(name);
        pl_weights_t *weights = weights_of(1, 0);
        scarce_fail(nth + 1);
        asked_t asked;
        ask_save(&asked, weights, 1, "a\nb", "");
        queen_wait(&asked);
        pl_found_t found = {0};
        pl_checkpoint_find("", "", run_dir, &found, NULL);
        failed = scarce_failed();
        scarce_fail(0);
        pl_found_release(&found);
        queen_close();
        left_behind += scarce_live() != before;
    }
    ok(nth > 100, "%d requests for memory were made to fail", nth);
    is_int(left_behind, 0, "nothing is left behind");
}

int main(int argc, char **argv)
{
    const pl_registration_t components[] = {{"module", &net}, {0}};
    pl_init(&argc, &argv, components, NULL);
    scarce_init();
    run(a_checksum_equals_the_standards);
    run(a_checksum_is_the_same_in_pieces_of_any_size);
    run(a_checkpoint_comes_back_as_it_was);
    run(the_last_saved_checkpoint_is_the_newest);
    run(older_checkpoints_are_removed_once_the_newer_is_safe);
    run(one_that_cannot_be_removed_keeps_none_of_the_others);
    run(a_damaged_checkpoint_is_named_and_the_previous_one_taken);
    run(a_damaged_checkpoint_of_a_given_name_is_an_error);
    run(a_recorded_size_is_checked_with_the_file);
    run(a_disk_that_is_full_costs_that_checkpoint_alone);
    run(what_two_failed_saves_were_to_remove_goes_with_the_next);
    run(a_folder_is_synced_before_and_after_it_gets_its_name);
    run(an_unreadable_checkpoint_replaces_none);
    run(a_save_that_had_begun_is_finished_for_the_newest_alone);
    run(a_name_that_leads_elsewhere_is_refused);
    run(files_of_a_killed_writer_are_removed);
    run(keys_that_change_the_arithmetic_must_agree);
    run(differences_beyond_the_text_are_counted);
    run(options_missing_in_a_checkpoint_have_their_defaults);
    run(what_changes_no_result_is_not_compared);
    run(names_of_data_are_not_compared_where_samples_are);
    run(every_call_ends_whichever_allocation_fails);
    return tap_done();
}
