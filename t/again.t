#!/usr/bin/env bash
# again.t - tests of paceline launch that starts ranks again: those of a node, those of all nodes, with other numbers
. "$(dirname "$0")/tap.sh"

points '"max_epochs": 200' '{"name": "model_checkpoint", "every_n_train_steps": 100}'

# ---- helpers ----

# The rank that is named by $doomed kills itself, once, when $sign is there.
cat >rank.sh <<'S'
[ "$PACELINE_RANK.$PACELINE_RESTART_COUNT" = "$doomed.0" ] || exec "$@"
"$@" &
until [ -e "$sign" ] || ! kill -0 $! 2>/dev/null; do :; done
kill -9 $!
wait $!
S

# node K OF DEVICES WORDS...: the launch of that node; node.K, out.K, err.K and status.K.  What it starts is started by
# the words in through.
through=()
node() {
    timeout 300 "$paceline" launch --nnodes "$2" --node-rank "$1" --devices "$3" --rdzv-endpoint "127.0.0.1:$port" \
        --last-call-timeout 0.3 -- "${through[@]}" "$paceline" fit run.json "${@:4}" >"out.$1" 2>"err.$1" </dev/null &
    echo $! >"node.$1"
    wait $!
    echo $? >"status.$1"
}

# meet - at a port of their own, without files of nodes before
meet() { free_port && rm -f err.*; }

# kill_node K: all that it has started ends with it
kill_node() { kill -9 "$(pgrep -P "$(text "node.$1")")"; }

# until_said PATTERN FILE PID - or until that process has ended
until_said() { until grep -qs "$1" "$2" || ! kill -0 "$3" 2>/dev/null; do sleep 0.02; done; }

# until_said_again PATTERN FILE PID LINES - behind so many lines of the file
until_said_again() { until tail -n "+$(($4 + 1))" "$2" | grep -q "$1" || ! kill -0 "$3" 2>/dev/null; do sleep 0.02; done; }

# ---- one node ----

a_rank_that_is_killed_is_started_again() {
    export doomed sign
    for doomed in 0 1; do
        sign=runs/rank$doomed/checkpoints/epoch=16-step=100
        try timeout 300 "$paceline" launch --devices 2 -- bash rank.sh "$paceline" fit run.json \
            --set trainer.run_name=rank$doomed
        is "$status" 0 "rank $doomed: status 0"
        like "$err" "paceline: rank [01] .* all ranks are started again \(1 of 3\)" "the first rank that ended is reported"
        like "$err" 'resuming after step ([1-9]|1[01])00:' "the run resumes from the checkpoint"
        ok "the same bits" cmp "$(inline_model 2)" runs/rank$doomed/model.safetensors
        is "$(lines "$(grep '^done' <<<"$out")")" 1 "the result is printed once"
    done
}

a_rank_that_dies_before_a_save_starts_from_the_beginning() {
    export doomed=1 sign=run.json
    try timeout 300 "$paceline" launch --devices 2 -- bash rank.sh "$paceline" fit run.json --set trainer.run_name=early
    is "$status" 0 "status 0"
    like "$err" 'all ranks are started again' "it is started again"
    ok "the same bits" cmp "$(inline_model 2)" "$(ls -d runs/early*/model.safetensors)"
}

a_rank_that_dies_when_its_folder_is_new_starts_from_the_beginning() {
    try timeout 300 "$paceline" launch --devices 2 -- bash -c \
        '[ "$PACELINE_RESTART_COUNT" = 0 ] || exec "$@"; mkdir -p runs/half; kill -9 $$' - \
        "$paceline" fit run.json --set trainer.run_name=half
    is "$status" 0 "status 0"
    like "$err" 'runs/half is renamed to runs/half.1' "what it had begun is put aside"
    ok "the same bits" cmp "$(inline_model 2)" runs/half/model.safetensors
}

a_rank_that_always_dies_ends_the_launch_at_the_limit() {
    try timeout 300 "$paceline" launch --devices 2 --max-restarts 2 -- bash -c \
        'echo "try $PACELINE_RESTART_COUNT" >&2; [ $PACELINE_RANK = 0 ] && exec sleep 50; kill -9 $$'
    is "$status" 137 "the status is of the one that was killed"
    like "$err" '^rank 1: try 2' "it was tried three times"
    like "$err" 'paceline: started again 2 times within 10 minutes: rank 1 .* was killed by SIGKILL' \
        "it says how often, which and why"
    is "$(grep -c 'are started again' <<<"$err")" 2 "and each time"
}

an_error_of_the_program_is_not_tried_again() {
    try timeout 300 "$paceline" launch --devices 2 -- bash -c 'exit 3'
    is "$status" 3 "its status"
    ok "is not started again" test -z "$(grep 'again' <<<"$err")"
}

