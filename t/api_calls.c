/* api_calls.c - calls that need no engine as chance has them: run files, parts, data,
 * graphs, files, launches, answers, with any arguments
 *
 *   t/api_calls                    about a second, as `make check` does
 *   t/api_calls SEED [SECONDS]     others, or for longer
 *
 * Each call has to do its work or to refuse with a reason.  At the same time another
 * thread calls what any thread may.  Calls to engines are t/api_fuzz.c's. */
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "drawn.h"
#include "rig.h"
#include "tap.h"
#include "tensor/graph.h"
#include "tensor/model.h"

enum { CALLS = 4000, NODES = 24, STEPS = 12 };

static char run_dir[300], weights[340];
static struct event_base *base;

/* ---- run files and parts ---- */

static void run_files(void)
{
    static const char *const texts[] = {"{}", "{\"module\": \"mlp\"}",
                                        "{\"trainer\": {\"max_epochs\": 2}}", "[",
                                        "{\"callbacks\": [{\"name\": \"timer\"}]}"};
    static const char *const keys[] = {"trainer.max_epochs",
                                       "module",
                                       "module.hidden",
                                       "callbacks.0.name",
                                       "data.batch_size",
                                       "..",
                                       "."};
    static const char *const values[] = {"2", "\"x\"", "[1, 2]", "mlp", "{\"name\": 3}"};
    pl_options_t *o = drawn_one_in(8) ? DRAWN_MADE(pl_options_load, DRAWN(texts))
                      : drawn_one_in(2)
                          ? pl_options_new(NULL)
                          : DRAWN_MADE(pl_options_parse, DRAWN(texts), drawn_text());
    for (int k = drawn_below(4); k > 0; k--)
        DRAWN_CODE(pl_options_set, o, DRAWN(keys), DRAWN(values));
    pl_options_t *copy = DRAWN_MADE(pl_options_clone, o);
    pl_text_free(pl_options_get(copy, DRAWN(keys)));
    DRAWN_CODE(pl_options_check, copy);
    char *text = DRAWN_MADE(pl_options_print, copy);
    pl_text_free(text);
    pl_options_free(copy);
    pl_options_free(o);
    pl_options_of(DRAWN(keys));
}

static void see_fact(void *user, const char *name, const char *text)
{
    (void)user, (void)name, (void)text;
}

static void parts(void)
{
    static const char *const roles[] = {"module", "optimizer", "callback", "operator"};
    static const char *const names[] = {"mlp", "adamw", "timer", "adma"};
    static const char *const words[] = {"mlp", "adamw", NULL};
    static const char *const accelerators[] = {"cpu", "fake", "adma"};
    static const char *const files[] = {"none.so", "./none.so", "/dev/null"};
    static const pl_component_t nameless = {.help = ""};
    const pl_registration_t table[] = {{DRAWN(roles), drawn_one_in(2) ? &nameless : NULL},
                                       PL_REGISTRATIONS_END};
    DRAWN_MADE(pl_component_find, DRAWN(roles), DRAWN(names));
    DRAWN_CODE(pl_accelerator_report, DRAWN(accelerators),
               drawn_one_in(4) ? NULL : see_fact, NULL);
    DRAWN_CODE(pl_collective_report, DRAWN(names), drawn_one_in(4) ? NULL : see_fact,
               NULL);
    DRAWN_CODE(pl_plugin_load, DRAWN(files));
    DRAWN_CODE(pl_register, table);
    DRAWN_CODE(pl_init, NULL, NULL, drawn_one_in(2) ? NULL : table);
    pl_component_at(DRAWN(roles), drawn_int());
    pl_role_at(drawn_int());
    pl_nearest(drawn_text(), drawn_one_in(4) ? NULL : words);
}

/* ---- data and answers ---- */

static int read_nothing(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    (void)user, (void)request, (void)field;
    return pl_fail(err, PL_EUSER, "nothing");
}

static const float x[8][RIG_FEATURES];

static pl_field_t any_field(void)
{
    pl_field_t field = {"x", PL_F32, {1, {RIG_FEATURES}}};
    switch (drawn_below(8)) {
    case 0: field.name[0] = '\0'; break;
    case 1: memset(field.name, 'q', sizeof field.name); break;
    case 2: field.dtype = (pl_dtype_t)drawn_int(); break;
    case 3: field.shape.rank = drawn_int(); break;
    case 4: field.shape.dim[0] = drawn_int64(); break;
    default: break;
    }
    return field;
}

static int any_count(void)
{
    return drawn_one_in(4) ? drawn_int() : 1;
}

