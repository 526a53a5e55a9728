/* large_data.c - tests of data that stays on the disk: files larger than memory */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/datasets/datasets.h"
#include "actors/connectors/sampler.h"
#include "dataset_rig.h"
#include "files.h"
#include "formats/array.h"
#include "tap.h"

/* ---- files ---- */

/* An .npy file; `size` bytes beyond those of `data` are a hole, which needs no blocks. */
static const char *put_npy(const char *name, const char *descr, const char *order,
                           const char *shape, const void *data, size_t size, off_t hole)
{
    char file[1024] = "\x93NUMPY\x01";
    int length = sprintf(file + 10,
                         "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n", descr,
                         order, shape);
    memcpy(file + 8, (uint8_t[]){(uint8_t)length, 0}, 2);
    if (size)
        memcpy(file + 10 + length, data, size);
    const char *path = file_put(name, file, 10 + (size_t)length + size);
    if (hole && truncate(path, 10 + length + (off_t)size + hole))
        tap_diag("%s cannot grow", path);
    return path;
}

static int64_t kib_of_peak(void)
{
    char line[256];
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib;
}

/* Data sets give the same samples, whether their files are in memory or not. */
static void same_samples(const pl_dataset_ops_t *ops, const char *options,
                         const char *what)
{
    static const int64_t all[] = {2, 0, 1};
    rig_t rig[2];
    bool same = true;
    for (int k = 0; k < 2; k++) {
        rig[k] = rig_open(ops, PL_TRAIN, "{%s, \"memory_mb\": %d}", options, k);
        ok(rig[k].code == PL_OK && rig_read(&rig[k], 3, all) == PL_OK, "%s: %s", what,
           rig[k].err.text);
    }
    same = rig[0].info.field_count == rig[1].info.field_count
           && !strcmp(rig[0].info.data_info, rig[1].info.data_info);
    for (int f = 0; f < rig[0].info.field_count && same; f++) {
        const pl_field_t *field = &rig[0].info.field[f];
        size_t elements = 3;
        for (int axis = 0; axis < field->shape.rank; axis++)
            elements *= (size_t)field->shape.dim[axis];
        same = field->dtype == rig[1].info.field[f].dtype
               && !memcmp(rig[0].field[f], rig[1].field[f],
                          elements * pl_array_width(field->dtype));
    }
    ok(same, "%s: the same samples, and the same data info", what);
    rig_close(&rig[0]);
    rig_close(&rig[1]);
}

/* ---- tests ---- */

static void arrays_of_every_type_are_read_from_their_file(void)
{
    static const double doubles[] = {1, -2.5, 3e300, 4, 5, 6};
    static const float floats[] = {1, -2.5f, 3, 4, 5, 1e-40f};
    static const uint8_t bytes[] = {0, 1, 255, 4, 5, 6};
    static const int64_t classes[] = {2, 0, 1};
    static const struct {
        const char *descr, *order;
        const void *data;
        size_t size;
    } files[] = {{"<f8", "False", doubles, sizeof doubles},
                 {"<f4", "False", floats, sizeof floats},
                 {"<f4", "True", floats, sizeof floats},
                 {">f4", "False", floats, sizeof floats},
                 {"<f2", "False", floats, 12},
                 {"|u1", "False", bytes, 6},
                 {"|b1", "False", bytes, 6},
                 {"|i1", "False", bytes, 6},
                 {">u2", "False", floats, 12},
                 {">i4", "False", floats, 24},
                 {"<u4", "False", floats, 24},
                 {"<i8", "False", doubles, 48}};
    char options[1024];
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        const char *y = put_npy("y.npy", k % 2 ? "<i8" : "|u1", "False", "3,",
                                k % 2 ? (const void *)classes : "\1\0\2", k % 2 ? 24 : 3,
                                0);
        snprintf(options, sizeof options, "\"x\": \"%s\", \"y\": \"%s\"",
                 put_npy("x.npy", files[k].descr, files[k].order, "3, 2", files[k].data,
                         files[k].size, 0),
                 y);
        same_samples(&pl_npy_dataset, options, files[k].descr);
    }
    snprintf(options, sizeof options, "\"x\": \"%s:x\"", file_of_tests("data/numpy.npz"));
    rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{%s, \"memory_mb\": 0}", options);
    is_int(rig_read(&rig, INDEX(0)), PL_OK, "an array of an archive: %s", rig.err.text);
    is_near(((float *)rig.field[0])[0], 1.5, 0, "its first number");
    rig_close(&rig);
}

