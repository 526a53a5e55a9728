#!/usr/bin/env bash
# top.t - tests of paceline top, on a terminal of tmux: contents, keys, sizes, and the end
. "$(dirname "$0")/tap.sh"

stream=ipc://$folder/stream
desk=ipc://$folder/desk
terminals=0
tmux() { command tmux -f /dev/null -S "$folder/tmux$terminals" "$@" 2>/dev/null; }
trap 'tmux kill-server; rm -rf "$folder"' EXIT

# top COLUMNS ROWS WORDS... - paceline top on a terminal of its own; its exit status is in left
top() {
    tmux kill-server
    terminals=$((terminals + 1))
    rm -f before after left
    tmux new-session -d -x "$1" -y "$2" "cd $folder; ${setting-} sh -c 'trap : INT; stty -g >before
        $paceline top ${*:3} 2>err
        status=\$?; stty -g >after; echo \"status \$status\" >left; sleep 60'"
}

# screen - what stands there
screen() { tmux capture-pane -p; }
has() { screen | grep -qE -- "$1"; }
shows() {
    holds 30 has "$1"
    out=$(screen)
    like "$out" "$1" "${2:-it shows $1}"
}
fits() { ok "no line is longer than $1" test "$(screen | awk '{ if (length > most) most = length } END { print most }')" -le "$1"; }

# written - the bytes that paceline top has written so far; draws BYTES - it has written more
written() {
    local child
    child=$(pgrep -P "$(tmux list-panes -F '#{pane_pid}')" -f "paceline top" | head -n 1)
    sed -n 's/^wchar: //p' "/proc/$child/io"
}
draws() { [ "$(written)" -gt "$1" ]; }

is_training() { has '[1-9][0-9.]*k? steps/s'; }

# leaves STATUS KEYS SENTENCE - it ends with that status, and the terminal is as it was
leaves() {
    tmux send-keys $2
    holds 30 test -s left
    is "$(cat left 2>&1)" "status $1" "$3"
    is "$(cat after)" "$(cat before)" "the terminal is as it was"
}

# train WORDS... - a run that does not end by itself, published, which takes commands
train() {
    points
    "$paceline" fit run.json --set trainer.max_epochs=-1 --monitor "$stream" --control "$desk" "$@" \
        >fit.out 2>fit.err </dev/null &
    pid=$!
    holds 60 grep -q 'epoch 2' fit.err
}

end() {
    kill -TERM "$pid" 2>/dev/null
    wait "$pid"
}

a_run_is_shown_in_80_columns() {
    train --set trainer.devices=2 --set trainer.launcher=spawn
    top 80 24 "$stream"
    shows '^run .*epoch [0-9]+  step [0-9]+' "a run that was under way before: how far it is"
    shows '[0-9.]+k? steps/s  .*step now [0-9.]+ [mu]s p50, [0-9.]+ [mu]s p95' "its speed, and what steps take"
    shows '^CPU [0-9]+\.[0-9] of [0-9]+ cores  memory [0-9.]+ MiB' "processors in use, and memory"
    ok "some of them" test "$(screen | sed -n 's/^CPU \([0-9]*\)\.\([0-9]\) .*/\1\2/p')" -gt 0
    shows '^loss [0-9.e-]+ [_.,=+*#-]+ [0-9.e-]+$' "the curve of the loss"
    shows '^rank +memory +a step +data +forward +backward +collective +optimizer +engine$' "a table of ranks"
    for rank in 0 1; do
        shows "^$rank +[0-9.]+ MiB +[0-9.]+ [mu]?s +([0-9]+ % +){5}[0-9]+ %\$" "with rank $rank: memory, and where its time goes"
    done
    ok "actors are not shown" bash -c "! grep -q '^actor ' <<<'$(screen)'"
    tmux send-keys a
    shows '[0-9.]+k? messages/s' "a key shows messages"
    shows '^actor +waiting +messages/s +seen +level$' "and a table of actors"
    shows '^strategy\.ddp +[0-9]+ +[0-9.]+k? +[0-9.]+k? +30$' "with the strategy: what waits, what comes"
    shows '^and [0-9]+ more actors$' "and how many there is no room for"
    is "$(screen | tail -n 1)" "q quit  a actors" "the last line has the keys"
    fits 80
    tmux send-keys p
    shows 'this key needs --control' "no key commands it without --control"
    leaves 0 q "q leaves it"
    end
    is "$?" 0 "the run has not minded"
}

