/* turned.c - matrix products whose first factor lies on its side
 *
 * The gradient of a layer's weights multiplies along the rows of both factors.  Blocks of
 * the first one are turned, one at a time, into memory that stays in the second-level
 * cache, and each one's product is added to its rows of the result. */
#include "accelerators/cpu/library.h"

#include "accelerators/cpu/kernels/kernels.h"
#include "base/alloc.h"
#include "base/error.h"

enum {
    DEEP = 256,                /* rows of both factors in a block, about */
    HIGH = 512,                /* rows of the result in a block, about */
    GAP = 16,                  /* floats between turned lines, for which they do not share
                                  places of the cache */
};

struct pl_turned {
    pl_matmul_t of;
    const pl_kernels_t *kernels;
    int64_t high[2], deep[2];         /* of the first block in each direction, and of each
                                         other */
    pl_cpu_product_t *product[2][2];  /* [first or other rows][first or other depth] */
    size_t lines;                     /* offset in the scratch, behind a product's */
};

/* By measurements with AVX-512 of the gradients in models of 128 to 768 channels, where
 * the product alone becomes up to 1.5 times as fast; a narrow one does not pay for the
 * copy. */
bool pl_turned_pays(const pl_matmul_t *m)
{
    return m->rank == 2 && !m->halves && m->a.stride[0] == 1 && m->b.stride[1] == 1
           && m->a.dim[1] >= 2 * DEEP && m->c.dim[0] >= 64 && m->c.dim[1] >= 192;
}

/* Divides n into equal blocks, multiples of 16, with what is left in the first. */
static void divide(int64_t n, int64_t blocks, int64_t size[2])
{
    size[1] = blocks < 2 ? n : n / blocks / 16 * 16;
    size[0] = n - (blocks - 1) * size[1];
}

static pl_cpu_product_t *block_product(const pl_turned_t *t, pl_library_t *library,
                                       int row, int depth, pl_error_t *err)
{
    pl_matmul_t m = t->of;
    m.a = (pl_matrix_t){{t->high[row], t->deep[depth]}, {t->deep[depth] + GAP, 1}};
    m.b.dim[0] = t->deep[depth];
    m.c.dim[0] = t->high[row];
    m.has_bias &= depth == 0;
    m.accumulate |= depth == 1;
    return pl_cpu_product_matmul(library, &m, err);
}

pl_turned_t *pl_turned_new(pl_library_t *library, const pl_kernels_t *kernels,
                           const pl_matmul_t *m, pl_error_t *err)
{
    pl_turned_t *t = pl_alloc(sizeof *t);
    if (!t) {
        pl_no_memory(err);
        return NULL;
    }
    t->of = *m;
    t->kernels = kernels;
    divide(m->a.dim[0], (m->a.dim[0] + HIGH - 1) / HIGH, t->high);
    divide(m->a.dim[1], m->a.dim[1] / DEEP, t->deep);
    for (int k = 0; k < 4; k++) {
        pl_cpu_product_t *made = block_product(t, library, k / 2, k % 2, err);
        if (!made) {
            pl_turned_free(t);
            return NULL;
        }
        t->product[k / 2][k % 2] = made;
        if (pl_cpu_product_scratch(made) > t->lines)
            t->lines = pl_cpu_product_scratch(made);
    }
    t->lines = (t->lines + 63) / 64 * 64;
    return t;
}

void pl_turned_free(pl_turned_t *t)
{
    for (int k = 0; t && k < 4; k++)
        pl_cpu_product_free(t->product[k / 2][k % 2]);
    pl_free(t);
}

size_t pl_turned_scratch(const pl_turned_t *t)
{
    return t->lines + (size_t)(t->high[0] * (t->deep[0] + GAP)) * sizeof(float);
}

/* Turns and multiplies the block of `a` at a row of the result and a depth. */
static int block_run(pl_turned_t *t, int64_t row, int64_t depth, void *const argument[4],
                     void *scratch, pl_error_t *err)
{
    const pl_matmul_t *m = &t->of;
    const int64_t high = t->high[row > 0], deep = t->deep[depth > 0],
                  stride = m->a.stride[1];
    float *a = argument[0], *b = argument[1], *c = argument[3],
          *lines = (float *)((char *)scratch + t->lines);
    const pl_move_job_t turn = {.rank = 2,
                                .size = sizeof *a,
                                .dim = {high, deep},
                                .from = {1, stride},
                                .to = {deep + GAP, 1},
                                .x = (const char *)(a + depth * stride + row),
                                .y = (char *)lines};
    void *const own[4] = {lines, b + depth * m->b.stride[0], argument[2],
                          c + row * m->c.stride[0]};
    t->kernels->move(&turn, 0, high);
    return pl_cpu_product_run(t->product[row > 0][depth > 0], own, scratch, err);
}

int pl_turned_run(pl_turned_t *t, void *const argument[4], void *scratch, pl_error_t *err)
{
    const int64_t rows = t->of.a.dim[0], depths = t->of.a.dim[1];
    int code = PL_OK;
    for (int64_t row = 0; row < rows && code == PL_OK; row += t->high[row > 0])
        for (int64_t at = 0; at < depths && code == PL_OK; at += t->deep[at > 0])
            code = block_run(t, row, at, argument, scratch, err);
    return code;
}
