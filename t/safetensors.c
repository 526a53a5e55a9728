/* safetensors.c - tests of engine/formats/safetensors_*.c and durable.c
 *
 * The system calls of a save are replaced here, so that each of them can be made to fail.
 * */
#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "formats/durable.h"
#include "tap.h"

static pl_error_t err;

/* ---- The system calls of a save, counted ---- */

static int calls_until_failure = -1;     /* -1: none fails */
static char trace[64];                   /* o open, w write, s sync, r rename, u unlink */
static int synced[16], sync_count;

static bool fails(char call)
{
    size_t length = strlen(trace);
    if (length + 1 < sizeof trace)
        trace[length] = call;
    if (calls_until_failure != 0) {
        calls_until_failure -= calls_until_failure > 0;
        return false;
    }
    errno = call == 'w' ? ENOSPC : EIO;
    return true;
}

static void calls_fail_from(int nth)
{
    calls_until_failure = nth;
    memset(trace, 0, sizeof trace);
    sync_count = 0;
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return fails('o') ? -1 : (int)syscall(SYS_openat, directory, path, flags, mode);
}

static bool takes_all;                    /* or half of the request, as a slow disk may */
static long past_the_cache;               /* bytes */

ssize_t write(int fd, const void *data, size_t size)
{
    if (fails('w'))
        return -1;
    ssize_t n = syscall(SYS_write, fd, data, size > 1 && !takes_all ? size / 2 : size);
    past_the_cache += n > 0 && fcntl(fd, F_GETFL) & O_DIRECT ? n : 0;
    return n;
}

int fsync(int fd)
{
    if (sync_count < 16)
        synced[sync_count++] = fd;
    return fails('s') ? -1 : (int)syscall(SYS_fsync, fd);
}

