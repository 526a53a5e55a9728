/* constants.c - tests of constant tensors, from memory and from files */
#include <stdio.h>
#include <string.h>

#include "accelerators/reference/reference.h"
#include "base/alloc.h"
#include "files.h"
#include "formats/safetensors.h"
#include "tap.h"
#include "tensor/graph.h"
#include "tensor/model.h"

static pl_error_t err;

static pl_graph_t *graph_new(void)
{
    return pl_graph_new(NULL, PL_PREDICT, NULL, 0, 1, NULL);
}

/* The text of the graph's error; frees the graph. */
static const char *error_of(pl_graph_t *g)
{
    err = (pl_error_t){0};
    pl_graph_check(g, &err);
    pl_graph_free(g);
    return err.text;
}

/* The elements of a node, as the reference computes them; frees the graph. */
static bool has_elements(pl_graph_t *g, pl_node_t x, const double *want, int count)
{
    double got[16] = {0};
    pl_reference_replay_t replay = {.output = {got}};
    pl_output(g, "x", x);
    const bool is_read = pl_reference_replay(g, &replay, &err) == PL_OK
                         && pl_elements(pl_shape_of(g, x)) == count;
    if (!is_read)
        tap_diag("%s", err.text);
    pl_graph_free(g);
    return is_read && !memcmp(got, want, (size_t)count * sizeof *want);
}

static void elements_in_memory_are_copied(void)
{
    double data[] = {1.5, -2, 3};
    pl_graph_t *g = graph_new();
    const pl_node_t x = pl_tensor(g, PL_F64, PL_SHAPE(3), data);
    data[0] = 7;
    ok(has_elements(g, x, (double[]){1.5, -2, 3}, 3), "as they were");
}

static void equal_tensors_are_one_value(void)
{
    const float data[] = {1, 2, 3, 4, 4};
    pl_graph_t *g = graph_new();
    const pl_node_t x = pl_tensor(g, PL_F32, PL_SHAPE(4), data);
    is_int(pl_tensor(g, PL_F32, PL_SHAPE(4), data).id, x.id, "the same elements");
    ok(pl_tensor(g, PL_F32, PL_SHAPE(2, 2), data).id != x.id, "in another shape");
    ok(pl_tensor(g, PL_F32, PL_SHAPE(4), data + 1).id != x.id, "other elements");
    pl_graph_free(g);
}

static void floats_are_float32_and_whole_numbers_stay(void)
{
    static const struct {
        pl_dtype_t of, is;
    } types[] = {{PL_F32, PL_F32},
                 {PL_F64, PL_F32},
                 {PL_U8, PL_F32},
                 {PL_I32, PL_I32},
                 {PL_I64, PL_I64}};
    static const double zero;
    pl_graph_t *g = graph_new();
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const pl_node_t x = pl_tensor(g, types[k].of, PL_SHAPE(1), &zero);
        is_int(g->value[x.id].dtype, types[k].is, "type %d", (int)types[k].of);
    }
    pl_graph_free(g);
}

static void an_array_of_numpy_is_a_constant(void)
{
    static const int64_t data[] = {1, -2, 3, 1LL << 40, 5, 6};
    char path[4096];
    pl_graph_t *g = graph_new();
    snprintf(path, sizeof path, "%s/a.npy", tap_folder());
    pl_npy_write(path, PL_I64, &PL_SHAPE(2, 3), data, NULL);
    ok(has_elements(g, pl_tensor_file(g, path, NULL), (double[]){1, -2, 3, 0x1p40, 5, 6},
                    6),
       "with its elements");
}

/* A file with "w" of float32 and "h" of float16. */
static const char *tensors(void)
{
    static char path[4096];
    static const float w[] = {1, 2, 3, 4}, h[] = {0.5f, -8};
    const pl_safetensors_source_t of[] = {{"w", PL_F32, PL_SHAPE(2, 2), w},
                                          {"h", PL_F16, PL_SHAPE(2), h}};
    snprintf(path, sizeof path, "%s/a.safetensors", tap_folder());
    pl_safetensors_write(path, &(pl_safetensors_content_t){.tensor = of, .count = 2},
                         &err);
    return path;
}

static void a_tensor_is_chosen_by_name(void)
{
    pl_graph_t *g = graph_new();
    ok(has_elements(g, pl_tensor_file(g, tensors(), "w"), (double[]){1, 2, 3, 4}, 4),
       "float32");
    g = graph_new();
    ok(has_elements(g, pl_tensor_file(g, tensors(), "h"), (double[]){0.5, -8}, 2),
       "float16 as float32");
}