static void pieces_of_a_file_end_anywhere(void)
{
    enum { SAMPLES = 3, NUMBERS = 9001 };
    static int16_t numbers[SAMPLES * NUMBERS];
    static int32_t read[NUMBERS];
    pl_array_t array;
    pl_error_t err = {0};
    for (int k = 0; k < SAMPLES * NUMBERS; k++)
        numbers[k] = (int16_t)(k - 12000);
    FILE *file = fopen(put_npy("pieces.npy", "<i2", "False", "3, 9001", "", 0, 0), "ab");
    fwrite(numbers, sizeof *numbers, SAMPLES * NUMBERS, file);
    fclose(file);
    char path[300];
    snprintf(path, sizeof path, "%s/pieces.npy", tap_folder());
    is_int(pl_npy_open(path, 0, &array, &err), PL_OK, "opened: %s", err.text);
    ok(array.in_file && !array.data && !array.owned.data, "and left in the file");
    is_int(pl_array_read(&array, "pieces", NUMBERS, NUMBERS, PL_I32, read, &err), PL_OK,
           "read: %s", err.text);
    int wrong = 0;
    for (int k = 0; k < NUMBERS; k++)
        wrong += read[k] != numbers[NUMBERS + k];
    is_int(wrong, 0, "each number has its place");
    pl_array_release(&array);
}

static void images_and_tokens_are_read_from_their_file(void)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0,
                                     1, 0, 0, 0, 2, 1, 2, 3, 4, 5, 255},
                         ints[] = {0, 0, 0x0B, 3, 0, 0, 0,   3,   0, 0, 0, 1, 0, 0,
                                   0, 2, 1,    2, 3, 4, 255, 255, 0, 9, 1, 1, 2, 2},
                         labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 1};
    static const uint16_t tokens[] = {5, 1, 2, 3, 4, 0, 7, 1, 2, 3, 4, 5, 6};
    char options[1024];
    file_put("train-labels", labels, sizeof labels);
    for (int k = 0; k < 2; k++) {
        file_put("train-images", k ? ints : images, k ? sizeof ints : sizeof images);
        snprintf(options, sizeof options,
                 "\"path\": \"%s\", \"images\": \"train-images\", \"mean\": 0.5",
                 tap_folder());
        same_samples(&pl_idx_dataset, options, k ? "shorts" : "bytes");
    }
    for (int k = 0; k < 2; k++) {
        snprintf(options, sizeof options,
                 "\"path\": \"%s\", \"vocabulary\": \"numbers\", \"context\": 4, "
                 "\"vocabulary_size\": %d",
                 file_put("tokens.bin", tokens, sizeof tokens), k ? 9 : 0);
        same_samples(&pl_text_dataset, options, "tokens");
    }
}

