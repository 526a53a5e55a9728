#!/usr/bin/env bash
# nccl.t - tests of runs on several cards, whose ranks are processes and move gradients by NCCL; over replacements of
# NVIDIA's libraries
. "$(dirname "$0")/tap.sh"

points '"max_epochs": 2, "launcher": "spawn"' '{"name": "model_checkpoint", "every_n_train_steps": 4}'
sed -i 's/"accelerator": {[^}]*}/"accelerator": "cuda"/' run.json
stand_in=$builddir/t/stand_in/.libs
export XDG_CACHE_HOME=$folder/cache STAND_IN_FOLDER=$folder top_srcdir=$srcdir
unset CUDA_VISIBLE_DEVICES CUDA_HOME CUDA_PATH NCCL_HOSTID

# fit NAME FAULTS WORDS... - a run of that name on a machine with four cards and these faults
fit() {
    local name=$1 faults=$2
    shift 2
    try timeout 300 env STAND_IN="devices=4 $faults" PACELINE_CUDA_PATH="$stand_in" LD_LIBRARY_PATH="$stand_in" \
        "$paceline" fit run.json --set trainer.run_name="$name" "$@"
}

# by STRATEGY COLLECTIVE [MEMBERS] - as many samples in a step with each
by() {
    local members=$3
    [ "$1" != elastic ] || echo "--set data.batch_size=5"
    [ "$1" != elastic ] || members=',"micro_shards":4'
    echo "--set trainer.strategy={\"name\":\"$1\",\"collective\":$2$members}"
}

sums_on_the_cards_have_the_bits_of_sums_on_the_host() {
    local strategy ranks
    for strategy in ddp zero1 elastic local_sgd; do
        for ranks in 2 4; do
            fit "$strategy$ranks-cards" '' $(by $strategy '"auto"') --set trainer.devices=$ranks
            is "$status" 0 "$strategy, $ranks ranks: a run trains by NCCL"
            fit "$strategy$ranks-host" '' $(by $strategy '"best"') --set trainer.devices=$ranks
            is "$status" 0 "and through the host"
            ok "to the same bits" cmp "runs/$strategy$ranks-cards/model.safetensors" \
                "runs/$strategy$ranks-host/model.safetensors"
        done
    done
}

chunks_of_buckets_have_the_same_bits() {
    local ranks buckets=',"bucket_mb":0.0001'
    for ranks in 2 4; do
        fit "chunks$ranks" '' $(by zero1 '"auto"' $buckets) --set trainer.devices=$ranks
        is "$status" 0 "zero1 by buckets, $ranks ranks: a run trains by NCCL"
        ok "to the same bits" cmp "runs/chunks$ranks/model.safetensors" "runs/zero1$ranks-host/model.safetensors"
    done
    rm -f once
    STAND_IN_ONCE=$folder/once fit chunks-killed "nccl_kill_run=19 nccl_rank=1" $(by zero1 '"auto"' $buckets) \
        --set trainer.devices=2
    is "$status" 0 "a rank that is killed is started again"
    ok "to the same bits" cmp "$(ls -d runs/chunks-killed*/model.safetensors | tail -n 1)" \
        runs/zero12-host/model.safetensors
    fit chunks-half '' $(by zero1 '"auto"' $buckets) --set trainer.devices=2 --set trainer.max_epochs=1
    fit chunks-half-host '' $(by zero1 '"best"') --set trainer.devices=2 --resume runs/chunks-half
    is "$status" 0 "a checkpoint of chunks is resumed through the host"
    ok "to the same bits" cmp "$(newest runs)/model.safetensors" runs/zero12-host/model.safetensors
    for ranks in 2 3; do
        local clip="--set trainer.devices=$ranks --set trainer.gradient_clip_val=0.05"
        fit "clipped$ranks" '' $(by zero1 '"auto"' $buckets) $clip
        is "$status" 0 "zero1 by buckets, $ranks ranks, clipped: a run trains by NCCL"
        fit "clipped$ranks-ddp" '' $(by ddp '"auto"') $clip
        ok "to the bits of ddp" cmp "runs/clipped$ranks/model.safetensors" "runs/clipped$ranks-ddp/model.safetensors"
        fit "clipped$ranks-host" '' $(by zero1 '"best"') $clip
        ok "and of the way through the host" cmp "runs/clipped$ranks/model.safetensors" \
            "runs/clipped$ranks-host/model.safetensors"
    done
    ok "which clipping changes" test -n "$(cmp runs/clipped2/model.safetensors runs/zero12-host/model.safetensors)"
    fit chunks-library '' $(by zero1 '{"name":"nccl","order":"library"}' $buckets) --set trainer.devices=4
    is "$status" 0 "and in NCCL's order"
}

