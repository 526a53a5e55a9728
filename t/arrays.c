/* arrays.c - tests of engine/formats/idx.c, npy.c and array.c */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "formats/array.h"
#include "tap.h"

#define NO_LIMIT SIZE_MAX

static pl_error_t err;

/* ---- IDX ---- */

static int read_idx(const uint8_t *data, size_t size, pl_error_t *error)
{
    pl_array_t array = {0};
    int code = pl_idx_read(data, size, "file", &array, error);
    pl_array_release(&array);
    return code;
}

#define IDX(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static void idx_bytes_are_a_view(void)
{
    uint8_t file[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};
    pl_array_t array;
    is_int(pl_idx_read(file, sizeof file, "file", &array, &err), PL_OK,
           "three axes of bytes");
    ok(array.dtype == PL_U8 && array.shape.rank == 3 && array.count == 6,
       "type and size");
    ok(array.shape.dim[0] == 2 && array.shape.dim[1] == 1 && array.shape.dim[2] == 3,
       "the axes");
    ok(array.data == file + 16, "the elements are where they were");
}

static void idx_words_come_in_this_machines_order(void)
{
    uint8_t ints[] = {0, 0, 12, 1, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xfe, 0, 1, 0, 0};
    uint8_t floats[] = {0, 0, 13, 1, 0, 0, 0, 1, 0xc0, 0x20, 0, 0};
    pl_array_t array;
    is_int(pl_idx_read(ints, sizeof ints, "file", &array, &err), PL_OK, "integers");
    ok(array.dtype == PL_I32 && ((const int32_t *)array.data)[0] == -2
           && ((const int32_t *)array.data)[1] == 65536,
       "have their values");
    pl_array_release(&array);
    is_int(pl_idx_read(floats, sizeof floats, "file", &array, &err), PL_OK, "floats");
    ok(array.dtype == PL_F32 && *(const float *)array.data == -2.5f, "have theirs");
    pl_array_release(&array);
}

static void idx_short_and_double_elements_are_read(void)
{
    const uint8_t bytes[] = {0, 0, 9, 1, 0, 0, 0, 2, 0x80, 127},
                  shorts[] = {0, 0, 11, 1, 0, 0, 0, 2, 0x80, 0, 1, 2},
                  doubles[] = {0, 0, 14, 1, 0, 0, 0, 1, 0xc0, 4, 0, 0, 0, 0, 0, 0};
    pl_array_t array = {0};
    is_int(pl_idx_read(bytes, sizeof bytes, "file", &array, &err), PL_OK, "signed bytes");
    const int32_t *n = array.data;
    ok(array.dtype == PL_I32 && n[0] == -128 && n[1] == 127, "as int32");
    pl_array_release(&array);
    is_int(pl_idx_read(shorts, sizeof shorts, "file", &array, &err), PL_OK, "short");
    n = array.data;
    ok(array.dtype == PL_I32 && n[0] == -32768 && n[1] == 258, "as int32");
    pl_array_release(&array);
    is_int(pl_idx_read(doubles, sizeof doubles, "file", &array, &err), PL_OK, "double");
    ok(array.dtype == PL_F64 && *(const double *)array.data == -2.5, "as float64");
    pl_array_release(&array);
    is_int(read_idx(shorts, sizeof shorts - 1, &err), PL_EFORMAT, "half of one");
    like(err.text, "truncated at byte 11 of 12, in record 1", "is named: %s", err.text);
}