static void data(void)
{
    static const char *const names[] = {"drawn"};
    const pl_memory_data_t by_reading = {.samples = drawn_int64(),
                                         .field_count = any_count(),
                                         .field = {any_field()},
                                         .data_info = drawn_text(),
                                         .read = drawn_one_in(4) ? NULL : read_nothing};
    const pl_arrays_t arrays = {.samples = drawn_one_in(2) ? 8 : drawn_int64(),
                                .field_count = any_count(),
                                .field = {any_field()},
                                .data = {drawn_one_in(4) ? NULL : x},
                                .data_info = drawn_text()};
    DRAWN_CODE(pl_memory_data, DRAWN(names), drawn_one_in(4) ? NULL : &by_reading);
    DRAWN_CODE(pl_memory_arrays, DRAWN(names), drawn_one_in(4) ? NULL : &arrays);
}

/* Of a shape that has its room, or that nothing has. */
static pl_field_t any_readable(void)
{
    static const int64_t dims[] = {RIG_FEATURES, PL_VARIES, 0, -7, INT64_MIN, INT64_MAX};
    pl_field_t field = {"x", PL_F32, {1, {RIG_FEATURES}}};
    switch (drawn_below(6)) {
    case 0: field.dtype = (pl_dtype_t)drawn_int(); break;
    case 1: field.shape.rank = drawn_int(); break;
    case 2:
    case 3: field.shape.dim[0] = dims[drawn_below(sizeof dims / sizeof *dims)]; break;
    default: break;
    }
    return field;
}

/* Where there is nothing to read from, or no place to write to. */
static void arrays_read(void)
{
    static const int64_t offset[] = {0, 1, 3, 3, 5, 6, 7, 8, 8};
    static const double from[8][RIG_FEATURES];              /* of any type */
    static double into[4][RIG_FEATURES];
    const int64_t index[] = {0, 7, 3, drawn_one_in(4) ? drawn_int64() : 2};
    const pl_arrays_t arrays = {.samples = 8,
                                .field_count = drawn_one_in(8) ? drawn_int() : 1,
                                .field = {any_readable()},
                                .data = {drawn_one_in(8) ? NULL : from},
                                .offset = drawn_one_in(2) ? NULL : offset};
    const pl_read_request_t request = {.index = drawn_one_in(8) ? NULL : index,
                                       .count = drawn_one_in(8) ? -3 : drawn_below(5),
                                       .length = drawn_below(RIG_FEATURES + 1)};
    void *const field[PL_FIELDS] = {drawn_one_in(8) ? NULL : into};
    DRAWN_CODE(pl_arrays_read, drawn_one_in(8) ? NULL : (void *)&arrays,
               drawn_one_in(8) ? NULL : &request, drawn_one_in(8) ? NULL : field);
}

static const char *any_path(void)
{
    const char *const paths[] = {run_dir, weights, "runs", "."};
    return DRAWN(paths);
}

static void files(void)
{
    char *texts[] = {DRAWN_MADE(pl_checkpoint_describe, any_path(), drawn_one_in(2)),
                     DRAWN_MADE(pl_run_describe, any_path()),
                     DRAWN_MADE(pl_weights_describe, any_path()),
                     DRAWN_MADE(pl_data_propose, any_path(),
                                drawn_one_in(2) ? NULL : any_path())};
    static const double numbers[64];
    const char *const arrays[] = {"drawn.npy", "missing/drawn.npy", "."};
    const pl_shape_t shape = PL_SHAPE(drawn_below(9), drawn_below(9) - 1);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        pl_text_free(texts[k]);
    DRAWN_CODE(pl_npy_write, drawn_one_in(8) ? NULL : DRAWN(arrays),
               (pl_dtype_t)drawn_below(9), drawn_one_in(8) ? NULL : &shape,
               drawn_one_in(8) ? NULL : numbers);
}

static void answers(void)
{
    static const double memory[8 * 64];                     /* of any type */
    pl_answers_t given;
    pl_loaded_model_t *model = drawn_one_in(2)
                                   ? pl_model_load(weights, 1, NULL)
                                   : DRAWN_MADE(pl_model_load, any_path(), drawn_int());
    for (int k = drawn_below(4); k >= 0; k--) {
        const pl_arrays_t samples = {.samples = drawn_one_in(2) ? 3 : drawn_int64(),
                                     .field_count = any_count(),
                                     .field = {any_field()},
                                     .data = {drawn_one_in(8) ? NULL : memory}};
        const bool fits = samples.samples <= 8;
        DRAWN_CODE(pl_model_run, model, drawn_one_in(8) || !fits ? NULL : &samples,
                   drawn_one_in(8) ? NULL : &given);
    }
    pl_model_unload(model);
}