int renameat(int from, const char *old, int to, const char *new)
{
    return fails('r') ? -1 : (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

/* ---- Files ---- */

static const float numbers[6] = {1.5f, -2, 0, 3e38f, 1e-40f, -0.f};

static pl_safetensors_content_t content_two(void)
{
    static const pl_safetensors_source_t tensors[] = {
        {"flag", PL_U8, {.rank = 1, .dim = {3}}, "\x07\x08\x09"},
        {"wéight", PL_F32, {.rank = 2, .dim = {2, 3}}, numbers},
    };
    static const pl_metadata_t metadata[] = {{"step", "12"},
                                             {"note", "tést \"quoted\"\n"}};
    return (pl_safetensors_content_t){tensors, 2, metadata, 2, NULL};
}

static const char *folder_path(const char *name)
{
    static char path[4200];
    char folder[4100];
    snprintf(folder, sizeof folder, "%s/save", tap_folder());
    mkdir(folder, 0755);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int files_saved(void)
{
    char folder[4100];
    snprintf(folder, sizeof folder, "%s/save", tap_folder());
    return files_in(folder);
}

static const pl_safetensors_tensor_t *tensor_of(const pl_safetensors_t *file,
                                                const char *name)
{
    for (int k = 0; k < file->count; k++)
        if (!strcmp(file->tensor[k].name, name))
            return &file->tensor[k];
    return NULL;
}

static void written_tensors_are_read_again(void)
{
    pl_safetensors_t file;
    pl_safetensors_content_t content = content_two();
    float out[6];
    const char *path = folder_path("a.safetensors");
    is_int(pl_safetensors_write(path, &content, &err), PL_OK, "written");
    is_int(pl_safetensors_open(path, &file, &err), PL_OK, "opened");
    ok(file.count == 2 && !strcmp(file.tensor[0].name, "flag"),
       "the order is the one given");
    const pl_safetensors_tensor_t *weight = tensor_of(&file, "wéight");
    ok(weight && weight->loadable && weight->dtype == PL_F32 && weight->shape.rank == 2
           && weight->shape.dim[1] == 3,
       "type and shape");
    ok(!pl_safetensors_load(&file, weight, out, &err)
           && !memcmp(out, numbers, sizeof out),
       "bit by bit");
    is_text(pl_safetensors_metadata(&file, "step"), "12", "metadata");
    is_text(pl_safetensors_metadata(&file, "note"), "tést \"quoted\"\n",
            "with every character");
    ok(!pl_safetensors_metadata(&file, "nothing") && !tensor_of(&file, "nothing"),
       "and no other");
    is_int(file.tensor[0].offset % 64, 0, "the data begin at a multiple of 64");
    pl_safetensors_close(&file);
    unlink(path);
}

static void files_of_python_are_read(void)
{
    pl_safetensors_t file;
    float weight[6];
    int64_t bias[3];
    is_int(pl_safetensors_open(file_of_tests("data/python.safetensors"), &file, &err),
           PL_OK, "opened");
    is_int(file.count, 5, "five tensors");
    ok(!pl_safetensors_load(&file, tensor_of(&file, "weight"), weight, &err)
           && !memcmp(weight, numbers, sizeof weight),
       "float32");
    ok(!pl_safetensors_load(&file, tensor_of(&file, "bias"), bias, &err) && bias[2] == 3,
       "int64");
    ok(!pl_safetensors_load(&file, tensor_of(&file, "empty"), bias, &err),
       "nothing, in a shape");
    ok(!pl_safetensors_load(&file, tensor_of(&file, "half"), weight, &err)
           && weight[0] == 1 && weight[1] == 2,
       "float16, as float32");
    is_text(pl_safetensors_metadata(&file, "made by"), "tést \"quoted\"\n", "metadata");
    pl_safetensors_close(&file);
}

/* ---- Bad files ---- */

/* A file with that header and `bytes` of data. */
static int read_header(const char *header, size_t bytes)
{
    static uint8_t data[4096];
    pl_safetensors_t file;
    uint64_t length = strlen(header);
    memset(data, 0, sizeof data);
    memcpy(data, &length, 8);
    memcpy(data + 8, header, length);
    int code = pl_safetensors_read(data, 8 + length + bytes, "file", &file, &err);
    if (!code)
        pl_safetensors_close(&file);
    return code;
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define REFUSED(header, bytes, pattern, what) \
    (is_int(read_header(header, bytes), PL_EFORMAT, what), \
     like(err.text, pattern, "the text says what and where"))

static void tensors_must_fill_the_file(void)
{
    is_int(read_header(
               "{" A ",\"b\":{\"data_offsets\":[8,9],\"shape\":[],\"dtype\":\"U8\"} }  ",
               9),
           PL_OK, "a good one");
    is_int(read_header("{}", 0), PL_OK, "one of nothing");
    REFUSED("{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8,
            "file: tensor 'b' begins at byte [0-9]+, before byte", "an overlap");
    REFUSED("{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[12,16]}}", 16,
            "file: tensor 'b' begins at byte [0-9]+, after byte", "a hole");
    REFUSED("{" A "}", 7, "file: truncated at byte 69, in tensor 'a', which ends at 70",
            "too few bytes");
    REFUSED("{" A "}", 9, "file: byte 70: the rest", "too many");
    REFUSED("{}", 1, "file: byte 10: the rest", "bytes of no tensor");
    REFUSED("{" A "," A "}", 8, "", "a name twice, overlapping");
    REFUSED("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
            "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
            0, "tensor 'a' appears twice", "a name twice");
}

static void hostile_numbers_are_refused(void)
{
#define T(shape, offsets) \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
    REFUSED(T("[9223372036854775808]", "[0,8]"), 8,
            "file: byte [0-9]+: the number is past", "2^63");
    REFUSED(T("[-1]", "[0,8]"), 8, "file: byte 37: a whole number", "a negative axis");
    REFUSED(T("[2.0]", "[0,8]"), 8, "file: byte 38: ',' or ']'", "a fraction");
    REFUSED(T("[4294967296,4294967296]", "[0,0]"), 0, "too many elements",
            "a product past 2^63");
    REFUSED(T("[4611686018427387904]", "[0,0]"), 0, "does not match", "bytes past 2^63");
    REFUSED(T("[2]", "[8,0]"), 8, "data_offsets", "an end before its begin");
    REFUSED(T("[2]", "[0,9223372036854775807]"), 8, "does not match", "an end far away");
    REFUSED(T("[3]", "[0,8]"), 8, "tensor 'a' has 8 bytes",
            "a size that is not the shape's");
    REFUSED(T("[1,1,1,1,1,1,2]", "[0,8]"), 8, "at most 6 axes", "seven axes");
    uint8_t file[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    pl_safetensors_t open;
    is_int(pl_safetensors_read(file, 16, "file", &open, &err), PL_EFORMAT,
           "a header of 2^64 - 1 bytes");
    like(
        err.text,
        "file: not a safetensors file: its header would have 18446744073709551615 bytes, "
        "and the longest has 104857600",
        "the text says so");
}

static void the_header_is_read_strictly(void)
{
    REFUSED("{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
            "the type before this is unknown", "an unknown type");
    REFUSED("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets is missing",
            "a key missing");
    REFUSED("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],"
            "\"data_offsets\":[0,8]}}",
            8, "byte [0-9]+: .*repeated", "a key twice");
    REFUSED("{\"__metadata__\":{\"k\":1}," A "}", 8, "byte [0-9]+: a text in quotes",
            "metadata that is no text");
    REFUSED("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," A "}", 8, "'k' twice",
            "metadata twice");
    REFUSED("{" A "} x", 8, "byte [0-9]+: unexpected text after", "a tail");
    REFUSED(" {" A "}", 8, "byte 8: the header does not begin", "a space first");
    REFUSED("{\"\xff\":{}}", 0, "byte 10: not allowed in a text", "no UTF-8");
    REFUSED("{\"\\u0000\":{}}", 0, "not allowed", "a zero in a name");
    REFUSED("{\"\\ud800\":{}}", 0, "not allowed", "half a character");
    is_int(read_header("{\"\\ud83d\\ude00\\n\":{\"dtype\":\"U8\",\"shape\":[],"
                       "\"data_offsets\":[0,1]}}",
                       1),
           PL_OK, "a whole one is fine");
}

static int read_file(const uint8_t *data, size_t size, pl_error_t *error)
{
    pl_safetensors_t file;
    int code = pl_safetensors_read(data, size, "file", &file, error);
    if (!code)
        pl_safetensors_close(&file);
    return code;
}

static void damage_is_survived(void)
{
    size_t size;
    uint8_t *data = file_get(file_of_tests("data/python.safetensors"), &size);
    survives_damage(read_file, data, size, false);
    free(data);
}

static void a_file_cut_while_open_is_an_error(void)
{
    pl_safetensors_t file;
    pl_safetensors_content_t content = content_two();
    float out[6];
    const char *path = folder_path("cut.safetensors");
    ok(!pl_safetensors_write(path, &content, &err)
           && !pl_safetensors_open(path, &file, &err),
       "opened");
    const pl_safetensors_tensor_t *weight = tensor_of(&file, "wéight");
    ok(truncate(path, (off_t)weight->offset + 5) == 0, "cut");
    is_int(pl_safetensors_load(&file, weight, out, &err), PL_EIO, "the load fails");
    like(err.text, "cut.safetensors: truncated at byte [0-9]+ since it was opened",
         "and names file and byte");
    pl_safetensors_close(&file);
    unlink(path);
}

/* ---- Saving ---- */

static bool holds(const char *path, const char *text)
{
    size_t size;
    uint8_t *data = file_get(path, &size);
    bool same = data && size == strlen(text) && !memcmp(data, text, size);
    free(data);
    return same;
}

static void put_old(const char *path)
{
    FILE *file = fopen(path, "w");
    fputs("old", file);
    fclose(file);
}

static void each_call_of_a_save_may_fail(void)
{
    pl_safetensors_content_t content = content_two();
    const char *path = folder_path("b.safetensors");
    int nth = 0, code = PL_EIO, wrong = 0, retried = 0;
    for (; code && nth < 60; nth++) {
        put_old(path);
        calls_fail_from(nth);
        code = pl_safetensors_write(path, &content, &err);
        bool replaced = strchr(trace, 'r') && strstr(trace, "rs");
        if (files_saved() != 1 || holds(path, "old") == replaced
            || (code && !strstr(err.text, "b.safetensors"))) {
            wrong++;
            tap_diag("call %d of \"%s\": code %d, %d files, \"%s\"", nth, trace, code,
                     files_saved(), err.text);
        }
        retried += sync_count == 2 && synced[0] == synced[1] && !replaced;
    }
    calls_fail_from(-1);
    is_int(code, PL_OK, "after %d failures the save is done", nth - 1);
    ok(nth > 20 && wrong == 0,
       "each left the old file, or the whole new one, and nothing beside it");
    is_int(retried, 0, "a failed sync was never tried again");
    like(trace, "^$", "(the trace is off again)");
    unlink(path);
}

static void a_save_is_synced_in_order(void)
{
    pl_safetensors_content_t content = content_two();
    const char *path = folder_path("c.safetensors");
    calls_fail_from(-1);
    is_int(pl_safetensors_write(path, &content, &err), PL_OK, "saved");
    like(trace, "^ow+srs$", "created, written, synced, renamed, directory synced");
    struct stat status;
    mode_t mask = umask(0);
    umask(mask);
    ok(stat(path, &status) == 0 && (status.st_mode & 0777) == (0666 & ~mask),
       "with the usual permissions");
    unlink(path);
}

static void a_full_disk_leaves_the_old_file(void)
{
    static float large[30000];
    const pl_safetensors_source_t tensor = {"large",
                                            PL_F32,
                                            {.rank = 1, .dim = {30000}},
                                            large};
    const pl_safetensors_content_t content = {&tensor, 1, NULL, 0, NULL};
    struct rlimit limit, old;
    const char *path = folder_path("d.safetensors");
    put_old(path);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = (struct rlimit){50000, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    int code = pl_safetensors_write(path, &content, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    is_int(code, PL_EIO, "no room");
    like(err.text,
         "d.safetensors: byte 50000 cannot be written: .*; the old file is unchanged$",
         "with file and byte");
    ok(holds(path, "old") && files_saved() == 1,
       "the old file is there, and nothing else");
    unlink(path);
}

/* ---- Large files ---- */

enum { MANY = (5 << 18) + 77 };                             /* floats; 2.5 blocks */

static pl_safetensors_content_t content_large(float data[MANY], pl_checksums_t *sums)
{
    static pl_safetensors_source_t tensor;
    for (int k = 0; k < MANY; k++)
        data[k] = (float)k;
    tensor = (pl_safetensors_source_t){"large", PL_F32, {.rank = 1, .dim = {MANY}}, data};
    return (pl_safetensors_content_t){&tensor, 1, NULL, 0, sums};
}

static bool holds_large(const char *path, const float data[MANY],
                        const pl_checksums_t *sums)
{
    pl_safetensors_t file;
    pl_checksums_t found = {0};
    if (pl_safetensors_open(path, &file, &err) != PL_OK)
        return false;
    float *out = malloc(MANY * sizeof *out);
    bool same = pl_safetensors_load(&file, &file.tensor[0], out, &err) == PL_OK
                && !memcmp(out, data, MANY * sizeof *out);
    pl_safetensors_close(&file);
    size_t size;
    uint8_t *bytes = file_get(path, &size);
    same = same && bytes && pl_checksums_add(&found, bytes, size, &err) == PL_OK
           && found.bytes == sums->bytes && found.count == sums->count
           && !memcmp(found.block, sums->block,
                      (size_t)sums->count * sizeof *sums->block);
    pl_checksums_release(&found);
    free(bytes);
    free(out);
    return same;
}

static bool can_pass_the_cache(const char *path)
{
    put_old(path);
    int fd = open(path, O_WRONLY | O_DIRECT);
    close(fd);
    return fd >= 0;
}

static void a_large_file_is_written_past_the_cache(void)
{
    static float data[MANY];
    pl_checksums_t sums = {0}, again = {0};
    pl_safetensors_content_t content = content_large(data, &sums);
    const char *path = folder_path("large.safetensors");
    const bool possible = can_pass_the_cache(path);
    takes_all = true;
    past_the_cache = 0;
    is_int(pl_safetensors_write(path, &content, &err), PL_OK, "saved");
    ok(holds_large(path, data, &sums), "with every byte, and their sums");
    ok(past_the_cache >= 4 << 20 || !possible, "past the cache, where that is possible");
    takes_all = false;
    content.sums = &again;
    is_int(pl_safetensors_write(path, &content, &err), PL_OK,
           "a disk that takes odd pieces gets them");
    ok(holds_large(path, data, &again), "and all of them");
    pl_checksums_release(&sums), pl_checksums_release(&again);
    unlink(path);
}

static void each_call_of_a_large_save_may_fail(void)
{
    static float data[MANY];
    pl_safetensors_content_t content = content_large(data, NULL);
    const char *path = folder_path("large.safetensors");
    int nth = 0, code = PL_EIO, wrong = 0;
    takes_all = true;
    for (; code && nth < 30; nth++) {
        put_old(path);
        calls_fail_from(nth);
        code = pl_safetensors_write(path, &content, &err);
        bool replaced = strchr(trace, 'r') && strstr(trace, "rs");
        wrong += files_saved() != 1 || holds(path, "old") == replaced
                 || (code && !strstr(err.text, "large.safetensors"));
    }
    takes_all = false;
    calls_fail_from(-1);
    is_int(code, PL_OK, "after %d failures the save is done", nth - 1);
    ok(nth > 6 && wrong == 0, "each left the old file, or the whole new one");
    unlink(path);
}

static void a_disk_that_fills_up_under_a_large_file_is_reported_with_the_byte(void)
{
    static float data[MANY];
    pl_safetensors_content_t content = content_large(data, NULL);
    const char *path = folder_path("large.safetensors");
    struct rlimit limit, old;
    put_old(path);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = (struct rlimit){5000000, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    int code = pl_safetensors_write(path, &content, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    is_int(code, PL_EIO, "no room");
    like(err.text, "large.safetensors: byte 5000000 cannot be written: ", "for this one");
    ok(holds(path, "old") && files_saved() == 1, "the old file is there, and no other");
    unlink(path);
}

static void impossible_files_are_not_begun(void)
{
    pl_safetensors_source_t two[2] = {{"a", PL_U8, {0}, "x"}, {"a", PL_U8, {0}, "x"}};
    pl_safetensors_content_t content = {two, 2, NULL, 0, NULL};
    const char *path = folder_path("e.safetensors");
    is_int(pl_safetensors_write(path, &content, &err), PL_EINVAL, "a name twice");
    like(err.text, "tensor 'a' appears twice", "is named");
    two[1].name = "\xff";
    is_int(pl_safetensors_write(path, &content, &err), PL_EINVAL,
           "a name that is no UTF-8");
    like(err.text, "the name of tensor 1 is not UTF-8", "is counted");
    two[1].name = "__metadata__";
    is_int(pl_safetensors_write(path, &content, &err), PL_EINVAL, "a reserved name");
    two[1] = (pl_safetensors_source_t){"b", PL_F32, {.rank = 1, .dim = {-1}}, "x"};
    is_int(pl_safetensors_write(path, &content, &err), PL_EINVAL, "a negative axis");
    is_int(pl_safetensors_write("/nowhere/at/all", &content, &err), PL_EINVAL,
           "before anything is opened");
    content = (pl_safetensors_content_t){two, 1,
                                         (pl_metadata_t[]){{"k", "1"}, {"k", "2"}}, 2,
                                         NULL};
    is_int(pl_safetensors_write(path, &content, &err), PL_EINVAL, "metadata twice");
    content = (pl_safetensors_content_t){two, 1, &(pl_metadata_t){"k", "\xff"}, 1, NULL};
    is_int(pl_safetensors_write(path, &content, &err), PL_EINVAL,
           "metadata that is no UTF-8");
    content.metadata_count = 0;
    is_int(pl_safetensors_write("/nowhere/at/all", &content, &err), PL_ENOTFOUND,
           "no such directory");
    is_int(files_saved(), 0, "no file was made");
}

static void a_file_describes_itself(void)
{
    pl_safetensors_content_t content = content_two();
    const char *path = folder_path("m.safetensors");
    is_int(pl_safetensors_write(path, &content, &err), PL_OK, "a file is written");
    char *text = pl_weights_describe(path, &err);
    like(text,
         "^\\{\"tensors\":\\{\".*\":\\{\"dtype\":\"[FIU][0-9]+\",\"shape\":\\[.*\\],"
         "\"offset\":[0-9]+,\"bytes\":[0-9]+\\}.*\"metadata\":\\{.*\\}\\}$",
         "names, types, shapes, places and metadata");
    pl_text_free(text);
    ok(!pl_weights_describe(tap_folder(), &err), "a folder is none");
    like(err.text, "not a regular file", "and is refused");
}

static int describe(pl_error_t *error)
{
    char *text = pl_weights_describe(folder_path("m.safetensors"), error);
    pl_text_free(text);
    return text ? PL_OK : error->code;
}

static int write_and_read(pl_error_t *error)
{
    pl_safetensors_content_t content = content_two();
    pl_safetensors_t file;
    const char *path = folder_path("m.safetensors");
    int code = pl_safetensors_write(path, &content, error);
    if (!code)
        code = pl_safetensors_open(path, &file, error);
    if (!code)
        pl_safetensors_close(&file);
    return code;
}

static void memory_may_run_out(void)
{
    survives_lack_of_memory(write_and_read);
    is_int(files_saved(), 1, "and no file is left beside the one");
    survives_lack_of_memory(describe);
}

int main(void)
{
    run(written_tensors_are_read_again);
    run(files_of_python_are_read);
    run(tensors_must_fill_the_file);
    run(hostile_numbers_are_refused);
    run(the_header_is_read_strictly);
    run(damage_is_survived);
    run(a_file_cut_while_open_is_an_error);
    run(each_call_of_a_save_may_fail);
    run(a_save_is_synced_in_order);
    run(a_full_disk_leaves_the_old_file);
    run(a_large_file_is_written_past_the_cache);
    run(each_call_of_a_large_save_may_fail);
    run(a_disk_that_fills_up_under_a_large_file_is_reported_with_the_byte);
    run(impossible_files_are_not_begun);
    run(a_file_describes_itself);
    run(memory_may_run_out);
    return tap_done();
}
