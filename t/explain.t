#!/usr/bin/env bash
# explain.t - tests of --journal, --trace, paceline replay and paceline explain: runs that end in every way, looked at afterwards
. "$(dirname "$0")/tap.sh"

points
cat >run.json <<'J'
{
  "module": {"name": "mlp", "hidden": [16]},
  "data": {"name": "csv", "path": "points.csv", "val_split": 0.2, "batch_size": 20},
  "optimizer": {"name": "adamw", "lr": 1e-2},
  "trainer": {"max_epochs": 3, "accelerator": {"name": "cpu", "threads": 1}}
}
J

# fit NAME OPTIONS...: a run with a journal; said: the explanation
fit() {
    try timeout 300 "$paceline" fit run.json --journal "$1.journal" --set trainer.run_name="$1" "${@:2}"
    said=$("$paceline" explain "$1.journal" 2>&1)
}

# Starts a run of two processes that would take for ever; waits until both have trained; children: their numbers.
start_two() {
    "$paceline" fit run.json --journal "$1.journal" --set trainer.run_name="$1" --set trainer.max_epochs=-1 \
        --set trainer.devices=2 --set 'trainer.launcher={"name": "spawn", "max_restarts": 0}' \
        "${@:2}" >out.txt 2>err.txt </dev/null &
    pid=$!
    until grep -aqs train_batch "$1.journal" || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    until [ "$("$paceline" replay "$1.journal" --speed max --json 2>/dev/null |
        grep -c '"rank": 1.*"name": "train_batch"')" -gt 20 ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    mapfile -t children < <(pgrep -P $pid)
}

end_of_two() {
    wait $pid
    status=$?
    err=$(cat err.txt)
    said=$("$paceline" explain "$1.journal" 2>&1)
}

a_run_that_ended_well() {
    fit well
    is "$status" 0 "a run"
    like "$(head -n 2 <<<"$said" | tr '\n' ' ')" '^The run ended normally after [0-9]+ steps; [a-z ]+ took [0-9]+ % of [0-9.]+ s' \
        "a sentence comes first"
    like "$said" '^  The run ended normally at [0-9.]+ s, after [0-9]+ steps' "ended well"
    local share
    share=$(sed -nE '1s/.*; (.*) took ([0-9]+) % of.*/ \2 %  \1/p' <<<"$said")
    ok "the first sentence has a share" test -n "$share"
    like "$(sed -n '/^Time of the run$/,/^$/p' <<<"$said")" " s +${share# }$" "and the table has the same: $share"
    like "$said" '^  none$' "without open calls"
    like "$said" '^ +[0-9.]+ s  [a-z.]+ for [a-z0-9. ]+: [a-z_]+, [0-9]+ times?, ?' "which actors waited for which"
    like "$said" 'actors overlap' "that waits overlap is said"
    like "$said" 'Time of the training steps, by stage'$'\n.*\n''  rank 0 .*% .* s$' "and where the time went"
    like "$said" 'Time of validation, test and prediction, by stage'$'\n.*\n''  rank 0 +[0-9.]+% +[0-9.]+% +0\.0% ' \
        "a validation has a table of its own"
    try "$paceline" explain well.journal --json
    like "$out" '"whole":true' "JSON has it too"
    like "$out" '"status":"ok"' "for programs"
}

the_sentence_names_what_took_most_of_the_time() {
    fit short --set trainer.max_steps=1
    like "$(head -n 3 <<<"$said" | tr '\n' ' ')" 'after 1 step; (start and end|writing checkpoints|validation and prediction) took' \
        "of a run of one step no step"
    fit long --set trainer.max_epochs=400 --set trainer.enable_checkpointing=false --set trainer.limit_val_batches=0
    like "$(head -n 3 <<<"$said" | tr '\n' ' ')" 'steps; training steps took [0-9]+ % of [0-9.]+ s, and [a-z]+ [0-9]+ % of a step\.' \
        "of a long one its steps, and the stage of a step"
}

