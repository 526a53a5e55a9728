#!/usr/bin/env bash
# nodes.t - tests of paceline launch and of the launcher external: ranks that another launcher has started
. "$(dirname "$0")/tap.sh"

points

# ---- helpers ----

# as_rank K OF WORDS...: that rank of so many, as torchrun would tell it; out.K, err.K and status.K
as_rank() {
    TORCHELASTIC_RUN_ID=job RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=$2 LOCAL_WORLD_SIZE=$2 GROUP_RANK=0 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 300 "$paceline" "${@:3}" >"out.$1" 2>"err.$1" </dev/null
    echo $? >"status.$1"
}

# ---- one node ----

children_train_as_threads_do() {
    try timeout 300 "$paceline" launch --devices 2 -- "$paceline" fit run.json --set trainer.run_name=launched
    is "$status" 0 "status 0"
    ok "the same bits" cmp "$(inline_model 2)" runs/launched/model.safetensors
    is "$(lines "$(grep '^done' <<<"$out")")" 1 "the result is printed once"
    like "$err" '^rank 0: launcher.external: rank 0 of 2, set by Paceline' "standard error behind the rank's number"
    is "$(grep -c 'set by Paceline' <<<"$err")" 1 "once"
    is "$(ls -d runs/launched*)" runs/launched "one folder"
}

# As with a container for each rank: there the number of the launcher's process names no process.
ranks_in_namespaces_of_their_own_train_as_threads_do() {
    unshare --pid --fork --mount-proc true 2>/dev/null || { skip "no PID namespace can be made here"; return; }
    try timeout 300 "$paceline" launch --devices 2 -- unshare --pid --fork --mount-proc "$paceline" fit run.json \
        --set trainer.run_name=apart
    is "$status" 0 "status 0"
    ok "the same bits" cmp "$(inline_model 2)" runs/apart/model.safetensors
}

any_port_will_do_on_one_node() {
    try timeout 300 "$paceline" launch --devices 2 --rdzv-endpoint 127.0.0.1:0 -- "$paceline" fit run.json \
        --set trainer.run_name=any
    is "$status" 0 "status 0"
    ok "the same bits" cmp "$(inline_model 2)" runs/any/model.safetensors
    refused 2 '--rdzv-endpoint to the HOST:PORT' launch --nnodes 2 --rdzv-endpoint 127.0.0.1:0 -- true
    refused 2 'with a port from 1 to 65535' launch --rdzv-endpoint 127.0.0.1:65536 -- true
    refused 2 'is not a HOST:PORT' launch --rdzv-endpoint 127.0.0.1 -- true
}

the_key_is_found_by_its_variable() {
    local show='echo "$PACELINE_JOB_KEY_FILE"'
    export PACELINE_JOB_KEY_FILE=named.key
    try timeout 300 "$paceline" launch -- sh -c "$show"
    is "$out" "$folder/named.key" "ranks get the file that it names"
    is "$(stat -c %a named.key)" 600 "which is made when it is not there"
    try timeout 300 "$paceline" launch --job-key given.key -- sh -c "$show"
    is "$out" "$folder/given.key" "an option counts instead"
    chmod 644 named.key
    refused 2 'named.key: other users may read or write it' launch -- true
    PACELINE_JOB_KEY_FILE= try timeout 300 "$paceline" launch -- sh -c "$show"
    is "$status$out" 0 "an empty one names none"
    PACELINE_JOB_KEY_FILE= refused 2 'name its file, .*--job-key or PACELINE_JOB_KEY_FILE' \
        launch --rdzv-endpoint 10.1.2.3:5000 -- true
    unset PACELINE_JOB_KEY_FILE
}

a_process_may_train_again() {
    try timeout 300 "$paceline" launch --devices 3 "$paceline" fit run.json --set optimizer.lr=1e-2,1e-3
    is "$status" 0 "status 0"
    is "$(lines "$(grep -c '"train_loss"' runs/000[12]/metrics.jsonl)")" 2 "two runs"
    like "$out" '0.001' "and a table"
}

