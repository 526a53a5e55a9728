#!/bin/bash
# saving.t - tests of saves that are cut short or fail: a kill at each system call that changes the disk, a disk that
# fails
. "${top_srcdir:-$(dirname "$0")/..}/t/tap.sh"

run_file() {
    awk 'BEGIN { print "a,b,label"; for (k = 0; k < 24; k++) print k % 5 "," k % 7 "," k % 2 }' >data.csv
    cat >run.json <<EOF
{"module": {"name": "mlp", "hidden": [4], "classes": 2},
 "data": {"name": "csv", "path": "data.csv", "batch_size": 4},
 "optimizer": {"name": "adamw", "lr": 0.01},
 "callbacks": [{"name": "model_checkpoint", "every_n_train_steps": 2, "save_last": true}],
 "trainer": {"max_epochs": 1, "accelerator": {"name": "cpu", "threads": 1}, "default_root_dir": "$1"}}
EOF
}

# inject WHAT - runs under strace, which does that to a call
inject() {
    strace -f -qq -o /dev/null -e "trace=${1%%:*}" -e "inject=$1" "$paceline" fit run.json >out 2>err
} 2>/dev/null

# goes_on - the run is resumed, finds no half a checkpoint and ends as the one that was never killed
goes_on() {
    "$paceline" fit run.json --resume last >out 2>err || return 1
    ! grep -q refused err && cmp -s straight/latest/model.safetensors killed/latest/model.safetensors
}

a_kill_at_any_call_of_a_save_leaves_a_whole_checkpoint() {
    local call n kills=0 lost=0
    local every=${PACELINE_EVERY:-6}                        # 1: at each of them
    run_file straight && "$paceline" fit run.json >/dev/null 2>&1
    for call in mkdir fsync rename renameat link unlink rmdir; do
        for n in $(seq "$((RANDOM % every + 1))" "$every" 40); do
            rm -rf killed
            run_file killed
            inject "$call:signal=KILL:when=$n" && break
            kills=$((kills + 1))
            goes_on || { lost=$((lost + 1)); echo "# $call $n: $(tail -3 err)"; }
        done
    done
    ok "the save was killed at $kills calls" test "$kills" -gt 5
    is "$lost" 0 'each time the run went on to the same weights'
}

# The first four calls of a thread may be those for run.json and the weights at the end, without which there is no run.
a_disk_that_fails_costs_checkpoints_and_not_the_run() {
    local error silent=0 failed=0 n
    for error in EIO ENOSPC; do
        for n in 5 10; do
            rm -rf killed
            run_file killed
            inject "fsync:error=$error:when=$n" || failed=$((failed + 1))
            grep -q 'could not be saved, training goes on' err || silent=$((silent + 1))
        done
    done
    is "$failed" 0 'the run ends well'
    is "$silent" 0 'and says which step was not saved'
}

if ! strace -qq -o /dev/null -e trace=none true 2>/dev/null; then
    skip 'strace is missing, or processes cannot be traced here'
else
    run a_kill_at_any_call_of_a_save_leaves_a_whole_checkpoint trains
    run a_disk_that_fails_costs_checkpoints_and_not_the_run trains
fi
done_testing
