#!/usr/bin/env bash
# script.t - tests of the launcher script, and of one program under each of the launchers
. "$(dirname "$0")/tap.sh"

anywhere=$builddir/examples/anywhere
points '"max_epochs": 3, "devices": 2, "strategy": "ddp"' \
    '{"name": "model_checkpoint", "monitor": "val_loss"}' '"dropout": 0.2'
script="--set trainer.launcher=script"
always=$script

# ---- helpers ----

# each HOW: the program t/each, which does not know the modules of the build tree as paceline does
each() {
    PACELINE_PLUGIN_PATH=$builddir/examples/.libs timeout 300 "$builddir/t/each" "$@"
}

# ---- one program, four launchers ----

a_program_is_run_by_each_launcher() {
    local launcher
    for n in 2 3; do
        for launcher in inline spawn script; do
            try timeout 300 "$anywhere" trainer.launcher=$launcher trainer.devices=$n trainer.run_name=$launcher-$n
            is "$status" 0 "$launcher, $n ranks"
            is "$(grep -c '^trained' <<<"$out") $(grep -c '^measured' <<<"$out")" "1 1" "one speaks for all"
            [ $launcher = inline ] && measured=$(grep '^measured' <<<"$out")
            is "$(grep '^measured' <<<"$out")" "$measured" "metrics as of threads"
            ok "weights as of threads" cmp runs/inline-$n/model.safetensors runs/$launcher-$n/model.safetensors
        done
        try timeout 300 "$paceline" launch --devices $n -- "$anywhere" trainer.devices=$n trainer.run_name=external-$n
        is "$status" 0 "external, $n ranks"
        is "$(grep '^measured' <<<"$out")" "$measured" "metrics as of threads"
        ok "weights as of threads" cmp runs/inline-$n/model.safetensors runs/external-$n/model.safetensors
    done
}

# ---- script ----

the_command_runs_again_for_each_rank() {
    try "$paceline" fit run.json --set trainer.run_name=near
    try "$paceline" fit run.json --set trainer.run_name=far $script
    is "$status" 0 "status 0"
    is "$(grep -c '^done' <<<"$out")" 1 "the result is printed once"
    ok "the same weights" cmp runs/near/model.safetensors runs/far/model.safetensors
    is "$(ls runs/near/checkpoints)" "$(ls runs/far/checkpoints)" "the same checkpoints"
    is "$(ls -d runs/far*)" runs/far "one folder"
}

the_second_run_of_a_program_meets_its_ranks_second() {
    for launcher in inline script; do
        try timeout 300 "$paceline" fit run.json --set trainer.launcher=$launcher --set optimizer.lr=1e-2,1e-3 \
            --set trainer.run_name=swept-$launcher
        is "$status" 0 "$launcher: two runs, one after the other"
    done
    ok "the first as of threads" cmp runs/swept-inline-1/model.safetensors runs/swept-script-1/model.safetensors
    ok "and the second" cmp runs/swept-inline-2/model.safetensors runs/swept-script-2/model.safetensors
}

each_process_has_the_programs_own_data() {
    try each same
    is "$status" 0 "arrays in memory are trained on: $err"
    is "$(sort <<<"$out")" "0 ok 10
1 ok 10
2 ok 10" "and every process has the result"
}

a_rank_that_dies_leaves_no_trace() {
    try each same
    cp "$(newest each)/model.safetensors" without
    try each die
    is "$status" 0 "a program whose rank is killed ends well: $err"
    ok "it was" test -e died
    is "$(sort <<<"$out")" "0 ok 10
1 ok 10
2 ok 10" "all that are there at the end have the result"
    ok "the weights are those of a run that nothing happened to" cmp without "$(newest each)/model.safetensors"
}

# The program has as many runs as its processes, so that the results of those before can be read when one is started again.
a_run_that_cannot_listen_does_not_count() {
    rm -rf died
    mkdir -p blocked
    TMPDIR=$PWD/blocked try each blocked
    is "$status" 0 "the next one works, though a rank is killed in it: $err"
    is "$(grep '^0' <<<"$out")" "0 ok 10
0 failed 0
0 ok 10" "the second of three has failed"
    like "$err" 'calls' "because it could not listen"
    ok "a rank was killed" test -e died
}