static void faults_of_a_file_are_named_when_they_are_read(void)
{
    static const uint16_t tokens[] = {5, 1, 2, 3, 4, 0, 7, 1, 2};
    static const uint64_t huge[] = {1, UINT64_MAX, 3};
    rig_t rig =
        rig_open(&pl_text_dataset, PL_VALIDATE,
                 "{\"path\": \"%s\", \"vocabulary\": \"numbers\", \"context\": 4, "
                 "\"vocabulary_size\": 7, \"memory_mb\": 0}",
                 file_put("tokens.bin", tokens, sizeof tokens));
    is_int(rig_read(&rig, INDEX(0)), PL_OK, "tokens of the vocabulary: %s", rig.err.text);
    is_int(rig_read(&rig, INDEX(1)), PL_EFORMAT, "another token");
    like(rig.err.text, "tokens.bin: token 6 is 7, but the vocabulary has 7 tokens",
         "it is named");
    rig_close(&rig);
    rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"memory_mb\": 0}",
                   put_npy("huge.npy", "<u8", "False", "3, 1", huge, sizeof huge, 0));
    is_int(rig_read(&rig, INDEX(0)), PL_OK, "a whole number: %s", rig.err.text);
    is_int(rig_read(&rig, INDEX(1)), PL_EFORMAT, "a number that is too large");
    like(rig.err.text, "huge.npy: element 1 is 18446744073709551615, more than 2.63 - 1",
         "it is named");
    is_int(truncate(file_put("gone", "", 0), 0), 0, "another file");
    char path[300];
    snprintf(path, sizeof path, "%s/huge.npy", tap_folder());
    is_int(truncate(path, 70), 0, "the file becomes shorter");
    is_int(rig_read(&rig, INDEX(2)), PL_EIO, "its samples are gone");
    like(rig.err.text, "huge.npy: it has become shorter since it was opened: byte [0-9]+",
         "the text says why");
    rig_close(&rig);
    refused(rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\", \"memory_mb\": 0}",
                     put_npy("cut.npy", "<f4", "False", "3, 1", "12345678", 8, 0)),
            PL_EFORMAT, "cut.npy: truncated at byte", "a file that is cut off");
}

static void a_large_file_needs_no_memory(void)
{
    char x[300], last[] = "\x12\x34\x56\x78";
    snprintf(x, sizeof x, "%s",
             put_npy("large.npy", "<i4", "False", "3000000, 256", "", 0,
                     (off_t)3000000 * 1024));
    const int fd = open(x, O_WRONLY);
    struct stat found;
    ok(fd >= 0 && fstat(fd, &found) == 0 && pwrite(fd, last, 4, found.st_size - 4) == 4,
       "a file of 3 GB with a number at its end");
    close(fd);
    const int64_t before = kib_of_peak();
    rig_t rig = rig_open(&pl_npy_dataset, PL_TRAIN, "{\"x\": \"%s\"}", x);
    is_int(rig_read(&rig, INDEX(2999999, 7, 1500000)), PL_OK, "read: %s", rig.err.text);
    is_int(((int32_t *)rig.field[0])[255], 0x78563412, "the number at its end");
    is_int(rig.info.samples, 3000000, "all samples are there");
    rig_close(&rig);
    ok(kib_of_peak() - before < 16384, "%lld KiB more at most",
       (long long)(kib_of_peak() - before));
    unlink(x);
}

static void a_split_of_billions_stores_no_sample(void)
{
    enum { LOOKED_AT = 1000 };
    const int64_t total = INT64_C(6000000000);
    for (int folds = 0; folds < 2; folds++) {
        pl_data_split_t split = {0};
        pl_error_t err = {0};
        const pl_data_split_spec_t spec = {.seed = 7,
                                           .total = total,
                                           .share = 0.25,
                                           .folds = folds ? 4 : 0,
                                           .fold = folds ? 2 : 0};
        is_int(pl_data_split_make(&split, &spec, &err), PL_OK, "made: %s", err.text);
        ok(split.held_count == total / 4 && !split.held, "a quarter is held");
        pl_sampler_t held = {.split = &split,
                             .side = PL_HELD,
                             .count = split.held_count,
                             .seed = 7},
                     rest = held;
        rest.side = PL_REST;
        rest.count = total - split.held_count;
        rest.shuffle = true;
        int wrong = 0, late = 0;
        for (int64_t k = 0; k < LOOKED_AT; k++) {
            const int64_t of_held = pl_sampler_at(&held, 0, k * (held.count / LOOKED_AT)),
                          of_rest = pl_sampler_at(&rest, 1, k * (rest.count / LOOKED_AT));
            wrong += !pl_data_split_holds(&split, of_held)
                     || pl_data_split_holds(&split, of_rest) || of_rest < 0
                     || of_rest >= total;
            late += of_held > total / 2;
        }
        is_int(wrong, 0, "each sample is on its side");
        ok(late > LOOKED_AT / 3 && late < 2 * LOOKED_AT / 3, "from everywhere: %d", late);
        pl_data_split_release(&split);
    }
}