/* ---- launches ---- */

static void ended(void *user, int status, const pl_error_t *error)
{
    (void)user, (void)status, (void)error;
}

static void launch(void)
{
    static const char *const does[] = {"true", NULL}, *const none[] = {NULL},
                             *const lacks[] = {"./there is no such program", NULL};
    static const char *const *const argv[] = {does, none, lacks, NULL};
    static const char *const at[] = {"127.0.0.1:0", "localhost:99999", ":", "h:p"};
    if (!drawn_one_in(8))
        return;
    pl_launch_spec_t spec = {.nodes = any_count(),
                             .node_rank = drawn_one_in(4) ? drawn_int() : 0,
                             .nodes_min = drawn_one_in(4) ? drawn_int() : 0,
                             .devices = any_count(),
                             .endpoint = drawn_one_in(2) ? NULL : DRAWN(at),
                             .job_key = drawn_one_in(2) ? NULL : drawn_text(),
                             .max_restarts = drawn_one_in(4) ? drawn_int() : 0,
                             .join_timeout = drawn_double(),
                             .last_call_timeout = drawn_double(),
                             .argv = argv[drawn_below(4)],
                             .on_end = drawn_one_in(2) ? NULL : ended};
    if (spec.devices > 8 || spec.nodes > 8)
        spec.devices = 1 << 30;
    pl_launch_t *node = DRAWN_MADE(pl_launch_start, drawn_one_in(8) ? NULL : base,
                                   drawn_one_in(8) ? NULL : &spec);
    for (int k = drawn_below(6); k > 0; k--)
        event_base_loop(base, EVLOOP_NONBLOCK);
    pl_launch_signal(node, drawn_one_in(2) ? SIGTERM : drawn_int());
    pl_launch_free(node);
}

/* ---- graphs ---- */

static pl_graph_t *g;
static pl_node_t node[NODES];

/* One of the graph's, mostly. */
static pl_node_t a(void)
{
    return drawn_one_in(12) ? (pl_node_t){drawn_int()} : node[drawn_below(NODES)];
}

static pl_shape_t any_shape(void)
{
    pl_shape_t shape = {.rank = drawn_one_in(8) ? drawn_int() : drawn_below(PL_DIMS + 1)};
    for (int k = 0; k < PL_DIMS; k++)
        shape.dim[k] = drawn_one_in(8) ? drawn_int64() : 1 + drawn_below(4);
    return shape;
}

static pl_init_rule_t any_rule(void)
{
    pl_init_rule_t rules[] = {pl_zeros(),
                              pl_constant(drawn_double()),
                              pl_normal(drawn_double()),
                              pl_uniform(drawn_double()),
                              {.a = drawn_double()}};
    memset(&rules[4].kind, drawn_below(256), sizeof rules[4].kind);
    return rules[drawn_below(5)];
}

static const char *any_name(void)
{
    static const char *const names[] = {"fc", "h.0", "w", "x", "y", "loss"};
    return DRAWN(names);
}

static int64_t any_size(void)
{
    return drawn_one_in(4) ? drawn_int64() : 1 + drawn_below(8);
}

static pl_node_t draw_elementwise(void)
{
    static pl_node_t (*const one[])(pl_graph_t *, pl_node_t) = {
        pl_softmax,
#define pl_log pl_log_of
#define ONE_0(name) pl_##name,
#define ONE_1(name)
#define ONE_2(name)
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning) \
    ONE_##numbers(name)
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning)
#define PL_TERNARY(name, precision, rounding, value, rule, meaning)
#include "tensor/elementwise.def"
    };
    static pl_node_t (*const two[])(pl_graph_t *, pl_node_t, pl_node_t) = {
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning)
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning) \
    pl_##name,
#define PL_TERNARY(name, precision, rounding, value, rule, meaning)
#include "tensor/elementwise.def"
#undef pl_log
    };
    switch (drawn_below(11)) {
    case 9: return pl_cast(g, a(), (pl_dtype_t)drawn_below(8));
    case 10: return pl_bool(g, a());
    case 0:
    case 1: return two[drawn_below(sizeof two / sizeof *two)](g, a(), a());
    case 2: return pl_scale(g, a(), drawn_double());
    case 3: return pl_dropout(g, a(), drawn_double());
    case 4: return pl_where(g, a(), a(), a());
    case 5: return pl_clamp(g, a(), drawn_double(), drawn_double());
    case 6: return pl_elu(g, pl_leaky_relu(g, a(), drawn_double()), drawn_double());
    default: return one[drawn_below(sizeof one / sizeof *one)](g, a());
    }
}

