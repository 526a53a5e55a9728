/* hdf5.c - tests of data sets in HDF5 files, which libhdf5 itself writes */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/connectors/datasets/datasets.h"
#include "dataset_rig.h"
#include "files.h"
#include "tap.h"

typedef int64_t hid_t;

static struct {
    hid_t (*file_new)(const char *, unsigned, hid_t, hid_t);
    int (*file_close)(hid_t);
    hid_t (*space_new)(int, const uint64_t *, const uint64_t *);
    hid_t (*set_new)(hid_t, const char *, hid_t, hid_t, hid_t, hid_t, hid_t);
    int (*set_close)(hid_t);
    int (*write)(hid_t, hid_t, hid_t, hid_t, hid_t, const void *);
    hid_t (*type_new)(int, size_t);
    int (*insert)(hid_t, const char *, size_t, hid_t);
    const hid_t *f32, *f64, *f32_big, *u8, *i16, *u32, *i64, *u64;
} lib;

static bool library_open(void)
{
    static const char *const files[] = {"libhdf5_serial.so.103", "libhdf5_serial.so.310",
                                        "libhdf5.so.103",        "libhdf5.so.200",
                                        "libhdf5.so.310",        "libhdf5.so.320"};
    const struct {
        const char *name;
        void *symbol;
    } needed[] = {
        {"H5Fcreate", &lib.file_new},         {"H5Fclose", &lib.file_close},
        {"H5Screate_simple", &lib.space_new}, {"H5Dcreate2", &lib.set_new},
        {"H5Dclose", &lib.set_close},         {"H5Dwrite", &lib.write},
        {"H5Tcreate", &lib.type_new},         {"H5Tinsert", &lib.insert},
        {"H5T_IEEE_F32BE_g", &lib.f32_big},   {"H5T_NATIVE_FLOAT_g", &lib.f32},
        {"H5T_NATIVE_DOUBLE_g", &lib.f64},    {"H5T_NATIVE_UCHAR_g", &lib.u8},
        {"H5T_NATIVE_SHORT_g", &lib.i16},     {"H5T_NATIVE_UINT_g", &lib.u32},
        {"H5T_NATIVE_LLONG_g", &lib.i64},     {"H5T_NATIVE_ULLONG_g", &lib.u64}};
    void *handle = NULL;
    int (*open)(void);
    for (size_t k = 0; k < sizeof files / sizeof *files && !handle; k++)
        handle = dlopen(files[k], RTLD_NOW);
    if (!handle)
        return false;
    void *found = dlsym(handle, "H5open");
    memcpy(&open, &found, sizeof open);
    for (size_t k = 0; k < sizeof needed / sizeof *needed; k++) {
        found = dlsym(handle, needed[k].name);
        memcpy(needed[k].symbol, &found, sizeof found);
    }
    return open() >= 0;
}

/* Writes a data set of [rows, columns]  [columns 0: one axis] into an open file. */
static void set_put(hid_t file, const char *name, hid_t type, uint64_t rows,
                    uint64_t columns, const void *data)
{
    const hid_t space = lib.space_new(columns ? 2 : 1, (uint64_t[]){rows, columns}, NULL),
                set = lib.set_new(file, name, type, space, 0, 0, 0);
    ok(set > 0 && lib.write(set, type, 0, 0, 0, data) >= 0, "%s is written", name);
    lib.set_close(set);
}

static const char *file_path(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    return path;
}

static hid_t file_new(const char *name)
{
    return lib.file_new(file_path(name), 2, 0, 0);          /* H5F_ACC_TRUNC */
}

#define XY "{\"x\": \"%s:/x\", \"y\": \"%s:/y\"%s}"

static void samples_are_the_same_in_memory_and_in_the_file(void)
{
    const float x[8] = {0, 1, 2, 3, 4, 5, 6, 7.5f};
    const int64_t y[4] = {0, 2, 1, 2};
    const hid_t file = file_new("a.h5");
    set_put(file, "x", *lib.f32, 4, 2, x);
    set_put(file, "y", *lib.i64, 4, 0, y);
    lib.file_close(file);
    const char *path = file_path("a.h5");
    for (int stays = 0; stays < 2; stays++) {
        rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN, XY, path, path,
                             stays ? ", \"memory_mb\": 0" : "");
        is_int(rig.code, PL_OK, "opened %s: %s", stays ? "in the file" : "in memory",
               rig.err.text);
        ok(rig.info.samples == 4 && has_field(&rig, 0, "x", PL_F32, "2")
               && has_field(&rig, 1, "y", PL_I64, ""),
           "samples and fields");
        like(rig.info.data_info, "\"classes\": 3", "classes");
        is_int(rig_read(&rig, INDEX(3, 0)), PL_OK, "read: %s", rig.err.text);
        const float *got = rig.field[0];
        const int64_t *label = rig.field[1];
        ok(got[0] == 6 && got[1] == 7.5f && got[2] == 0 && got[3] == 1, "rows of x");
        ok(label[0] == 2 && label[1] == 0, "and of y");
        rig_close(&rig);
    }
}