finished_runs_of_a_sweep_are_not_trained_again() {
    local inline
    inline=$(inline_model 2)
    rm -rf runs/0*
    export doomed=1 sign=runs/0002/checkpoints/epoch=16-step=100
    try timeout 300 "$paceline" launch --devices 2 -- bash rank.sh "$paceline" fit run.json \
        --set optimizer.lr=1e-2,1e-3
    is "$status" 0 "status 0"
    like "$err" 'resuming after step 1200' "the first run is found whole"
    like "$err" 'resuming after step ([1-9]|1[01])00:' "the second resumes"
    is "$(echo runs/000*)" "runs/0001 runs/0002" "in their folders"
    ok "the same bits" cmp "$inline" runs/0001/model.safetensors
}

a_launch_that_is_killed_leaves_nothing_and_can_be_resumed() {
    "$paceline" launch --devices 2 -- "$paceline" fit run.json --set trainer.run_name=whole >out.txt 2>err.txt \
        </dev/null &
    local pid=$! children
    until [ -e runs/whole/checkpoints/epoch=16-step=100 ] || ! kill -0 $pid 2>/dev/null; do :; done
    children=$(pgrep -P $pid)
    kill -9 $pid
    wait $pid 2>/dev/null
    ok "its ranks are gone" holds 2 gone $children
    try timeout 300 "$paceline" launch --devices 2 -- "$paceline" fit run.json --set trainer.run_name=whole --resume last
    is "$status" 0 "another launch resumes"
    like "$err" 'resuming after step' "from a checkpoint"
    ok "to the same bits" cmp "$(inline_model 2)" runs/whole/model.safetensors
}

# ---- several nodes ----

a_node_that_is_killed_and_started_again_leaves_no_trace() {
    local inline first second
    inline=$(inline_model 2)
    meet
    node 0 2 1 --set trainer.run_name=restarted &
    first=$!
    node 1 2 1 --set trainer.run_name=restarted 2>/dev/null &
    second=$!
    until_said 'saved step 100' err.0 $first
    kill_node 1
    wait $second
    node 1 2 1 --set trainer.run_name=restarted &
    second=$!
    wait $first $second
    is "$(text status.0)$(text status.1)" 00 "both nodes end well"
    like "$(text err.0)" 'all ranks are started again' "the restart is reported"
    ok "the same bits" cmp "$inline" runs/restarted/model.safetensors
}

a_node_that_is_gone_is_left_out_and_may_return() {
    local first second lines
    meet
    node 0 1:2 1 --set trainer.run_name=range --set trainer.max_epochs=-1 &
    first=$!
    node 1 1:2 1 --set trainer.run_name=range --set trainer.max_epochs=-1 2>/dev/null &
    second=$!
    until_said 'rank 0 of 2' err.0 $first
    lines=$(wc -l <err.0)
    until_said_again 'saved step' err.0 $first "$lines"
    lines=$(wc -l <err.0)
    kill_node 1
    wait $second
    until_said_again 'rank 0 of 1' err.0 $first "$lines"
    until_said_again 'resuming after step' err.0 $first "$lines"
    lines=$(wc -l <err.0)
    node 1 1:2 1 --set trainer.run_name=range --set trainer.max_epochs=-1 &
    second=$!
    until_said_again 'the global batch has 40 samples from here on, and had 20 before' err.0 $first "$lines"
    kill -TERM "$(pgrep -P "$(text node.0)")"
    wait $first $second
    is "$(text status.0)$(text status.1)" 00 "both nodes end well"
    like "$(text err.0)" '1 of 2 nodes takes part' "the run continues without that node"
    like "$(text err.0)" 'the global batch has 20 samples from here on, and had 40 before' "with fewer samples"
    like "$(text err.0)" 'node 1 .* has joined: saving the run to continue with it' "and with it again"
    like "$(text err.0)" 'the global batch has 40 samples from here on, and had 20 before' "with as many as before"
    like "$(text out.0)" '^stopped by a signal' "until a signal stops it"
}

# Such a rank dies of the signal that asks it to stop.
a_node_that_joins_while_a_rank_starts_is_admitted() {
    local first through=(sh -c '[ "$PACELINE_RESTART_COUNT" != 0 ] || { touch starting; exec sleep 50; }; exec "$@"' -)
    local inline
    inline=$(inline_model 2)
    meet
    node 0 1:2 1 --set trainer.run_name=starting &
    first=$!
    ok "a rank starts" holds 30 test -e starting
    node 1 1:2 1 --set trainer.run_name=starting
    wait $first
    is "$(text status.0)$(text status.1)" 00 "both nodes end well"
    like "$(text err.0)" 'node 1 .* has joined' "the node has joined"
    ok "the same bits" cmp "$inline" runs/starting/model.safetensors
}