static pl_node_t draw_shapes(void)
{
    const int axes[] = {drawn_int(), drawn_below(3), drawn_int(), 0, 1, 2, 3, 4};
    const int *given = drawn_one_in(8) ? NULL : axes;
    const int count = drawn_one_in(4) ? drawn_int() : drawn_below(3);
    const pl_node_t list[] = {a(), a(), a(), a(), a(), a(), a(), a()};
    static const char *const equations[] = {"ij,jk->ik", "bij,bjk",   "i,i->",
                                            "ab,ba->ab", "->",        ",",
                                            "ii,i",      "abcdefg,a", "aB,Bc->ca"};
    const int64_t sizes[] = {any_size(), any_size(), any_size(), any_size(),
                             any_size(), any_size(), any_size(), any_size()};
    pl_node_t parts[8] = {a()}, places = node[0];
    switch (drawn_below(41)) {
    case 13:
        return pl_slice_step(g, a(), drawn_int(), drawn_int64(), drawn_int64(),
                             drawn_int64());
    case 14: return pl_flip(g, a(), given, count);
    case 15: return pl_roll(g, a(), drawn_int(), drawn_int64());
    case 16: return pl_stack(g, given ? list : NULL, count > 8 ? 9 : count, drawn_int());
    case 17: return pl_repeat(g, a(), given ? sizes : NULL);
    case 18: return pl_pad(g, a(), given ? sizes : NULL, sizes + 1, drawn_double());
    case 19: return pl_pad_reflect(g, a(), given ? sizes : NULL, sizes + 1);
    case 20: return pl_tril(g, a(), drawn_int64());
    case 21: return pl_triu(g, a(), drawn_int64());
    case 22:
        return pl_interpolate(g, a(), given ? sizes : NULL, count > 6 ? 7 : count,
                              drawn_one_in(2));
    case 23: return pl_pixel_shuffle(g, a(), drawn_int64());
    case 24: return pl_pixel_unshuffle(g, a(), any_size());
    case 25: return pl_einsum(g, DRAWN(equations), a(), a());
    case 26:
        pl_split(g, a(), drawn_int(), given ? sizes : NULL, count > 7 ? 8 : count, parts);
        return parts[0];
    case 27: return pl_arange(g, drawn_double(), drawn_double(), any_size());
    case 28: return pl_gather(g, a(), drawn_int(), a());
    case 29: return pl_take(g, a(), drawn_int(), a());
    case 30: return pl_scatter_add(g, a(), drawn_int(), a(), a());
    case 31: return pl_one_hot(g, a(), drawn_int64());
    case 32: return pl_cumsum(g, a(), drawn_int());
    case 33: return pl_sort(g, a(), drawn_int(), drawn_one_in(2), NULL);
    case 34: pl_top_k(g, a(), drawn_int64(), drawn_int(), &places); return places;
    case 35: return pl_min(g, a(), drawn_int(), drawn_one_in(2));
    case 36: return pl_argmin(g, a(), drawn_int());
    case 37: return drawn_one_in(2) ? pl_rand(g, any_shape()) : pl_randn(g, any_shape());
    case 9: return pl_logsumexp(g, a(), drawn_int(), drawn_one_in(2));
    case 10: return pl_log_softmax(g, a(), drawn_int());
    case 11: return pl_var(g, a(), given, count, drawn_int64(), drawn_one_in(2));
    case 12: return pl_cosine_similarity(g, a(), a(), drawn_int());
    case 38: return pl_all_gather(g, a());
    case 39: return pl_all_reduce(g, a(), (pl_loop_reduction_t)drawn_below(5));
    case 40: return pl_scalar(g, pl_graph_rank(g) + (double)pl_graph_world_size(g));
    case 0: return pl_sum(g, a(), given, count, drawn_one_in(2));
    case 1: return pl_mean(g, a(), given, count, drawn_one_in(2));
    case 2: return pl_max(g, a(), drawn_int(), drawn_one_in(2));
    case 3: return pl_argmax(g, a(), drawn_int());
    case 4: return pl_reshape(g, a(), any_shape());
    case 5: return pl_flatten(g, a(), drawn_int());
    case 6: return pl_permute(g, a(), given);
    case 7: return pl_slice(g, a(), drawn_int(), drawn_int64(), drawn_int64());
    default:
        return pl_concat(g, drawn_one_in(8) ? NULL : list, count > 8 ? 8 : count,
                         drawn_int());
    }
}