the_librarys_order_has_bits_of_its_own() {
    fit library '' $(by ddp '{"name":"nccl","order":"library"}') --set trainer.devices=4
    is "$status" 0 "a run trains in NCCL's order"
    ok "to other bits" test -n "$(cmp runs/library/model.safetensors runs/ddp4-host/model.safetensors)"
}

# A collective of the host whose sums have an order of their own is made of another one.
checkpoints_name_what_determines_the_order_of_sums() {
    local cc
    read -ra cc <<<"${CC:-cc}"                            # "ccache gcc"
    mkdir plugins
    cat >manual.c <<'END'
#include "strategies/collectives/collective.h"

static bool own_order(const void *self)
{
    (void)self;
    return true;
}

const pl_registration_t *paceline_plugin(void)
{
    static pl_collective_ops_t own;
    static const pl_registration_t table[] = {{"collective", &own}, PL_REGISTRATIONS_END};
    own = *(const pl_collective_ops_t *)pl_component_find("collective", "shm", NULL);
    own.name = "own";
    own.own_order = own_order;
    return table;
}
END
    try "${cc[@]}" -shared -fPIC -Wall -Wextra -Werror -I"$srcdir/engine" -I"$srcdir" manual.c -o plugins/own.so
    is "$status$err" 0 "a collective is built"
    PACELINE_PLUGIN_PATH=$PWD/plugins fit own '' $(by ddp '{"name":"nccl","host":"own"}') --set trainer.devices=2
    is "$status" 0 "nccl uses it for memory of the host"
    like "$(grep -rhoE '"order": ?"[a-z]+"' runs/own/checkpoints | sort -u)" '^"order": ?"nccl"$' \
        "checkpoints do not name the order of the tree"
    like "$(grep -rhoE '"order": ?"[a-z]+"' runs/library/checkpoints | sort -u)" '^"order": ?"nccl"$' \
        "nor do those of NCCL's order"
    is "$(grep -rhoE '"order": ?"[a-z]+"' runs/ddp2-cards/checkpoints)" "" "the others do"
    ok "which are there" test -n "$(grep -rl '"plans"' runs/ddp2-cards/checkpoints)"
}

elastic_runs_have_the_same_bits_on_any_number_of_cards() {
    local ranks
    for ranks in 1 2 4; do
        fit "elastic$ranks" '' $(by elastic '"auto"') --set trainer.deterministic=elastic --set trainer.devices=$ranks
        is "$status" 0 "$ranks ranks"
    done
    ok "the bits of two are those of one" cmp runs/elastic1/model.safetensors runs/elastic2/model.safetensors
    ok "those of four, too" cmp runs/elastic1/model.safetensors runs/elastic4/model.safetensors
    ok "and those of two that move parts through the host" cmp runs/elastic1/model.safetensors \
        runs/elastic2-host/model.safetensors
    fit elastic-library '' $(by elastic '{"name":"nccl","order":"library"}') --set trainer.devices=4
    ok "NCCL's order changes none, because it only moves bytes" cmp runs/elastic1/model.safetensors \
        runs/elastic-library/model.safetensors
}