contradictions_are_refused_with_both_names() {
    refused_by_rank() {
        PACELINE_RANK=0 PACELINE_WORLD_SIZE=4 PACELINE_LOCAL_RANK=0 PACELINE_LOCAL_WORLD_SIZE=2 \
            refused 2 "$1" fit run.json "${@:2}"
    }
    refused_by_rank '"trainer.devices" is 3, but Paceline has started 2 ranks on each node' --set trainer.devices=3
    refused_by_rank '"trainer.num_nodes" is 4, but Paceline has started 2 nodes' --set trainer.num_nodes=4
    refused_by_rank 'the number of ranks is 4, but strategy "single"' --set trainer.strategy=single
    refused 2 '"trainer.num_nodes" is 2, but launcher "inline" uses one node.*paceline launch' \
        fit run.json --set trainer.num_nodes=2
    refused 2 '2 nodes need an address' launch --nnodes 2 -- true
    refused 2 'need the key of the job' launch --rdzv-endpoint 10.1.2.3:5000 -- true
    refused 2 'node rank 1 of 1 nodes' launch --node-rank 1 -- true
    refused 2 '1025 ranks on each of 1 nodes: a job has 1 to 1024 ranks' launch --devices 1025 -- true
    refused 2 'launch needs PROGRAM' launch --devices 2
}

a_rank_without_an_address_is_an_error() {
    PACELINE_RANK=0 PACELINE_WORLD_SIZE=2 try "$paceline" fit run.json
    is "$status" 2 "status 2"
    like "$err" 'set PACELINE_ENDPOINT' "it says what to set"
    try "$paceline" fit run.json --set trainer.launcher=external
    like "$err" 'use paceline launch' "or what to use"
}

# As Kubeflow's PyTorchJob or a script starts them, without torchrun.
rank_and_world_size_alone_make_one_run() {
    free_port
    inline_model 2 >/dev/null
    export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port
    RANK=1 timeout 300 "$paceline" fit run.json >out.1 2>err.1 </dev/null &
    local other=$!
    RANK=0 try timeout 300 "$paceline" fit run.json --set trainer.run_name=plain
    is "$status" 0 "rank 0"
    wait "$other"
    is $? 0 "rank 1"
    like "$err" 'rank 0 of 2, set by the environment' "it says why"
    ok "the bits of two ranks" cmp "$(inline_model 2)" runs/plain/model.safetensors
    RANK=1 refused 2 'the environment has started 2 ranks' fit run.json --set trainer.launcher=inline
    unset MASTER_PORT
    RANK=1 refused 2 'MASTER_PORT is not: set it' fit run.json
    refused 2 'WORLD_SIZE is 2, but RANK is not set' fit run.json
    unset WORLD_SIZE MASTER_ADDR
    is "$(ls -d runs/plain*)" runs/plain "one folder"
}

# port, of so many at which nothing listens, one behind the other
free_ports() {
    local first k
    while :; do
        free_port
        first=$port
        for ((k = 1; k < $1; k++)); do
            port=$((first + k))
            listens && break
        done
        [ "$k" -lt "$1" ] || break
    done
    port=$first
}