a_run_that_a_callback_stopped() {
    fit stopped --set 'callbacks=[{"name": "early_stopping", "monitor": "val_loss", "patience": 1, "min_delta": 1000}]' \
        --set trainer.max_epochs=50
    is "$status" 0 "a run with a callback"
    like "$said" 'The run was stopped at .* steps: .*early_stopping' "was stopped, with the callback that did it"
}

a_run_that_met_a_nan() {
    fit nan --set optimizer.lr=1e30 --set optimizer.name=sgd
    is "$status" 1 "a run whose steps overflow"
    like "$said" '^  The run failed at .* step' "failed"
    like "$said" 'PL_ENAN' "for that reason"
    like "$said" '    because rank 0 strategy.single, called by loop.epoch for train_batch' "which is followed to its call"
    like "$said" 'Open calls at' "calls that were open then are shown"
    like "$said" 'rank 0 strategy.single: train_batch, for loop.epoch' "among it the step"
}

# doubts NAME - the number of ranks whose last messages may be missing in a journal
doubts() {
    "$paceline" replay "$1.journal" --speed max --json 2>/dev/null | grep -cE '^\{"gap": null, "rank": [01]\}$'
}

a_run_of_two_processes() {
    fit processes --set trainer.devices=2 --set 'trainer.launcher={"name": "spawn", "max_restarts": 0}'
    is "$status" 0 "a run"
    like "$said" '^  The run ended normally at' "ended well"
    is "$(doubts processes)" 0 "and each process has said how many messages there were"
}

a_run_with_a_killed_rank() {
    start_two killed
    kill -9 "${children[1]}"
    end_of_two killed
    ok "the run fails" test "$status" -ne 0
    like "$(head -n 1 <<<"$said")" '^The run failed at step [0-9]+: rank [01] was killed by SIGKILL\.$' "a sentence says how"
    like "$said" '^  The run failed at' "which is reported"
    like "$said" "rank [01] died \(.*process ${children[1]}" "and which rank died"
    like "$said" 'rank [01] loop.fit: run, for worker' "what the ranks were doing"
    like "$said" 'rank 0 ' "where the time of one went"
    like "$said" 'rank 1 ' "and of the other"
    like "$said" "  Messages of rank [01] may be missing: its process died" "and whose messages may be missing"
    is "$(doubts killed)" 1 "what the dead one had to say last is not known"
    like "$("$paceline" replay killed.journal --speed max 2>/dev/null)" \
        $'\n *messages of rank [01] may be lost: its process died\n' "which is reported as text too"
}

a_run_with_a_stuck_rank() {
    start_two stuck --set trainer.step_timeout=4                    # longer than the silence after which it is reported
    kill -STOP "${children[1]}"
    end_of_two stuck
    kill -CONT "${children[1]}" 2>/dev/null
    ok "the run fails" test "$status" -ne 0
    like "$said" 'rank [01] (silent|mute|died)' "the silent rank is named"
    is "$(grep -E 'data arrives again|went on' <<<"$said")" "" "and not as one that continues"
    like "$said" 'Open calls at' "and what was under way"
}

a_run_that_was_killed() {
    "$paceline" fit run.json --journal cut.journal --trace cut.trace --set trainer.run_name=cut \
        --set trainer.max_epochs=-1 >/dev/null 2>&1 </dev/null &
    pid=$!
    until { [ "$(stat -c %s cut.journal 2>/dev/null || echo 0)" -gt 100000 ] &&
        [ "$(stat -c %s cut.trace 2>/dev/null || echo 0)" -gt 100000 ]; } || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    kill -9 $pid
    wait $pid 2>/dev/null
    try "$paceline" explain cut.journal
    is "$status" 0 "a journal that is cut off can be explained"
    like "$out" 'ends while the run is active' "which is reported"
    like "$out" 'it has no end record after byte [0-9]+' "with its place"
    like "$out" 'rank 0 loop.fit: run, for worker' "calls that were open are known"
    try "$paceline" replay cut.journal --speed max --json
    is "$status" 1 "the messages that are there are shown"
    like "$(tail -n 2 <<<"$out" | head -n 1)" '^\{"version": 2, .*\}\}$' "line by line"
}

