/* tree.c - tests of strategies/collectives/tree.c, the order in which ranks' elements are
 * added, and of the chunks of ranks */
#include <math.h>
#include <string.h>

#include "collective_rig.h"
#include "strategies/collectives/tree.h"
#include "tap.h"

static void the_tree_equals_its_definition(void)
{
    enum { N = 3000 };
    static float in[MEMBERS_MAX][N], out[N];
    const void *inputs[MEMBERS_MAX];
    int wrong = 0;
    for (int rank = 0; rank < MEMBERS_MAX; rank++) {
        inputs[rank] = in[rank];
        for (int k = 0; k < N; k++)
            in[rank][k] = element_of(rank, (uint64_t)k);
    }
    for (int ranks = 1; ranks <= MEMBERS_MAX; ranks++) {
        pl_tree_reduce(out, inputs, ranks, N, PL_F32, PL_REDUCE_SUM);
        for (int k = 0; k < N; k++) {
            float value[MEMBERS_MAX];
            for (int rank = 0; rank < ranks; rank++)
                value[rank] = in[rank][k];
            const float want = tree_sum(value, ranks);
            wrong += memcmp(&want, &out[k], sizeof want) != 0;
        }
    }
    is_int(wrong, 0, "each element is the sum that the definition gives, 1 to %d ranks",
           MEMBERS_MAX);
    pl_tree_reduce(in[2], inputs, 3, N, PL_F32, PL_REDUCE_SUM);
    pl_tree_reduce(out, (const void *[]){in[2]}, 1, N, PL_F32, PL_REDUCE_SUM);
    ok(!memcmp(out, in[2], sizeof out), "the sum may replace one of the inputs");
}

static void ranks_of_a_machine_that_are_a_subtree_are_a_unit(void)
{
    static const struct {
        const char *machine;
        int first[6], count[6];
    } cases[] = {{"aabb", {0, 0, 2, 2}, {2, 2, 2, 2}},
                 {"aaab", {0, 0, 2, 3}, {2, 2, 1, 1}},
                 {"abcc", {0, 1, 2, 2}, {1, 1, 2, 2}},
                 {"abba", {0, 1, 2, 3}, {1, 1, 1, 1}},
                 {"aaabbb", {0, 0, 2, 3, 4, 4}, {2, 2, 1, 1, 2, 2}}};
    int wrong = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int machine[6], first, count, ranks = (int)strlen(cases[k].machine);
        for (int rank = 0; rank < ranks; rank++)
            machine[rank] = cases[k].machine[rank];
        for (int rank = 0; rank < ranks; rank++) {
            pl_tree_unit(machine, ranks, rank, &first, &count);
            wrong += first != cases[k].first[rank] || count != cases[k].count[rank];
        }
    }
    is_int(wrong, 0, "the largest, and no more than that");
}

/* As in cases "aaab": the first two ranks' sum, then the others one by one. */
static void a_subtree_that_is_added_up_before_changes_no_bit(void)
{
    enum { N = 3000 };
    static float in[4][N], part[N], whole[N], out[N];
    const void *inputs[] = {in[0], in[1], in[2], in[3]};
    for (int rank = 0; rank < 4; rank++)
        for (int k = 0; k < N; k++)
            in[rank][k] = element_of(rank, (uint64_t)k);
    pl_tree_reduce(whole, inputs, 4, N, PL_F32, PL_REDUCE_SUM);
    pl_tree_reduce(part, inputs, 2, N, PL_F32, PL_REDUCE_SUM);
    pl_tree_reduce(out, (const void *[]){part, NULL, in[2], in[3]}, 4, N, PL_F32,
                   PL_REDUCE_SUM);
    ok(!memcmp(out, whole, sizeof out), "the left subtree's");
    pl_tree_reduce(part, inputs + 2, 2, N, PL_F32, PL_REDUCE_SUM);
    pl_tree_reduce(out, (const void *[]){in[0], in[1], part, NULL}, 4, N, PL_F32,
                   PL_REDUCE_SUM);
    ok(!memcmp(out, whole, sizeof out), "the right subtree's");
    pl_tree_reduce(out, (const void *[]){whole, NULL, NULL, NULL}, 4, N, PL_F32,
                   PL_REDUCE_SUM);
    ok(!memcmp(out, whole, sizeof out), "all of them");
}

static void a_maximum_with_a_nan_is_a_nan(void)
{
    float in[3][2] = {{1, NAN}, {NAN, 2}, {3, 3}}, out[2];
    const void *inputs[] = {in[0], in[1], in[2]};
    pl_tree_reduce(out, inputs, 3, 2, PL_F32, PL_REDUCE_MAX);
    ok(isnan(out[0]) && isnan(out[1]), "wherever it stands");
    pl_tree_reduce(out, inputs + 2, 1, 2, PL_F32, PL_REDUCE_MAX);
    ok(out[0] == 3 && out[1] == 3, "others are as they are");
}

static void chunks_cover_all_and_do_not_overlap(void)
{
    int wrong = 0;
    for (int size = 1; size <= 9; size++)
        for (uint64_t count = 0; count < 700; count += 1 + count / 9) {
            uint64_t at = 0, first, length;
            for (int rank = 0; rank < size; rank++) {
                pl_chunk_by(count, PL_CHUNK_STEP, size, rank, &first, &length);
                wrong += first != at || (first % 16 && length);
                at += length;
            }
            wrong += at != count;
        }
    is_int(wrong, 0, "in the order of ranks, on cache lines");
}

int main(void)
{
    run(the_tree_equals_its_definition);
    run(ranks_of_a_machine_that_are_a_subtree_are_a_unit);
    run(a_subtree_that_is_added_up_before_changes_no_bit);
    run(a_maximum_with_a_nan_is_a_nan);
    run(chunks_cover_all_and_do_not_overlap);
    return tap_done();
}