# Rank 0 listens for results, and both for what they exchange.
ranks_listen_in_the_port_range() {
    local all='--set trainer.strategy={"name":"ddp","collective":"tcp"}'
    free_ports 4
    inline_model 2 >/dev/null
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    pair() {
        RANK=1 timeout 300 "$paceline" fit run.json $all "${@:2}" >out.1 2>err.1 </dev/null &
        local other=$!
        RANK=0 try timeout 300 "$paceline" fit run.json $all --set "trainer.run_name=$1" "${@:2}"
        wait "$other"
        other=$?
        is $((status != 0)) $((other != 0)) "both ranks end alike"
    }
    PACELINE_PORT_RANGE=$((port + 1))-$((port + 3)) pair ranged
    is "$status" 0 "three ports are enough"
    ok "the bits of two ranks" cmp "$(inline_model 2)" runs/ranged/model.safetensors
    pair narrow --set "trainer.launcher={\"name\":\"external\",\"port_range\":\"$((port + 1))-$((port + 2))\"}"
    ok "two are not" test "$status" != 0
    like "$err$(cat err.1)" "no port from $((port + 1)) to $((port + 2)) is free at 127.0.0.1" "the error names them"
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
    narrow() {
        timeout 300 "$paceline" launch --nnodes 2 --node-rank "$1" --devices 2 --port-range "$((port + 1))-$((port + 1))" \
            --rdzv-endpoint "127.0.0.1:$port" -- "$paceline" fit run.json $all </dev/null
    }
    narrow 1 >out.1 2>err.1 &
    try narrow 0
    wait $!
    ok "one port is not enough for four ranks" test "$status" != 0
    like "$err$(cat err.1)" "no port from $((port + 1)) to $((port + 1)) is free" "the error names the range"
    is "$(grep -c 'in use by process' <<<"$err$(cat err.1)")" 0 "not a rank itself as the holder"
    refused 2 'the port range "20100-20000" is not FIRST-LAST' launch --port-range 20100-20000 -- true
    refused 2 'the port range "http" is not FIRST-LAST' launch --port-range http -- true
    try timeout 300 "$paceline" launch --port-range 20000-20100 -- sh -c 'echo $PACELINE_PORT_RANGE'
    is "$out" 20000-20100 "ranks inherit it"
}

an_error_of_all_ranks_is_printed_once() {
    local text='"trainer.devices" is 3, but Paceline has started 2 ranks'
    try timeout 300 "$paceline" launch --devices 2 -- bash -c 'trap "" TERM; "$0" "$@"; exit' \
        "$paceline" fit run.json --set trainer.devices=3
    is "$status" 2 "status 2"
    is "$(grep -c "^rank [01]: paceline: $text" <<<"$err")" 1 "a contradiction: one rank says it"
    is "$(lines "$err")" 2 "and the first rank that ended is named"
    try timeout 300 "$paceline" launch --devices 2 -- "$paceline" fit run.json --set data.path=nowhere.csv
    is "$status" 2 "status 2"
    is "$(grep -c '^rank [01]: paceline: .*nowhere.csv' <<<"$err")" 1 "an error that all ranks get is printed by one"
    try "$paceline" launch --devices 2 -- sh -c 'echo the same >&2'
    is "$(lines "$err")" 2 "what a program says of each rank: both"
}

# Whichever rank ends first.
an_error_found_late_is_no_wrong_request() {
    local k
    cp points.csv late.csv
    sed -i '$s/,[0-9]*$/,7/' late.csv                       # a class more than there are
    for k in 1 2 3 4; do
        try timeout 300 "$paceline" launch --devices 2 -- "$paceline" fit run.json --set data.path=late.csv \
            --set module.classes=3 --set data.val_split=0 --set data.shuffle=false
        is "$status" 1 "found by a step: status 1"
    done
    like "$err" 'got index 7' "which tells the label"
}

a_rank_that_fails_ends_all() {
    try timeout 300 "$paceline" launch --devices 3 -- sh -c \
        'echo "I am $PACELINE_RANK" >&2; touch spoke.$PACELINE_RANK
         if [ $PACELINE_RANK = 1 ]; then until [ -e spoke.2 ]; do :; done; echo "went wrong" >&2; exit 7; fi
         exec sleep 50'
    is "$status" 7 "the status of the first that failed"
    like "$err" '^rank 2: I am 2' "what they say comes with their number"
    is "$(grep -c 'went wrong' <<<"$err")" 1 "once"
    like "$err" '^rank 1: went wrong$' "also why one failed"
    like "$err" '^paceline: rank 1 \(process [0-9]+\) exited with status 7$' "it says which"
    try "$paceline" launch -- no-such-program
    is "$status" 2 "what cannot be started is refused"
    like "$err" 'no-such-program' "with its name"
}