static void idx_refuses_what_it_cannot_hold(void)
{
    ok(read_idx(IDX(0, 0, 8, 1, 0, 0, 0, 3, 1, 2), &err) == PL_EFORMAT, "too short");
    like(err.text, "file: truncated at byte 10 of 11, in record 2",
         "the text says where");
    ok(read_idx(IDX(0, 0, 8, 1, 0, 0, 0, 1, 1, 2), &err) == PL_EFORMAT, "too long");
    like(err.text, "file: byte 9: 1 bytes more", "the text says where");
    ok(read_idx(IDX(0, 0, 10, 1, 0, 0, 0, 1, 1), &err) == PL_EUNSUPPORTED,
       "another type");
    like(err.text, "byte 2: elements of type 0x0a", "is named");
    ok(read_idx(IDX(0, 0, 8, 7, 0, 0, 0, 1), &err) == PL_EFORMAT, "seven axes");
    ok(read_idx(IDX(0, 0, 8, 0), &err) == PL_EFORMAT, "no axis");
    ok(read_idx(IDX(0x1f, 0x8b, 8, 1), &err) == PL_EFORMAT, "another format");
    ok(read_idx(IDX(0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                    255, 0),
                &err)
           == PL_EFORMAT,
       "a product past 2^63");
    like(err.text, "byte 4: the product of the axes is too large", "the text says so");
    ok(read_idx(IDX(0, 0, 13, 2, 128, 0, 0, 0, 128, 0, 0, 0), &err) == PL_EFORMAT,
       "2^62 floats");
}

static void idx_survives_damage(void)
{
    const uint8_t file[] = {0, 0, 12, 2, 0, 0, 0, 2, 0, 0, 0, 1, 9, 8, 7, 6, 5, 4, 3, 2};
    survives_damage(read_idx, file, sizeof file, false);
}

static void mnist_is_read(void)
{
    const char *path = tap_data("mnist/train-images-idx3-ubyte.gz");
    pl_array_t array;
    if (!path) {
        tap_skip("PACELINE_TEST_DATA is not set");
        return;
    }
    is_int(pl_idx_load(path, NO_LIMIT, &array, &err), PL_OK, "the images are loaded");
    ok(array.count == 60000 * 784 && array.shape.dim[1] == 28, "60000 of 28 by 28");
    long sum = 0;
    for (int64_t i = 0; i < array.count; i++)
        sum += ((const uint8_t *)array.data)[i];
    is_near((double)sum / (double)array.count / 255, 0.1307, 1e-4,
            "and the well-known mean");
    pl_array_release(&array);
}

/* ---- NPY ---- */

static int read_npy(const uint8_t *data, size_t size, pl_error_t *error)
{
    pl_array_t array = {0};
    int code = pl_npy_read(data, size, "file", &array, error);
    pl_array_release(&array);
    return code;
}

/* Reads a version 1 file with that header and `bytes` of zeros. */
static int read_header(const char *header, size_t bytes)
{
    uint8_t file[1024] = "\x93NUMPY\x01";
    size_t length = strlen(header);
    memcpy(file + 8, (uint8_t[]){(uint8_t)length, (uint8_t)(length >> 8)}, 2);
    memcpy(file + 10, header, length);
    return read_npy(file, 10 + length + bytes, &err);
}

static void npy_files_of_numpy_are_read(void)
{
    pl_array_t array;
    is_int(pl_npy_load(file_of_tests("data/numpy.npy"), NO_LIMIT, &array, &err), PL_OK,
           "float32");
    const float *x = array.data;
    ok(array.dtype == PL_F32 && array.shape.rank == 2 && array.shape.dim[0] == 2
           && array.shape.dim[1] == 3,
       "[2, 3]");
    ok(x[0] == 1.5f && x[1] == -2 && x[3] == 3e38f && x[4] == 1e-40f && signbit(x[5]),
       "have their values");
    pl_array_release(&array);
    is_int(pl_npy_load(file_of_tests("data/numpy_v3.npy"), NO_LIMIT, &array, &err), PL_OK,
           "int64, version 3");
    const int64_t *n = array.data;
    ok(array.dtype == PL_I64 && array.count == 4 && n[0] == -1 && n[1] == INT64_C(1) << 62
           && n[3] == 7,
       "have theirs");
    pl_array_release(&array);
}

/* A file of that type and those elements [2, 3], of NumPy's
 * numpy.save(f, numpy.array(…, dtype)); the caller gives the header. */