damage_costs_one_record_alone() {
    local at byte
    cp well.journal bad.journal
    at=$(($(stat -c %s bad.journal) / 2))
    byte=$(od -An -tu1 -j "$at" -N 1 bad.journal)
    printf "\\x$(printf %02x $((255 - byte)))" | dd of=bad.journal bs=1 seek="$at" conv=notrunc 2>/dev/null
    try "$paceline" explain bad.journal
    is "$status" 0 "a journal with a wrong byte is explained"
    like "$out" 'The run ended normally' "to its end"
    like "$(tr '\n' ' ' <<<"$out" | tr -s ' ')" 'damaged at byte [0-9]+: .* [0-9]+ bytes are lost' "the loss is reported"
    try "$paceline" replay bad.journal --speed max
    is "$status" 1 "it is shown as well, with an error at last"
    like "$out" '[0-9]+ bytes? damaged at byte [0-9]+' "the damage at its place"
    like "$out" 'host +< trainer +run' "and what comes behind it"
}

a_monitor_that_lacks_messages_does_not_know_the_end() {
    head -c $(($(stat -c %s bad.journal) * 9 / 10)) bad.journal >lacking.journal
    "$paceline" replay lacking.journal --speed max --monitor 'ipc://lacking' >/dev/null 2>&1 &
    pid=$!
    until [ -S lacking ] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    try timeout 300 "$paceline" monitor ipc://lacking --messages
    wait $pid
    like "$out" ' [0-9]+ messages? (of rank -?[0-9]+ )?lost' "a gap in a stream is shown"
    is "$status" 1 "where that is gone without the end of the run"
    like "$err" 'has ended, and [0-9]+ of its messages are lost: the end of the run is unknown' "nothing more is claimed"
}

all_runs_of_a_sweep_are_explained() {
    fit sweep --set optimizer.lr=1e-3,3e-4 --set trainer.max_epochs=1
    is "$status" 0 "a sweep"
    like "$said" '2 runs; this is about run 2' "has its runs counted"
    like "$said" '  run 1: ok, .*, 12 steps' "and listed, one a line"
    try "$paceline" explain sweep.journal --run 1 --json
    like "$out" '"run":1' "one can be chosen"
    try "$paceline" explain sweep.journal --run 3
    is "$status" 2 "one that is not there"
    like "$err" 'has 2 runs' "cannot"
}

steps_agree_with_the_answer() {
    try timeout 300 "$paceline" tune run.json --journal tuned.journal --json --set trainer.run_name=tuned
    is "$status" 0 "a search for a learning rate"
    out=$("$paceline" explain tuned.journal)
    like "$out" "The run ended normally at [0-9.]+ s, after [1-9][0-9]+ steps" "is reported with all of its steps"
    try "$paceline" explain tuned.journal --run 5
    like "$err" 'has 1 run: there is no run 5' "one run is one run"
}

explain_fits_a_terminal() {
    ok "no line is longer than 80 columns" test -z "$("$paceline" explain nan.journal | grep -E '.{81}')"
    if command -v script >/dev/null; then
        out=$(script -qec "stty cols 40; '$paceline' explain well.journal" /dev/null </dev/null | tr -d '\r')
        like "$out" '^  rank 0: data [0-9.]+%' "on a narrow terminal a table becomes sentences"
        is "$(grep -E '.{41}' <<<"$out")" "" "no line of which is longer than 40 columns"
    fi
    is "$("$paceline" explain nan.journal | grep -c PL_ENAN)" 1 "the code of an error is shown once"
}