# Rank 1 ends when it is known that rank 0 has.
a_cause_counts_although_its_consequence_is_noticed_first() {
    local end
    for end in 'kill -9 $$:137:was killed by SIGKILL' 'exit 3:3:exited with status 3'; do
        IFS=: read -r how expected text <<<"$end"
        rm -f first
        try timeout 300 "$paceline" launch --devices 3 --max-restarts "$((expected == 3))" -- bash -c \
            'case $PACELINE_RANK in
             0) echo $$ >first.new; mv first.new first; exit 75 ;;
             1) trap "" TERM; until [ -e first ]; do sleep 0.01; done
                while kill -0 $(cat first) 2>/dev/null; do sleep 0.01; done
                '"$how"' ;;
             2) exec sleep 50 ;;
             esac'
        is "$status" "$expected" "the status is the cause's: $how"
        like "$err" "^paceline: rank 1 .* $text" "which is named"
        ok "alone" eval '! grep -q "rank 0\|again" <<<"$err"'
    done
}

a_rank_that_ends_before_it_joins_is_missed_at_once() {
    local rank last='exited with status 0 before it joined'
    for rank in 0 1 2; do
        try timeout 300 "$paceline" launch --devices 3 -- bash -c \
            'if [ $PACELINE_RANK = '$rank' ]; then echo "what for" >&2; else exec "$0" "$@"; fi' \
            "$paceline" fit run.json
        is "$status" 1 "rank $rank leaves with status 0: status 1"
        like "$err" "rank $rank \(process [0-9]+\) $last; its last words: what for" "the others name the missing rank"
    done
    try timeout 300 "$paceline" launch --devices 2 -- bash -c \
        'exec "$0" "$@" --set optimizer.lr=1e-2$([ $PACELINE_RANK = 1 ] || echo ,1e-3)' "$paceline" fit run.json
    is "$status" 1 "one that trains once where the others do twice: status 1"
    like "$err" "rank 1 \(process [0-9]+\) $last" "it is missed in the second run"
    rm -f first
    try timeout 300 "$paceline" launch --devices 2 -- bash -c \
        '[ $PACELINE_RANK = 0 ] || { echo $$ >first.new; mv first.new first; exit 0; }
         until [ -e first ]; do sleep 0.01; done; while kill -0 $(cat first) 2>/dev/null; do sleep 0.01; done'
    is "$status" 0 "programs that do not meet end when they like"
}

# as_node K WORDS...: that node of two; err.K and status.K
as_node() {
    timeout 300 "$paceline" launch --nnodes 2 --node-rank "$1" --rdzv-endpoint 127.0.0.1:$port --max-restarts 0 -- \
        "${@:2}" >"out.$1" 2>"err.$1" </dev/null
    echo $? >"status.$1"
}

a_rank_of_another_node_that_ends_before_it_joins_is_missed_at_once() {
    local rank other
    for rank in 0 1; do
        other=$((1 - rank))
        free_port
        as_node $rank sh -c 'echo "what for" >&2' &
        local pid=$!
        as_node $other "$paceline" fit run.json
        wait $pid
        is "$(text status.$other)" 1 "rank $rank leaves with status 0: status 1"
        like "$(text err.$other)" "rank $rank \(process [0-9]+\) exited with status 0 before it joined; its last words: what for" \
            "the other names the missing rank"
    done
}

# On any but the first the run itself tells nothing.
each_node_prints_its_role() {
    free_port
    as_node 1 sh -c : &
    local pid=$!
    as_node 0 sh -c :
    wait $pid
    is "$(text status.0)$(text status.1)" 00 "both end well"
    like "$(text err.1)" "^paceline: node 1 connects to node 0 at 127.0.0.1:$port" "where it looks for the first"
    like "$(text err.1)" 'paceline: rank 1 of 2 starts here' "which rank is here"
    is "$(tail -n 1 err.1)" "paceline: all ranks have ended" "how it ended"
    as_node 1 sh -c : &
    pid=$!
    as_node 0 sh -c 'exit 3'
    wait $pid
    is "$(text status.1)" 3 "where another failed: its status"
    like "$(tail -n 1 err.1)" '^paceline: rank 0 .* exited with status 3' "and which"
}