/* ---- tables ---- */

enum { ROWS = 4000 };

/* A table of numbers with gaps, categories with quotes and line ends, dates, weights, and
 * a target; JSON Lines have the same columns. */
static const char *put_table(const char *name, bool is_json, bool is_class, bool has_gaps)
{
    const size_t capacity = (size_t)ROWS * 160 + 100;
    char *text = malloc(capacity);
    size_t at = 0;
    if (!is_json)
        at += (size_t)sprintf(text, "# a comment \"\nsize,\"city, or\nplace\",day,w,y\n");
    for (int k = 0; k < ROWS; k++) {
        static const char *const cities[] = {"Bern", "a \"\"b\"\"", "two\nlines", "x, y"},
                                 *const written[] = {"Bern", "a \\\"b\\\"", "two\\nlines",
                                                     "x, y"};
        const int city = (k * 7) % 11 % 4;
        char size[32] = "", target[16];
        if (!has_gaps || k % 13)
            snprintf(size, sizeof size, "%g", (k * 37 % 1009) * 0.37 - 50);
        snprintf(target, sizeof target, is_class ? "\"c%d\"" : "1.%d", k * 31 % 7);
        if (is_json)
            at += (size_t)sprintf(text + at,
                                  "{\"size\": %s, \"place\": \"%s\", \"day\": "
                                  "\"2024-%02d-%02d\", \"w\": %d, \"y\": %s}\n",
                                  *size ? size : "null", written[city], k % 12 + 1,
                                  k % 28 + 1, k % 5, target);
        else
            at += (size_t)sprintf(text + at, "%s,%s\"%s\",2024-%02d-%02d,%d,%s%s\n", size,
                                  k % 3 ? "" : " ", cities[city], k % 12 + 1, k % 28 + 1,
                                  k % 5, target, k % 40 ? "" : "\r\n\n# \"");
    }
    const char *path = file_put(name, text, at);
    free(text);
    return path;
}

/* A table on the disk and one in memory have the same samples, and the same data info. */
static void same_rows(const char *options, double val_split, const char *what)
{
    char text[1200];
    rig_t rig[2];
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "{%s, \"stream\": %s}", options,
                 k ? "true" : "false");
        rig[k] = rig_open_split(&pl_csv_dataset, val_split, false, text);
        is_int(rig[k].code, PL_OK, "%s: %s", what, rig[k].err.text);
        is_int(rig[k].info.samples, ROWS, "all rows");
    }
    is_text(rig[1].info.data_info, rig[0].info.data_info, "%s: what is learnt", what);
    int wrong = rig[0].info.field_count != rig[1].info.field_count;
    for (int64_t k = 0; k + 8 <= ROWS && !wrong; k += 8) {
        int64_t index[8];
        for (int i = 0; i < 8; i++)
            index[i] = k % 16 ? k + i : ROWS - 1 - k - i;
        for (int i = 0; i < 2; i++)
            wrong += rig_read(&rig[i], 8, index) != PL_OK;
        for (int f = 0; f < rig[0].info.field_count && !wrong; f++) {
            const pl_field_t *field = &rig[0].info.field[f];
            const size_t elements = field->shape.rank ? (size_t)field->shape.dim[0] : 1;
            wrong = field->dtype != rig[1].info.field[f].dtype
                    || memcmp(rig[0].field[f], rig[1].field[f],
                              8 * elements * pl_array_width(field->dtype));
        }
    }
    is_int(wrong, 0, "%s: they are the same", what);
    rig_close(&rig[0]);
    rig_close(&rig[1]);
}

