/* tree.c - the canonical tree: in which order the ranks' elements are added
 *
 * Works block by block, so that partial results stay in the nearest cache. Compiled
 * for vectors: the additions of an element are in the order of the tree, whichever
 * lane it is in. */
#include "strategies/collectives/tree.h"

#include <string.h>

#include "runtime/payload.h"

enum { BLOCK_BYTES = 4096, DEPTH_MAX = 12 };

typedef void (*combine_t)(void *out, const void *left, const void *right, size_t n);

#define COMBINE(name, type, expression) \
    static void name(void *out, const void *left, const void *right, size_t n) \
    { \
        type *o = out; \
        const type *l = left, *r = right; \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) \
        { \
            const type a = l[i], b = r[i]; \
            o[i] = (expression); \
        } \
    }

COMBINE(sum_float, float, a + b)
COMBINE(sum_double, double, a + b)
COMBINE(sum_long, int64_t, (int64_t)((uint64_t)a + (uint64_t)b))
COMBINE(max_float, float, a > b || a != a ? a : b)
COMBINE(max_double, double, a > b || a != a ? a : b)
COMBINE(max_long, int64_t, a > b ? a : b)

typedef struct element_kind {
    size_t bytes;
    combine_t combine[2];                                   /* by pl_reduction_t */
} element_kind_t;

static const element_kind_t kinds[] = {
    [PL_F32] = {sizeof(float), {sum_float, max_float}},
    [PL_F64] = {sizeof(double), {sum_double, max_double}},
    [PL_I64] = {sizeof(int64_t), {sum_long, max_long}},
};

bool pl_tree_can(uint32_t dtype, uint32_t reduction)
{
    return dtype < sizeof kinds / sizeof *kinds && kinds[dtype].bytes
           && reduction <= PL_REDUCE_MAX;
}

int pl_tree_left(int n)
{
    int left = 1;
    while (2 * left < n)
        left *= 2;
    return left;
}

static bool is_one_machine(const int *machine, int count)
{
    for (int k = 1; k < count; k++)
        if (machine[k] != machine[0])
            return false;
    return true;
}

void pl_tree_unit(const int *machine, int ranks, int rank, int *first, int *count)
{
    *first = 0, *count = ranks;
    while (!is_one_machine(machine + *first, *count)) {
        const int left = pl_tree_left(*count);
        if (rank < *first + left)
            *count = left;
        else
            *first += left, *count -= left;
    }
}

typedef struct tree_block {
    const void *const *in;                                  /* [ranks] */
    size_t at, n;                                           /* bytes, elements */
    combine_t combine;
    _Alignas(64) char scratch[DEPTH_MAX][BLOCK_BYTES];
} tree_block_t;

/* Whether the input of the first rank holds the elements of all these ranks. */
static bool is_one(const tree_block_t *b, int first, int count)
{
    for (int k = 1; k < count; k++)
        if (b->in[first + k])
            return false;
    return true;
}

/* The block of ranks first to first + count, reduced: an input or scratch. */
static const void *reduced(tree_block_t *b, int first, int count, int depth)
{
    if (is_one(b, first, count))
        return (const char *)b->in[first] + b->at;
    const int left = pl_tree_left(count);
    const void *l = reduced(b, first, left, depth);
    const void *r = reduced(b, first + left, count - left, depth + 1);
    b->combine(b->scratch[depth], l, r, b->n);
    return b->scratch[depth];
}

void pl_tree_reduce(void *out, const void **in, int ranks, size_t n, uint32_t dtype,
                    uint32_t reduction)
{
    const element_kind_t *kind = &kinds[dtype];
    const size_t max = BLOCK_BYTES / kind->bytes;
    tree_block_t b;
    b.in = in;
    const int left = is_one(&b, 0, ranks) ? ranks : pl_tree_left(ranks);
    b.combine = kind->combine[reduction];
    for (size_t done = 0; done < n; done += b.n) {
        char *to = (char *)out + done * kind->bytes;
        b.at = done * kind->bytes;
        b.n = n - done < max ? n - done : max;
        const void *l = reduced(&b, 0, left, 0);
        if (left < ranks)
            b.combine(to, l, reduced(&b, left, ranks - left, 1), b.n);
        else if (l != to)
            memcpy(to, l, b.n * kind->bytes);
    }
}