a_signal_is_passed_on() {
    "$paceline" launch --devices 2 -- "$paceline" fit run.json --json --set trainer.max_epochs=-1 \
        --set trainer.run_name=stopped >events 2>err.txt </dev/null &
    local pid=$!
    until grep -q '"train"' events || ! kill -0 $pid 2>/dev/null; do :; done
    kill -TERM $pid
    wait $pid
    is $? 0 "status 0: stopped and saved"
    like "$(tail -n 1 events)" '"status":"stopped"' "the run's result"
    ok "it is saved" test -e runs/stopped/model.safetensors
}

# No variable says how many ranks a node has.
a_stop_while_ranks_are_missing_ends_at_once() {
    local name
    free_port
    for name in INT TERM; do
        rm -f err.txt
        PACELINE_RANK=0 PACELINE_WORLD_SIZE=2 PACELINE_ENDPOINT=127.0.0.1:$port timeout 50 \
            "$paceline" fit run.json >out.txt 2>err.txt </dev/null &
        local pid=$!
        until grep -qs 'the ranks connect at' err.txt || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
        kill -$name $pid
        wait $pid
        is $? "$([ $name = INT ] && echo 130 || echo 1)" "$name is handled"
        like "$(text err.txt)" 'stopped before all ranks had joined' "and reported"
    done
}

a_rank_that_is_killed_ends_the_run() {
    timeout 300 "$paceline" monitor "ipc://$folder/killed" --topic=-1.trainer >seen 2>seen.err &
    try timeout 300 "$paceline" launch --devices 2 --max-restarts 0 -- bash -c \
        'if [ $PACELINE_RANK = 1 ]; then "$0" "${@}" & until grep -qs "global_step=[1-9]" seen; do sleep 0.02; done
         kill -9 $!; wait $!; else exec "$0" "${@}"; fi' \
        "$paceline" fit run.json --set trainer.max_epochs=-1 --monitor "ipc://$folder/killed"
    wait
    is "$status" 137 "the status of the one that was killed, not of the one that has lost it"
    like "$(text seen)" 'watch rank 1 cut \(.*; process [0-9]+ on [^ ]+, step [0-9]+, last heard [0-9.]+ s ago\)' \
        "that the link is gone is an event"
    like "$(text seen)" 'watch rank 1 gone \(its process has died; process [0-9]+ on ' "and, on this machine, that it is for good"
    ok "no death is reported" eval '! grep -q "rank 1 died" seen'
    like "$err" '^rank 0: .*rank 1' "rank zero names it"
}

the_stream_has_ranks_of_other_nodes() {
    "$paceline" launch --devices 2 -- "$paceline" fit run.json --set trainer.max_epochs=-1 \
        --set trainer.run_name=watched --monitor "ipc://$folder/stream" >out.txt 2>err.txt </dev/null &
    local pid=$!
    try timeout 300 "$paceline" monitor "ipc://$folder/stream" --topic 1.strategy.ddp.train_batch --json --count 5
    local first=$out
    is "$status" 0 "status 0"
    is "$(grep -c '"rank": 1, .*"name": "train_batch"' <<<"$out")" 5 "five messages of the other rank"
    try timeout 300 "$paceline" monitor "ipc://$folder/stream" --topic 0. --json --count 1
    is "$(sed 's/.*"run": "\([^"]*\)".*/\1/' <<<"$out" | sort -u)" \
        "$(sed 's/.*"run": "\([^"]*\)".*/\1/' <<<"$first" | sort -u)" "of the same run as those of rank 0"
    kill -TERM $pid
    wait $pid
    is $? 0 "and it ends as without a viewer"
}

# ---- by variables of others, over TCP ----

variables_of_torchrun_are_enough() {
    free_port
    as_rank 1 2 fit run.json --set trainer.run_name=torch &
    local pid=$!
    as_rank 0 2 fit run.json --set trainer.run_name=torch
    wait $pid
    is "$(text status.0)$(text status.1)" 00 "both end well"
    ok "the same bits" cmp "$(inline_model 2)" runs/torch/model.safetensors
    like "$(text err.1)" "rank 1 of 2, set by torchrun; the ranks connect at tcp://127.0.0.1:$port" \
        "the source is named"
    is "$(text out.1)" "" "one of them writes the result"
}

# Of the one that waits in vain; the other is as patient as usual, as it starts first.
short='{"name": "external", "join_timeout": 1.5}'

