#!/usr/bin/env bash
# control.t - tests of paceline control: commands to a run of another process, and their errors
. "$(dirname "$0")/tap.sh"

desk=ipc://$folder/desk

# tell WORDS... - to the run at the desk
tell() {
    try timeout 300 "$paceline" control "$desk" "$@"
}

# hurried WORDS... - the words as a command of processes with a clock that is 20 times as fast
hurried() {
    ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 LD_PRELOAD=$builddir/t/.libs/clock_shift.so CLOCK_RATE=20 "$@"
}

# says PATTERN SENTENCE WORDS... - it is carried out, and the answer is that line
says() {
    tell "${@:3}"
    is "$status$err" 0 "${*:3}: status 0"
    like "$out" "$1" "$2"
}

a_run_is_commanded() {
    points
    start_endless_fit commanded --control "$desk"
    is "$(stat -c %a "$folder/desk")" 600 "its user alone reaches it"
    says '^run 1: paused after step [0-9]+$' "a pause says behind which step" pause
    says '^run 1  paused +step [0-9]+  epoch [0-9]+  runs/commanded$' "a list says so" list
    local shown
    shown=$(sed 's/.*  epoch \([0-9]*\)  .*/\1/' <<<"$out")
    tell list --json
    like "$out" "\"epoch\":$((shown - 1))," "with the epoch counted from 1, and from 0 as JSON"
    says '^run 1: saved after step [0-9]+: runs/commanded/checkpoints/asked-step=[0-9]+$' "a save says where" save
    ok "it is there" test -d "${out#*: *: }"
    says '^run 1: saved after step [0-9]+: runs/commanded/checkpoints/asked-newest$' "or by a name" save --name newest
    tell save --name ../newest
    is "$status" 2 "which is the name of a folder: status 2"
    like "$err" '^paceline: "../newest" cannot be the name of a checkpoint: use 1 to 64 letters' "with the characters of a name"
    says '^run 1: the learning rate is 0\.5 after step [0-9]+$' "a rate is set" set-lr 0.5
    says '^run 1: continues after step' "it continues" continue
    says '^run 1: the learning rate is 0\.25 times the rate of its schedule after step [0-9]+$' "or a factor" scale-lr 0.25 --run 1
    tell set-lr 1e-3 --optimizer generator
    is "$status" 2 "a step that the module has not: status 2"
    like "$err" '^paceline: .*generator' "with its name"
    tell scale-lr 1e300
    is "$status" 2 "a rate that is no float32: status 2"
    like "$err" '^paceline: the learning-rate factor 1e\+300 is not possible' "with the value"
    tell pause --json
    like "$out" '^\{"ok":true,"command":"pause","run":1,"global_step":[0-9]+' "an answer as JSON"
    tell save --run 7
    is "$status" 1 "a run that is not there: status 1"
    like "$err" '^paceline: no run 7 is active' "with its number"
    says '^run 1: stops' "a stop" stop --reason enough
    end_of_fit
    is "$status" 0 "ends the run well"
    like "$last" '"status":"stopped","reason":"enough"' "with its reason"
    is "$(grep -oE '"command": ?"[a-z_]*"' runs/commanded/commands.jsonl | sort -u | wc -l)" 5 \
        "the commands that were carried out are in its folder"
    ok "the socket goes with it" test ! -e "$folder/desk"
    hurried refused 1 'no run takes commands at .*: start the run with --control' control "$desk" pause
}

a_long_reason_is_cut() {
    points '"devices": 2, "strategy": "ddp", "launcher": "spawn"'
    start_endless_fit reasoned --control "$desk"
    says '^run 1: stops' "a stop" stop --reason "$(printf 'é%.0s' {1..1000})"
    end_of_fit
    is "$status" 0 "a long reason ends the run as well as a short one"
    like "$last" '"reason":"(é)+…"' "with so much of it as there is room for"
    like "$(cat runs/reasoned/commands.jsonl)" '"command": ?"stop", ?"reason": ?"(é)+…"' "in its folder as well"
}

an_evaluation_can_be_listed_and_stopped() {
    points
    "$paceline" fit run.json --set trainer.run_name=weights >/dev/null 2>&1
    "$paceline" test run.json --checkpoint runs/weights --set 'data={"test": {"name": "csv", "path": "points.csv"}, "batch_size": 1}' \
        --control 'tcp://127.0.0.1:*' --json >tested 2>err.txt </dev/null
    status=$? out=$(cat tested) err=$(cat err.txt)
    is "$status" 0 "a test with a socket ends well"
    like "$out" '"event":"control","endpoint":"tcp://127.0.0.1:[0-9]+"' "the address is an event"
}

a_run_at_the_other_loopback_is_reached() {
    local own_desk=$desk
    if ! grep -q '^0*1 ' /proc/net/if_inet6 2>/dev/null; then
        skip "there is no [::1]"
        return
    fi
    points
    free_port
    desk=tcp://[::1]:$port
    start_endless_fit six --control "$desk"
    says '^run 1: stops' "a stop over IPv6" stop
    end_of_fit
    is "$status" 0 "ends the run well"
    desk=$own_desk
}