a_trace_distinguishes_equal_names() {
    try "$paceline" fit run.json --trace two.trace --set trainer.run_name=two --set trainer.max_epochs=1 \
        --set trainer.devices=2 --set trainer.launcher=spawn
    is "$status" 0 "a run of two processes"
    out=$(cat two.trace)
    for rank in 0 1; do
        like "$out" "\"pid\":1,.*\"thread_name\".*\"proxy( #2)? of rank $rank\"" "the proxy of rank $rank has a thread"
        like "$out" "\"pid\":$((rank + 2)),.*\"process_name\".*\"rank $rank\"" "the rank is a process"
        like "$out" "\"pid\":$((rank + 2)),.*\"thread_name\".*\"worker\"" "with its worker"
    done
}

two_outputs_in_one_file_are_refused() {
    try "$paceline" fit run.json --journal both.out --trace ./both.out
    is "$status" 2 "a journal and a trace at one place"
    like "$err" '--journal both.out and --trace \./both.out are the same file' "are refused with both names"
    touch one.out
    ln one.out other.out
    try "$paceline" fit run.json --journal one.out --trace other.out
    is "$status" 2 "nor by two names of one file"
    try "$paceline" fit run.json --journal both.out --monitor ipc://both.out
    is "$status" 2 "nor as a socket"
}

an_existing_file_is_left_alone() {
    local before
    before=$(cksum <run.json)
    for option in --journal --trace; do
        try "$paceline" fit run.json "$option" run.json
        is "$status" 2 "the run file as the place of $option is refused"
        like "$err" "${option#--} run.json: the existing file is not a ${option#--} and is left unchanged" "with the reason"
    done
    is "$(cksum <run.json)" "$before" "it is left alone"
    ok "where it was" test ! -e run.json.old
    cp well.journal again.journal
    fit again
    is "$status" 0 "where a journal is"
    ok "that one is kept" cmp -s well.journal again.journal.old
}

a_file_belongs_to_one_run() {
    "$paceline" fit run.json --journal busy.journal --trace busy.trace --set trainer.run_name=busy \
        --set trainer.max_epochs=-1 --set trainer.devices=2 --set trainer.launcher=spawn >/dev/null 2>&1 </dev/null &
    pid=$!
    holds 30 grep -aqs train_batch busy.journal
    try "$paceline" fit run.json --journal busy.journal
    is "$status" 2 "a second run with its journal is refused"
    like "$err" 'journal busy.journal: another run is writing to it: choose another file' "with what to do"
    try "$paceline" fit run.json --trace busy.trace
    is "$status" 2 "as one with its trace"
    ok "nothing is set aside" test ! -e busy.journal.old -a ! -e busy.trace.old
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    rm -r runs/busy
    fit busy
    is "$status" 0 "once it was killed another run can"
    ok "and keeps the old file" test -s busy.journal.old
}

a_run_is_shown_again() {
    try "$paceline" replay well.journal --speed max
    is "$status" 0 "a journal is shown"
    like "$out" 'host +> trainer +run' "as a monitor shows a run"
    like "$out" ' model=[^ ]{110,}(…|\.\.\.) ' "where texts that are cut say so"
    lines=$(wc -l <<<"$out")
    "$paceline" replay well.journal --speed max --monitor 'ipc://stream' 2>notes.txt &
    pid=$!
    until [ -S stream ] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    try timeout 300 "$paceline" monitor ipc://stream --messages
    wait $pid
    is "$?" 0 "it is published again"
    like "$out" 'host +< trainer +run' "to its end"
    ok "for a monitor that is attached" test "$(wc -l <<<"$out")" -gt $((lines / 2))
    try "$paceline" replay well.journal --speed 0
    is "$status" 2 "a speed of 0"
    like "$err" 'takes a number of at least 1e-6, or max' "is refused"
    try "$paceline" explain run.json
    is "$status" 2 "another file"
    like "$err" 'not a Paceline journal' "is none"
}