top_fits_any_terminal() {
    train
    top 40 16 "$stream"
    shows '^rank +data +fwd +bwd +coll +opt +eng$' "in 40 columns names are short"
    shows '^0( +[0-9]+%){6}$' "parts are there all the same, and stand apart"
    tmux send-keys a
    shows '^strategy\.single +[0-9]+ +[0-9.]+k?$' "and actors, which a key shows"
    fits 40
    tmux resize-window -x 100 -y 30
    shows '^rank +memory +a step' "it takes more room when it gets it"
    fits 100
    for size in '20 6' '5 3' '1 1'; do
        drawn=$(written)
        tmux resize-window -x "${size% *}" -y "${size#* }"
        ok "it draws on a terminal of $size" holds 30 draws "$drawn"
    done
    tmux resize-window -x 80 -y 24
    shows '^rank +memory +a step' "and outlives having next to none"
    leaves 0 q "q leaves it"
    end
}

keys_command_the_run() {
    train --set trainer.run_name=commanded
    top 80 24 "$stream" --control "$desk"
    shows '^q quit  p pause  s save  x stop  a actors$' "the keys are named"
    tmux send-keys p
    shows '^run 1: paused after step [0-9]+$' "p pauses"
    shows '^q quit  p continue' "and is now the key to continue"
    tmux send-keys s
    shows 'saved after step [0-9]+: runs/commanded/checkpoints/asked-step=' "s saves"
    sleep 6
    tmux send-keys p
    shows '^run 1: continues after step' "p continues it"
    holds 30 is_training
    ok "a pause is no time of the engine" has '^0 .* [0-8]?[0-9] %$'
    tmux send-keys x
    shows '^stop the run\? press y$' "x asks"
    tmux send-keys n
    shows '^the run continues$' "before it stops"
    tmux send-keys x y
    shows 'was stopped after [0-9]+ steps' "it says that the run has ended, and how"
    wait "$pid"
    is "$?" 0 "which is so"
    shows 'the process has ended; waiting for another' "and that the process has ended"
    leaves 0 q "q leaves it"
    shows '^run .*was stopped after [0-9]+ steps$' "how it ended stays"
}

a_failed_run_and_a_vanished_one_are_distinguished() {
    points '"max_epochs": -1'
    "$paceline" fit run.json --set trainer.launcher='{"name": "spawn", "max_restarts": 0}' --set trainer.devices=2 \
        --monitor "$stream" >fit.out 2>fit.err </dev/null &
    pid=$!
    holds 60 grep -q 'epoch 2' fit.err
    top 80 24 "$stream"
    shows '^1 +[0-9.]+ MiB'
    kill -KILL "$(rank 1)"
    shows '^run .*has failed after [0-9]+ steps?: .*rank 1' "a run that fails says so"
    shows 'SIGKILL|signal 9|killed' "and why, in as many lines as it takes"
    wait "$pid"
    train
    shows '^run .*epoch' "another at the same place is shown"
    tmux send-keys a
    shows '^strategy\.single' "with its actors"
    shows '^0 +[0-9.]+ MiB +[0-9.]+ [mu]?s +([0-9]+ % +){5}[0-9]+ %$' "and metrics of its own"
    kill -KILL "$pid"
    shows 'the process has ended without reporting it; waiting for another' "a process that vanishes"
    wait "$pid" 2>/dev/null
    leaves 130 C-c "Ctrl-C leaves it"
}

# first_screens - in seen what top shows of a run's first lines, while it changes for the first time
first_screens() {
    local now
    for ((k = 0; k < 60; k++)); do
        now=$(screen | head -n 2)
        [ "$now" = "$(tail -n 2 seen)" ] || echo "$now" >>seen
        sleep 0.02
    done
}