static pl_windows_t any_windows(void)
{
    pl_windows_t w = {{0}, {0}, {0}, {0}};
    const int axes = drawn_below(4);
    for (int k = 0; k < axes; k++) {
        w.kernel[k] = any_size();
        w.stride[k] = drawn_one_in(2) ? 0 : any_size();
        w.padding[k] = drawn_one_in(2) ? 0 : any_size();
        w.dilation[k] = drawn_one_in(2) ? 0 : any_size();
    }
    return w;
}

static pl_node_t draw_pool(void)
{
    const pl_pool_options_t options = {.windows = any_windows(),
                                       .ceil_mode = drawn_one_in(2),
                                       .exclude_padding = drawn_one_in(2)};
    const pl_pool_options_t *given = drawn_one_in(4) ? NULL : &options;
    const pl_conv_transpose_options_t larger = {
        .windows = options.windows,
        .output_padding = {drawn_one_in(2) ? 0 : any_size()},
        .groups = drawn_one_in(2) ? 0 : any_size()};
    const int64_t size[PL_SPACE] = {any_size(), drawn_one_in(2) ? 0 : any_size()};
    switch (drawn_below(8)) {
    case 0: return pl_max_pool(g, a(), given);
    case 1: return pl_avg_pool(g, a(), given);
    case 2: return pl_adaptive_max_pool(g, a(), drawn_one_in(8) ? NULL : size);
    case 3: return pl_adaptive_avg_pool(g, a(), drawn_one_in(8) ? NULL : size);
    case 4: return pl_global_max_pool(g, a());
    case 5: return pl_global_avg_pool(g, a());
    case 6:
        return pl_conv_transpose(g, any_name(), a(), any_size(),
                                 drawn_one_in(4) ? NULL : &larger);
    default: return pl_max_pool2d(g, a(), any_size(), any_size(), any_size());
    }
}

static pl_node_t draw_recurrent(void)
{
    const pl_node_t lengths = a(), h0 = a(), c0 = a();
    const pl_recurrent_options_t options = {
        .layers = drawn_one_in(8) ? drawn_int() : drawn_below(4),
        .bidirectional = drawn_one_in(2),
        .no_bias = drawn_one_in(2),
        .dropout = drawn_one_in(2) ? drawn_double() : 0,
        .lengths = drawn_one_in(2) ? NULL : &lengths,
        .h0 = drawn_one_in(4) ? &h0 : NULL,
        .c0 = drawn_one_in(4) ? &c0 : NULL,
    };
    const pl_recurrent_options_t *given = drawn_one_in(4) ? NULL : &options;
    pl_node_t h_n = a(), c_n = a(), *asked = drawn_one_in(2) ? NULL : &h_n;
    if (drawn_one_in(2))
        return pl_gru(g, any_name(), a(), any_size(), given, asked);
    return pl_lstm(g, any_name(), a(), any_size(), given, asked,
                   drawn_one_in(2) ? NULL : &c_n);
}

static pl_node_t draw_layer(void)
{
    const pl_init_rule_t rule = any_rule();
    const pl_linear_options_t linear = {.no_bias = drawn_one_in(2), .weight = &rule};
    const pl_conv_options_t conv = {.kernel = any_size(),
                                    .stride = any_size(),
                                    .padding = any_size()};
    const pl_convolution_options_t convolution = {.windows = any_windows(),
                                                  .same = drawn_one_in(4),
                                                  .groups = drawn_one_in(2) ? 0
                                                                            : any_size()};
    const pl_node_t mask = a();
    const pl_attention_options_t attention = {.causal = drawn_one_in(2),
                                              .dropout = drawn_double(),
                                              .mask = drawn_one_in(2) ? NULL : &mask,
                                              .bias = drawn_one_in(2) ? NULL : &mask,
                                              .window = drawn_one_in(2) ? 0 : any_size(),
                                              .scale = drawn_double(),
                                              .rotary = drawn_one_in(3),
                                              .rotary_base =
                                                  drawn_one_in(2) ? 0 : drawn_double(),
                                              .rotary_first = drawn_int64(),
                                              .rotary_interleaved = drawn_one_in(2)};
    const pl_rotary_options_t rotary = {.base = drawn_double(),
                                        .first = drawn_int64(),
                                        .interleaved = drawn_one_in(2)};
    const pl_norm_options_t norm = {.epsilon = drawn_double(),
                                    .axes = drawn_int(),
                                    .no_bias = drawn_one_in(2),
                                    .no_weight = drawn_one_in(2)};
    const pl_norm_options_t *norms = drawn_one_in(2) ? NULL : &norm;
    switch (drawn_below(15)) {
    case 14: return draw_recurrent();
    case 13: return pl_rotary(g, a(), drawn_one_in(4) ? NULL : &rotary);
    case 9: return pl_layer_norm_with(g, any_name(), a(), norms);
    case 10: return pl_rms_norm(g, any_name(), a(), norms);
    case 11: return pl_group_norm(g, any_name(), a(), any_size(), norms);
    case 12: return pl_instance_norm(g, any_name(), a(), norms);
    case 0:
        return pl_linear_with(g, any_name(), a(), any_size(),
                              drawn_one_in(2) ? NULL : &linear);
    case 1:
        if (drawn_one_in(2))
            return pl_conv(g, any_name(), a(), any_size(),
                           drawn_one_in(4) ? NULL : &convolution);
        return pl_conv2d(g, any_name(), a(), any_size(), drawn_one_in(4) ? NULL : &conv);
    case 2: return draw_pool();
    case 3: return pl_batch_norm(g, any_name(), a(), drawn_double(), drawn_double());
    case 4: return pl_layer_norm(g, any_name(), a(), drawn_double());
    case 5: return pl_embedding(g, any_name(), a(), any_size(), any_size(), any_rule());
    case 6: return pl_attention(g, a(), a(), a(), drawn_one_in(2) ? NULL : &attention);
    case 7: return pl_linear(g, any_name(), a(), any_size());
    default: return pl_matmul(g, a(), a(), drawn_one_in(2), drawn_one_in(2));
    }
}

