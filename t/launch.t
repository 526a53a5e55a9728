#!/usr/bin/env bash
# launch.t - tests of the command whose ranks are processes
. "$(dirname "$0")/tap.sh"

points '"max_epochs": 3, "devices": 2, "strategy": "ddp"' \
    '{"name": "model_checkpoint", "monitor": "val_loss"}' '"dropout": 0.2'
spawn="--set trainer.launcher=spawn"
always=$spawn

processes_train_as_threads_do() {
    try "$paceline" fit run.json --set trainer.run_name=near
    is "$status" 0 "threads"
    try "$paceline" fit run.json --set trainer.run_name=far $spawn
    is "$status" 0 "processes"
    ok "the same weights" cmp runs/near/model.safetensors runs/far/model.safetensors
    is "$(ls runs/near/checkpoints)" "$(ls runs/far/checkpoints)" "the same checkpoints"
    try "$paceline" validate run.json --checkpoint runs/far $spawn --json
    is "$status" 0 "they validate"
    far=$(grep -o '"val_loss":[0-9.]*' <<<"$out" | tail -n 1)
    try "$paceline" validate run.json --checkpoint runs/near --json
    is "$far" "$(grep -o '"val_loss":[0-9.]*' <<<"$out" | tail -n 1)" "as threads do"
}