static pl_array_t npy_of(const char *descr, const char *order, const void *data,
                         size_t size)
{
    uint8_t file[256] = "\x93NUMPY\x01";
    pl_array_t array = {0};
    char header[128];
    const int n = snprintf(header, sizeof header,
                           "{'descr': '%s', 'fortran_order': %s, 'shape': (2, 3), }",
                           descr, order);
    file[8] = (uint8_t)n;
    memcpy(file + 10, header, (size_t)n);
    memcpy(file + 10 + n, data, size);
    err.text[0] = '\0';
    pl_npy_read(file, 10 + (size_t)n + size, "file", &array, &err);
    if (!array.owned.data)
        array = (pl_array_t){0};                            /* a view of freed memory */
    return array;
}

static double value_at(const pl_array_t *array, int k)
{
    const void *x = array->data;
    switch (array->dtype) {
    case PL_U8: return ((const uint8_t *)x)[k];
    case PL_I32: return ((const int32_t *)x)[k];
    case PL_I64: return (double)((const int64_t *)x)[k];
    case PL_F32: return ((const float *)x)[k];
    default: return ((const double *)x)[k];
    }
}

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static void npy_elements_of_every_type_are_read(void)
{
    static const struct {
        const char *descr;
        pl_dtype_t dtype;
        uint8_t data[48];
        size_t width;
        double value[6];
    } cases[] = {
        {"|b1", PL_U8, {0, 1, 1, 0, 1, 0}, 1, {0, 1, 1, 0, 1, 0}},
        {"|i1", PL_I32, {0, 1, 127, 128, 255, 2}, 1, {0, 1, 127, -128, -1, 2}},
        {"<i2",
         PL_I32,
         {0, 128, 1, 2, 255, 255, 0, 0, 1, 0, 2, 0},
         2,
         {-32768, 513, -1, 0, 1, 2}},
        {">i2",
         PL_I32,
         {128, 0, 2, 1, 255, 255, 0, 0, 0, 1, 0, 2},
         2,
         {-32768, 513, -1, 0, 1, 2}},
        {"<u2",
         PL_I32,
         {0, 128, 255, 255, 0, 0, 1, 0, 2, 0, 3, 0},
         2,
         {32768, 65535, 0, 1, 2, 3}},
        {">u4",
         PL_I64,
         {255, 255, 255, 254, 0, 0, 0, 1, 128},
         4,
         {4294967294., 1, 2147483648., 0, 0, 0}},
        {"<u8", PL_I64, {255, 255, 255, 255, 255, 255, 3}, 8, {1125899906842623., 0}},
        {">i8", PL_I64, {255, 255, 255, 255, 255, 255, 255, 254}, 8, {-2}},
        {"<f2",
         PL_F32,
         {0, 0x3c, 0, 0xc0, 1, 0, 0xff, 0x7b, 0, 0x7c, 0x66, 0x2e},
         2,
         {1, -2, 0x1p-24, 65504, INFINITY, 0.0999755859375}},
        {">f4", PL_F32, {0xc0, 0x20}, 4, {-2.5}},
        {">f8", PL_F64, {0xc0, 4}, 8, {-2.5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_array_t array = npy_of(cases[i].descr, "False", cases[i].data,
                                  6 * cases[i].width);
        bool same = array.data && array.dtype == cases[i].dtype && array.count == 6;
        for (int k = 0; k < 6 && same; k++)
            same = value_at(&array, k) == cases[i].value[k];
        ok(same, "%s: %s", cases[i].descr, err.text);
        pl_array_release(&array);
    }
    pl_array_t array = npy_of("<u8", "False", (const uint8_t[48]){[15] = 128}, 48);
    ok(!array.data, "a number past int64 is refused");
    like(err.text, "file: element 1 is 9223372036854775808, more than 2\\^63 - 1",
         "and named: %s", err.text);
    array = npy_of("<i2", "False", BYTES(0, 0, 1));
    ok(!array.data, "too few bytes are refused");
    like(err.text, "truncated at byte [0-9]+ of [0-9]+, in element 1", "%s", err.text);
}

static void npy_arrays_in_fortran_order_are_read(void)
{
    pl_array_t array = npy_of("|u1", "True", BYTES(1, 4, 2, 5, 3, 6));
    for (int k = 0; k < 6; k++)
        ok(array.data && value_at(&array, k) == k + 1, "element %d", k);
    pl_array_release(&array);
    array = npy_of(">i2", "True", BYTES(0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6));
    for (int k = 0; k < 6; k++)
        ok(array.data && value_at(&array, k) == k + 1, "element %d of big endian", k);
    pl_array_release(&array);
}

static void npy_comes_back_as_it_was_written(void)
{
    static const int64_t numbers[] = {1, -2, INT64_MAX, 4, 5, 6};
    static const pl_dtype_t dtypes[] = {PL_F32, PL_F64, PL_I32, PL_I64, PL_U8};
    char path[4200];
    snprintf(path, sizeof path, "%s/written.npy", tap_folder());
    for (size_t i = 0; i < 5; i++)
        for (int rank = 0; rank <= 5; rank++) {
            pl_array_t out = {.dtype = dtypes[i],
                              .shape = {.rank = rank, .dim = {2, 1, 3, 1, 1}},
                              .data = numbers},
                       in;
            int64_t count;
            size_t bytes;
            pl_array_size(out.dtype, &out.shape, &count, &bytes);
            bool same = !pl_npy_write(path, out.dtype, &out.shape, out.data, &err)
                        && !pl_npy_load(path, NO_LIMIT, &in, &err);
            if (!ok(same && in.dtype == out.dtype && in.count == count
                        && in.shape.rank == rank && !memcmp(in.data, numbers, bytes)
                        && (uintptr_t)in.data % pl_array_width(in.dtype) == 0,
                    "type %d, %d axes", out.dtype, rank))
                tap_diag("%s", err.text);
            pl_array_release(&in);
        }
}

static void npy_writes_what_numpy_writes(void)
{
    size_t size, theirs_size;
    pl_array_t array;
    char path[4200];
    snprintf(path, sizeof path, "%s/same.npy", tap_folder());
    pl_npy_load(file_of_tests("data/numpy.npy"), NO_LIMIT, &array, &err);
    is_int(pl_npy_write(path, array.dtype, &array.shape, array.data, &err), PL_OK,
           "written");
    pl_array_release(&array);
    uint8_t *ours = file_get(path, &size),
            *theirs = file_get(file_of_tests("data/numpy.npy"), &theirs_size);
    ok(size == theirs_size && !memcmp(ours, theirs, size), "byte for byte");
    free(ours);
    free(theirs);
}

static void npy_says_what_it_refuses(void)
{
    ok(!read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8),
       "the form of it is right");
    ok(!read_header("{\"shape\":(2,1),\"fortran_order\":False,\"descr\":\"<f4\"}\n", 8),
       "any order and quotes");
    is_int(read_header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8),
           PL_EUNSUPPORTED, "complex numbers");
    like(err.text, "file: byte 20: elements of type '<c8'", "are named with their place");
    is_int(read_header("{'descr': '<i3', 'fortran_order': False, 'shape': (2,), }", 6),
           PL_EUNSUPPORTED, "a width that is none");
    is_int(read_header("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }", 8),
           PL_EFORMAT, "an order that is none");
    is_int(read_header(
               "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8),
           PL_EUNSUPPORTED, "records");
    is_int(read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2), }", 8),
           PL_EFORMAT, "a shape that is none");
    is_int(read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8),
           PL_EFORMAT, "a negative axis");
    is_int(
        read_header(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }",
            8),
        PL_EFORMAT, "an axis of 2^63");
    like(err.text, "byte [0-9]+: an axis must be", "the text says where");
    is_int(read_header(
               "{'descr':'<f4','fortran_order':False,'shape':(4294967296,4294967296)}",
               8),
           PL_EFORMAT, "a product past 2^63");
    is_int(read_header(
               "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1), }", 4),
           PL_EFORMAT, "seven axes");
    is_int(read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 8),
           PL_EFORMAT, "too few elements");
    like(err.text, "truncated at byte 75 of 79, in element 2", "the text says where");
    is_int(read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 8),
           PL_EFORMAT, "too many");
    is_int(read_header("{'descr': '<f4', 'fortran_order': False}", 8), PL_EFORMAT,
           "a key missing");
    is_int(read_header("{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", 8),
           PL_EFORMAT, "a key twice");
    is_int(read_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", 8),
           PL_EFORMAT, "a tail");
}