static pl_node_t draw_update(void)
{
    const pl_update_t of = {.momentum = a(), .rest = a(), .cycles = drawn_one_in(2)};
    const pl_update_t *u = drawn_one_in(8) ? NULL : &of;
    switch (drawn_below(3)) {
    case 0: return pl_times_momentum(g, u, a(), drawn_double());
    case 1: return pl_times_rest(g, u, a(), drawn_double());
    default: {
        const pl_node_t target = a();
        pl_assign(g, target, a());
        return target;
    }
    }
}

static pl_node_t draw_value(void)
{
    static const double values[4] = {1, 2, 3, 4};
    const pl_node_t inputs[] = {a(), a()};
    switch (drawn_below(12)) {
    case 0: return pl_input(g, any_name());
    case 1: return pl_param(g, any_name(), any_shape(), any_rule());
    case 2:
        return pl_state(g, any_name(), any_shape(), any_rule(), (pl_agree_t)drawn_int());
    case 3: return pl_scalar(g, drawn_double());
    case 4: return pl_range(g, any_size());
    case 9: {
        static const double data[4096];                     /* 4^6 of the widest type */
        pl_shape_t shape = {.rank = drawn_one_in(8) ? drawn_int() : drawn_below(4)};
        for (int k = 0; k < PL_DIMS; k++)
            shape.dim[k] = drawn_one_in(16) ? -drawn_below(9) : 1 + drawn_below(4);
        return pl_tensor(g, (pl_dtype_t)drawn_below(9), shape,
                         drawn_one_in(8) ? NULL : data);
    }
    case 10:
        return pl_tensor_file(g, drawn_one_in(4) ? drawn_text() : any_path(),
                              drawn_one_in(2) ? NULL : drawn_text());
    case 5: {
        const int count = drawn_int();
        return pl_vector(g, drawn_one_in(8) ? NULL : values, count > 4 ? 4 : count);
    }
    case 6:
        return pl_apply(g, any_name(), drawn_one_in(8) ? NULL : inputs, drawn_below(3),
                        NULL);
    case 7:
        return drawn_one_in(8) ? pl_graph_fail(g, drawn_int(), "%d", drawn_int()) : a();
    case 11: {
        pl_checkpoint(g);
        const pl_node_t y = pl_tanh(g, pl_relu(g, a()));
        if (!drawn_one_in(8))
            pl_checkpoint_end(g);
        return y;
    }
    default: pl_scope(g, "%s", any_name() ? "s" : ""); return a();
    }
}

