#!/bin/bash
# saving.t - tests of saves that are cut short or fail: a kill at each call that touches a checkpoint, a disk that fails
# at each of them
. "${top_srcdir:-$(dirname "$0")/..}/t/tap.sh"

fault=$builddir/t/.libs/fault.so
every=${PACELINE_EVERY:-24}                                 # 1: at each call

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

# at N:WHAT - a run anew in which that happens at the N-th call on its checkpoints, which err names
at() {
    rm -rf broken
    run_file broken
    FAULT=$1 LD_PRELOAD=$fault ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 \
        "$paceline" fit run.json >out 2>err
} 2>/dev/null

struck() {
    grep -q '^fault: ' err
}

# ends_the_same - with the weights of the run that nothing happened to
ends_the_same() {
    cmp -s straight/latest/model.safetensors broken/latest/model.safetensors
}

# goes_on - the run is resumed, finds no half a checkpoint and ends as the one that was never killed
goes_on() {
    "$paceline" fit run.json --resume last >out 2>err.resumed || return 1
    ! grep -q refused err.resumed && ends_the_same
}

# told - that this step was not saved, or, when only older ones could not be removed or be read, that
told() {
    grep -qE 'could not be saved, training goes on|cannot be removed|older ones are kept' err
}

# whole - no checkpoint is damaged
whole() {
    "$paceline" inspect broken/latest --verify >shown 2>&1 && ! grep -q refused shown
}

a_kill_at_any_call_of_a_save_leaves_a_whole_checkpoint() {
    local n kills=0 lost=0
    run_file straight && "$paceline" fit run.json >/dev/null 2>&1
    for n in $(seq "$((RANDOM % every + 1))" "$every" 400); do
        at "$n:KILL" && break
        kills=$((kills + 1))
        struck && goes_on || { lost=$((lost + 1)); echo "# call $n: $(tail -n 3 err err.resumed)"; }
    done
    ok "the save was killed at $kills calls" test "$kills" -gt 5
    is "$lost" 0 'each time the run went on to the same weights'
}

# What a call leaves behind that only clears away may stay unsaid: it is cleared away with the next.
a_disk_that_fails_costs_checkpoints_and_not_the_run() {
    local error n failed=0 silent=0 damaged=0 strikes=0
    for error in EIO ENOSPC; do
        for n in $(seq "$((RANDOM % every + 1))" "$every" 400); do
            at "$n:$error" || { failed=$((failed + 1)); echo "# $error at $n: $(tail -n 3 err)"; }
            struck || break
            strikes=$((strikes + 1))
            ends_the_same && whole || { damaged=$((damaged + 1)); echo "# $error at $n: $(tail -n 4 err shown)"; }
            told || grep -qE '^fault: (unlink|rmdir)|^fault: rename .*\.part$' err \
                || { silent=$((silent + 1)); echo "# $error at $n: $(tail -n 4 err)"; }
        done
    done
    ok "the disk failed at $strikes calls" test "$strikes" -gt 5
    is "$failed" 0 'the run ends well'
    is "$damaged" 0 'to the same weights, and its checkpoints are whole'
    is "$silent" 0 'and says which step was not saved'
}

# Calls that reach the system some other way are seen here.  The leak sanitizer traces processes itself.
a_kill_at_any_system_call_of_a_save_leaves_a_whole_checkpoint() {
    local call n kills=0 lost=0
    for call in mkdir fsync rename renameat renameat2 link unlink rmdir; do
        for n in $(seq "$((RANDOM % every + 1))" "$every" 40); do
            rm -rf broken
            run_file broken
            ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 strace -f -qq -o /dev/null -e "trace=$call" \
                -e "inject=$call:signal=KILL:when=$n" "$paceline" fit run.json >out 2>err && break
            kills=$((kills + 1))
            goes_on || { lost=$((lost + 1)); echo "# $call $n: $(tail -n 3 err.resumed)"; }
        done
    done
    is "$lost" 0 "killed at $kills system calls the run went on to the same weights"
} 2>/dev/null

run a_kill_at_any_call_of_a_save_leaves_a_whole_checkpoint trains
run a_disk_that_fails_costs_checkpoints_and_not_the_run trains
if ! strace -qq -o /dev/null -e trace=none true 2>/dev/null; then
    skip 'strace is missing, or processes cannot be traced here'
else
    run a_kill_at_any_system_call_of_a_save_leaves_a_whole_checkpoint trains
fi
done_testing