wrong_requests_are_refused_before_they_are_sent() {
    refused 2 'set-lr needs a number of at least 0, not "x"' control "$desk" set-lr x
    refused 2 'set-lr needs a number of at least 0, not "-1"' control "$desk" set-lr -1
    refused 2 'set-lr needs a number of at least 0, not "nan"' control "$desk" set-lr nan
    refused 2 'scale-lr needs a number of at least 0, not "-1"' control "$desk" scale-lr -- -1
    refused 2 'set-lr needs a number of at least 0$' control "$desk" set-lr
    refused 2 'pause takes no value, but got "3"' control "$desk" pause 3
    refused 2 'no command to a run is called "paus": did you mean "pause"' control "$desk" paus
    refused 2 'no command to a run is called "halt": the commands are list, pause, continue, save, stop, set-lr, scale-lr$' \
        control "$desk" halt
    refused 2 'reason is for stop' control "$desk" pause --reason x
    refused 2 'name is for save' control "$desk" pause --name x
    refused 2 'optimizer is for set-lr and scale-lr' control "$desk" save --optimizer x
    refused 2 'control needs list' control "$desk"
    refused 2 'the request has 4[0-9]* bytes, a run takes at most 4096: give a shorter --reason' \
        control "$desk" stop --reason "$(printf 'x%.0s' {1..4090})"
    refused 2 'the request has 1[0-9]* bytes, a run takes at most 4096: give a shorter --optimizer' \
        control "$desk" set-lr 1 --optimizer "$(printf 'x%.0s' {1..100000})"
    refused 2 'cannot connect to "nonsense"' control nonsense pause
    local elsewhere
    for elsewhere in tcp://10.0.0.1:5999 tcp://run.example.org:5999 'tcp://[2001:db8::1]:5999' tcp://127.0.0.1 inproc://desk; do
        refused 2 'runs listen at ipc://FILE or tcp://127.0.0.1:PORT of their own machine' control "$elsewhere" pause
    done
    hurried refused 1 'no run takes commands at tcp://localhost:1' control tcp://localhost:1 pause
    refused 2 'cannot connect to "ipc:///nowhere/x": No such file' control ipc:///nowhere/x pause
    echo >file
    refused 2 'file is a regular file, not the socket of a run' control ipc://file pause
    if [ "$(id -u)" != 0 ]; then
        mkdir -m 000 closed
        refused 2 'cannot connect to "ipc://closed/x": Permission' control ipc://closed/x pause
        rmdir closed
    fi
    hurried refused 1 'no run takes commands at' control "$desk" pause
    points
    refused 2 '^paceline: ' fit run.json --control tcp://0.0.0.0:1
    refused 2 'control: "nonsense" is no address to listen at: write ipc://FILE or tcp' fit run.json --control nonsense
}

an_endpoint_without_a_stream_is_recognised() {
    points
    start_endless_fit commanded_only --control "$desk"
    try timeout 300 "$paceline" monitor "$desk" --duration 3
    is "$status" 1 "monitor at a desk fails"
    like "$err" 'the socket at .*desk publishes no stream; waiting' "and the cause is reported at once"
    is "$(grep -c 'no run publishes at' <<<"$err")" 0 "not that no run is there"
    like "$(tail -n 1 <<<"$err")" 'publishes no stream: use the address that fit --monitor prints$' "nor does it in the end"
    tell stop
    end_of_fit
}

an_endpoint_without_commands_is_recognised() {
    points
    start_endless_fit published --monitor "ipc://$folder/stream"
    refused 1 'the socket at .*stream takes no commands: use the address that fit --control prints' \
        control "ipc://$folder/stream" pause
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "the run has not minded"
}

a_process_that_dies_ends_the_wait() {
    points
    start_endless_fit killed --control "$desk"
    tell pause
    kill -STOP "$pid"
    hurried "$paceline" control "$desk" save >said 2>&1 </dev/null &
    local asking=$!
    holds 30 grep -q 'waiting: it may be suspended' said
    is "$?" 0 "a process that does not greet is not an absent one"
    kill -KILL "$pid"
    wait "$asking"
    is "$?" 1 "a run that was killed does not answer: status 1"
    out=$(cat said)
    like "$out" 'closed before it answered|no run takes commands' "which is said"
    end_of_fit
}

a_wait_for_a_silent_process_has_a_limit() {
    points
    start_endless_fit stopped --control "$desk"
    kill -STOP "$pid"
    hurried tell pause
    is "$status" 1 "a process that is stopped: status 1"
    like "$err" 'waiting: it may be suspended' "it is said that it is waited for"
    like "$err" 'has not answered for 30 s: if it is suspended, kill -CONT' "and then what to do"
    kill -CONT "$pid"
    says '^run 1: stops' "which helps" stop
    end_of_fit
}

run a_run_is_commanded trains
run a_long_reason_is_cut trains
run an_evaluation_can_be_listed_and_stopped trains
run a_run_at_the_other_loopback_is_reached trains
run wrong_requests_are_refused_before_they_are_sent
run an_endpoint_without_a_stream_is_recognised trains
run an_endpoint_without_commands_is_recognised trains
run a_process_that_dies_ends_the_wait trains
run a_wait_for_a_silent_process_has_a_limit trains
done_testing
