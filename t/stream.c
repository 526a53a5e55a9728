/* stream.c - tests of engine/formats/stream.c */
#include "formats/stream.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "tap.h"

#define NO_LIMIT SIZE_MAX

static pl_error_t err;

static bool reads_as(const char *path, const void *data, size_t size)
{
    pl_file_bytes_t bytes;
    if (pl_file_read(path, NO_LIMIT, &bytes, &err)) {
        tap_diag("%s", err.text);
        return false;
    }
    bool same = bytes.size == size && !memcmp(bytes.data, data, size)
                && bytes.data[size] == 0;
    pl_file_bytes_release(&bytes);
    return same;
}

static void plain_and_compressed_files_give_the_same_bytes(void)
{
    size_t size = 300000;
    uint8_t *data = malloc(size);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 7 + i / 1000);
    ok(reads_as(file_put("plain", data, size), data, size), "plain");
    ok(reads_as(file_put_gzip("packed.gz", data, size), data, size), "gzip");
    ok(reads_as(file_put_gzip("packed", data, size), data, size),
       "gzip without the ending");
    ok(reads_as(file_put("one", "x", 1), "x", 1), "one byte");
    ok(reads_as(file_put("nothing", "", 0), "", 0), "an empty file");
    ok(reads_as(file_put_gzip("nothing.gz", "", 0), "", 0), "an empty file, gzip");
    free(data);
}

static void gzip_members_after_one_another_are_one_file(void)
{
    size_t first, second;
    uint8_t *a = file_get(file_put_gzip("a.gz", "one ", 4), &first);
    uint8_t *b = file_get(file_put_gzip("b.gz", "two", 3), &second);
    uint8_t both[256];
    memcpy(both, a, first);
    memcpy(both + first, b, second);
    ok(reads_as(file_put("both.gz", both, first + second), "one two", 7), "two members");
    memcpy(both + first, "rubbish", 7);
    pl_file_bytes_t bytes;
    is_int(pl_file_read(file_put("tail.gz", both, first + 7), NO_LIMIT, &bytes, &err),
           PL_EFORMAT, "a tail is refused");
    like(err.text, "tail.gz: byte [0-9]+: .*damaged", "with file and byte");
    free(a);
    free(b);
}

static void zstandard_is_read_like_gzip(void)
{
    static const uint8_t packed[] = {0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x61, 0x00, 0x00,
                                     0x61, 0x2c, 0x62, 0x0a, 0x31, 0x2c, 0x32, 0x0a, 0x33,
                                     0x2c, 0x34, 0x0a, 0xe1, 0xb3, 0xcb, 0x2e};
    const char text[] = "a,b\n1,2\n3,4\n";
    uint8_t both[2 * sizeof packed];
    pl_file_bytes_t bytes;
    if (pl_file_read(file_put("t.zst", packed, sizeof packed), NO_LIMIT, &bytes, &err)
        == PL_ENOTFOUND) {
        like(err.text, "t.zst is compressed by Zstandard, .*zstd -d", "%s", err.text);
        tap_skip("libzstd is not installed");
        return;
    }
    pl_file_bytes_release(&bytes);
    ok(reads_as(file_put("t.zst", packed, sizeof packed), text, 12), "a frame");
    memcpy(both, packed, sizeof packed);
    memcpy(both + sizeof packed, packed, sizeof packed);
    ok(reads_as(file_put("t.zst", both, sizeof both), "a,b\n1,2\n3,4\na,b\n1,2\n3,4\n",
                24),
       "and two");
    is_int(pl_file_read(file_put("t.zst", packed, 20), NO_LIMIT, &bytes, &err),
           PL_EFORMAT, "not the beginning of one");
    like(err.text, "t.zst: truncated: the Zstandard data end at byte 20", "%s", err.text);
    both[21] ^= 1;
    is_int(pl_file_read(file_put("t.zst", both, sizeof packed), NO_LIMIT, &bytes, &err),
           PL_EFORMAT, "not a damaged one");
    like(err.text, "t.zst: byte [0-9]+: the Zstandard data are damaged", "%s", err.text);
    is_int(pl_file_read(file_put("t.zst", packed, sizeof packed), 5, &bytes, &err),
           PL_EFORMAT, "nor more than the limit");
}

static int read_gzip(const uint8_t *data, size_t size, pl_error_t *error)
{
    pl_file_bytes_t bytes;
    if (size < 2)
        return pl_fail(error, PL_EFORMAT, "not seen as gzip");
    int code = pl_file_read(file_put("packed.gz", data, size), NO_LIMIT, &bytes, error);
    if (code)
        return code;
    pl_file_bytes_release(&bytes);
    return PL_OK;
}

static void damage_to_a_compressed_file_is_found(void)
{
    size_t size;
    pl_file_bytes_t bytes;
    char text[400];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)("paceline"[i % 7] + i / 40);
    uint8_t *data = file_get(file_put_gzip("small.gz", text, sizeof text), &size);
    survives_damage(read_gzip, data, size, false);

    is_int(pl_file_read(file_put("small.gz", data, size - 5), NO_LIMIT, &bytes, &err),
           PL_EFORMAT, "truncated");
    like(err.text, "small.gz: truncated: .* byte [0-9]+", "the text says where");
    data[size - 6] ^= 1;
    is_int(pl_file_read(file_put("small.gz", data, size), NO_LIMIT, &bytes, &err),
           PL_EFORMAT, "a wrong check sum");
    like(err.text, "small.gz: byte [0-9]+: .*damaged.*check", "the text says so");
    free(data);
}

