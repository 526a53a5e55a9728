#!/usr/bin/env bash
# manual_ranks.t - tests of manual loops with several ranks, each of which has a program (t/manual_rank.c)
. "$(dirname "$0")/tap.sh"

# ranks N SCENARIO [OPTION] - so many programs; what rank K sees is in out.K
ranks() {
    rm -f out.*
    try timeout 120 "$paceline" launch --max-restarts 0 --devices "$1" -- "$builddir/t/manual_rank" runs "${@:2}"
}

# all_say PATTERN SENTENCE - on each of the two ranks
all_say() {
    like "$(text out.0)" "$1" "rank 0: $2"
    like "$(text out.1)" "$1" "rank 1: $2"
}

ranks_train_as_one_does() {
    local strategy
    ranks 1 train
    is "$status" 0 "one rank: $err"
    mv out.0 alone
    is "$(grep -c '^step' alone)" 6 "makes six steps"
    for n in 2 3; do
        ranks $n train
        is "$status" 0 "$n ranks: $err"
        ok "lose what one rank loses with the batches of all" cmp alone out.0
        ok "and see the same, the last rank too" cmp out.0 out.$((n - 1))
    done
    for strategy in zero1 '{"name": "ddp", "collective": "tcp"}'; do
        [ "${strategy:0:1}" = "{" ] || strategy="\"$strategy\""
        ranks 2 train "\"strategy\": $strategy"
        is "$status" 0 "with $strategy: $err"
        ok "so do those" cmp alone out.0
    done
    UNEVEN=1 ranks 2 train
    ok "ranks may have different numbers of samples" cmp alone out.1
}

programs_take_steps_by_themselves() {
    local strategy
    ranks 1 train
    mv out.0 alone
    for n in 1 2 3; do
        ranks $n hand
        is "$status" 0 "$n ranks compute gradients, look at them and step: $err"
        ok "and see what automatic steps give" cmp alone out.$((n - 1))
    done
    ranks 2 halves
    is "$status" 0 "gradients of two batches a step: $err"
    ok "are those of one" cmp alone out.1
    ranks 2 hand '"strategy": "zero1"'
    is "$status" 0 "zero1: $err"
    ok "does the same" cmp alone out.1
    ranks 2 objectives
    is "$status" 0 "two objectives, automatically: $err"
    is "$(grep -c ' fails' out.0)" 0 "without an error"
    mv out.0 alone
    BY_HAND=1 ranks 2 objectives
    is "$status" 0 "and by hand: $err"
    is "$(grep -c '^step 6: loss [0-9.]* norm [0-9.]*$' out.0)" 2 "each with loss and norm: $(text out.0)"
    is "$(tail -n 1 out.0)" "$(tail -n 1 alone)" "give the same bits"
    ranks 2 stepless
    is "$status" 0 "a step without gradients is refused, and no more: $err"
    all_say 'step fails: the objective has no gradients' "a reason"
    all_say '^step 1: loss' "the next call is made"
}

callbacks_act_on_all_ranks() {
    ranks 2 save
    mv out.0 alone
    rm -rf runs
    CALLBACKS='"lr_monitor", {"name": "model_checkpoint", "every_n_train_steps": 4}' ranks 2 save
    is "$status" 0 "with callbacks: $err"
    ok "ranks see the same as without" cmp alone out.1
    ok "rank 0 has saved after the fourth step" test -e runs/0001/checkpoints/epoch=0-step=4/manifest.json
}

ranks_that_step_alone_close_with_the_same_weights() {
    ranks 2 train '"strategy": {"name": "local_sgd", "sync_every": 4}'
    is "$status" 0 "local_sgd: $err"
    is "$(tail -n 1 out.0)" "$(tail -n 1 out.1)" "both have the weights of all"
    all_say '^closed after 6: 4 tensors' "all steps are made"
}

micro_shards_give_the_same_bits_with_any_number_of_ranks() {
    local elastic='"strategy": {"name": "elastic", "micro_shards": 6}'
    ranks 1 train
    mv out.0 whole
    ranks 1 train "$elastic"
    is "$status" 0 "one rank of micro-shards: $err"
    is "$(sed '$d' out.0)" "$(sed '$d' whole)" "loses what it loses with whole batches"
    mv out.0 alone
    for n in 2 3 4; do
        ranks $n train "$elastic"
        is "$status" 0 "$n ranks: $err"
        ok "the same bits" cmp alone out.$((n - 1))
    done
    ranks 2 save "$elastic"
    is "$(sed /saved/d out.1)" "$(cat alone)" "a save between changes nothing: $err"
    ranks 2 alone "$elastic"
    is "$status" 0 "they predict: $err"
    like "$(text out.0)" '^predicted: 1 outputs of 5 rows' "in pieces, each rank its own samples"
    MORE=1 ranks 1 train "$elastic"
    like "$(text out.0)" 'train fails: the batch has 13 samples .*give 1 to 12 samples \("data.batch_size" in each piece' \
        "more than all micro-shards take"
    MORE=1 ranks 4 train "$elastic"
    like "$(text out.0)" 'train fails: the batch has 3 samples .*give 0 to 2 samples' "more than those of a rank take"
    SHORT=1 ranks 1 train "$elastic"
    mv out.0 alone
    SHORT=1 ranks 3 train "$elastic"
    is "$status" 0 "ranks without samples of a last batch: $err"
    ok "the same bits" cmp alone out.2
    ranks 2 hand "$elastic"
    like "$(text out.1)" 'keeps none for a step that the program takes itself: call pl_loop_train' "no step of its own"
}