# Rank 0, which waits for the others, ends at once.
a_node_that_joins_while_ranks_are_awaited_is_admitted() {
    local pids=() late=(sh -c '[ "$PACELINE_RESTART_COUNT" != 0 ] || exec sleep 50; exec "$@"' -)
    try "$paceline" fit run.json --set trainer.run_name=three --set trainer.devices=3
    meet
    node 0 2:3 1 --set trainer.run_name=awaited &
    pids+=($!)
    (through=("${late[@]}"); node 1 2:3 1 --set trainer.run_name=awaited) &
    pids+=($!)
    until_said 'rank 0 of 2' err.0 "${pids[0]}"
    node 2 2:3 1 --set trainer.run_name=awaited &
    pids+=($!)
    wait "${pids[@]}"
    is "$(text status.0)$(text status.1)$(text status.2)" 000 "all nodes end well"
    like "$(text err.0)" 'node 2 .* has joined' "the node has joined"
    ok "with the bits of three ranks" cmp runs/three/model.safetensors runs/awaited/model.safetensors
}

missing_nodes_are_named() {
    meet
    try timeout 300 "$paceline" launch --nnodes 2:3 --rdzv-endpoint "127.0.0.1:$port" --join-timeout 0.2 -- true
    is "$status" 1 "status 1"
    like "$err" 'the job needs 2 nodes, but only 1 joined within 0.2 s: node 1, 2 is missing' "it says which"
    try timeout 300 "$paceline" launch --nnodes 2 --node-rank 1 --rdzv-endpoint "127.0.0.1:$port" --join-timeout 0.2 -- true
    is "$status" 1 "nor is there node 0"
    like "$err" 'rank 1 could not connect to the launcher at .* for 0.2 s' "the error names address and limit"
    refused 2 'takes a number or MIN:MAX' launch --nnodes 3:2 -- true
    refused 2 'takes a number or MIN:MAX' launch --nnodes 1:2:3 -- true
}

nodes_that_differ_are_refused() {
    meet
    node 0 2 1 --set trainer.run_name=differ &
    local first=$!
    node 1 2 2 --set trainer.run_name=differ
    like "$(text err.1)" 'its ranks per node is "2", but rank 0 has "1"' "the error names the difference"
    node 1 2 1 --set trainer.run_name=differ &
    wait $first $!
    is "$(text status.0)$(text status.1)" 00 "another in its place is let in"
}

# Of more than a message of a link may have; the run directory is reported all the same.
a_run_file_of_a_megabyte_is_started_again_from_its_checkpoint() {
    mkdir large && cd large || return
    points '"max_steps": 4000, "max_epochs": -1' '{"name": "model_checkpoint", "every_n_train_steps": 50}'
    local text run
    text=$(head -c 1500000 /dev/zero | tr '\0' x) run=$(<run.json)
    printf '%s\n' "${run/\"csv\", /\"csv\", \"package\": \"$text\", }" >run.json
    ok "the file is large" test "$(wc -c <run.json)" -gt 1500000
    "$paceline" fit run.json --set trainer.devices=2 --set trainer.launcher=spawn --set trainer.run_name=large \
        >fit.out 2>fit.err </dev/null &
    pid=$!
    ok "a checkpoint is saved" holds 60 grep -q 'saved step 50' fit.err
    kill -KILL "$(rank 1)"
    wait "$pid"
    is "$?" 0 "the run ends well"
    like "$(cat fit.err)" 'resuming after step [0-9]+' "the ranks start again from the checkpoint"
    cd ..
}

run a_rank_that_is_killed_is_started_again trains
run a_rank_that_dies_before_a_save_starts_from_the_beginning trains
run a_rank_that_dies_when_its_folder_is_new_starts_from_the_beginning trains
run a_rank_that_always_dies_ends_the_launch_at_the_limit
run an_error_of_the_program_is_not_tried_again
run finished_runs_of_a_sweep_are_not_trained_again trains
run a_launch_that_is_killed_leaves_nothing_and_can_be_resumed trains
run a_node_that_is_killed_and_started_again_leaves_no_trace trains
run a_node_that_is_gone_is_left_out_and_may_return trains
run a_node_that_joins_while_a_rank_starts_is_admitted trains
run a_node_that_joins_while_ranks_are_awaited_is_admitted trains
run missing_nodes_are_named
run nodes_that_differ_are_refused trains
run a_run_file_of_a_megabyte_is_started_again_from_its_checkpoint trains
done_testing