static void npy_survives_damage(void)
{
    size_t size;
    uint8_t *file = file_get(file_of_tests("data/numpy.npy"), &size);
    survives_damage(read_npy, file, size, false);
    free(file);
}

/* ---- NPZ ---- */

static int load_npz(const char *file, const char *name, pl_array_t *array)
{
    return pl_npz_load(file_of_tests(file), name, NO_LIMIT, array, &err);
}

static void npz_archives_of_numpy_are_read(void)
{
    static const char *const files[] = {"data/numpy.npz", "data/numpy_packed.npz"};
    pl_array_t array;
    for (int k = 0; k < 2; k++) {
        is_int(load_npz(files[k], "x", &array), PL_OK, "%s", files[k]);
        const float *x = array.data;
        ok(array.shape.rank == 2 && x[0] == 1.5f && x[3] == 3e38f && x[4] == 1e-40f,
           "x has its values");
        pl_array_release(&array);
    }
    is_int(load_npz(files[0], "labels", &array), PL_OK, "a second array");
    ok(array.dtype == PL_I64 && ((const int64_t *)array.data)[1] == 1, "and its type");
    pl_array_release(&array);
    is_int(load_npz(files[0], "y", &array), PL_ENOTFOUND, "an array that is not there");
    like(err.text, "no array \"y\"; there are x, labels: name one as \"FILE.npz:NAME\"",
         "those that are there are listed");
    is_int(load_npz("data/numpy.npy", "x", &array), PL_EFORMAT, "no archive");
    like(err.text, "no directory at its end", "the text says why");
    is_int(pl_npz_load(file_of_tests(files[1]), "zeros", 600, &array, &err), PL_EFORMAT,
           "more than the limit");
}