static void draw_metric(void)
{
    const pl_node_t w = a();
    const pl_cross_entropy_options_t entropy = {.has_ignore = drawn_one_in(2),
                                                .ignore_index = drawn_int64(),
                                                .class_weights = drawn_one_in(2) ? NULL
                                                                                 : &w,
                                                .label_smoothing = drawn_double()};
    const pl_classes_options_t classes = {.has_ignore = drawn_one_in(2),
                                          .ignore_index = drawn_int64(),
                                          .average = (pl_average_t)drawn_below(5)};
    pl_metric_t m = {0};
    const pl_cross_entropy_options_t *given = drawn_one_in(2) ? NULL : &entropy;
    const pl_bce_options_t bce = {.positive_weights = drawn_one_in(2) ? NULL : &w,
                                  .weights = drawn_one_in(2) ? NULL : &w};
    switch (drawn_below(47)) {
    case 45: m = pl_info_nce(g, a(), a(), a()); break;
    case 24: m = pl_nll(g, a(), a(), given); break;
    case 17: m = pl_l1(g, a(), a()); break;
    case 18: m = pl_huber(g, a(), a(), drawn_double()); break;
    case 19: m = pl_bce_with_logits(g, a(), a(), drawn_one_in(2) ? NULL : &bce); break;
    case 20: m = pl_soft_cross_entropy(g, a(), a()); break;
    case 21: m = pl_kl(g, a(), a()); break;
    case 22: m = pl_cosine_embedding(g, a(), a(), a(), drawn_double()); break;
    case 23: m = pl_triplet(g, a(), a(), a(), drawn_double()); break;
    case 44: {
        const pl_ctc_options_t ctc = {.blank = drawn_one_in(4) ? drawn_int64() : 0,
                                      .sum = drawn_one_in(2),
                                      .zero_infinity = drawn_one_in(2)};
        m = pl_ctc(g, a(), a(), a(), a(), drawn_one_in(4) ? NULL : &ctc);
        break;
    }
    case 0: m = pl_cross_entropy(g, a(), a(), given); break;
    case 1: m = pl_accuracy_top(g, a(), a(), drawn_int64(), NULL); break;
    case 2: m = pl_f1(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 3: m = pl_confusion_matrix(g, a(), a(), &classes); break;
    case 4: m = pl_auroc(g, a(), a(), drawn_int64(), &classes); break;
    case 5: m = pl_weighted_mse(g, a(), a(), a()); break;
    case 6: m = pl_r2(g, a(), a()); break;
    case 7: m = pl_mae(g, a(), a()); break;
    case 8: m = pl_bits_per_byte(g, pl_mse(g, a(), a()), drawn_double()); break;
    case 9: m = pl_accuracy(g, a(), a(), given); break;
    case 10: m = pl_accuracy_of_classes(g, a(), a(), &classes); break;
    case 11: m = pl_precision(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 12: m = pl_recall(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 13: m = pl_average_precision(g, a(), a(), drawn_int64(), &classes); break;
    case 14: m = pl_rmse(g, a(), a()); break;
    case 15: m = pl_perplexity(pl_pair(a(), a())); break;
    case 25: m = pl_specificity(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 26: m = pl_jaccard(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 27: m = pl_mcc(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 28: m = pl_cohen_kappa(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 29: m = pl_explained_variance(g, a(), a()); break;
    case 30: m = pl_mape(g, a(), a()); break;
    case 31: m = pl_smape(g, a(), a()); break;
    case 32: m = pl_msle(g, a(), a()); break;
    case 33: m = pl_fbeta(g, a(), a(), drawn_double(), &classes); break;
    case 34: m = pl_hamming(g, a(), a(), drawn_one_in(2) ? NULL : &classes); break;
    case 35: m = pl_pearson(g, a(), a()); break;
    case 36: m = pl_concordance(g, a(), a()); break;
    case 37: m = pl_calibration_error(g, a(), a(), drawn_int64(), &classes); break;
    case 38: m = pl_roc(g, a(), a(), drawn_int64(), &classes); break;
    case 40: m = pl_spearman(g, a(), a()); break;
    case 41: m = pl_retrieval_ndcg(g, a(), a(), a(), drawn_int64()); break;
    case 42: m = pl_bleu(g, a(), a(), drawn_int64()); break;
    case 43: {
        const pl_metric_state_t states[] = {{a(), (pl_combine_t)drawn_below(4)},
                                            {a(), PL_COMBINE_GATHER}};
        m = pl_custom_metric(g, drawn_one_in(2) ? "spearman" : "no", drawn_double(),
                             states, drawn_below(3));
        break;
    }
    case 39: m = pl_pr_curve(g, a(), a(), drawn_int64(), &classes); break;
    case 46:
        m = pl_add_losses(g, pl_mse(g, a(), a()), pl_pair(a(), a()), drawn_double());
        break;
    default: m = pl_pair(a(), a()); break;
    }
    if (drawn_one_in(2))
        pl_log(g, any_name(), m, (pl_log_when_t)drawn_int());
    else
        pl_loss(g, m);
    if (drawn_one_in(4))
        pl_output(g, any_name(), a());
}

static void graphs(void)
{
    static const pl_field_t fields[] = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                        {"y", PL_I64, {0, {0}}}};
    static pl_node_t (*const draws[])(void) = {draw_elementwise, draw_shapes, draw_layer,
                                               draw_value, draw_update};
    pl_model_t *model = pl_model_new(NULL);
    g = pl_graph_new(model, (pl_stage_t)drawn_below(4), fields, 2, 4, NULL);
    for (int k = 0; k < NODES; k++)
        node[k] = pl_input(g, k % 3 ? "x" : "y");
    for (int k = drawn_below(STEPS); k >= 0; k--)
        if (drawn_one_in(6))
            draw_metric();
        else
            node[drawn_below(NODES)] = draws[drawn_below(5)]();
    if (drawn_one_in(4))
        pl_dim(g, a(), drawn_int());
    if (drawn_one_in(4))
        pl_scope_end(g);
    if (drawn_one_in(8))
        pl_checkpoint_end(g);
    pl_shape_of(g, a());
    pl_dtype_of(g, a());
    pl_has_input(g, any_name());
    pl_shape_t out;
    pl_broadcast_shapes(any_shape(), any_shape(), &out);
    pl_error_t *err = drawn_err();
    const int code = pl_graph_check(g, err);
    drawn_held("graph", code != PL_OK, code, err);
    if (code == PL_OK)
        pl_graph_gradients(g, 4, drawn_one_in(2), NULL);
    pl_graph_free(g);
    pl_model_free(model);
}

/* ---- the rest ---- */

static void small(void)
{
    pl_error_t err;
    pl_callback_request_t request = {0};
    drawn_held("pl_callback_log", true,
               pl_callback_log(drawn_one_in(2) ? NULL : &request, drawn_text(),
                               drawn_double(), &err),
               &err);
    if (!pl_code_name(drawn_int()) || !pl_code_text(drawn_int()) || pl_rank() != 0)
        drawn_held("names of codes", true, PL_OK, NULL);
    pl_text_free(pl_text("%s", drawn_text() ? "x" : ""));
    pl_log_hook(NULL, (pl_log_level_t)drawn_int(), NULL);
}

/* ---- what any thread may ---- */

static int aside_ends;                                      /* atomic */

static void *aside(void *user)
{
    (void)user;
    const pl_arrays_t arrays = {.samples = 8,
                                .field_count = 1,
                                .field = {{"x", PL_F32, {1, {RIG_FEATURES}}}},
                                .data = {x}};
    for (int k = 0; !__atomic_load_n(&aside_ends, __ATOMIC_RELAXED); k++) {
        pl_error_t err;
        pl_component_find("optimizer", k % 2 ? "adam" : "adma", &err);
        pl_component_at("callback", k % 7);
        pl_memory_arrays("aside", k % 2 ? &arrays : NULL, &err);
        pl_plugin_load("no_such_plugin", &err);
        pl_options_t *options = pl_options_parse("{\"optimizer\": \"adamw\"}", "aside",
                                                 &err);
        pl_options_check(options, &err);
        pl_text_free(pl_options_print(options, &err));
        pl_options_free(options);
        pl_text_free(pl_run_describe(run_dir, &err));
        usleep(1000);
    }
    return NULL;
}

/* ---- tests ---- */

static uint64_t seed = 1;
static double seconds;

/* What is loaded and described. */
static void a_run_ends_well(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run");
    snprintf(run_dir, sizeof run_dir, "%s", result->run_dir);
    snprintf(weights, sizeof weights, "%s/model.safetensors", result->run_dir);
    rig_free(&rig);
}

static void every_call_is_done_or_refused(void)
{
    static void (*const all[])(void) = {run_files,   parts,  data,   files,  answers,
                                        arrays_read, launch, graphs, graphs, small};
    pthread_t thread;
    const int64_t until = pl_now() + (int64_t)(seconds * 1e9);
    pthread_create(&thread, NULL, aside, NULL);
    for (int k = 0; seconds > 0 ? pl_now() < until : drawn_calls() < CALLS; k++) {
        drawn_from(seed + (uint64_t)k);
        all[drawn_below(sizeof all / sizeof *all)]();
    }
    __atomic_store_n(&aside_ends, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    drawn_tell();
    is_int(drawn_broken(), 0, "each of %d calls is done, or refused with why",
           drawn_calls());
}

int main(int argc, char **argv)
{
    drawn_init();
    rig_init(NULL);
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seconds = atof(argv[2]);
    if (chdir(tap_folder()) != 0)
        return 99;
    base = event_base_new();
    run(a_run_ends_well);
    run(every_call_is_done_or_refused);
    event_base_free(base);
    return tap_done();
}
