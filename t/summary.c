/* summary.c - tests of engine/tensor/summary.c */
#include "scarce.h"
#include "tap.h"
#include "tensor/model.h"

static const pl_field_t rows[] = {{.name = "x", .dtype = PL_F32, .shape = {1, {6}}}};
static pl_model_t *model;

static pl_graph_t *graph_of(const pl_field_t *fields, int64_t batch)
{
    model = pl_model_new(NULL);
    return pl_graph_new(model, PL_TRAIN, fields, 1, batch, NULL);
}

static void graph_end(pl_graph_t *g)
{
    is_int(pl_graph_check(g, NULL), PL_OK, "the graph is right");
    pl_graph_free(g);
    pl_model_free(model);
}

static void an_mlp(pl_graph_t *g)
{
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    pl_linear(g, "fc2", pl_relu(g, x), 3);
}

static void products_of_layers_are_counted(void)
{
    pl_graph_t *g = graph_of(rows, 4);
    an_mlp(g);
    is_near(pl_graph_flops(g), 2. * 4 * 6 * 8 + 2. * 4 * 8 * 3, 0,
            "two for each weight and sample");
    graph_end(g);
}

static void products_are_counted_however_they_lie(void)
{
    pl_graph_t *g = graph_of((pl_field_t[]){{"x", PL_F32, {2, {5, 7}}}}, 2);
    pl_node_t x = pl_input(g, "x");                         /* [2, 5, 7] */
    pl_matmul(g, x, x, false, true);                        /* [2, 5, 5] */
    pl_matmul(g, x, x, true, false);                        /* [2, 7, 7] */
    is_near(pl_graph_flops(g), 2. * 2 * 5 * 5 * 7 + 2. * 2 * 7 * 7 * 5, 0,
            "along the axis that goes");
    graph_end(g);
}

static void convolution_and_attention_are_counted(void)
{
    pl_graph_t *g = graph_of((pl_field_t[]){{"x", PL_F32, {3, {3, 8, 8}}}}, 2);
    pl_conv2d(g, "conv", pl_input(g, "x"), 5,
              &(pl_conv_options_t){.kernel = 3, .stride = 1, .padding = 1});
    is_near(pl_graph_flops(g), 2. * (2 * 5 * 8 * 8) * (3 * 3 * 3), 0, "a convolution");
    graph_end(g);
    g = graph_of((pl_field_t[]){{"x", PL_F32, {3, {2, 6, 4}}}}, 3);
    pl_node_t x = pl_input(g, "x");                         /* [3, 2, 6, 4] */
    pl_attention(g, x, x, x, &(pl_attention_options_t){.causal = true});
    is_near(pl_graph_flops(g), 4. * (3 * 2 * 6 * 4) * 6, 0,
            "scores and weighted sum, masked or not");
    graph_end(g);
}

static void layers_are_listed_with_type_and_shapes(void)
{
    pl_graph_t *g = graph_of(rows, 4);
    an_mlp(g);
    json_t *layers = pl_graph_layers(g, model, NULL);
    json_t *wanted = json_pack(
        "[{s:s, s:s, s:[i,i], s:[i,i], s:i}, {s:s, s:s, s:[i,i], s:[i,i], s:i}]", "name",
        "fc1", "type", "linear", "in", 4, 6, "out", 4, 8, "parameters", 56, "name", "fc2",
        "type", "linear", "in", 4, 8, "out", 4, 3, "parameters", 27);
    ok(json_equal(layers, wanted), "weight and bias are one layer");
    json_decref(wanted);
    json_decref(layers);
    graph_end(g);
}

static void recurrent_layers_have_their_own_type(void)
{
    static const pl_field_t steps[] = {{"x", PL_F32, {2, {5, 7}}}};
    pl_graph_t *g = graph_of(steps, 4);
    const pl_node_t x = pl_lstm(g, "rnn", pl_input(g, "x"), 3,
                                &(pl_recurrent_options_t){.bidirectional = true}, NULL,
                                NULL);
    pl_gru(g, "up", x, 2, NULL, NULL);
    json_t *layers = pl_graph_layers(g, model, NULL);
    json_t *wanted = json_pack(
        "[{s:s, s:s, s:[i,i,i], s:[i,i,i], s:i}, {s:s, s:s, s:[i,i,i], s:[i,i,i], s:i}]",
        "name", "rnn", "type", "lstm", "in", 4, 5, 7, "out", 4, 5, 6, "parameters",
        2 * 4 * 3 * (7 + 3 + 2), "name", "up", "type", "gru", "in", 4, 5, 6, "out", 4, 5,
        2, "parameters", 3 * 2 * (6 + 2 + 2));
    ok(json_equal(layers, wanted), "an lstm in both directions, and a gru");
    json_decref(wanted);
    json_decref(layers);
    graph_end(g);
}

static int layers_once(void *user)
{
    pl_error_t err = {0};
    json_decref(pl_graph_layers(user, model, &err));
    return err.code;
}

static void layers_survive_a_lack_of_memory(void)
{
    pl_graph_t *g = graph_of(rows, 4);
    an_mlp(g);
    scarce_try(layers_once, g, "layers");
    graph_end(g);
}

int main(void)
{
    scarce_init();
    run(products_of_layers_are_counted);
    run(products_are_counted_however_they_lie);
    run(convolution_and_attention_are_counted);
    run(layers_are_listed_with_type_and_shapes);
    run(recurrent_layers_have_their_own_type);
    run(layers_survive_a_lack_of_memory);
    return tap_done();
}