kernels_of_sums_are_kept() {
    local strategy
    for strategy in ddp zero1 elastic local_sgd; do
        XDG_CACHE_HOME=$folder/ahead fit "$strategy-first" '' $(by $strategy '"auto"') --set trainer.devices=2
        is "$status" 0 "$strategy: the first run compiles"
        XDG_CACHE_HOME=$folder/ahead STAND_IN_NVRTC=fails fit "$strategy-second" '' $(by $strategy '"auto"') \
            --set trainer.devices=2
        is "$status" 0 "the second compiles nothing"
        rm -r ahead
        try env XDG_CACHE_HOME="$folder/ahead" STAND_IN= PACELINE_CUDA_PATH="$stand_in" "$paceline" compile run.json \
            --card sm_90 $(by $strategy '"auto"') --set trainer.devices=2
        is "$status" 0 "compile needs no card"
        XDG_CACHE_HOME=$folder/ahead STAND_IN_NVRTC=fails fit "$strategy-ahead" '' $(by $strategy '"auto"') \
            --set trainer.devices=2
        is "$status" 0 "a run finds what it has compiled"
        rm -r ahead
    done
}

a_failure_of_nccl_ends_the_run() {
    local k
    for k in 1 4 11; do
        fit "call$k" "nccl_call=$k:1 nccl_rank=1" $(by ddp '"auto"') --set trainer.devices=2 \
            --set trainer.launcher.max_restarts=0
        is "$status" 1 "call $k fails: so does the run"
        like "$err" 'NCCL 2\.28\.9 on cuda:1: .* failed: unhandled cuda error \(1\)' "with what NCCL says"
    done
}

a_rank_that_is_killed_is_started_again() {
    local strategy point
    for strategy in ddp zero1 elastic local_sgd; do
        for point in nccl_kill=2 nccl_kill_run=7 nccl_kill_run=19; do
            rm -f once
            STAND_IN_ONCE=$folder/once fit "$strategy-$point" "$point nccl_rank=1" $(by $strategy '"auto"') \
                --set trainer.devices=2
            is "$status" 0 "$strategy, $point: the run ends well"
            like "$err" 'process of rank 1 .* was killed by SIGKILL' "the rank is named"
            ok "the same bits" cmp "$(ls -d runs/"$strategy-$point"*/model.safetensors | tail -n 1)" \
                "runs/${strategy}2-host/model.safetensors"
        done
    done
}

two_ranks_on_one_card_are_refused_at_the_start() {
    local collective
    for collective in '"best"' '"tcp"'; do
        fit shared 'one_card' $(by ddp "$collective") --set trainer.devices=2
        is "$status" 2 "with the collective $collective"
        like "$err" '^paceline: launcher.spawn: rank 0 and rank 1 use the same card: each rank needs one of its own' "by a sentence"
        is "$(grep -c 'started again\|^epoch' <<<"$err")" 0 "before anything else"
    done
    NCCL_HOSTID=test fit shared 'one_card' $(by ddp '"best"') --set trainer.devices=2
    is "$status" 0 "unless they call themselves different machines"
}

the_script_for_a_card_runs_here() {
    try env OUT="$folder/proof" PROVE_WITHOUT_CARD=1 STAND_IN=devices=1 LD_LIBRARY_PATH="$stand_in" \
        PACELINE_CUDA_PATH="$stand_in" timeout 300 "$srcdir/t/gpu/prove" nccl "$builddir"
    is "$status" 0 "two ranks share a card, as two machines: $err"
    like "$(cat proof/results.jsonl)" '"stage": "nccl", "same_bits": true' "to the bits of the way through the host"
}

run sums_on_the_cards_have_the_bits_of_sums_on_the_host trains
run chunks_of_buckets_have_the_same_bits trains
run the_librarys_order_has_bits_of_its_own trains
run checkpoints_name_what_determines_the_order_of_sums trains
run elastic_runs_have_the_same_bits_on_any_number_of_cards trains
run kernels_of_sums_are_kept trains
run a_failure_of_nccl_ends_the_run trains
run a_rank_that_is_killed_is_started_again trains
run two_ranks_on_one_card_are_refused_at_the_start trains
run the_script_for_a_card_runs_here trains
is "$(ls "$folder" | grep -c stand-in-nccl)" 0 "nothing is left behind"
done_testing