static void rows_of_a_table_are_the_same_from_the_disk(void)
{
    char options[1024];
    for (int is_json = 0; is_json < 2; is_json++)
        for (int k = 0; k < 4; k++) {
            const bool has_gaps = k & 1;
            snprintf(options, sizeof options,
                     "\"path\": \"%s\", \"fields\": {\"y\": \"y\", \"weight\": \"w\"}, "
                     "\"missing\": \"%s\", \"categories\": \"%s\"",
                     put_table(is_json ? "t.jsonl" : "t.csv", is_json, k & 2, has_gaps),
                     k == 3     ? "category"
                     : has_gaps ? "mean"
                                : "error",
                     k & 2 ? "index" : "one_hot");
            same_rows(options, k == 0 ? 0 : 0.25, is_json ? "JSON Lines" : "csv");
        }
}

static void a_table_is_prepared_as_the_training_data_was(void)
{
    char train[300], told[300];
    snprintf(train, sizeof train, "{\"path\": \"%s\", \"missing\": \"mean\"}",
             put_table("train.csv", false, true, true));
    rig_t rig = rig_open(&pl_csv_dataset, PL_TRAIN, "%s", train);
    snprintf(told, sizeof told, "{\"path\": \"%s\", \"stream\": true}",
             file_put_text("other.csv",
                           "y,day,place,size,w\nc3,2024-02-01,Bern,5,1\nc1,2023-01-01,"
                           "Rom,,2\n"));
    rig_t other = rig_open_told(&pl_csv_dataset, PL_VALIDATE, rig.info.data_info, told);
    is_int(other.code, PL_ENOTFOUND, "a column is missing");
    like(other.err.text, "no column .city, or.place., which the training data has",
         "named");
    rig_close(&other);
    rig_close(&rig);
    rig = rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"missing\": \"mean\"}",
                   file_put_text("small.csv",
                                 "size,place,y\n1,a,u\n2,b,v\n3,a,u\n4,b,v\n"));
    const char *path = file_put_text("other.csv", "y,place,size\nv,b,2\nu,a,\n");
    int64_t classes[2];
    float features[2][8];
    for (int k = 0; k < 2; k++) {
        snprintf(told, sizeof told, "{\"path\": \"%s\", \"stream\": %s}", path,
                 k ? "true" : "false");
        other = rig_open_told(&pl_csv_dataset, PL_VALIDATE, rig.info.data_info, told);
        is_int(rig_read(&other, INDEX(1)), PL_OK, "a row: %s", other.err.text);
        memcpy(features[k], other.field[0], 3 * sizeof(float));
        classes[k] = ((int64_t *)other.field[1])[0];
        rig_close(&other);
    }
    ok(classes[0] == 0 && classes[1] == 0 && !memcmp(features[0], features[1], 12),
       "it is what it is in memory");
    rig_close(&rig);
}

static void tables_that_cannot_be_streamed_are_refused(void)
{
    static const struct {
        const char *options, *pattern;
    } wrong[] = {
        {"\"missing\": \"median\"", "\"missing\": \"median\" needs all rows in memory"},
        {"\"missing\": \"drop\"", "\"missing\": \"drop\" needs all rows"},
        {"\"texts\": \"words\"", "\"texts\": \"words\" needs all rows"},
        {"\"groups\": \"w\"", "\"groups\" needs all rows"},
        {"\"window\": 3", "\"window\" needs all rows"},
    };
    char path[300];
    snprintf(path, sizeof path, "%s", put_table("t.csv", false, true, false));
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"stream\": true, %s}", path,
                         wrong[k].options),
                PL_EINVAL, wrong[k].pattern, "what needs memory");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"stream\": true}",
                     file_put_gzip("t.csv.gz", "a,b\n1,2\n", 8)),
            PL_EUNSUPPORTED, "decompress it", "a compressed table");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN, "{\"path\": \"%s\", \"stream\": true}",
                     file_put_text("one.csv", "a\n1\n2\n")),
            PL_EUNSUPPORTED, "one column", "a table of one column");
    refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                     "{\"path\": \"/nowhere.csv\", "
                     "\"stream\": true}"),
            PL_ENOTFOUND, "/nowhere.csv", "a file that is not there");
}