an_unread_pipe_holds_up_no_run() {
    mkfifo pipe
    try timeout 300 "$paceline" fit run.json --journal pipe
    is "$status" 2 "a pipe without a reader is refused"
    like "$err" 'journal pipe: cannot write: no process reads it' "with the reason"
    exec {fd}<>pipe
    try timeout 300 "$paceline" fit run.json --journal pipe --set trainer.max_epochs=50
    is "$status" 0 "a run whose journal is not taken ends"
    like "$err" 'the journal pipe ends here: no process reads it any more' "and says so"
    exec {fd}>&-
    exec {fd}<>pipe
    cat <pipe >piped {fd}>&- &
    "$paceline" fit run.json --journal pipe --set trainer.max_epochs=50 >out.txt 2>&1
    exec {fd}>&-
    wait $!
    try "$paceline" explain piped --json
    like "$out" '"whole":true' "a reader gets all messages"
}

# takes WORDS... - in took, how many ms they take
takes() {
    local began=${EPOCHREALTIME/./}
    try timeout 300 "$@"
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
}

# length - in ms, from the first to the last message of a replay, which is in out
length() {
    sed -n 's/.*"time": \([0-9.]*\), .*/\1/p' <<<"$out" |
        awk 'NR == 1 { first = $1 } { last = $1 } END { printf "%d", (last - first) * 1000 }'
}

# A run that stands still for a while is long and has few messages.
a_replay_has_the_requested_speed() {
    "$paceline" fit run.json --journal still.journal --set trainer.run_name=still --set trainer.max_epochs=-1 \
        >out.txt 2>err.txt </dev/null &
    pid=$!
    holds 30 grep -aqs train_batch still.journal
    kill -STOP "$pid"
    sleep 1.5
    kill -CONT "$pid"
    kill -TERM "$pid"
    wait "$pid"
    is "$?" 0 "a run that stood still"
    takes "$paceline" replay still.journal --speed max --json
    local all=$out whole
    whole=$(length)
    ok "lasted 1.5 s, and more" at_least "$whole" 1500
    takes "$paceline" replay still.journal --json
    ok "it takes as long when nothing is said: $took ms" at_least "$took" "$whole"
    ok "not ten times as long" at_least $((whole * 10)) "$took"
    is "$out" "$all" "and shows the same as without pauses"
    takes "$paceline" replay still.journal --speed 0.7
    ok "longer at a speed of 0.7: $took ms" at_least "$took" $((whole * 10 / 7))
    takes "$paceline" replay still.journal --speed 100
    ok "at 100 its hundredth part: $took ms" at_least "$took" $((whole / 100))
    ok "or somewhat more" at_least "$whole" "$took"
    takes timeout -s TERM 0.3 "$paceline" replay still.journal --speed 0.001
    ok "a signal does not wait for the next message: $took ms" at_least 10000 "$took"
    for speed in -1 1e10 nan 2x ''; do
        try "$paceline" replay still.journal --speed "$speed"
        is "$status" 2 "a speed of '$speed' is refused"
    done
}

run a_run_that_ended_well trains
run a_run_that_a_callback_stopped trains
run a_run_that_met_a_nan trains
run a_run_of_two_processes trains
run a_run_with_a_killed_rank trains
run a_run_with_a_stuck_rank trains
run a_run_that_was_killed trains
run a_run_is_shown_again trains
run a_replay_has_the_requested_speed trains
run damage_costs_one_record_alone trains
run a_monitor_that_lacks_messages_does_not_know_the_end trains
run all_runs_of_a_sweep_are_explained trains
run steps_agree_with_the_answer trains
run explain_fits_a_terminal trains
run an_unread_pipe_holds_up_no_run trains
run a_trace_distinguishes_equal_names trains
run two_outputs_in_one_file_are_refused
run an_existing_file_is_left_alone trains
run a_file_belongs_to_one_run trains
done_testing
