#!/usr/bin/env bash
# clock.t - tests of runs of several processes while the machine's clock is set
. "$(dirname "$0")/tap.sh"

points '"max_epochs": 300, "devices": 2, "step_timeout": 20, "max_time": "00:00:05:00", "log_every_n_steps": 10' \
    '{"name": "model_checkpoint", "every_n_train_steps": 100}'
shifted=$builddir/t/.libs/clock_shift.so
export ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0

set_clock() {
    echo "$1" >shift.new
    mv shift.new shift
}

# logged NAME: lines of that run
logged() { cat "runs/$1/metrics.jsonl" 2>/dev/null | wc -l; }

# jumping NAME WORDS...: the command, while the clock goes a day forward, back, and back once more, each time when some
# lines are logged since; out, err and status
jumping() {
    local jump pid lines=0
    set_clock 0
    CLOCK_SHIFT=$folder/shift LD_PRELOAD=$shifted timeout 300 "${@:2}" >"$folder/.out" 2>"$folder/.err" </dev/null &
    pid=$!
    for jump in 86400 0 -86400; do
        lines=$((lines + 20))
        until [ "$(logged "$1")" -ge $lines ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
        set_clock "$jump"
        lines=$(logged "$1")
    done
    wait $pid
    status=$?
    out=$(cat "$folder/.out")
    err=$(cat "$folder/.err")
}

a_clock_that_is_set_changes_nothing() {
    try "$paceline" fit run.json --set trainer.run_name=steady
    is "$status" 0 "a run with an unchanged clock"
    jumping threads "$paceline" fit run.json --set trainer.run_name=threads
    is "$status" 0 "threads train while the clock jumps a day"
    jumping spawned "$paceline" fit run.json --set trainer.run_name=spawned --set trainer.launcher=spawn
    is "$status" 0 "and processes"
    jumping launched "$paceline" launch --devices 2 -- "$paceline" fit run.json --set trainer.run_name=launched \
        --set trainer.devices=auto
    is "$status" 0 "and those that were started by another"
    local name
    for name in threads spawned launched; do
        ok "$name: to the same bits" cmp "runs/steady/model.safetensors" "runs/$name/model.safetensors"
        is "$(jumps "runs/$name/metrics.jsonl")" 3 "while their logs tell of the jumps"
    done
}

# How often the time of day of neighbouring lines differs by more than an hour.
jumps() {
    sed -n 's/.*"time": *\([0-9.]*\).*/\1/p' "$1" |
        awk 'NR > 1 && ($1 - last > 3600 || last - $1 > 3600) { n++ } { last = $1 } END { print n + 0 }'
}

run a_clock_that_is_set_changes_nothing trains
done_testing