static void numbers_of_all_sizes_are_read(void)
{
    const hid_t file = file_new("types.h5");
    set_put(file, "f64", *lib.f64, 2, 0, (double[]){1.5, -2});
    set_put(file, "u8", *lib.u8, 2, 0, (uint8_t[]){200, 3});
    set_put(file, "i16", *lib.i16, 2, 0, (int16_t[]){-7, 3});
    set_put(file, "u32", *lib.u32, 2, 0, (uint32_t[]){4000000000u, 3});
    set_put(file, "u64", *lib.u64, 2, 0, (uint64_t[]){5, 3});
    set_put(file, "large", *lib.u64, 2, 0, (uint64_t[]){1ull << 63, 3});
    const float one[2] = {1, 0};
    uint32_t bits[2];
    memcpy(bits, one, sizeof bits);
    for (int k = 0; k < 2; k++)
        bits[k] = __builtin_bswap32(bits[k]);
    set_put(file, "big_endian", *lib.f32_big, 2, 0, bits);
    lib.file_close(file);
    static const struct {
        const char *name;
        pl_dtype_t dtype;
        double first;
    } types[] = {{"f64", PL_F32, 1.5}, {"u8", PL_F32, 200}, {"i16", PL_I32, -7},
                 {"u32", PL_I64, 4e9}, {"u64", PL_I64, 5},  {"big_endian", PL_F32, 1}};
    const char *path = file_path("types.h5");
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        rig_t rig = rig_open(&pl_npy_dataset, PL_VALIDATE, "{\"x\": \"%s:%s\"}", path,
                             types[k].name);
        is_int(rig_read(&rig, INDEX(0)), PL_OK, "%s: %s", types[k].name, rig.err.text);
        const void *got = rig.field[0];
        const double value = types[k].dtype == PL_F32   ? *(const float *)got
                             : types[k].dtype == PL_I32 ? *(const int32_t *)got
                                                        : (double)*(const int64_t *)got;
        ok(has_field(&rig, 0, "x", types[k].dtype, "") && value == types[k].first,
           "%s is %g", types[k].name, value);
        rig_close(&rig);
    }
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s:large\"}", path),
            PL_EFORMAT, "types.h5:large: row 0 has a number above 2.63",
            "a number that is too large");
}

static void what_cannot_be_read_is_named(void)
{
    hid_t file = file_new("bad.h5");
    const hid_t compound = lib.type_new(6, 8);              /* H5T_COMPOUND */
    lib.insert(compound, "a", 0, *lib.f32);
    lib.insert(compound, "b", 4, *lib.f32);
    set_put(file, "pairs", compound, 1, 0, (float[]){1, 2});
    set_put(file, "x", *lib.f32, 3, 2, (float[]){1, 2, 3, 4, 5, 6});
    set_put(file, "y", *lib.i64, 2, 0, (int64_t[]){0, 1});
    lib.file_close(file);
    const char *path = file_path("bad.h5");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s:/pairs\"}", path),
            PL_EUNSUPPORTED, "bad.h5:/pairs has compounds of 8 bytes", "a compound");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s:/z\"}", path), PL_ENOTFOUND,
            "bad.h5: there is no data set \"/z\"; there are pairs, x, y",
            "a missing name");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\"}", path), PL_EINVAL,
            "bad.h5: name the data set in it, as in", "no name");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, XY, path, path, ""), PL_EFORMAT,
            "bad.h5:/y: 2 samples, but .*bad.h5:/x has 3", "different first axes");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s:/x\"}", file_path("no.h5")),
            PL_ENOTFOUND, "no.h5: No such file", "no file");
    ok(truncate(file_path("bad.h5"), 1000) == 0, "cut");
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, XY, file_path("bad.h5"),
                     file_path("bad.h5"), ""),
            PL_EFORMAT, "bad.h5: it cannot be read as HDF5: .* truncated",
            "a truncated file");
    file_put("text.h5", "no HDF5 at all", 14);
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s:/x\"}",
                     file_path("text.h5")),
            PL_EFORMAT, "text.h5: it cannot be read as HDF5", "another file");
}

static void a_run_is_proposed(void)
{
    pl_error_t err = {0};
    char *text = pl_data_propose(file_path("a.h5"), NULL, &err);
    ok(text, "for x and y: %s", err.text);
    like(text ? text : "", "\"x\":\"[^\"]*a.h5:x\",\"y\":\"[^\"]*a.h5:y\"",
         "by their names");
    pl_text_free(text);
    ok(!pl_data_propose(file_path("types.h5"), NULL, &err) && err.code == PL_ENOTFOUND,
       "not for other names");
    like(err.text, "types.h5: there is no data set \"data\"; there are big_endian, f64",
         "which the error lists");
}

static void a_lack_of_memory_leaves_nothing_behind(void)
{
    char name[640];
    snprintf(name, sizeof name, "%s:/x", file_path("a.h5"));
    opens_without_memory(&pl_npy_dataset, "x", name);
}

int main(void)
{
    if (!library_open()) {
        printf("1..0 # SKIP libhdf5 is not installed\n");
        return 0;
    }
    run(samples_are_the_same_in_memory_and_in_the_file);
    run(numbers_of_all_sizes_are_read);
    run(what_cannot_be_read_is_named);
    run(a_run_is_proposed);
    run(a_lack_of_memory_leaves_nothing_behind);
    return tap_done();
}