a_rank_that_is_gone_is_missed_in_the_next_run() {
    try each leave
    is "$status" 1 "status 1"
    like "$err" 'exited with status 0 before .*(this run|it joined)' "the error names the rank and its end: $err"
    like "$out" '^0 ok 10$' "the first run was a good one"
}

a_rank_that_leaves_before_the_first_run_is_missed_at_once() {
    try each early
    is "$status" 1 "status 1"
    like "$err" 'rank 1 .*exited with status 0 before it joined' "the error names the rank and its end: $err"
}

programs_that_differ_are_an_error() {
    try each differ
    is "$status" 1 "status 1"
    like "$err" 'the options of this run differ between the program and the process of rank' "it says so: $err"
    try each stage
    like "$err" 'calls "validate", but the program calls "train"' "also when another thing is done"
    try each metric
    is "$status" 1 "status 1"
    like "$err" 'metric 2 of a step is "[a-z_]*recall" on rank 1 and "[a-z_]*acc" on rank 0' "or another metric logged"
}

the_launcher_is_refused_where_it_cannot_work() {
    local launcher
    for launcher in inline spawn script; do
        PACELINE_RANK=0 PACELINE_WORLD_SIZE=2 PACELINE_ENDPOINT=ipc://nowhere try timeout 300 "$paceline" fit run.json \
            --set trainer.launcher=$launcher
        is "$status" 2 "where another launcher has started ranks"
        like "$err" "Paceline has started 2 ranks, and launcher .*\"$launcher\" would start more" "it says so"
    done
    try timeout 300 "$paceline" fit run.json $script --set trainer.devices=2,3
    is "$status" 2 "another number of ranks than the first time"
    like "$err" 'had 2 ranks, but this run requests 3' "it says so, too"
}

signals_to_the_command_stop_all() {
    start_endless_fit stopped
    local ranks="$(rank 0) $(rank 1)"
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "status 0"
    like "$last" '"event":"result","status":"stopped"' "stopped"
    ok "with weights" test -s runs/stopped/model.safetensors
    ok "and no process left" holds 30 gone $ranks
}

a_signal_to_one_rank_stops_all() {
    start_endless_fit one
    kill -TERM "$(rank 1)"
    end_of_fit
    is "$status" 0 "status 0"
    like "$last" '"event":"result","status":"stopped"' "stopped"
    like "$last" '"reason":"rank 1: SIGTERM"' "the reason has the rank"
}

ranks_die_with_the_program() {
    start_endless_fit alone
    local ranks="$(rank 0) $(rank 1)"
    kill -KILL "$pid"
    ok "all of them" holds 2 gone $ranks
    wait "$pid" 2>/dev/null
    exec 3<&-
}

a_rank_that_is_killed_comes_back() {
    local k
    for k in 0 1; do
        start_endless_fit again-$k
        local ranks="$(rank 0) $(rank 1)"
        kill -KILL "$(rank $k)"
        ok "rank $k: it is noticed at once" holds 2 grep -q 'started again' err.txt
        ok "rank $k: all that were there are gone" holds 30 gone $ranks
        touch mark
        until [ runs/again-$k/metrics.jsonl -nt mark ] || ! kill -0 "$pid"; do sleep 0.05; done
        kill -TERM "$pid"
        end_of_fit
        is "$status" 0 "the run continues, and is stopped later"
        like "$err" "rank $k .*was killed by SIGKILL.*all ranks are started again.*1 of 3" "it says so"
    done
}

