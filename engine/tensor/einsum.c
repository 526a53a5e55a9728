/* einsum.c - Einstein summation of two tensors, as permutes and one product
 *
 * Letters are sorted by where they occur.  What only one tensor has and the result lacks
 * is summed first.  What both have is a batch axis if the result has it too, else an axis
 * of the product's sum.  Without a sum over both, the result is an element-wise
 * product. */
#include <stdio.h>
#include <string.h>

#include "tensor/operators.h"

enum { LETTERS = 52 };

typedef struct einsum {
    pl_graph_t *g;
    pl_node_t x[2];
    char letters[2][PL_DIMS + 1];              /* of each tensor's axes, in their order */
    char result[PL_DIMS + 1];
} einsum_t;

static bool has(const char *letters, char letter)
{
    return letter && strchr(letters, letter) != NULL;
}

/* Reads letters up to `end`, without spaces. */
static const char *read_letters(einsum_t *e, const char *text, const char *end,
                                char letters[PL_DIMS + 1])
{
    int count = 0;
    for (; *text && !strchr(end, *text); text++) {
        const bool is_letter = (*text >= 'a' && *text <= 'z')
                               || (*text >= 'A' && *text <= 'Z');
        letters[count] = '\0';
        if (*text == ' ')
            continue;
        if (!is_letter)
            pl_op_fail(e->g, "einsum: an axis is a letter, got \"%.1s\"", text);
        else if (has(letters, *text))
            pl_op_fail(e->g,
                       "einsum: letter %c is twice in \"%s%c\"; a letter is one axis "
                       "of each tensor",
                       *text, letters, *text);
        else if (count == PL_DIMS)
            pl_op_fail(e->g, "einsum: a tensor has up to %d axes, got \"%s%c...\"",
                       PL_DIMS, letters, *text);
        if (e->g->error.code)
            return text;
        letters[count++] = *text;
    }
    letters[count] = '\0';
    return text;
}

/* The letters that occur once, in the order of the alphabet, capitals first. */
static void infer_result(einsum_t *e)
{
    int count = 0;
    for (int letter = 'A'; letter <= 'z' && !e->g->error.code; letter++) {
        if (has(e->letters[0], (char)letter) == has(e->letters[1], (char)letter))
            continue;
        if (count == PL_DIMS)
            pl_op_fail(e->g,
                       "einsum: the result would have more than %d axes; name them "
                       "after \"->\"",
                       PL_DIMS);
        else
            e->result[count++] = (char)letter;
    }
}

static int64_t size_of(const einsum_t *e, int k, char letter)
{
    const char *at = strchr(e->letters[k], letter);
    return at ? e->g->value[e->x[k].id].shape.dim[at - e->letters[k]] : 1;
}

static void read_equation(einsum_t *e, const char *equation)
{
    static const char *const of[] = {"first", "second"};
    const char *rest = read_letters(e, equation, ",-", e->letters[0]);
    if (!e->g->error.code && *rest == ',')
        rest = read_letters(e, rest + 1, ",-", e->letters[1]);
    else if (!e->g->error.code)
        pl_op_fail(e->g, "einsum takes two tensors, as \"ij,jk->ik\", got \"%.40s\"",
                   equation);
    const bool is_named = !strncmp(rest, "->", 2);
    if (!e->g->error.code && *rest && !is_named)
        pl_op_fail(e->g, "einsum: \"->\" or the end is expected at \"%.20s\"", rest);
    else if (is_named)
        read_letters(e, rest + 2, "", e->result);
    else
        infer_result(e);
    for (int k = 0; k < 2 && !e->g->error.code; k++) {
        const pl_shape_t shape = pl_shape_of(e->g, e->x[k]);
        if (!e->g->error.code && (int)strlen(e->letters[k]) != shape.rank)
            pl_op_fail(e->g, "einsum: \"%s\" names %d axes, but the %s tensor is %s",
                       e->letters[k], (int)strlen(e->letters[k]), of[k],
                       PL_TEXT_OF(shape));
    }
    for (const char *c = e->letters[0]; *c && !e->g->error.code; c++) {
        const int64_t a = size_of(e, 0, *c), b = size_of(e, 1, *c);
        if (a != b && a != 1 && b != 1)
            pl_op_fail(e->g,
                       "einsum: axis %c is %lld in the first tensor %s and %lld in the "
                       "second %s",
                       *c, (long long)a, PL_TEXT_OF(pl_shape_of(e->g, e->x[0])),
                       (long long)b, PL_TEXT_OF(pl_shape_of(e->g, e->x[1])));
    }
    for (const char *c = e->result; *c && !e->g->error.code; c++)
        if (!has(e->letters[0], *c) && !has(e->letters[1], *c))
            pl_op_fail(e->g, "einsum: axis %c of the result is in neither tensor", *c);
}

/* Sums a tensor over the axes that neither the result nor the other tensor has, and over
 * those that the other tensor repeats: there the other one loses its axis of size 1. */
static void sum_own(einsum_t *e, int k)
{
    int axes[PL_DIMS], count = 0, kept = 0;
    char left[PL_DIMS + 1] = "";
    for (int i = 0; e->letters[k][i]; i++) {
        const char letter = e->letters[k][i];
        const bool both = has(e->letters[!k], letter), stays = has(e->result, letter);
        if (stays || (both && size_of(e, !k, letter) == size_of(e, k, letter)))
            left[kept++] = letter;
        else
            axes[count++] = i;
    }
    left[kept] = '\0';
    if (count)
        e->x[k] = pl_sum(e->g, e->x[k], axes, count, false);
    memcpy(e->letters[k], left, sizeof left);
}

