/* random.c - tests of engine/base/random.c */
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

#include "tap.h"

/* Known answers of the authors' Random123 package (kat_vectors, philox4x32 10). */
static void philox_gives_the_published_numbers(void)
{
    uint32_t out[4];
    pl_philox((uint32_t[4]){0}, (uint32_t[2]){0}, out);
    ok(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c
           && out[3] == 0x9b00dbd8,
       "for zeros");
    pl_philox((uint32_t[4]){~0u, ~0u, ~0u, ~0u}, (uint32_t[2]){~0u, ~0u}, out);
    ok(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6
           && out[3] == 0x6d5451fd,
       "for ones");
}

static void a_shuffle_is_a_bijection(void)
{
    static const int64_t sizes[] = {1, 2, 3, 10, 64, 1000, 60000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s], distinct = 0;
        char *seen = calloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t to = pl_permute_index(42, n, i);
            if (to >= 0 && to < n && !seen[to]++)
                distinct++;
        }
        is_int(distinct, n, "every index of %lld once", (long long)n);
        free(seen);
    }
}

static void a_shuffle_depends_on_its_key(void)
{
    int same = 0;
    for (int i = 0; i < 1000; i++)
        same += pl_permute_index(1, 1000, i) == pl_permute_index(2, 1000, i);
    ok(same < 20, "two keys agree in %d of 1000 places", same);
}

static void moments_are_as_they_should_be(void)
{
    double uniform = 0, normal = 0, square = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double z = pl_random_normal(7, i);
        uniform += pl_random_uniform(7, i);
        normal += z;
        square += z * z;
    }
    is_near(uniform / 1e5, 0.5, 0.005, "mean of the uniform");
    is_near(normal / 1e5, 0, 0.015, "mean of the normal");
    is_near(sqrt(square / 1e5), 1, 0.015, "deviation of the normal");
}

int main(void)
{
    run(philox_gives_the_published_numbers);
    run(a_shuffle_is_a_bijection);
    run(a_shuffle_depends_on_its_key);
    run(moments_are_as_they_should_be);
    return tap_done();
}
