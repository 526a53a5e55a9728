#!/bin/bash
# saving.t - tests of saves that are cut short or fail: a kill at each call that touches a checkpoint, a disk that fails
# at each of them; and of the directory and the data of a resumed run
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

# at N:WHAT - a new run in which that happens at the N-th call on its checkpoints, which err names
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
    cmp -s "$(newest straight)/model.safetensors" "$(newest broken)/model.safetensors"
}

# resumes - the run is resumed, finds no half a checkpoint and ends as the one that was never killed
resumes() {
    "$paceline" fit run.json --resume last >out 2>err.resumed || return 1
    ! grep -q refused err.resumed && ends_the_same
}

# warned - that this step was not saved, or, when only older ones could not be removed or be read, that
warned() {
    grep -qE 'could not be saved, training continues|cannot be (removed|read)|older ones are kept' err
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
        struck && resumes || { lost=$((lost + 1)); echo "# call $n: $(tail -n 3 err err.resumed)"; }
    done
    ok "the save was killed at $kills calls" test "$kills" -gt 5
    is "$lost" 0 'each time the run resumed to the same weights'
}

# What a call leaves behind that only clears away may stay unsaid: it is cleared away with the next. So may what the
# command reads of the last checkpoints, once all are saved, for its words about the result.
a_disk_that_fails_costs_checkpoints_and_not_the_run() {
    local error n failed=0 silent=0 damaged=0 strikes=0
    for error in EIO ENOSPC; do
        for n in $(seq "$((RANDOM % every + 1))" "$every" 400); do
            at "$n:$error" || { failed=$((failed + 1)); echo "# $error at $n: $(tail -n 3 err)"; }
            struck || break
            strikes=$((strikes + 1))
            ends_the_same && whole || { damaged=$((damaged + 1)); echo "# $error at $n: $(tail -n 4 err shown)"; }
            warned || grep -qE '^fault: (unlink|rmdir)|^fault: rename .*\.part$|^fault: open .*/(epoch=0-step=6|last)/manifest\.json$' err \
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
            resumes || { lost=$((lost + 1)); echo "# $call $n: $(tail -n 3 err.resumed)"; }
        done
    done
    is "$lost" 0 "killed at $kills system calls the run resumed to the same weights"
} 2>/dev/null

# longer WORDS... - resumes with one more epoch
longer() {
    try "$paceline" fit run.json --set trainer.max_epochs=2 "$@"
}

# first ROOT - a run of one epoch there, and a list of its files with their sums
first() {
    rm -rf "$1"
    run_file "$1" && "$paceline" fit run.json >/dev/null 2>&1
    sums "$1/0001" >before
}

sums() {
    (cd "$1" && find . -type f -exec cksum {} + | sort)
}

a_resume_writes_to_the_given_directory() {
    local step
    first asked
    longer --resume asked/0001 --set trainer.run_name=named
    is "$status" 0 'a run resumes under another name'
    ok 'with its weights there' test -f asked/named/model.safetensors
    is "$(sums asked/0001)" "$(cat before)" 'and the first run stays as it was'
    step=$(head -n 1 asked/named/metrics.jsonl | grep -oE '"global_step": ?[0-9]+')
    ok "its log begins where it resumes ($step)" test "${step##*[: ]}" -gt 6
    longer --resume asked/0001 --set trainer.run_name=named
    is "$status" 2 'a name that is taken'
    like "$err" 'asked/named.*a run of that name' 'is refused'
    longer --resume asked/0001 --set trainer.default_root_dir=other
    is "$status" 0 'a run resumes below another root'
    ok 'with its weights there' test -f other/0001/model.safetensors
    is "$(sums asked/0001)" "$(cat before)" 'and the first run stays as it was'
    ok 'to the weights of the other' cmp other/0001/model.safetensors asked/named/model.safetensors
    longer --resume asked/0001 --set trainer.run_name=0001 --set trainer.default_root_dir="$PWD/asked"
    is "$status" 0 'its own name and root are no other place'
    ok 'to the same weights' cmp other/0001/model.safetensors asked/0001/model.safetensors
}

a_resume_notices_other_data() {
    first data
    cp data.csv kept.csv
    echo 1,2,0 >>data.csv
    longer --resume data/0001
    is "$status" 2 'a row more'
    like "$err" 'data.train had 24 samples and has 25; give it the same data' 'is named'
    { head -n 1 kept.csv; tail -n +2 kept.csv | tac; } >data.csv
    longer --resume data/0001
    is "$status" 2 'rows in another order'
    like "$err" 'data.train has 24 samples as before, but with other values or in another order' 'are named'
    sed '7s/^./9/' kept.csv >data.csv
    longer --resume data/0001
    like "$err" 'other values' 'so is one value that has changed'
    is "$(sums data/0001)" "$(cat before)" 'the run stays as it was'
    rm data.csv
    gzip <kept.csv >moved.csv.gz
    longer --resume data/0001 --set data.path=moved.csv.gz
    is "$status" 0 'the same rows in another file, compressed, are the same data'
}

