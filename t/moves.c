/* moves.c - tests of engine/tensor/moves.c and einsum.c: mistakes, and what moves cost
 *
 * Values and gradients are tested by the cases of t/operator_cases.c. */
#include <string.h>

#include "tap.h"
#include "tensor/graph.h"
#include "tensor/model.h"

static const pl_field_t field = {.name = "x", .dtype = PL_F32, .shape = {1, {784}}};

static pl_graph_t *graph_new(pl_model_t *model)
{
    return pl_graph_new(model, PL_TRAIN, &field, 1, 64, NULL);
}

/* [64, 784]. */
static pl_node_t x(pl_graph_t *g)
{
    return pl_input(g, "x");
}

static pl_node_t param(pl_graph_t *g, pl_shape_t shape)
{
    return pl_param(g, "p", shape, pl_zeros());
}

typedef pl_node_t (*mistake_t)(pl_graph_t *g);
#define MISTAKE(name, expression) \
    static pl_node_t name(pl_graph_t *g) \
    { \
        return expression; \
    }

MISTAKE(step_zero, pl_slice_step(g, x(g), 1, 0, 9, 0))
MISTAKE(step_back, pl_slice_step(g, x(g), 1, 784, -1, -2))
MISTAKE(split_rest,
        (pl_split(g, x(g), 1, (int64_t[]){700, 80}, 2, (pl_node_t[2]){{0}}), x(g)))
MISTAKE(split_more,
        (pl_split(g, x(g), 1, (int64_t[]){700, 85}, 2, (pl_node_t[2]){{0}}), x(g)))
MISTAKE(stack_unlike, pl_stack(g, (pl_node_t[]){x(g), param(g, PL_SHAPE(64, 3))}, 2, 0))
MISTAKE(stack_axis, pl_stack(g, (pl_node_t[]){x(g)}, 1, 3))
MISTAKE(stack_seven,
        pl_stack(g, (pl_node_t[]){param(g, PL_SHAPE(1, 1, 1, 1, 1, 1))}, 1, 0))
MISTAKE(repeat_none, pl_repeat(g, x(g), (int64_t[]){2, 0}))
MISTAKE(pad_less, pl_pad(g, x(g), (int64_t[]){0, 1}, (int64_t[]){0, -1}, 0))
MISTAKE(reflect_more, pl_pad_reflect(g, x(g), (int64_t[]){64, 0}, (int64_t[]){0, 0}))
MISTAKE(triangle_row, pl_tril(g, param(g, PL_SHAPE(3)), 0))
MISTAKE(interpolate_axes, pl_interpolate(g, x(g), (int64_t[3]){1}, 3, false))
MISTAKE(interpolate_zero, pl_interpolate(g, x(g), (int64_t[]){0}, 1, true))
MISTAKE(shuffle_odd, pl_pixel_shuffle(g, param(g, PL_SHAPE(1, 6, 2, 2)), 2))
MISTAKE(unshuffle_odd, pl_pixel_unshuffle(g, param(g, PL_SHAPE(1, 6, 4, 3)), 2))
#define EINSUM(name, equation) \
    MISTAKE(name, pl_einsum(g, equation, x(g), param(g, PL_SHAPE(64, 3))))
EINSUM(einsum_sizes, "ij,jk->ik")
EINSUM(einsum_letters, "bij,bk")
EINSUM(einsum_one, "ij->i")
EINSUM(einsum_sign, "i1,ik")
EINSUM(einsum_twice, "ii,ik->k")
EINSUM(einsum_stranger, "ij,ik->jz")
EINSUM(einsum_three, "ij,ik,il")
EINSUM(einsum_arrow, "ij,ik-j")