a_late_viewer_sees_the_state_of_the_run() {
    train --set trainer.run_name=late
    holds 30 grep -q '0:0[3-9]$' fit.err
    top 100 24 "$stream" --control "$desk"
    : >seen
    holds 30 has '^run '
    first_screens
    out=$(text seen)
    like "$(head -n 1 seen)" '^run late  mlp  [a-z]+  0:0[3-9]  epoch [0-9]+  step [0-9]+' "its name, module and time are there at once"
    is "$(grep -cE '(^|  )0 (steps|samples|messages)/s' seen)" 0 "no rate is 0 because there is none yet"
    tmux send-keys p
    shows '^run late .* paused ' "it is paused"
    local paused
    paused=$(screen | head -n 1)
    top 100 24 "$stream"
    shows '^run late  mlp  paused ' "a viewer that comes then sees that"
    is "$(screen | head -n 1)" "$paused" "with its step and its time, which stands still"
    ok "and its metrics" has '^train_loss '
    "$paceline" control "$desk" continue >/dev/null 2>&1
    ok "it continues" holds 30 is_training
    leaves 0 q "q leaves it"
    end
}

# rates_again N - rates has N screens' steps and rates from when the run has begun again
rates_again() {
    grep -q 'the run starts from the beginning' fit.err || return
    local now
    now=$(screen | grep -oE 'step [0-9]+|[-0-9.]+[kM]? steps/s' | tr '\n' ' ')
    [ "$now" = "$(tail -n 1 rates)" ] || echo "$now" >>rates
    [ "$(wc -l <rates)" -gt "$1" ]
}

a_run_that_begins_again_has_a_rate_of_its_own() {
    train --set trainer.devices=2 --set trainer.launcher=spawn --set trainer.enable_checkpointing=false
    top 80 24 "$stream"
    ok "it trains" holds 30 is_training
    : >rates
    kill -KILL "$(rank 1)"
    ok "it begins again from the first step" holds 60 rates_again 16
    out=$(cat rates)
    like "$out" '^step [0-9]+ [1-9][0-9.]*k? steps/s' "the rate counts its new steps"
    is "$(grep -c -- '-[0-9.][0-9.]*[kM]* steps' rates)" 0 "and never below 0"
    leaves 0 q "q leaves it"
    end
}

a_missing_run_is_awaited() {
    top 80 24 "ipc://$folder/silence" --control "ipc://$folder/silent"
    shows "^no run publishes at ipc://.*silence yet; waiting" "an empty address"
    tmux send-keys p
    shows '^no run takes commands there$' "and no run receives commands"
    tmux send-keys -l "$(printf '\033[A~~QQ')"
    leaves 0 Q "Q leaves it as well"
    train
    top 80 24 "$desk" --control "$stream"
    shows 'the socket at .*desk publishes no stream' "an address of commands is recognised"
    tmux send-keys s
    shows 'the socket of --control takes no commands' "and one of a stream"
    kill -TERM "$(pgrep -P "$(tmux list-panes -F '#{pane_pid}')" -f "paceline top" | head -n 1)"
    leaves 0 '' "SIGTERM ends it well"
    end
}

impossible_requests_are_refused() {
    refused 2 'top needs a terminal: use paceline monitor' top "$stream"
    refused 2 'cannot connect to "nonsense"' top nonsense
    refused 2 'cannot connect to "nonsense"' top "$stream" --control nonsense
    echo >file
    refused 2 'file is a regular file, not the socket of a run' top ipc://file
    refused 2 'top needs ENDPOINT' top
    for kind in nonsense dumb; do
        setting="TERM=$kind ASAN_OPTIONS=detect_leaks=0"                # ncurses then keeps what it made
        top 80 24 "$stream"
        unset setting
        holds 30 test -s left
        is "$(cat left)" "status 2" "an unknown terminal, or one that cannot draw: $kind"
        like "$(cat err)" "top cannot draw on a terminal \"$kind\": set TERM" "is refused with its name"
    done
}

try "$paceline" top "$stream"
if [[ $err == *"without ncurses"* ]]; then
    is "$status" 2 "a paceline without ncurses refuses it"
    like "$err" 'top needs ncurses.*configure --with-ncurses' "and says what to do"
elif ! type -P tmux >/dev/null; then
    skip "tmux is not there"
elif ! tmux new-session -d true; then
    out= err=$(command tmux -f /dev/null -S "$folder/tmux" new-session -d true 2>&1) status=
    ok "tmux starts a session" false
else
    run impossible_requests_are_refused
    run a_missing_run_is_awaited trains
    run a_run_is_shown_in_80_columns trains
    run top_fits_any_terminal trains
    run a_late_viewer_sees_the_state_of_the_run trains
    run keys_command_the_run trains
    run a_failed_run_and_a_vanished_one_are_distinguished trains
    run a_run_that_begins_again_has_a_rate_of_its_own trains
fi
done_testing