a_resume_behind_its_limit_trains_nothing() {
    local limit
    rm -rf limits
    run_file limits
    try "$paceline" fit run.json --set trainer.max_epochs=2 --set trainer.max_steps=9
    cp limits/0001/model.safetensors nine.safetensors
    for limit in max_steps=9 max_steps=7 max_steps=0 max_epochs=1 max_epochs=0; do
        longer --resume last --set "trainer.$limit"
        is "$status" 0 "in the middle of its second epoch, $limit"
        is "$(head -n 1 <<<"$out")" "nothing was trained: trainer.${limit/=/ } is reached; raise it to continue" 'says why'
        ok 'and leaves the weights as they are' cmp limits/0001/model.safetensors nine.safetensors
    done
    longer --resume last --json
    like "$out" '"event":"result","status":"ok","run_dir":"limits/0001","global_step":12,"epoch":2' 'raised it is trained to its end'
    longer --resume last --json
    like "$out" '"status":"ok","reason":"nothing was trained: trainer.max_epochs 2 is reached' 'and is complete then'
}

# No run is continued in the place of one that trained; what failed before a step is passed over.
a_resume_of_the_last_run_takes_no_older_one_in_its_place() {
    first data
    FAULT=1:KILL LD_PRELOAD=$fault ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 \
        "$paceline" fit run.json --set trainer.log_every_n_steps=1 >out 2>err
    ok 'a run is killed before its first checkpoint' test -z "$(ls data/0002/checkpoints)"
    try "$paceline" fit run.json --set trainer.limit_train_batches=0
    ok 'and a start fails' test -e data/0003/run.json
    longer --resume last
    is "$status" 2 'the run before them is not resumed'
    like "$err" '^paceline: data/0002 trained( [0-9]+ steps?)? but has no checkpoint: start it again, or name another run with' \
        'and the error names the one that was killed'
    is "$(sums data/0001)" "$(cat before)" 'the older run stays as it was'
    rm -rf data/0002
    longer --resume last
    is "$status" 0 'without it'
    like "$err" 'data/0003 has no checkpoint to resume from' 'the start that failed is passed over'
    ok 'and the older run resumes' grep -q '"global_step":12' data/0001/metrics.jsonl
    "$paceline" fit run.json --set callbacks=[] --set trainer.enable_checkpointing=false >out 2>err
    longer --resume last
    like "$err" '^paceline: data/0004 trained 6 steps but has no checkpoint' 'a run that saves none is none to resume'
    rm data/0004/metrics.jsonl
    longer --resume last
    like "$err" '^paceline: data/0004 trained but has no checkpoint' 'with its log or without'
} 2>/dev/null

# as_reader WORDS... - the command with the directory data/0001 read-only
as_reader() {
    if [ "$(id -u)" = 0 ]; then
        try unshare -m sh -c 'mount --bind data/0001 data/0001 && mount -o remount,bind,ro data/0001 && exec "$@"' - "$@"
    else
        chmod -R a-w data/0001
        try "$@"
        chmod -R u+w data/0001
    fi
}

a_resume_into_a_directory_that_cannot_be_written_ends_at_once() {
    first data
    if [ "$(id -u)" = 0 ] && ! unshare -m sh -c 'mount --bind data data && mount -o remount,bind,ro data' 2>/dev/null; then
        skip 'mounts cannot be made here'
        return
    fi
    as_reader "$paceline" fit run.json --json --set trainer.max_epochs=2 --resume data/0001
    is "$status" 2 'it fails'
    like "$err" 'data/0001: the resumed run writes here, but no file can be made .*trainer.default_root_dir' 'and says why'
    ok 'before a step' test -z "$(grep -e '"event":"train"' -e '"event":"epoch"' <<<"$out")"
    as_reader "$paceline" fit run.json --set trainer.max_epochs=2 --resume data/0001 --set trainer.default_root_dir=free
    is "$status" 0 'elsewhere it can resume'
}

run a_resume_writes_to_the_given_directory trains
run a_resume_notices_other_data trains
run a_resume_behind_its_limit_trains_nothing trains
run a_resume_of_the_last_run_takes_no_older_one_in_its_place trains
run a_resume_into_a_directory_that_cannot_be_written_ends_at_once trains
run a_kill_at_any_call_of_a_save_leaves_a_whole_checkpoint trains
run a_disk_that_fails_costs_checkpoints_and_not_the_run trains
if ! strace -qq -o /dev/null -e trace=none true 2>/dev/null; then
    skip 'strace is missing, or processes cannot be traced here'
else
    run a_kill_at_any_system_call_of_a_save_leaves_a_whole_checkpoint trains
fi
done_testing