static void a_mistake_names_the_axis_and_what_would_work(void)
{
    static const struct {
        mistake_t make;
        const char *says;
    } mistakes[] = {
        {step_zero, "slice takes a range within 0 to the size along axis 1 of "
                    "\\[64, 784\\], got 0 to 9 in steps of 0"},
        {step_back, "slice takes a range within the last element to -1 along axis 1 of "
                    "\\[64, 784\\], got 784 to -1 in steps of -2"},
        {split_rest, "split: the sizes add up to 780, but axis 1 of .* has 784"},
        {split_more, "split: part 1 has size 85, but 84 of the 784 elements along axis 1 "
                     "are left"},
        {stack_unlike,
         "stack takes inputs of one shape, got \\[64, 784\\] and \\[64, 3\\]"},
        {stack_axis, "stack of \\[64, 784\\] takes a new axis from -3 to 2, .* got 3"},
        {stack_seven, "gives up to 6 axes"},
        {repeat_none, "repeat takes a number of at least 1 for axis 1 of .*, got 0"},
        {pad_less, "pad adds 0 or more elements on each side of axis 1 of .*, got 1 and "
                   "-1; slice removes"},
        {reflect_more, "pad_reflect adds 0 to 63 elements on each side of axis 0 of .*, "
                       "got 64 and 0"},
        {triangle_row, "tril takes x \\[..., R, C\\], got \\[3\\]"},
        {interpolate_axes, "interpolate takes sizes of 1 to 2 last axes, got 3"},
        {interpolate_zero, "interpolate takes sizes from 1 to .*, got axis 1 of .* as 0"},
        {shuffle_odd, "pixel_shuffle takes x .* C a multiple of the square of 2, got"},
        {unshuffle_odd, "pixel_unshuffle takes x .* H and W multiples of 2, got"},
        {einsum_sizes,
         "einsum: axis j is 784 in the first tensor \\[64, 784\\] and 64 in "
         "the second \\[64, 3\\]"},
        {einsum_letters, "einsum: \"bij\" names 3 axes, but the first tensor is "
                         "\\[64, 784\\]"},
        {einsum_one, "einsum takes two tensors, .* got \"ij->i\""},
        {einsum_sign, "einsum: an axis is a letter, got \"1\""},
        {einsum_twice, "einsum: letter i is twice in \"ii\""},
        {einsum_stranger, "einsum: axis z of the result is in neither tensor"},
        {einsum_three, "einsum: \"->\" or the end is expected at \",il\""},
        {einsum_arrow, "einsum: \"->\" or the end is expected at \"-j\""},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        pl_model_t *model = pl_model_new(NULL);
        pl_graph_t *g = graph_new(model);
        pl_error_t err = {.text = "no error"};
        mistakes[i].make(g);
        pl_graph_check(g, &err);
        is_int(err.code, PL_EINVAL, "refused");
        like(err.text, mistakes[i].says, "with a sentence");
        pl_graph_free(g);
        pl_model_free(model);
    }
}

static int op_count(const pl_graph_t *g, pl_opcode_t code)
{
    int count = 0;
    for (int i = 0; i < g->op_count; i++)
        count += g->op[i].code == code;
    return count;
}

/* The training step whose loss is the sum of a node. */
static void train(pl_graph_t *g, pl_node_t y)
{
    pl_loss(g, pl_pair(pl_sum(g, pl_square(g, y), NULL, 0, false), pl_scalar(g, 1)));
    pl_graph_gradients(g, 1, false, NULL);
    pl_graph_prune(g);
}

static void a_whole_axis_backwards_has_itself_as_gradient(void)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = graph_new(model);
    train(g, pl_flip(g, param(g, PL_SHAPE(3, 4)), NULL, 0));
    is_int(op_count(g, PL_OP_pad), 0, "without zeros");
    is_int(op_count(g, PL_OP_slice), 4, "two axes, there and back");
    pl_graph_free(g);
    pl_model_free(model);
}

static void parts_of_a_split_have_one_gradient(void)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = graph_new(model);
    pl_node_t part[3];
    is_int(pl_split(g, param(g, PL_SHAPE(3, 6)), 1, (int64_t[]){2, 2, 2}, 3, part), PL_OK,
           "they add up");
    train(g, pl_mul(g, pl_mul(g, part[0], part[1]), part[2]));
    is_int(op_count(g, PL_OP_pad), 0, "without zeros");
    is_int(op_count(g, PL_OP_concat), 1, "which is a concat");
    pl_graph_free(g);
    pl_model_free(model);
}

static void einsum_of_axes_in_order_copies_nothing(void)
{
    static const char *const equations[] = {"ij,ik->jk", "ij,kj->ik", "ij,jk->ik",
                                            "ij,ij->", "ij,ij->ij"};
    for (size_t k = 0; k < sizeof equations / sizeof *equations; k++) {
        pl_model_t *model = pl_model_new(NULL);
        pl_graph_t *g = graph_new(model);
        const pl_node_t p = param(g, PL_SHAPE(4, 4));
        pl_einsum(g, equations[k], p, p);
        is_int(g->error.code, PL_OK, "%s", equations[k]);
        is_int(op_count(g, PL_OP_permute), 0, "needs no permute");
        pl_graph_free(g);
        pl_model_free(model);
    }
}

int main(void)
{
    run(a_mistake_names_the_axis_and_what_would_work);
    run(a_whole_axis_backwards_has_itself_as_gradient);
    run(parts_of_a_split_have_one_gradient);
    run(einsum_of_axes_in_order_copies_nothing);
    return tap_done();
}