static int read_npz(const uint8_t *data, size_t size, pl_error_t *error)
{
    pl_array_t array = {0};
    const int code = pl_npz_read(data, size, "file", "x", 1 << 20, &array, error);
    pl_array_release(&array);
    return code;
}

static void npz_survives_damage(void)
{
    static const char *const files[] = {"data/numpy.npz", "data/numpy_packed.npz"};
    for (int k = 0; k < 2; k++) {
        size_t size;
        uint8_t *file = file_get(file_of_tests(files[k]), &size);
        survives_damage(read_npz, file, size, false);
        free(file);
    }
}

static int write_npy(pl_error_t *error)
{
    char path[4200];
    const pl_shape_t shape = PL_SHAPE(1);
    pl_array_t again;
    snprintf(path, sizeof path, "%s/memory.npy", tap_folder());
    int code = pl_npy_write(path, PL_F32, &shape, &(float){1}, error);
    if (!code)
        code = pl_npy_load(path, NO_LIMIT, &again, error);
    if (!code)
        pl_array_release(&again);
    return code;
}

static void memory_may_run_out(void)
{
    survives_lack_of_memory(write_npy);
}

/* /dev/null, replaced by a file, would break every program of the machine. */
static void a_device_or_pipe_is_written_and_not_replaced(void)
{
    char pipe[4200], link[4200], bytes[512];
    struct stat after;
    const pl_shape_t shape = PL_SHAPE(1);
    snprintf(pipe, sizeof pipe, "%s/pipe", tap_folder());
    snprintf(link, sizeof link, "%s/link", tap_folder());
    const bool is_made = mkfifo(pipe, 0600) == 0 && symlink(pipe, link) == 0;
    const int end = is_made ? open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    ok(end >= 0, "a pipe with a reader");

    is_int(pl_npy_write(pipe, PL_F32, &shape, &(float){1}, &err), PL_OK,
           "an array is written to it");
    is_int(read(end, bytes, sizeof bytes), 132, "the reader gets all bytes");
    is_int(pl_npy_write(link, PL_F32, &shape, &(float){1}, &err), PL_OK,
           "an array is written to a link to it");
    is_int(read(end, bytes, sizeof bytes), 132, "the reader gets these too");
    ok(lstat(pipe, &after) == 0 && S_ISFIFO(after.st_mode), "the pipe is still a pipe");
    ok(lstat(link, &after) == 0 && S_ISLNK(after.st_mode), "the link is still a link");

    close(end);
    is_int(pl_npy_write(pipe, PL_F32, &shape, &(float){1}, &err), PL_EIO,
           "a pipe without a reader is an error");
    like(err.text, "the pipe has no reader$", "the error says so");
    is_int(pl_npy_write("/dev/fd/999", PL_F32, &shape, &(float){1}, &err), PL_EIO,
           "a descriptor that is not open is an error");
    like(err.text, "^/dev/fd/999: No such file", "the error names it");

    char lines[4200];
    snprintf(lines, sizeof lines, "%s/lines", tap_folder());
    const int open_file = open(lines, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ok(write(open_file, "a line\n", 7) == 7, "a file with a line is open");
    snprintf(link, sizeof link, "/dev/fd/%d", open_file);
    is_int(pl_npy_write(link, PL_F32, &shape, &(float){1}, &err), PL_OK,
           "an array is written to its descriptor");
    ok(pread(open_file, bytes, 200, 0) == 139 && !memcmp(bytes, "a line\n", 7),
       "the array stands behind the line");
    close(open_file);
}

/* ---- Conversion ---- */

static void conversions_keep_every_value(void)
{
    uint8_t bytes[333];
    double doubles[333];
    int32_t ints[333];
    float floats[333];
    int64_t longs[333];
    int wrong = 0;
    for (int i = 0; i < 333; i++) {
        bytes[i] = (uint8_t)i;
        doubles[i] = i / 7.;
        ints[i] = i - 100;
    }
    pl_convert_u8_f32(bytes, 333, .5f, -1, floats);
    for (int i = 0; i < 333; i++)
        wrong += floats[i] != (float)bytes[i] * .5f - 1;
    pl_convert(PL_U8, bytes, PL_F32, floats, 333);
    for (int i = 0; i < 333; i++)
        wrong += floats[i] != bytes[i];
    pl_convert(PL_F64, doubles, PL_F32, floats, 333);
    for (int i = 0; i < 333; i++)
        wrong += floats[i] != (float)doubles[i];
    pl_convert(PL_U8, bytes, PL_I64, longs, 333);
    for (int i = 0; i < 333; i++)
        wrong += longs[i] != bytes[i];
    pl_convert(PL_I32, ints, PL_I64, longs, 333);
    for (int i = 0; i < 333; i++)
        wrong += longs[i] != ints[i];
    pl_convert(PL_I64, longs, PL_I64, longs + 166, 100);
    for (int i = 0; i < 100; i++)
        wrong += longs[i] != longs[166 + i];
    is_int(wrong, 0, "bytes, doubles and integers, the ends of the arrays too");
}

int main(void)
{
    run(idx_bytes_are_a_view);
    run(idx_words_come_in_this_machines_order);
    run(idx_short_and_double_elements_are_read);
    run(idx_refuses_what_it_cannot_hold);
    run(idx_survives_damage);
    run(mnist_is_read);
    run(npy_files_of_numpy_are_read);
    run(npy_elements_of_every_type_are_read);
    run(npy_arrays_in_fortran_order_are_read);
    run(npy_comes_back_as_it_was_written);
    run(npy_writes_what_numpy_writes);
    run(npy_says_what_it_refuses);
    run(npy_survives_damage);
    run(npz_archives_of_numpy_are_read);
    run(npz_survives_damage);
    run(memory_may_run_out);
    run(a_device_or_pipe_is_written_and_not_replaced);
    run(conversions_keep_every_value);
    return tap_done();
}