static void the_only_tensor_needs_no_name(void)
{
    char path[4096];
    static const int32_t data[] = {3, 1};
    const pl_safetensors_source_t of = {"only", PL_I32, PL_SHAPE(2), data};
    pl_graph_t *g = graph_new();
    snprintf(path, sizeof path, "%s/one.safetensors", tap_folder());
    pl_safetensors_write(path, &(pl_safetensors_content_t){.tensor = &of, .count = 1},
                         &err);
    ok(has_elements(g, pl_tensor_file(g, path, NULL), (double[]){3, 1}, 2), "it is read");
}

static void mistakes_name_the_file(void)
{
    pl_graph_t *g = graph_new();
    pl_tensor_file(g, tensors(), "v");
    like(error_of(g), "a.safetensors has no tensor \"v\"; it has \"w\", \"h\"", "a name");
    g = graph_new();
    pl_tensor_file(g, tensors(), NULL);
    like(error_of(g), "has 2 tensors: name one; it has \"w\", \"h\"", "no name");
    g = graph_new();
    pl_tensor_file(g, "missing/a.npy", NULL);
    like(error_of(g), "missing/a.npy", "no file");
    is_int(err.code, PL_ENOTFOUND, "with its code");
    g = graph_new();
    pl_tensor_file(g, "a.npy", "w");
    like(error_of(g), "an .npy file has one array without a name", "a name for an array");
    g = graph_new();
    pl_tensor_file(g, "a.pt", NULL);
    like(error_of(g), "ends in .npy or .safetensors, got a.pt", "another format");
    g = graph_new();
    pl_tensor_file(g, NULL, NULL);
    like(error_of(g), "got NULL", "no path");
}

static void objects_of_python_are_refused(void)
{
    static const char header[] =
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }";
    char file[128] = "\x93NUMPY\x01", text[160];
    pl_graph_t *g = graph_new();
    memset(file + 10, ' ', 117);
    memcpy(file + 10, header, sizeof header - 1);
    file[8] = 118;
    file[127] = '\n';
    snprintf(text, sizeof text, "%s", file_put("object.npy", file, sizeof file));
    pl_tensor_file(g, text, NULL);
    like(error_of(g), "object.npy", "with the name of the file");
    is_int(err.code, PL_EUNSUPPORTED, "as a type that cannot be read");
}

static void shapes_and_types_are_checked(void)
{
    static const double data[4];
    pl_graph_t *g = graph_new();
    pl_tensor(g, PL_F32, PL_SHAPE(3, 0), data);
    like(error_of(g), "a constant tensor cannot have shape \\[3, 0\\]", "no elements");
    g = graph_new();
    pl_tensor(g, PL_F32, PL_SHAPE(INT64_MAX / 2, 8), data);
    like(error_of(g), "which fit in memory", "too many");
    g = graph_new();
    pl_tensor(g, PL_BF16, PL_SHAPE(3), data);
    like(error_of(g), "takes elements of float32, .* got type 5",
         "a type of graphs only");
    g = graph_new();
    pl_tensor(g, PL_F32, PL_SHAPE(3), NULL);
    like(error_of(g), "takes data, got NULL", "no data");
}

static uint32_t hash_of(float last)
{
    pl_graph_t *g = graph_new();
    pl_output(g, "x", pl_tensor(g, PL_F32, PL_SHAPE(2), (float[]){1, last}));
    const uint32_t hash = pl_graph_hash(0, g);
    pl_graph_free(g);
    return hash;
}

static void elements_are_part_of_the_hash(void)
{
    ok(hash_of(2) == hash_of(2), "the same elements have the same hash");
    ok(hash_of(2) != hash_of(3), "others have another");
}

int main(void)
{
    run(elements_in_memory_are_copied);
    run(equal_tensors_are_one_value);
    run(floats_are_float32_and_whole_numbers_stay);
    run(an_array_of_numpy_is_a_constant);
    run(a_tensor_is_chosen_by_name);
    run(the_only_tensor_needs_no_name);
    run(mistakes_name_the_file);
    run(objects_of_python_are_refused);
    run(shapes_and_types_are_checked);
    run(elements_are_part_of_the_hash);
    return tap_done();
}