a_rank_that_never_comes_is_named() {
    local hasty='{"name": "external", "join_timeout": 4}'
    free_port
    as_rank 1 3 fit run.json --set trainer.launcher="$hasty" &
    local pid=$!
    as_rank 0 3 fit run.json --set trainer.launcher="$hasty"
    wait $pid
    is "$(text status.0)$(text status.1)" 11 "both fail"
    like "$(text err.0)" 'not joined within 4 s at tcp://.*: rank 2' "rank 2 is missing, says rank 0"
    like "$(text err.1)" 'not joined within 4 s at tcp://.*: rank 2' "and rank 1 gets it"
}

a_rank_with_another_key_is_refused() {
    free_port
    "$paceline" launch --job-key right.key -- true
    "$paceline" launch --job-key wrong.key -- true
    is "$(stat -c %a right.key)" 600 "the key is its owner's alone"
    local key='{"name": "external", "join_timeout": 1.5, "job_key": "%s"}'
    local patient='{"name": "external", "job_key": "right.key"}'
    as_rank 1 2 fit run.json --set trainer.launcher="$(printf "$key" wrong.key)" &
    local pid=$!
    as_rank 0 2 fit run.json --set trainer.launcher="$(printf "$key" right.key)"
    wait $pid
    is "$(text status.0)$(text status.1)" 11 "both fail"
    like "$(text err.0)" 'connection of an unknown peer was refused: .* has another key: use the same job key file' "rank 0 reports the connection"
    like "$(text err.0)" 'not joined within 1.5 s at tcp://.*: rank 1; [0-9]+ connections? without its key' "and names the missing rank, with the reason"
    like "$(text err.1)" 'and is the job key the same' "rank 1 guesses why"
    as_rank 1 2 fit run.json --set trainer.launcher="$short" &
    pid=$!
    as_rank 0 2 fit run.json --set trainer.launcher="$(printf "$key" right.key)"
    wait $pid
    is "$(text status.0)$(text status.1)" 11 "with no key both fail too"
    like "$(text err.0)" 'not joined within 1.5 s at tcp://.*: rank 1' "as nothing of it came through"
    as_rank 1 2 fit run.json --set trainer.run_name=keys --set trainer.launcher="$patient" &
    pid=$!
    as_rank 0 2 fit run.json --set trainer.run_name=keys --set trainer.launcher="$patient"
    wait $pid
    ok "with the right one it trains the same" cmp "$(inline_model 2)" runs/keys/model.safetensors
    chmod 644 right.key
    refused 2 'other users may read or write it' launch --job-key right.key -- true
}

a_second_process_of_a_rank_is_refused() {
    free_port
    as_rank 0 3 fit run.json --set trainer.launcher="${short/1.5/5}" &
    local first=$!
    as_rank 1 3 fit run.json &
    local second=$!
    (
        cd "$folder" || exit
        TORCHELASTIC_RUN_ID=job RANK=1 LOCAL_RANK=1 WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 GROUP_RANK=0 \
            MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 300 "$paceline" fit run.json >out.twin 2>err.twin </dev/null
    )
    wait $first $second
    like "$(text err.1)$(text err.twin)" 'another process already has that rank' "one of the two gets the reason"
}

ranks_that_differ_are_refused() {
    free_port
    as_rank 1 2 fit run.json --set trainer.accelerator.threads=2 &
    local pid=$!
    as_rank 0 2 fit run.json --set trainer.launcher="$short"
    wait $pid
    like "$(text err.1)" 'rank 1 is refused: its threads per rank is "2", but rank 0 has "1"' "in threads"
    free_port
    as_rank 1 2 validate run.json --checkpoint "$(inline_model 2)" &
    pid=$!
    as_rank 0 2 fit run.json --set trainer.launcher="$short"
    wait $pid
    like "$(text err.1)" 'rank 1 is refused: its stage is "validate"' "in what they do"
    free_port
    as_rank 1 2 fit run.json --set trainer.accelerator.instructions=portable &
    pid=$!
    as_rank 0 2 fit run.json --set trainer.launcher="$short"
    wait $pid
    if [ "$(text status.1)" = 0 ]; then skip "this machine has one instruction set"; return; fi
    like "$(text err.1)" 'rank 1 is refused: its instruction set is "portable", but rank 0 has' "in instructions"
}