numbers_are_exchanged() {
    ranks 3 exchange
    is "$status" 0 "three ranks: $err"
    ok "all have the same" cmp out.0 out.2
    is "$(text out.1)" "gathered: 1 -0 -3 2 nan 7 3 nan 17
sum: 6 nan 21
mean: 1.5 -1 -1
max: 3 nan 17
min: 0.5 -1 -2
sum of int64: -18
max of int64: 9.2233720368547758e+18 -5
sum of int32: 21 -6
min of uint8: 200 3
mean of int32 fails: whole numbers have no mean: add them and divide, or send them as float64
broadcast: 2.5 -1 -2
broadcast fails: there is no rank 3: ranks are 0 to 2
barrier:
closed after 0: 4 tensors, $(sed -n 's/^closed.*, //p' out.1)" "each kind of exchange"
    ranks 1 exchange
    like "$(text out.0)" '^gathered: 1 -0 -3$' "one rank exchanges with itself"
    like "$(text out.0)" '^mean: 0\.5 -1 0$' "and is its own mean: $(text out.0)"
}

a_prediction_waits_for_no_other_rank() {
    ranks 2 alone
    is "$status" 0 "one rank predicts before the first step, and both after the last: $err"
    like "$(text out.0)" '^predicted: 1 outputs of 5 rows' "rank 0 alone"
    like "$(text out.1)" '^predicted: 1 outputs of 3 rows' "rank 1 has its own rows"
}

a_step_that_is_not_finite_fails_on_all_ranks_and_alone() {
    ranks 2 bad
    is "$status" 0 "the programs continue: $err"
    all_say '^train fails: step 2: rank 1: the loss is not finite' "the error names the rank whose batch was bad"
    all_say '^step 2: loss' "the next batch is step 2"
    ok "both are equal after that" cmp out.0 out.1
}

programs_that_differ_get_an_error_that_names_it() {
    local same='the programs of all ranks must make the same calls in the same order'
    local differ='the ranks do different operations, but all must make the same calls in the same order: rank'
    ranks 2 apart
    is "$status" 3 "one reduces, the other waits at a barrier"
    all_say "rank 0 calls all_reduce \(sum\) of 1 float64, and rank 1 barrier of 0 uint8: $same" "both calls are named"
    ranks 2 order
    is "$status" 3 "one trains, the other evaluates"
    all_say "^close fails: .*$differ" "the end says why"
    ranks 2 less
    is "$status" 3 "one closes the loop before the other"
    like "$(text out.0)" "^train fails: .*$differ" "the batch of the other fails: $(text out.0)"
    ranks 2 fields
    is "$status" 3 "their batches have other fields"
    like "$(text out.1)" 'batches is "x float32 \[4\], y int64 \[\]", but rank 0 has "x float32 \[5\]' "both forms are named"
}

a_rank_that_dies_ends_the_loop_of_the_others() {
    ranks 2 dies
    is "$status" 137 "launch has its status"
    like "$(text out.0)" '^train fails: .*rank 1 .*is gone' "the batch under way fails: $(text out.0)"
    like "$(text out.0)" '^close fails: rank 1 .*its process has died' "and so does the loop"
}

a_save_is_made_by_all_and_written_by_one() {
    ranks 2 save
    is "$status" 0 "a loop with a save: $err"
    all_say '^saved after 3' "it is saved"
    local at=runs/$(cat runs/latest)
    ok "the final weights are there" test -e "$at/model.safetensors"
    mv out.0 whole
    ranks 2 resume "$at/checkpoints/middle"
    is "$status" 0 "a loop continues from it: $err"
    like "$(text out.1)" '^step 4: loss' "behind the step of the save"
    ranks 2 save '"strategy": "zero1"'
    is "$status" 0 "ranks that share the optimizer's state: $err"
    is "$(sed -n 1,4p out.0)" "$(sed -n 1,4p whole)" "train the same"
    ranks 1 resume "runs/$(cat runs/latest)/checkpoints/middle"
    is "$status" 0 "one rank continues from theirs: $err"
    like "$(text out.0)" '^step 4: loss' "with all of it: $(text out.0)"
}

ranks_without_a_program_are_refused() {
    try "$paceline" launch --devices 1 -- "$builddir/t/manual_rank" runs train '"devices": 2, "launcher": "inline"'
    like "$(text out.0)" 'the program of a manual loop sends the batches of one: set "trainer.devices" to 1, or start a program' \
        "threads"
    try "$paceline" launch --devices 1 -- "$builddir/t/manual_rank" runs train '"devices": 2, "launcher": "spawn"'
    like "$(text out.0)" 'launcher "spawn" runs ranks in other processes, which cannot receive' "processes without a program"
}

run ranks_train_as_one_does trains
run ranks_that_step_alone_close_with_the_same_weights trains
run micro_shards_give_the_same_bits_with_any_number_of_ranks trains
run programs_take_steps_by_themselves trains
run callbacks_act_on_all_ranks trains
run numbers_are_exchanged trains
run a_prediction_waits_for_no_other_rank trains
run a_step_that_is_not_finite_fails_on_all_ranks_and_alone trains
run programs_that_differ_get_an_error_that_names_it trains
run a_rank_that_dies_ends_the_loop_of_the_others trains
run a_save_is_made_by_all_and_written_by_one trains
run ranks_without_a_program_are_refused trains
done_testing
