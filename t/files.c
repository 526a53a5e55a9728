/* files.c - what tests of file formats share: files, damage, lack of memory */
#include "files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tap.h"

static const char *path_of(const char *folder, const char *name)
{
    static char paths[8][8192];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *file_put(const char *name, const void *data, size_t size)
{
    const char *path = path_of(tap_folder(), name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) {
        perror(path);
        exit(99);
    }
    return path;
}

const char *file_put_text(const char *name, const char *text)
{
    return file_put(name, text, strlen(text));
}

const char *file_put_gzip(const char *name, const void *data, size_t size)
{
    const char *path = path_of(tap_folder(), name);
    gzFile file = gzopen(path, "wb");
    if (!file || gzwrite(file, data, (unsigned)size) != (int)size
        || gzclose(file) != Z_OK)
        exit(99);
    return path;
}

uint8_t *file_get(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*size + 1);
    if (fread(data, 1, *size, file) != *size)
        exit(99);
    fclose(file);
    data[*size] = '\0';
    return data;
}

const char *file_of_tests(const char *name)
{
    const char *top = getenv("top_srcdir");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/t", top ? top : ".");
    return path_of(folder, name);
}

int files_in(const char *directory)
{
    int count = 0;
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    if (dir)
        closedir(dir);
    return count;
}

/* Whether a reader takes exactly these bytes, or refuses them with a text. */
static bool takes(reader_t reader, const uint8_t *data, size_t size, bool *accepted)
{
    pl_error_t err = {0};
    uint8_t *copy = malloc(size ? size
                                : 1);  /* its own block, so that a sanitizer sees one byte
                                          too many */
    if (size)
        memcpy(copy, data, size);
    int code = reader(copy, size, &err);
    free(copy);
    *accepted = code == PL_OK;
    return code == PL_OK || (code < 0 && err.code == code && err.text[0]);
}

void survives_damage(reader_t reader, const uint8_t *data, size_t size,
                     bool prefixes_are_valid)
{
    static const uint8_t changes[] = {0x01, 0x02, 0x10, 0x80, 0xff};
    size_t wrong = 0, accepted_count = 0;
    bool accepted;
    ok(takes(reader, data, size, &accepted) && accepted, "the whole file is read");
    for (size_t n = 0; n < size; n++) {
        wrong += !takes(reader, data, n, &accepted);
        accepted_count += accepted;
    }
    ok(wrong == 0, "each of %zu truncations is read or refused with a text", size);
    if (!prefixes_are_valid)
        is_int(accepted_count, 0, "none of them is taken for the file");
    uint8_t *damaged = malloc(size);
    memcpy(damaged, data, size);
    for (size_t i = 0; i < size; i++)
        for (size_t k = 0; k < sizeof changes; k++) {
            damaged[i] = data[i] ^ changes[k];
            wrong += !takes(reader, damaged, size, &accepted);
            damaged[i] = data[i];
        }
    free(damaged);
    ok(wrong == 0, "each changed byte is read or refused with a text");
}

static long allocations_left, blocks;

static void *failing_allocate(size_t bytes)
{
    if (allocations_left-- <= 0)
        return NULL;
    blocks++;
    return malloc(bytes);
}

static void *failing_resize(void *memory, size_t bytes)
{
    if (allocations_left-- <= 0)
        return NULL;
    blocks += !memory;
    return realloc(memory, bytes);
}

static void counted_release(void *memory)
{
    blocks--;
    free(memory);
}

void survives_lack_of_memory(int (*attempt)(pl_error_t *err))
{
    int code = PL_ENOMEM, wrong = 0;
    long nth = 0;
    pl_memory_hooks(failing_allocate, failing_resize, counted_release);
    for (; code && nth < 10000; nth++) {
        pl_error_t err = {0};
        allocations_left = nth;
        blocks = 0;
        code = attempt(&err);
        if (blocks || (code && (code != PL_ENOMEM || err.code != code))) {
            wrong++;
            tap_diag("allocation %ld: code %d, %ld blocks left, \"%s\"", nth + 1, code,
                     blocks, err.text);
        }
    }
    pl_memory_hooks(NULL, NULL, NULL);
    ok(code == PL_OK && wrong == 0, "each of %ld allocations may fail", nth - 1);
}