# refused_in WHAT OTHER OWN - rank 1, which $pid is, ends as it is another in that than rank 0, which begins now
refused_in() {
    as_rank 0 2 fit run.json --set trainer.launcher="$short"
    wait $pid
    like "$(text err.1)" "rank 1 is refused: its $1 is \"$2\", but rank 0 has \"$3\"" "in $1"
}

# Another oneDNN, and another release of Paceline, by what they say of themselves.
ranks_of_other_libraries_are_refused() {
    local pid own other
    free_port
    LD_PRELOAD=$builddir/t/.libs/other_library.so ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 \
        as_rank 1 2 fit run.json &
    pid=$!
    refused_in 'compute library' 'oneDNN 9.8.7' 'oneDNN [0-9.]+'
    own=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' "$builddir/config.h")
    other=9${own#?}                             # its tail may be another text of the library, too
    mkdir other
    sed "s/${own//./[.]}/$other/g" "$builddir/.libs/libpaceline.so.0" >other/libpaceline.so.0
    free_port
    LD_LIBRARY_PATH=$PWD/other PACELINE_PLUGIN_PATH=$builddir/examples/.libs paceline=$builddir/.libs/paceline \
        as_rank 1 2 fit run.json &
    pid=$!
    refused_in version "$other" "$own"
}

ranks_with_processors_of_their_own_use_them_all() {
    [ "$(nproc)" -ge 2 ] || { skip "there is one processor"; return; }
    as_bound() {
        OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_LOCAL_RANK=$1 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
            OMPI_MCA_orte_bound_at_launch=$2 PACELINE_ENDPOINT=127.0.0.1:$port timeout 300 "$paceline" fit run.json \
            --set trainer.launcher="$3" --set trainer.accelerator.threads=0 >"out.$1" 2>"err.$1" </dev/null
    }
    free_port
    as_bound 1 "" external &
    local pid=$! all half
    all=$(nproc) half=$((all / 2))
    as_bound 0 1 "$short"
    wait $pid
    like "$(text err.1)" "threads per rank is \"$half\", but rank 0 has \"$all\"" "and half of them when two share"
}

# ---- two nodes ----

nodes_of_two_networks_train_as_threads_do() {
    local a=pl-a-$$ b=pl-b-$$
    ip netns add "$a" 2>/dev/null || { skip "network namespaces need root"; return; }
    ip netns add "$b"
    ip link add "v$$a" netns "$a" type veth peer name "v$$b" netns "$b"
    ip -n "$a" addr add 10.77.0.1/24 dev "v$$a"
    ip -n "$b" addr add 10.77.0.2/24 dev "v$$b"
    for n in "$a lo" "$a v$$a" "$b lo" "$b v$$b"; do ip -n ${n% *} link set ${n#* } up; done
    on_node() {
        ip netns exec "$2" timeout 300 "$paceline" launch --nnodes 2 --node-rank "$1" --rdzv-endpoint 10.77.0.1:15000 \
            --job-key job.key -- "$paceline" fit run.json "${@:3}" >"out.$1" 2>"err.$1" </dev/null
        echo $? >"status.$1"
    }
    on_node 1 "$b" --set trainer.run_name=nodes &
    local pid=$!
    on_node 0 "$a" --set trainer.run_name=nodes
    wait $pid
    local ends
    ends=$(text status.0)$(text status.1)
    if [ "$ends" = 00 ]; then
        set -- --set trainer.max_epochs=100 --set trainer.run_name=longer --monitor "ipc://$folder/nodes"
        on_node 1 "$b" "$@" &
        on_node 0 "$a" "$@" &
        timeout 300 "$paceline" monitor "ipc://$folder/nodes" --topic 1.strategy.ddp.train_batch --json --count 5 >seen
        wait
    fi
    ip netns del "$a"
    ip netns del "$b"
    if grep -q 'built without libsodium' err.0; then skip "there is no libsodium"; return; fi
    is "$ends" 00 "both end well"
    like "$(text err.0)" 'tcp moves the data of the 2 ranks' "over the wire"
    ok "the same bits" cmp "$(inline_model 2)" runs/nodes/model.safetensors
    like "$(text seen)" '"rank": 1, .*"name": "train_batch"' "and the stream has the rank of the other node"
}

# ---- mpirun ----

# Each kind tells a process its place by variables of its own.
mpirun_starts_ranks() {
    local kind
    try "$paceline" fit run.json --set trainer.run_name=four --set trainer.devices=4
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    for kind in mpich:MPICH openmpi:'Open MPI'; do
        command -v "mpirun.${kind%:*}" >/dev/null || { skip "there is no mpirun.${kind%:*}"; continue; }
        free_port
        PACELINE_ENDPOINT=tcp://127.0.0.1:$port try timeout 300 "mpirun.${kind%:*}" -n 4 "$paceline" fit run.json \
            --set trainer.run_name="${kind%:*}"
        is "$status" 0 "${kind#*:}: status 0"
        is "$(grep -c "rank . of 4, set by ${kind#*:};" <<<"$err")" 4 "four ranks know their launcher"
        is "$(lines "$(grep '^done' <<<"$out")")" 1 "one of them tells the result"
        ok "and it equals the model of four threads, bit for bit" cmp runs/four/model.safetensors "runs/${kind%:*}/model.safetensors"
    done
}

# Ranks of the second come to the first while that still waits for one of its own.
jobs_of_mpich_do_not_mix() {
    command -v mpirun.mpich >/dev/null || { skip "there is no mpirun.mpich"; return; }
    free_port
    export PACELINE_ENDPOINT=tcp://127.0.0.1:$port
    timeout 300 mpirun.mpich -n 2 sh -c '[ "$PMI_RANK" = 0 ] || until [ -e tried ]; do sleep 0.05; done; exec "$@"' sh \
        "$paceline" fit run.json --set trainer.run_name=mine >out.1 2>err.1 </dev/null &
    local pid=$!
    until grep -qs 'the ranks connect at' err.1 || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    try timeout 300 mpirun.mpich -n 2 sh -c '"$@"; true' sh "$paceline" fit run.json --set trainer.run_name=other
    touch tried
    wait $pid
    is $? 0 "the first trains with its own ranks"
    like "$err" 'is in use by process' "rank 0 of the second gets the process that is there"
    like "$err" 'rank 1 is refused: it belongs to another run' "and its rank 1 that it is of another"
    unset PACELINE_ENDPOINT
}

run children_train_as_threads_do trains
run ranks_in_namespaces_of_their_own_train_as_threads_do trains
run any_port_will_do_on_one_node trains
run the_key_is_found_by_its_variable
run a_process_may_train_again trains
run contradictions_are_refused_with_both_names trains
run a_rank_without_an_address_is_an_error trains
run rank_and_world_size_alone_make_one_run trains
run ranks_listen_in_the_port_range trains
run an_error_of_all_ranks_is_printed_once trains
run an_error_found_late_is_no_wrong_request trains
run a_rank_that_fails_ends_all
run a_cause_counts_although_its_consequence_is_noticed_first
run a_rank_that_ends_before_it_joins_is_missed_at_once trains
run a_rank_of_another_node_that_ends_before_it_joins_is_missed_at_once trains
run each_node_prints_its_role
run a_signal_is_passed_on trains
run a_stop_while_ranks_are_missing_ends_at_once trains
run a_rank_that_is_killed_ends_the_run trains
run the_stream_has_ranks_of_other_nodes trains
run variables_of_torchrun_are_enough trains
run a_rank_that_never_comes_is_named trains
run a_rank_with_another_key_is_refused trains
run a_second_process_of_a_rank_is_refused trains
run ranks_that_differ_are_refused trains
run ranks_of_other_libraries_are_refused trains
run ranks_with_processors_of_their_own_use_them_all trains
run nodes_of_two_networks_train_as_threads_do trains
run mpirun_starts_ranks trains
run jobs_of_mpich_do_not_mix trains
done_testing