sockets_may_lie_in_a_folder_with_blanks() {
    local folder="$PWD/a b"
    mkdir -m 700 "$folder"
    ok "a path short enough for sockets" test ${#folder} -lt 78
    try env TMPDIR="$folder" "$paceline" fit run.json --set trainer.run_name=blank $spawn
    is "$status" 0 "processes train"
}

signals_to_the_command_stop_all() {
    local signal want ranks
    for signal in TERM:0 INT:130; do
        start_endless_fit "$signal"
        ranks="$(rank 0) $(rank 1)"
        kill "-${signal%:*}" "$pid"
        end_of_fit
        is "$status" "${signal#*:}" "${signal%:*}: status ${signal#*:}"
        like "$last" '"event":"result","status":"stopped"' "stopped"
        ok "with weights" test -s "runs/$signal/model.safetensors"
        ok "and no process left" holds 30 gone $ranks
    done
}

a_second_signal_ends_all_at_once() {
    start_endless_fit aborted
    local ranks="$(rank 0) $(rank 1)"
    kill -STOP $(rank 1)
    kill -INT "$pid"
    until grep -q aborted err.txt; do sleep 0.1; kill -INT "$pid" || break; done
    end_of_fit
    is "$status" 130 "status 130"
    ok "and no process is left" holds 30 gone $ranks
}

# The processes are there again, and a step has been made since.
trains_again() {
    local line
    holds 30 eval '[ -n "$(rank 0)" ] && [ -n "$(rank 1)" ]' || return
    while read -r -t 0 <&3; do read -r line <&3; done       # of before
    while read -r -t 30 line <&3; do
        [[ $line =~ '"event":"'(train|epoch)'"' ]] && return
    done
    return 1
}

a_rank_that_is_killed_comes_back() {
    start_endless_fit again
    kill -KILL "$(rank 1)"
    ok "it is noticed at once" holds 2 grep -q 'started again' err.txt
    ok "they train again" trains_again
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "the run continues, and is stopped later"
    like "$err" 'rank 1 .*was killed by SIGKILL.*all ranks are started again.*1 of 3' "it says so"
    like "$last" '"status":"stopped"' "in order"
}

# What a run had is free at once: its ranks, the port of its stream, its folder.
a_command_that_is_killed_leaves_a_run_that_can_be_resumed() {
    local often='{"name": "model_checkpoint", "every_n_train_steps": 20}' port saved
    free_port
    local watched="--monitor tcp://127.0.0.1:$port" options=(--set "callbacks=[$often]" --set trainer.max_epochs=-1)
    start_endless_fit host "${options[@]}" $watched
    local ranks="$(rank 0) $(rank 1)"
    until ls runs/host/checkpoints 2>/dev/null | grep -q step= || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    kill -KILL "$pid"
    ok "its ranks are gone with it" holds 2 gone $ranks
    end_of_fit 2>/dev/null
    saved=$(ls runs/host/checkpoints | sed -n 's/.*step=\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
    try "$paceline" fit run.json $spawn "${options[@]}" $watched --set trainer.run_name=host --resume last \
        --set trainer.max_steps=$((saved + 30))
    is "$status" 0 "the next one resumes, at the same port"
    try "$paceline" fit run.json "${options[@]}" --set trainer.run_name=whole --set trainer.max_steps=$((saved + 30))
    ok "to the bits of a run that nothing happened to" cmp runs/whole/model.safetensors runs/host/model.safetensors
}

a_rank_that_is_killed_may_fail_the_run() {
    start_endless_fit killed --set trainer.launcher.max_restarts=0
    local ranks="$(rank 0) $(rank 1)"
    kill -KILL "$(rank 1)"
    ok "it is noticed at once" holds 2 grep -q 'was killed by SIGKILL' err.txt
    end_of_fit
    is "$status" 1 "status 1"
    like "$err" 'rank 1.*was killed by SIGKILL after step' "named: $err"
    like "$last" '"status":"failed".*"code":"PL_EDIED","where":"rank 1"' "also in the result"
    ok "and no process is left" holds 30 gone $ranks
}

# Rank 0 gets the error some steps after the last step that the other has reported.
an_error_names_one_step_of_the_rank_that_failed() {
    local first second steps="failed after steps ([0-9]+), ([0-9]+): the process of rank 1 .* killed by SIGKILL"
    when() { if [ "$1" = 0 ]; then echo "before its first step"; else echo "after step $1"; fi; }   # as it has reported
    start_endless_fit twice --set trainer.launcher.max_restarts=1 --set data.batch_size=1
    kill -KILL "$(rank 1)"
    ok "they train again" trains_again
    kill -KILL "$(rank 1)"
    end_of_fit
    ok "the error has the step" eval '[[ $err =~ $steps ]]'
    first=${BASH_REMATCH[1]} second=${BASH_REMATCH[2]}
    like "$err" "steps $first, $second: .* killed by SIGKILL $(when "$second")" "the same one everywhere"
    like "$err" "killed by SIGKILL $(when "$first"); all ranks are started again" "also of the first time"
}

a_rank_that_is_left_out_is_reported_before() {
    start_endless_fit fewer --set trainer.devices=1:2 --set trainer.launcher.max_restarts=2
    kill -KILL "$(rank 1)"
    ok "they train again" trains_again
    kill -KILL "$(rank 1)"
    ok "it is left out" holds 30 grep -q 'has died again' err.txt
    kill -TERM "$pid"
    end_of_fit
    local said
    said=$(grep -v 'the other ranks are being stopped' err.txt |   # reported only if they take long
        grep -o 'rank 1 .*was killed\|rank 1 has died again.*\|(. of 2.*)$' | sed 's/ (.* on .*) / /' | xargs -d '\n')
    is "$said" "rank 1 was killed (1 of 2) rank 1 was killed (1 of 2 with 1 rank) rank 1 has died again: the run continues with 1 rank" \
        "in order, and counted from the start"
}

the_stream_has_all_ranks() {
    start_endless_fit watched --monitor "ipc://$folder/stream"
    try "$paceline" monitor "ipc://$folder/stream" --topic 1.strategy.ddp.train_batch --json --count 5
    is "$status" 0 "a viewer of rank 1"
    is "$(grep -c '"rank": 1' <<<"$out")" 5 "sees its messages"
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "and the run ends"
}

parameters_are_swept() {
    try "$paceline" fit run.json $spawn --set optimizer.lr=1e-2,1e-3 --set trainer.max_epochs=1 \
        --set trainer.run_name=swept
    is "$status" 0 "two runs, one after the other"
    ok "with folders of their own" test -s runs/swept-2/model.safetensors
}

# Ranks that are processes have their connections to each other in processes of their own.
the_limit_of_descriptors_that_a_run_needs_is_named() {
    need() {
        try bash -c 'ulimit -n 100; exec "$0" "$@"' "$paceline" fit run.json --set trainer.devices=$1 \
            --set trainer.launcher=$2 --set data.batch_size=1
        is "$status" 2 "$1 ranks of $2 are refused"
        like "$err" 'needs [0-9]+ descriptors; .* raise it to [0-9]+ or more .ulimit -n.' "with the limit"
        number=$(sed -n 's/.*needs \([0-9]*\) descriptors.*/\1/p' <<<"$err")
    }
    local number half
    need 100 spawn; half=$number
    need 200 spawn
    ok "200 processes need less than twice what 100 need" test "$number" -lt $((2 * half))
    need 128 inline
}

# PACELINE_TEST_LONG=1: fifty times.
forty_eight_ranks_train() {
    local launcher k failed=0 times=2
    [ -z "$PACELINE_TEST_LONG" ] || times=50
    for launcher in inline spawn; do
        for ((k = 0; k < times; k++)); do
            try "$paceline" fit run.json --set trainer.devices=48 --set data.batch_size=1 \
                --set trainer.launcher=$launcher --set trainer.limit_train_batches=2 \
                --set trainer.max_epochs=1
            [ "$status" = 0 ] || { failed=$((failed + 1)); sed "s|^|# |" <<<"$err"; }
        done
    done
    is "$failed" 0 "of $((2 * times)) runs none fails"
}

run processes_train_as_threads_do trains
run sockets_may_lie_in_a_folder_with_blanks trains
run signals_to_the_command_stop_all trains
run a_second_signal_ends_all_at_once trains
run a_rank_that_is_killed_comes_back trains
run a_command_that_is_killed_leaves_a_run_that_can_be_resumed trains
run a_rank_that_is_killed_may_fail_the_run trains
run an_error_names_one_step_of_the_rank_that_failed trains
run a_rank_that_is_left_out_is_reported_before trains
run the_stream_has_all_ranks trains
run parameters_are_swept trains
run the_limit_of_descriptors_that_a_run_needs_is_named trains
run forty_eight_ranks_train trains
done_testing