static void faults_of_a_streamed_table_have_their_line(void)
{
    static const struct {
        const char *row, *pattern;
    } wrong[] = {
        {"1,2,3\n", "f.csv:3002:[0-9]+: more fields than the 2"},
        {"1\n", "f.csv:3002:[0-9]+: field 2 .b. of 2 is missing"},
        {"1,\n", "f.csv:3002:[0-9]+: field 2 .b. of 2 is missing: it is the target"},
        {",1.5\n", "f.csv:3002:[0-9]+: field 1 .a. of 2 is missing: set"},
        {"x,1.5\n", "f.csv:3002:[0-9]+: field 1 .a.: .x. is not a finite number"},
        {"\"1,1\n", "f.csv:3002:[0-9]+: the quote that begins here does not end"}};
    char *text = malloc(1 << 20);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        size_t at = (size_t)sprintf(text, "a,b\n");
        for (int row = 0; row < 6000; row++)
            at += (size_t)sprintf(text + at, row == 3000 ? wrong[k].row : "%d.25,%d.5\n",
                                  row, row);
        refused(rig_open(&pl_csv_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"stream\": true}",
                         file_put("f.csv", text, at)),
                PL_EFORMAT, wrong[k].pattern, wrong[k].row);
    }
    free(text);
}

static void a_shuffle_in_windows_is_a_shuffle_of_neighbours(void)
{
    enum { COUNT = 1050, WINDOW = 100 };
    pl_sampler_t sampler = {.count = COUNT, .shuffle = true, .window = WINDOW, .seed = 7};
    int64_t first[2][COUNT];
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[COUNT] = {false};
        int far = 0, twice = 0, in_order = 0;
        for (int64_t k = 0; k < COUNT; k++) {
            const int64_t at = pl_sampler_at(&sampler, (uint64_t)epoch, k),
                          before = k ? first[epoch][k - 1] : at;
            const int64_t apart = (at - before + COUNT) % COUNT;
            first[epoch][k] = at;
            twice += seen[at];
            seen[at] = true;
            far += apart >= WINDOW && apart <= COUNT - WINDOW;
            in_order += at == before + 1;
        }
        is_int(twice, 0, "each sample comes once");
        ok(far <= COUNT / WINDOW, "windows follow each other: %d jumps", far);
        ok(in_order < 50, "each is shuffled: %d in order", in_order);
    }
    ok(memcmp(first[0], first[1], sizeof *first) != 0, "each epoch has another order");
    sampler.window = COUNT;
    const pl_sampler_t whole = {.count = COUNT, .shuffle = true, .seed = 7};
    is_int(pl_sampler_at(&sampler, 1, 5), pl_sampler_at(&whole, 1, 5),
           "a window of all samples is none");
}

int main(void)
{
    run(rows_of_a_table_are_the_same_from_the_disk);
    run(a_table_is_prepared_as_the_training_data_was);
    run(tables_that_cannot_be_streamed_are_refused);
    run(faults_of_a_streamed_table_have_their_line);
    run(a_shuffle_in_windows_is_a_shuffle_of_neighbours);
    run(a_large_file_needs_no_memory);
    run(a_split_of_billions_stores_no_sample);
    run(arrays_of_every_type_are_read_from_their_file);
    run(pieces_of_a_file_end_anywhere);
    run(images_and_tokens_are_read_from_their_file);
    run(faults_of_a_file_are_named_when_they_are_read);
    return tap_done();
}