# The processes that are started then go through the program from its beginning, and do not train again what is done.
a_rank_that_is_killed_in_a_later_run_comes_back() {
    local words='--set trainer.max_epochs=80 --set optimizer.lr=1e-2,1e-3'
    try "$paceline" fit run.json $words --set trainer.run_name=early
    is "$status" 0 "where nothing happens it ends well"
    "$paceline" fit run.json $script $words --set trainer.run_name=later >out.txt 2>err.txt </dev/null &
    pid=$!
    until ls runs/later-2/checkpoints 2>/dev/null | grep -q step= || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    kill -KILL "$(rank 1)"
    wait "$pid"
    status=$? out=$(cat out.txt) err=$(cat err.txt)
    is "$status" 0 "the program ends well"
    like "$err" 'rank 1 .*was killed by SIGKILL.*all ranks are started again.*1 of 3' "it says so"
    ok "the first run was let alone" cmp runs/early-1/model.safetensors runs/later-1/model.safetensors
    ok "the second is one that nothing happened to" cmp runs/early-2/model.safetensors runs/later-2/model.safetensors
    is "$(grep -c '^0\.0.* ok ' <<<"$out")" 2 "each result is printed once"
    is "$(echo runs/later*)" "runs/later-1 runs/later-2" "in a folder each"
}

a_rank_that_is_killed_may_fail_the_run() {
    start_endless_fit killed --set trainer.launcher.max_restarts=0
    local ranks="$(rank 0) $(rank 1)"
    kill -KILL "$(rank 1)"
    ok "it is noticed at once" holds 2 grep -q 'was killed by SIGKILL' err.txt
    end_of_fit
    is "$status" 1 "status 1"
    like "$last" '"status":"failed".*"code":"PL_EDIED","where":"rank 1"' "named: $err"
    ok "and no process is left" holds 30 gone $ranks
}

a_rank_that_is_stopped_is_killed() {
    start_endless_fit stuck --set trainer.launcher.max_restarts=0 --set trainer.step_timeout=2
    kill -STOP "$(rank 1)"
    ok "it is noticed in time" holds 20 grep -q 'has given no sign of life' err.txt
    end_of_fit
    is "$status" 1 "status 1"
    like "$err" 'rank 1 has given no sign of life for 2 s' "named"
    ok "what it said last is kept" test -s runs/stuck/rank-1.stderr
}

the_stream_has_all_ranks() {
    start_endless_fit watched --monitor "ipc://$folder/stream"
    try timeout 300 "$paceline" monitor "ipc://$folder/stream" --topic 1.strategy.ddp.train_batch --json --count 5
    is "$status" 0 "a viewer of rank 1"
    is "$(grep -c '"rank": 1' <<<"$out")" 5 "sees its messages"
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "and the run ends"
}

predictions_are_printed_once() {
    [ -e runs/near ] || "$paceline" fit run.json --set trainer.run_name=near >near.out 2>near.err
    try "$paceline" predict run.json --checkpoint runs/near
    local want=$out
    try timeout 300 "$paceline" predict run.json --checkpoint runs/near $script
    is "$out" "$want" "as threads tell them"
    try timeout 300 "$paceline" launch --devices 2 -- "$paceline" predict run.json --checkpoint runs/near
    is "$out" "$want" "and so by paceline launch"
}

run a_program_is_run_by_each_launcher trains
run the_command_runs_again_for_each_rank trains
run the_second_run_of_a_program_meets_its_ranks_second trains
run each_process_has_the_programs_own_data trains
run a_rank_that_dies_leaves_no_trace trains
run a_run_that_cannot_listen_does_not_count trains
run a_rank_that_is_gone_is_missed_in_the_next_run trains
run a_rank_that_leaves_before_the_first_run_is_missed_at_once trains
run programs_that_differ_are_an_error trains
run the_launcher_is_refused_where_it_cannot_work trains
run signals_to_the_command_stop_all trains
run a_signal_to_one_rank_stops_all trains
run ranks_die_with_the_program trains
run a_rank_that_is_killed_comes_back trains
run a_rank_that_is_killed_in_a_later_run_comes_back trains
run a_rank_that_is_killed_may_fail_the_run trains
run a_rank_that_is_stopped_is_killed trains
run the_stream_has_all_ranks trains
run predictions_are_printed_once trains
done_testing