static size_t largest;

static void *watched_allocate(size_t bytes)
{
    largest = bytes > largest ? bytes : largest;
    return malloc(bytes);
}

static void *watched_resize(void *memory, size_t bytes)
{
    largest = bytes > largest ? bytes : largest;
    return realloc(memory, bytes);
}

static void a_limit_holds_however_much_a_file_promises(void)
{
    size_t size = 20 << 20, limit = 1 << 20;
    char *zeros = calloc(size, 1);
    pl_file_bytes_t bytes;
    const char *bomb = file_put_gzip("bomb.gz", zeros, size);
    pl_memory_hooks(watched_allocate, watched_resize, NULL);
    is_int(pl_file_read(bomb, limit, &bytes, &err), PL_EFORMAT,
           "20 MiB in a small gzip are refused");
    pl_memory_hooks(NULL, NULL, NULL);
    like(err.text, "bomb.gz: more than 1048576 bytes uncompressed",
         "the text says the limit");
    ok(largest <= limit + 2, "and no more than the limit was asked for");
    const char *exact = file_put_gzip("exact.gz", zeros, limit),
               *plain = file_put("plain", zeros, limit);
    is_int(pl_file_read(exact, limit, &bytes, &err), PL_OK, "exactly the limit is read");
    pl_file_bytes_release(&bytes);
    is_int(pl_file_read(plain, limit, &bytes, &err), PL_OK, "plain too");
    pl_file_bytes_release(&bytes);
    is_int(pl_file_read(plain, limit - 1, &bytes, &err), PL_EFORMAT,
           "one byte more is not");
    is_int(pl_file_read(exact, limit - 1, &bytes, &err), PL_EFORMAT, "nor compressed");
    free(zeros);
}

static const char *changing;
static void (*change)(const char *path);

/* The first memory that a reader takes, it takes when the file is open. */
static void *change_and_allocate(size_t bytes)
{
    if (change)
        change(changing);
    change = NULL;
    return malloc(bytes);
}

static void make_longer(const char *path)
{
    ok(truncate(path, 5) == 0, "while a file is read, it becomes longer");
}

static void make_shorter(const char *path)
{
    ok(truncate(path, 3) == 0, "or shorter");
}

static void make_newer(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    ok(utimensat(AT_FDCWD, path, times, 0) == 0, "or is written again");
}

static void a_file_that_changes_while_it_is_read_is_refused(void)
{
    void (*const changes[])(const char *) = {make_longer, make_shorter, make_newer};
    pl_file_bytes_t bytes = {0};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        changing = file_put_text("growing", "text");
        change = changes[i];
        pl_memory_hooks(change_and_allocate, realloc, NULL);
        is_int(pl_file_read(changing, NO_LIMIT, &bytes, &err), PL_EIO, "is refused");
        pl_memory_hooks(NULL, NULL, NULL);
        like(err.text, "growing changed while it was read, after byte [345]: try again",
             "with what to do");
    }
    ok(!bytes.data && !bytes.size, "and the output is untouched");
}

static void a_path_that_is_no_file_is_refused(void)
{
    pl_file_bytes_t bytes = {0};
    char pipe[4200];
    snprintf(pipe, sizeof pipe, "%s/pipe", tap_folder());
    is_int(pl_file_read("/nowhere/at all", NO_LIMIT, &bytes, &err), PL_ENOTFOUND,
           "a file that is not there");
    like(err.text, "/nowhere/at all: No such file", "is named");
    is_int(pl_file_read(tap_folder(), NO_LIMIT, &bytes, &err), PL_EINVAL, "a directory");
    ok(mkfifo(pipe, 0600) == 0 && pl_file_read(pipe, NO_LIMIT, &bytes, &err) == PL_EINVAL,
       "a pipe, without waiting");
    ok(!bytes.data && !bytes.size, "and the output is untouched");
}

static const char *packed_path;

static int read_packed(pl_error_t *error)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(packed_path, NO_LIMIT, &bytes, error);
    if (!code)
        pl_file_bytes_release(&bytes);
    return code;
}

static void memory_may_run_out(void)
{
    char *zeros = calloc(1 << 19, 1);
    packed_path = file_put_gzip("zeros.gz", zeros, 1 << 19);
    survives_lack_of_memory(read_packed);
    free(zeros);
}

int main(void)
{
    run(plain_and_compressed_files_give_the_same_bytes);
    run(gzip_members_after_one_another_are_one_file);
    run(zstandard_is_read_like_gzip);
    run(damage_to_a_compressed_file_is_found);
    run(a_limit_holds_however_much_a_file_promises);
    run(a_file_that_changes_while_it_is_read_is_refused);
    run(a_path_that_is_no_file_is_refused);
    run(memory_may_run_out);
    return tap_done();
}