/* Letters that are in `in`, and in `also` or not, of the result or not. */
static void choose(const char *in, const char *also, bool is_in_also, const char *result,
                   bool is_in_result, char out[PL_DIMS + 1])
{
    int count = 0;
    for (; *in; in++)
        if (has(also, *in) == is_in_also && has(result, *in) == is_in_result)
            out[count++] = *in;
    out[count] = '\0';
}

/* A tensor with the axes of `order`; letters that it lacks get size 1. */
static pl_node_t in_order(einsum_t *e, int k, const char *order)
{
    const pl_shape_t from = pl_shape_of(e->g, e->x[k]);
    pl_shape_t shape = {.rank = (int)strlen(order)};
    int axes[PL_DIMS] = {0}, count = 0;
    bool moves = false;
    for (int i = 0; order[i] && !e->g->error.code; i++) {
        const char *at = strchr(e->letters[k], order[i]);
        shape.dim[i] = at ? from.dim[at - e->letters[k]] : 1;
        if (at)
            axes[count++] = (int)(at - e->letters[k]);
    }
    for (int i = 0; i < count; i++)
        moves = moves || axes[i] != i;
    return pl_reshape(e->g, moves ? pl_permute(e->g, e->x[k], axes) : e->x[k], shape);
}

/* A tensor as [batch…, rows, columns] of a matrix product: batch axes are one if
 * `merged`.  *transposed: it is [batch…, columns, rows], because that needs no copy. */
static pl_node_t as_matrices(einsum_t *e, int k, const char *batch, const char *rows,
                             const char *columns, bool merged, bool *transposed)
{
    char order[3 * PL_DIMS + 1], swapped[3 * PL_DIMS + 1];
    snprintf(order, sizeof order, "%s%s%s", batch, rows, columns);
    snprintf(swapped, sizeof swapped, "%s%s%s", batch, columns, rows);
    *transposed = strcmp(order, e->letters[k]) && !strcmp(swapped, e->letters[k]);
    const pl_node_t x = in_order(e, k, *transposed ? swapped : order);
    const char *const part[] = {batch, *transposed ? columns : rows,
                                *transposed ? rows : columns};
    pl_shape_t shape = {.rank = 0};
    for (int p = 0; p < 3; p++) {
        const int first = shape.rank;
        for (const char *c = part[p]; *c && !e->g->error.code; c++) {
            if (p == 0 && !merged)
                shape.dim[shape.rank++] = size_of(e, k, *c);
            else if (shape.rank == first)
                shape.dim[shape.rank++] = size_of(e, k, *c);
            else
                shape.dim[first] *= size_of(e, k, *c);
        }
        if (p && shape.rank == first)
            shape.dim[shape.rank++] = 1;
    }
    return pl_reshape(e->g, x, shape);
}

/* Batch axes are one if their sizes are equal, or the product broadcasts them. */
static pl_node_t multiply(einsum_t *e, const char *batch, const char *rows,
                          const char *columns, const char *summed)
{
    char order[4 * PL_DIMS + 1];
    pl_shape_t shape = {.rank = 0};
    bool merged = true, transposed[2];
    int to[PL_DIMS] = {0};
    snprintf(order, sizeof order, "%s%s%s", batch, rows, columns);
    for (int i = 0; order[i]; i++) {
        const int64_t a = size_of(e, 0, order[i]), b = size_of(e, 1, order[i]);
        merged = merged && (!has(batch, order[i]) || a == b);
        shape.dim[shape.rank++] = a > b ? a : b;
    }
    const pl_node_t a = as_matrices(e, 0, batch, rows, summed, merged, &transposed[0]),
                    b = as_matrices(e, 1, batch, summed, columns, merged, &transposed[1]);
    const pl_node_t y =
        pl_reshape(e->g, pl_matmul(e->g, a, b, transposed[0], transposed[1]), shape);
    for (int i = 0; order[i]; i++)
        to[i] = (int)(strchr(order, e->result[i]) - order);
    return !strcmp(order, e->result) ? y : pl_permute(e->g, y, to);
}

pl_node_t pl_einsum(pl_graph_t *g, const char *equation, pl_node_t a, pl_node_t b)
{
    einsum_t e = {.g = g, .x = {a, b}};
    char batch[PL_DIMS + 1], summed[PL_DIMS + 1], rows[PL_DIMS + 1], columns[PL_DIMS + 1];
    if (!equation)
        return pl_graph_fail(g, PL_EINVAL, "einsum takes an equation, got NULL");
    read_equation(&e, equation);
    for (int k = 0; k < 2 && !g->error.code; k++)
        sum_own(&e, k);
    if (g->error.code)
        return PL_NO_NODE;
    choose(e.letters[0], e.letters[1], true, e.result, true, batch);
    choose(e.letters[0], e.letters[1], true, e.result, false, summed);
    choose(e.letters[0], e.letters[1], false, e.result, true, rows);
    choose(e.letters[1], e.letters[0], false, e.result, true, columns);
    if (*summed && (*rows || *columns))
        return multiply(&e, batch, rows, columns, summed);
    if (!*summed)
        return pl_mul(g, in_order(&e, 0, e.result), in_order(&e, 1, e.result));
    char order[2 * PL_DIMS + 1];
    int axes[PL_DIMS], count = 0;
    snprintf(order, sizeof order, "%s%s", e.result, summed);
    for (size_t i = strlen(e.result); order[i]; i++)
        axes[count++] = (int)i;
    return pl_sum(g, pl_mul(g, in_order(&e, 0, order), in_order(&e, 1, order)), axes,
                  count, false);
}
