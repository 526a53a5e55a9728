/* vote.c - tests of examples/vote.c, a strategy built upon ddp: its sums are
 * its own, the rest is ddp's */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

const pl_registration_t *vote_plugin(void);

#define LR 0.0625                                           /* exact in binary */
#define SGD "{\"name\": \"sgd\", \"lr\": 0.0625}"
#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1, "
#define VOTES(quorum) "\"strategy\": {\"name\": \"vote\", \"quorum\": " quorum "}"

#define fit(...) rig_train(&(rig_spec_t){__VA_ARGS__})

/* What a run with a rate of 0 ends with. */
static rig_result_t *untrained(void)
{
    return fit(.optimizer = "{\"name\": \"sgd\", \"lr\": 0}",
               .trainer = QUIET "\"max_steps\": 1");
}

typedef struct moves {
    int none, odd;                                   /* not moved; by something else */
    int against, held;                               /* not as in another run; not at all,
                                                        but there */
    int count;
} moves_t;

/* From where each weight began; `other` moves along the plain gradient  [no other]. */
static moves_t moves_of(const rig_result_t *from, const rig_result_t *to,
                        const rig_result_t *other)
{
    moves_t m = {0};
    for (int k = 0; k < from->weight_count && k < to->weight_count; k++)
        for (size_t i = 0; i < from->weight[k].count; i++) {
            const double begun = from->weight[k].data[i],
                         by = to->weight[k].data[i] - begun,
                         its = other ? other->weight[k].data[i] - begun : 0;
            m.count++;
            m.none += by == 0;
            m.odd += by != 0 && fabs(fabs(by) - LR) > 1e-6;
            m.against += by != 0 && other && (by > 0) != (its > 0);
            m.held += by == 0 && its != 0;
        }
    return m;
}

static void a_rank_by_itself_goes_where_its_gradient_points(void)
{
    rig_result_t *begun = untrained(),
                 *one = fit(.optimizer = SGD, .data = "\"batch_size\": 40",
                            .trainer = QUIET "\"max_steps\": 1, " VOTES("0")),
                 *plain = fit(.optimizer = SGD, .data = "\"batch_size\": 40",
                              .trainer = QUIET "\"max_steps\": 1");
    const moves_t m = moves_of(begun, one, plain);
    ok(m.count > 60, "of all weights");
    is_int(m.odd, 0, "each moves by the rate");
    is_int(m.against + m.held, 0, "down its gradient");
    rig_result_free(begun);
    rig_result_free(one);
    rig_result_free(plain);
}

static void two_ranks_vote(void)
{
    rig_result_t *begun = untrained(),
                 *two = fit(.optimizer = SGD, .data = "\"batch_size\": 20",
                            .trainer = QUIET
                            "\"devices\": 2, \"max_steps\": 1, " VOTES("0")),
                 *sum = fit(.optimizer = SGD, .data = "\"batch_size\": 20",
                            .trainer = QUIET "\"devices\": 2, \"max_steps\": 1");
    const moves_t m = moves_of(begun, two, sum);
    is_int(m.odd, 0, "each weight moves by the rate or not at all");
    ok(m.held > 0, "not where they disagree (%d of %d)", m.held, m.count);
    is_int(m.against, 0, "else as their sum points");
    rig_result_free(begun);
    rig_result_free(two);
    rig_result_free(sum);
}

static void a_quorum_lets_fewer_move(void)
{
    rig_result_t *begun = untrained(),
                 *any = fit(.optimizer = SGD, .data = "\"batch_size\": 13",
                            .trainer = QUIET
                            "\"devices\": 3, \"max_steps\": 1, " VOTES("0")),
                 *all = fit(.optimizer = SGD, .data = "\"batch_size\": 13",
                            .trainer = QUIET
                            "\"devices\": 3, \"max_steps\": 1, " VOTES("0.5"));
    const moves_t max = moves_of(begun, any, NULL), agreed = moves_of(begun, all, any);
    ok(agreed.none > max.none, "3 to 0 is rarer than 2 to 1 (%d and %d stay)",
       agreed.none, max.none);
    is_int(agreed.against, 0, "ranks that move move the same way");
    rig_result_free(begun);
    rig_result_free(any);
    rig_result_free(all);
}

static void ranks_learn_and_two_runs_are_equal(void)
{
    rig_result_t *run[2];
    for (int k = 0; k < 2; k++)
        run[k] = fit(.optimizer = "{\"name\": \"sgd\", \"lr\": 0.01}",
                     .data = "\"batch_size\": 4",
                     .trainer = QUIET "\"devices\": 2, \"max_epochs\": 12, " VOTES("0"));
    const rig_series_t loss = rig_series(run[0], "train_loss");
    ok(loss.count > 20 && loss.value[loss.count - 1] < 0.7 * loss.value[0],
       "the loss falls (%g)", loss.count ? loss.value[loss.count - 1] : NAN);
    ok(rig_same_bits(run[0], run[1]), "and twice the same bits");
    rig_result_free(run[0]);
    rig_result_free(run[1]);
}

static void a_gradient_that_is_not_finite_has_no_vote(void)
{
    for (int record = 5; record <= 6; record++) {
        rig_t *rig = rig_new(.nan = record, .optimizer = SGD, .data = "\"batch_size\": 4",
                             .trainer = QUIET "\"devices\": 2, " VOTES("0"));
        const rig_result_t *result = rig_fit(rig);
        is_int(result->error.code, PL_ENAN, "the step fails");
        like(result->error.text, "rank [01]: the loss is not finite", "and says whose");
        rig_free(&rig);
    }
}

static void a_quorum_out_of_range_is_refused(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .optimizer = SGD,
                         .trainer = QUIET
                         "\"devices\": 2, \"precision\": \"64-true\", " VOTES("0"));
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_EUNSUPPORTED, "float64");
    like(result->error.text, "float32", "by name: %s", result->error.text);
    rig_free(&rig);
}

int main(void)
{
    rig_init(vote_plugin());
    run(a_rank_by_itself_goes_where_its_gradient_points);
    run(two_ranks_vote);
    run(a_quorum_lets_fewer_move);
    run(ranks_learn_and_two_runs_are_equal);
    run(a_gradient_that_is_not_finite_has_no_vote);
    run(a_quorum_out_of_range_is_refused);
    return tap_done();
}
