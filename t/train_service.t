#!/usr/bin/env bash
# train_service.t - a client session with examples/train_service, by curl
. "$(dirname "$0")/tap.sh"

export PACELINE_PLUGIN_PATH=$builddir/examples/.libs

# A data set that takes seconds or as long as it is let, by the number of epochs.
awk 'BEGIN { srand(7); print "a,b,label"
    for (k = 0; k < 200; k++) { a = rand() * 2 - 1; b = rand() * 2 - 1
        printf "%.4f,%.4f,%d\n", a, b, (a * a + b * b < 0.5) } }' >"$folder/points.csv"

# run_file MORE - trains on it
run_file() {
    printf '{"module": {"name": "mlp", "hidden": [8]}, "data": {"name": "csv", "path": "%s", "batch_size": 10},
 "optimizer": {"name": "sgd", "lr": 0.1}, "trainer": {"accelerator": {"name": "cpu", "threads": 1}, %s}}' \
        "$folder/points.csv" "$1"
}

# service [RUNS] - starts one in a new folder; url is where it is
service() {
    rm -rf "$folder/runs"
    service_again "$@"
}

service_again() {
    rm -f "$folder/said"
    "$builddir/examples/train_service" 0 "$folder/runs" "${1:-2}" >"$folder/said" 2>"$folder/err" &
    listening
}

has_url() {
    url=$(sed -n 's/^listening on //p' "$folder/said" 2>/dev/null)
    [ -n "$url" ]
}

# listening - waits for the one that was started last
listening() {
    pid=$!
    holds 30 has_url && return
    echo "Bail out! the service does not start: $(cat "$folder/err")"
    exit 99
}

# service_of KIB - one whose files may be so long
service_of() {
    rm -rf "$folder/runs" "$folder/said"
    (trap '' XFSZ && ulimit -f "$1" && exec "$builddir/examples/train_service" 0 "$folder/runs") \
        >"$folder/said" 2> >(cat >"$folder/err") &
    listening
}

# ended - stops the service; status is its
ended() {
    kill -TERM "$pid"
    wait "$pid"
    status=$?
}

# get PATH [OPTION...], post PATH BODY [OPTION...] - out is what came, status the HTTP status
get() {
    out=$(curl -s -m 60 -w '\n%{http_code}' "${@:2}" "$url$1")
    status=${out##*$'\n'} out=${out%$'\n'*}
}

post() {
    get "$1" -H 'Content-Type: application/json' --data-binary "$2" "${@:3}"
}

# gets STATUS SENTENCE PATH [OPTION...], posts STATUS SENTENCE PATH BODY [OPTION...] - that is what comes
gets() {
    get "${@:3}"
    is "$status" "$1" "$2"
}

posts() {
    post "${@:3}"
    is "$status" "$1" "$2"
}

# long_run - run 1 trains and has made a step
long_run() {
    post /runs "$(run_file '"max_epochs": 1000000')"
    ok "a run trains" reaches /runs/1 '"global_step":[1-9]'
}

# step_now - of run 1
step_now() {
    get /runs/1
    sed -nE 's/.*"global_step":([0-9]+).*/\1/p' <<<"$out"
}

# goes_beyond STEP - run 1 comes to make more
goes_beyond() { holds 30 is_beyond "$1"; }
is_beyond() { [ "$(step_now)" -gt "$1" ]; }

# reaches PATH PATTERN - what is there comes to match
reaches() { holds 30 is_at "$@"; }
is_at() {
    get "$1"
    grep -qE -- "$2" <<<"$out"
}

a_run_is_trained_and_shown() {
    service
    posts 201 "a run file is taken" /runs "$(run_file '"max_epochs": 3')"
    like "$out" '"id":1' "and has a number"
    ok "it is trained" reaches /runs/1 '"state":"ok"'
    like "$out" '"global_step":60' "to its end"
    posts 409 "which it cannot resume" /runs/1/resume ''
    like "$out" 'the run has come to its end' "as it says"
    gets 200 "it is shown" /runs/1
    like "$out" '"state":"ok"' "as it was"
    get /runs
    like "$out" '"runs":\[\{"id":1' "the list has it"
    get /runs/1/events
    like "$out" '^data: .*"state":"queued"' "its events can be had afterwards"
    like "$out" '^data: .*"state":"ok"' "to the last"
    all=$out
    last=$(numbers - <<<"$out" | tail -n 1)
    get /runs/1/events -H "Last-Event-ID: $((last - 1))"
    is "$(grep -c '^id:' <<<"$out")" 1 "or from where they were left"
    get /runs/1/events -H "Last-Event-ID: $last"
    is "$(grep -c '^id:' <<<"$out")" 0 "which may be the end"
    get /runs/1/events -H "Last-Event-ID: $((last + 1000))"
    is "$out" "$all" "and all again behind one that there never was: another service gave it"
    posts 200 "it answers for samples" /runs/1/predictions '{"x": [[0, 0], [0.9, 0.9], [0.1, -0.1]]}'
    like "$out" '"logits":\[\[[^]]*\],\[[^]]*\],\[[^]]*\]\]' "each of them"
    ended
    is "$status" 0 "the service ends"
}

mistakes_are_answered_in_json() {
    service
    posts 400 "no JSON" /runs '{"module": "mlp"'
    like "$out" '^\{"error":\{"text":"run:' "the error has its place"
    posts 400 "a wrong key" /runs "$(run_file '"max_epoch": 3')"
    like "$out" 'did you mean .*max_epochs' "too"
    posts 400 "nothing" /runs '{}'
    like "$out" '"run: the run has no module: set' "lacks a module"
    posts 400 "a run without data" /runs '{"module": "mlp", "optimizer": "sgd"}'
    like "$out" 'the run has no data' "lacks them"
    posts 400 "nothing that is trained" /runs "$(run_file '"max_epochs": 1' | sed 's/"optimizer": {[^}]*}, //')"
    like "$out" 'the run has no optimizer' "lacks an optimizer"
    posts 400 "code is not loaded" /runs "$(run_file '"max_epochs": 1' | sed 's/^{/{"plugins": ["x.so"],/')"
    for launcher in '"script"' '{"name": "script", "max_restarts": 0}'; do
        posts 400 "nor this program started again" /runs "$(run_file "\"max_epochs\": 1, \"launcher\": $launcher")"
        like "$out" 'this service starts no ranks by .*script' "which is said"
    done
    gets 404 "a run that is not there" /runs/7
    gets 404 "nor a page" /else
    post /runs "$(run_file '"max_epochs": 1')"
    gets 404 "a number of more bits than ours is not run 1" /runs/4294967297
    posts 404 "a command that is none" /runs/1/fly '{}'
    posts 400 "samples of different lengths" /runs/1/predictions '{"x": [[1], [1, 2]]}'
    posts 400 "or depths" /runs/1/predictions '{"x": [[1], [[1]]]}'
    posts 400 "a body that is no JSON" /runs/1/predictions 'x'
    ok "the run ends" reaches /runs/1 '"state":"ok"'
    post /runs/1/predictions '{"x": [[1e300, 0], [0, 0]]}'
    like "$out" '"logits":\[\[[^],]*,[^],]*\],\[[^],]*,[^],]*\]\]' "what is no number keeps its place: $out"
    posts 400 "samples of another shape" /runs/1/predictions '{"x": [[0.1, 0.2, 0.3]]}'
    like "$out" 'has 3 numbers, but the training data had 2' "the error has both numbers"
    for method in DELETE OPTIONS BREW; do
        get /runs -X $method
        is "$status" 405 "$method"
        like "$out" '^\{"error":' "as JSON"
    done
    get /runs -o "$folder/body" -D -
    like "$out" '^X-Content-Type-Options: nosniff' "what it answers is taken for nothing else"
    like "$out" '^Cache-Control: no-store' "and kept nowhere"
    head -c 3000000 /dev/zero | tr '\0' ' ' >large
    posts 413 "too much" /runs @large
    like "$out" '^\{"error":' "as JSON, too"
    printf '{"callbacks": [%s"progress"]}' "$(yes '"progress",' | head -n 20000 | tr -d '\n')" >large
    posts 400 "a list without end" /runs @large -m 5
    like "$out" 'takes at most 100 components, not 20001' "the answer has the limit"
    ended
}

pages_of_other_sites_reach_nothing() {
    service
    local wide=$(run_file '"max_epochs": 1') host origin site type
    for host in evil.example localhost.evil.example 127.0.0.1.evil.example:80 localhost:80@evil.example ''; do
        gets 421 "Host: $host" /runs -H "Host:${host:+ $host}"
        posts 421 "and a run" /runs "$wide" -H "Host:${host:+ $host}"
    done
    like "$out" '^\{"error":\{"text":"Host must be 127.0.0.1' "the answer has the reason"
    for host in localhost '[::1]:99' 127.0.0.1:1; do
        gets 200 "Host: $host" /runs -H "Host: $host"
    done
    for origin in http://evil.example null http://127.0.0.1:1; do
        posts 403 "a run of $origin" /runs "$wide" -H "Origin: $origin"
        posts 403 "what has no body" /runs/1/stop '' -H "Origin: $origin"
    done
    for site in cross-site same-site; do
        gets 403 "what a page that is $site fetches" /runs -H "Sec-Fetch-Site: $site"
    done
    for site in same-origin none; do
        gets 200 "$site is let in" /runs -H "Sec-Fetch-Site: $site"
    done
    for type in text/plain application/x-www-form-urlencoded application/jsonp; do
        get /runs -H "Content-Type: $type" --data-binary "$wide"
        is "$status" 415 "a run that is $type"
    done
    get /runs
    like "$out" '^\{"runs":\[\]\}$' "none of them was taken"
    posts 201 "one of our own is" /runs "$wide" -H "Origin: $url" -H 'Content-Type: application/json; charset=utf-8'
    ended
}

# answered STATUS PATH ARGUMENT… - in time
answered() { holds 30 has_status "$@"; }
has_status() {
    get "${@:2}"
    [ "$status" = "$1" ]
}

# idle COUNT - so many connect and say nothing; their descriptors are in idlers
idle() {
    local k fd
    idlers=()
    for ((k = 0; k < $1; k++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/${url##*:}" || return
        idlers+=("$fd")
    done
}

idlers_leave() {
    local fd
    for fd in "${idlers[@]}"; do
        exec {fd}>&-
    done
}

descriptors() { ls "/proc/$pid/fd" | wc -l; }

has_descriptors() { [ "$(descriptors)" -ge "$1" ]; }

has_fewer_descriptors() { [ "$(descriptors)" -lt "$1" ]; }

silent_connections_keep_no_client_out() {
    local most
    service
    most=$(($(descriptors) + 2))
    ok "more than it takes connect" idle 200
    gets 200 "a request behind them is answered" /runs
    idlers_leave
    ok "it closes their connections" holds 30 has_fewer_descriptors $most
    if ! command -v prlimit >/dev/null; then
        skip "no prlimit"
    else
        most=$(($(descriptors) + 2))
        prlimit --pid "$pid" --nofile=$most
        ok "more than there are descriptors for" idle 20
        ok "take all of them" holds 30 has_descriptors $most
        idlers_leave
        gets 200 "and when they have left it answers" /runs
        is "$(cat "$folder/err")" "" "they fill no log"
    fi
    ended
    is "$status" 0 "the service ends"
}

followers_keep_no_client_out() {
    service
    long_run
    ok "many connect" idle 64
    local fd
    for fd in "${idlers[@]}"; do
        printf 'GET /runs/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n' >&"$fd"
    done
    ok "and follow a run" answered 503 /runs/1/events -m 5
    like "$out" 'too many subscribers of runs' "one more is refused"
    gets 200 "another request is answered" /runs
    idlers_leave
    ok "when they have left there is room" answered 200 /runs/1/events -m 1
    ended
}

unread_input_has_to_wait() {
    service
    long_run
    local fd
    exec {fd}<>"/dev/tcp/127.0.0.1/${url##*:}"
    printf 'GET /runs/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n' >&"$fd"
    timeout 3 head -c 100000000 /dev/zero >&"$fd"
    is $? 124 "behind a request it takes next to nothing"
    exec {fd}>&-
    ended
}

# hammer - saves again and again until the run has ended; statuses has how each was answered
hammer() {
    while get /runs/1 && [[ "$out" == *'"state":"running"'* ]]; do
        post /runs/1/save '' -m 20
        echo "$status"
    done >"$folder/statuses.$1"
}

has_line() { [ -s "$1" ]; }

every_command_is_answered() {
    service
    long_run
    local k hammers=()
    for k in 1 2 3 4; do
        hammer "$k" &
        hammers+=($!)
    done
    for k in 1 2 3 4; do ok "client $k is answered" holds 30 has_line "$folder/statuses.$k"; done
    post /runs/1/stop ''
    wait "${hammers[@]}"
    is "$(sort -u "$folder"/statuses.* | grep -vxE '200|409')" "" "saved or not, also as it ends"
    ok "it saved" grep -q 200 "$folder"/statuses.*
    ended
}

# slow_model - run 1 has one, and large is what takes it a second or more
slow_model() {
    post /runs "$(run_file '"max_epochs": 1' | sed 's/\[8\]/[2048, 2048]/')"
    ok "a run ends" reaches /runs/1 '"state":"ok"'
    { printf '{"x": [[0,0]'; yes ',[0,0]' | head -n 10000 | tr -d '\n'; printf ']}'; } >large
}

predictions_are_bounded_and_end_with_their_client() {
    service
    slow_model
    local k clients=()
    for ((k = 0; k < 60; k++)); do
        curl -s -o /dev/null -m 60 -w '%{http_code}\n' -H 'Content-Type: application/json' --data-binary @large \
            "$url/runs/1/predictions" >"$folder/answered.$k" &
        clients+=($!)
    done
    ok "requests beyond the limit get 503" has_some 503 1 "$folder"/answered.*
    kill "${clients[@]}" 2>/dev/null
    ok "a client that has left takes no place" answered 200 /runs/1/predictions -m 20 -H 'Content-Type: application/json' \
        --data-binary '{"x": [[0, 0]]}'
    ended
    is "$status" 0 "the service ends"
}

# has_some WORD COUNT FILE… - so many of them come to have that line
has_some() { holds 30 has_lines "$@"; }
has_lines() { [ "$(cat "${@:3}" | grep -cx "$1")" -ge "$2" ]; }

# used - the processor time of the service, in ticks of 10 ms; has_used TICKS - it is as much
used() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
has_used() { [ "$(used)" -ge "$1" ]; }

a_service_ends_while_it_computes_an_answer() {
    service
    slow_model
    local client before
    before=$(used)
    post /runs/1/predictions @large &
    client=$!
    ok "it computes" holds 30 has_used $((before + 20))
    kill "$pid"
    wait "$pid"
    is $? 0 "it ends well"
    wait "$client"
    is "$(cat "$folder/err")" "" "with nothing to say"
}

# questions NAME COUNT - so many at once
questions() {
    local k clients=()
    for ((k = 0; k < $2; k++)); do
        curl -s -o "$folder/$1.$k" -m 60 -w '%{http_code}\n' -H 'Content-Type: application/json' \
            --data-binary '{"x": [[0, 0]]}' "$url/runs/1/predictions" >"$folder/$1.$k.status" &
        clients+=($!)
    done
    wait "${clients[@]}"
}

# newest_saves - how often run 1 was saved for questions
newest_saves() {
    grep -c asked-newest "$folder/runs/1/commands.jsonl"
}

answers_are_by_the_newest_weights() {
    service
    long_run
    questions first 10
    is "$(sort "$folder"/first.*.status | uniq -c | tr -s ' ')" " 10 200" "a run that saved nothing yet answers"
    ok "by one save, or by two" test "$(newest_saves)" -le 2
    questions next 10
    is "$(sort "$folder"/next.*.status | uniq -c | tr -s ' ')" " 10 200" "and others soon"
    ok "by what is hardly older" test "$(newest_saves)" -le 3
    kill "$pid"
    questions last 4
    wait "$pid"
    is "$?" 0 "the service ends while it is asked"
}

a_run_without_checkpoints_has_no_predictions() {
    service
    post /runs "$(run_file '"max_epochs": 1000000, "enable_checkpointing": false')"
    ok "a run trains" reaches /runs/1 '"global_step":[1-9]'
    posts 409 "which is not to be saved" /runs/1/predictions '{"x": [[0, 0]]}'
    like "$out" '"the run has saved no weights yet: .* unless .*enable_checkpointing' "and has nothing to answer by"
    ended
}

events_of_old_runs_are_let_go_of() {
    service 1
    long_run
    local k
    for ((k = 2; k <= 19; k++)); do
        post /runs "$(run_file '"max_epochs": 1')"
        post "/runs/$k/stop" ''
    done
    get /runs/19/events
    is "$(grep -c '^data:' <<<"$out")" 2 "a run that has ended has its events"
    get /runs/2/events
    is "$(grep '^data:' <<<"$out" | sed -nE 's/.*"state":"([a-z]*)".*/\1/p')" stopped "an older one how it ended"
    ended
}

# Weights stay in use for a second.
answers_by_new_weights() {
    local step by
    step=$(step_now)
    post /runs/1/predictions '{"x": [[0, 0]]}'
    by=$(sed -nE 's/.*"weights":"[^"]*asked-newest","global_step":([0-9]+)[,}].*/\1/p' <<<"$out")
    [ "${by:-0}" -ge "${step:-1}" ]
}

a_long_run_takes_commands() {
    service
    long_run
    posts 200 "it pauses" /runs/1/pause ''
    paused=$(sed -nE 's/.*"global_step":([0-9]+).*/\1/p' <<<"$out")
    get /runs/1
    like "$out" "\"state\":\"paused\",\"global_step\":$paused," "and says so, and where"
    post /runs/1/save ''
    like "$out" '"checkpoint":"[^"]*asked-step=' "it saves"
    posts 200 "its rate is set" /runs/1/lr '{"lr": 0.01}'
    posts 400 "to a number alone" /runs/1/lr '{"lr": "much"}'
    posts 200 "it answers by what it is" /runs/1/predictions '{"x": [[0, 0]]}'
    like "$out" "\"weights\":\"[^\"]*asked-newest\",\"global_step\":$paused[,}]" "which it names"
    posts 200 "it continues" /runs/1/continue ''
    ok "it trains" goes_beyond "$paused"
    ok "it answers by weights that are no older than the question" holds 30 answers_by_new_weights
    is "$status" 200 "while it trains"
    is "$(cd "$folder/runs/1/checkpoints" && ls -d asked-* | sed 's/step=.*/step/' | tr '\n' ' ')" "asked-newest asked-step " \
        "and keeps the newest alone"
    posts 202 "it is to stop" /runs/1/stop ''
    ok "and does" reaches /runs/1 '"state":"stopped"'
    posts 409 "then there is nothing to pause" /runs/1/pause ''
    posts 202 "it is resumed" /runs/1/resume ''
    ok "and trains" reaches /runs/1 '"state":"running"'
    ended
    is "$status" 0 "the service stops it and ends"
}

# follow RUN FILE - keeps its events there from now on, until its end; follower is the process
follow() {
    curl -s -N -m 60 "$url/runs/$1/events" >"$2" &
    follower=$!
}

# has FILE PATTERN - a line of it comes to match
has() { holds 30 grep -qE -- "$2" "$1"; }

# steps_of FILE - of each event of training, in the order in which they came; short epochs leave few but their ends
steps_of() {
    sed -nE 's/^data: .*"global_step":([0-9]+),.*"event":"(train|epoch)".*/\1/p' "$1"
}

# numbers FILE - of its events
numbers() {
    sed -n 's/^id: //p' "$1"
}

# reported_beyond STEP FILE - an event of training has more steps
reported_beyond() { holds 30 has_event_beyond "$@"; }
has_event_beyond() { [ "$(steps_of "$2" | tail -n 1)" -gt "$1" ]; }

events_tell_how_far_a_run_is_while_it_trains() {
    service
    long_run
    follow 1 "$folder/events"
    ok "a follower gets a step" has "$folder/events" '"event":"train"'
    first=$(steps_of "$folder/events" | tail -n 1)
    ok "it trains further" goes_beyond "$first"
    ok "and gets it while the run trains" reported_beyond "$first" "$folder/events"
    get /runs/1
    like "$out" '"state":"running"' "which is not at its end"
    like "$(grep '"event":"train"' "$folder/events" | tail -n 1)" \
        '^data: \{"id":1,"state":"running","global_step":[0-9]+,.*"metrics":\{"[^}]*train_loss":[0-9]' "with the loss"
    post /runs/1/stop ''
    ok "its end ends the events" wait "$follower"
    steps_of "$folder/events" >"$folder/steps"
    ok "steps come in order" sort -n -c "$folder/steps"
    numbers "$folder/events" >"$folder/ids"
    ok "numbers of events, too" sort -n -u -c "$folder/ids"
    is "$(grep -c '^id: ' "$folder/events")" "$(grep -c '^data: ' "$folder/events")" "each event has one"
    is "$(grep -cvE '^(id: [0-9]+|data: \{.*\}|)$' "$folder/events")" 0 "nothing else stands there"
    like "$(grep '^data: ' "$folder/events" | tail -n 1)" '"state":"stopped"' "the last says that it was stopped"
    ended
}

two_runs_train_at_once() {
    service 2
    for id in 1 2; do
        post /runs "$(run_file '"max_epochs": 1000000')"
        like "$out" "\"id\":$id" "run $id is taken"
    done
    ok "one trains" reaches /runs/1 '"state":"running","global_step":[1-9]'
    ok "beside the other" reaches /runs/2 '"state":"running","global_step":[1-9]'
    follow 1 "$folder/first"
    local first=$follower
    follow 2 "$folder/second"
    local before=$(step_now)
    ok "a follower of the second gets its steps" has "$folder/second" '"id":2,.*"event":"train"'
    ok "while the first continues" goes_beyond "$before"
    ok "and its events come" has "$folder/first" '"id":1,.*"event":"train"'
    posts 200 "one is paused" /runs/1/pause ''
    get /runs/2
    like "$out" '"state":"running"' "and not the other"
    before=$(step_now)
    posts 200 "the other saves" /runs/2/save ''
    like "$out" "\"checkpoint\":\"$folder/runs/2/" "in its own directory"
    is "$(step_now)" "$before" "the paused one stands still"
    posts 202 "the second is stopped" /runs/2/stop ''
    ok "its events end" wait "$follower"
    get /runs/1
    like "$out" '"state":"paused"' "the first is as it was"
    posts 200 "and continues" /runs/1/continue ''
    ok "to train" goes_beyond "$before"
    ended
    wait "$first"
    is "$status" 0 "the service ends"
    like "$(tail -n 2 "$folder/first")" '"id":1,"state":"stopped"' "which its follower gets"
    is "$(grep -c '^data: {"id":2' "$folder/first") $(grep -c '^data: {"id":1' "$folder/second")" "0 0" \
        "no follower gets the other's"
}

# followers N - so many follow run 1, one after the other, and leave at its first event
followers() {
    local k fd line
    for ((k = 0; k < $1; k++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/${url##*:}" || return
        printf 'GET /runs/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n' >&"$fd"
        read -r line <&"$fd"
        exec {fd}>&-
    done
}

# Whether the system tells of a client that is gone by an error or by a signal is a matter of moments.
clients_that_leave_end_nothing() {
    service
    long_run
    ok "some follow the run and leave" followers 40
    kill -PIPE "$pid"
    ok "it continues, although writes to followers fail" goes_beyond "$(step_now)"
    ended
    is "$status" 0 "the service ends well"
}

runs_beyond_the_limit_wait() {
    service 1
    post /runs "$(run_file '"max_epochs": 1000000')"
    post /runs "$(run_file '"max_epochs": 1')"
    get /runs/2
    like "$out" '"state":"queued"' "the second waits"
    curl -s -N -m 60 "$url/runs/2/events" >"$folder/events" &
    follower=$!
    post /runs/1/stop ''
    ok "until the first has ended" reaches /runs/2 '"state":"ok"'
    wait "$follower"
    like "$(cat "$folder/events")" '"state":"ok"' "a follower gets its end"
    ended
}

a_service_that_gets_a_signal_saves_first() {
    service 1
    long_run
    post /runs "$(run_file '"max_epochs": 1')"
    follow 2 "$folder/events"
    ok "another run waits" has "$folder/events" '"state":"queued"'
    ended
    is "$status" 0 "the service ends well"
    wait "$follower"
    is "$?" 0 "a follower of the waiting run gets the end of its events"
    like "$(grep '^data: ' "$folder/events" | tail -n 1)" '"state":"stopped"' "which says that it was stopped"
    ok "and has kept the run" test -e "$folder/runs/1/checkpoints/stopped"
}

# Its engine refuses the first stop.
a_second_signal_asks_again() {
    local cc
    read -ra cc <<<"${CC:-cc}"
    if ! command -v "${cc[0]}" >/dev/null || [ -n "$(sanitized)" ]; then
        skip "nothing can be put before the library"
        return
    fi
    cat >busy.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <paceline.h>
int pl_trainer_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err)
{
    static int calls;
    int (*stop)(pl_trainer_t *, const char *, pl_error_t *);
    *(void **)&stop = dlsym(RTLD_NEXT, "pl_trainer_stop");
    return calls++ ? stop(trainer, reason, err) : pl_fail(err, PL_ENOMEM, "busy");
}
C
    "${cc[@]}" -shared -fPIC -I"$srcdir/engine" busy.c -o busy.so -ldl
    LD_PRELOAD=$folder/busy.so service
    long_run
    kill -TERM "$pid"
    ok "a refused stop is printed" has "$folder/err" '^train_service: run 1: busy; a signal asks again'
    gets 200 "and the service serves" /runs/1
    kill -TERM "$pid"
    ok "the next signal ends it" holds 30 gone "$pid"
    kill -KILL "$pid" 2>/dev/null
    wait "$pid"
    is "$?" 0 "well"
    ok "and it has kept the run" test -e "$folder/runs/1/checkpoints/stopped"
}

a_service_that_starts_again_knows_its_runs() {
    service 1
    long_run
    post /runs "$(run_file '"max_epochs": 1')"
    follow 1 "$folder/events"
    ended
    wait "$follower"
    local first=$(numbers "$folder/events" | head -n 1) last=$(numbers "$folder/events" | tail -n 1)
    mkdir "$folder/runs/999999999" "$folder/runs/0"
    service_again 1
    get /runs
    like "$out" '^\{"runs":\[\{"id":1,"state":"stopped",' "one that was under way has been stopped"
    like "$out" '\{"id":2,"state":"stopped","global_step":0,' "and one that waited"
    like "$out" "\"run_dir\":\"$folder/runs/1\",\"metrics\":\{\"" "with what was known of them"
    get /runs/1/events -H "Last-Event-ID: $last"
    like "$out" '^data: .*"state":"stopped",.*"event":"state"' "a follower that returns gets the state"
    ok "under a number beyond all before" test "$(numbers - <<<"$out")" -gt "$last"
    before=$(step_now)
    posts 200 "it answers by what was saved" /runs/1/predictions '{"x": [[0, 0]]}'
    posts 202 "it is resumed" /runs/1/resume ''
    ok "and continues" reaches /runs/1 '"state":"running"'
    ok "further" goes_beyond "$before"
    post /runs/2/resume ''
    post /runs/1/stop ''
    ok "the other begins behind it" reaches /runs/2 '"state":"ok","global_step":20,'
    get /runs/1/events
    least=$(grep -o '"global_step":[0-9]*' <<<"$out" | cut -d : -f 2 | sort -n | head -n 1)
    is "$least" "$before" "from where the first was stopped"
    all=$out
    get /runs/1/events -H "Last-Event-ID: $first"
    is "$out" "$all" "a follower from before the restart gets all events since"
    post /runs "$(run_file '"max_epochs": 1')"
    like "$out" '"id":3,' "numbers continue"
    ok "the third is trained" reaches /runs/3 '"state":"ok"'
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    echo '{"run": 3' >"$folder/runs/2.json"
    sed -i 's/"global_step": [0-9]*/"global_step": -7/' "$folder/runs/1.json"
    service_again
    get /runs/3
    like "$out" '"state":"ok","global_step":20' "one that has ended is as it was, also after a kill"
    get /runs/2
    like "$out" '"state":"failed".*runs/2.json' "an unreadable record is reported"
    posts 409 "its run cannot be resumed" /runs/2/resume ''
    like "$out" 'runs/2.json: run:' "for that reason"
    get /runs/2
    like "$out" '"error":"[^"]*runs/2.json' "which stays"
    get /runs/1
    like "$out" '"global_step":0,' "steps of a record are no fewer than none"
    try "$builddir/examples/train_service" 0 "$folder/runs"
    like "$status $err" '^1 train_service: .*runs is in use by another service' "no other service takes the folder"
    ended
}

a_run_that_was_killed_before_it_saved_starts_from_the_beginning() {
    service
    post /runs "$(run_file '"max_epochs": 1000000, "enable_checkpointing": false')"
    ok "a run trains" reaches /runs/1 '"global_step":[1-9]'
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    service_again
    posts 202 "it is resumed" /runs/1/resume ''
    ok "and trains" reaches /runs/1 '"state":"running","global_step":[1-9]'
    ok "what was there is kept beside it" test -e "$folder/runs/1.1/run.json"
    ended
    service_again
    get /runs
    is "$(grep -o '"id":' <<<"$out" | wc -l)" 1 "and is no run of its own"
    ended
}

a_full_disk_is_reported() {
    local wide
    wide=$(run_file '"max_epochs": 3')
    service_of 1
    posts 500 "a run that cannot be kept is not taken" /runs "$wide"
    like "$out" "the run cannot be stored in $folder/runs: File too large" "with the reason"
    is "$(ls "$folder/runs")" "" "and leaves nothing"
    ended
    service_of 8
    post /runs "${wide/\[8\]/[1024]}"
    ok "one that cannot save fails" reaches /runs/1 '"state":"failed"'
    like "$out" '"error":"[^"]*model.safetensors[^"]*File too large' "and says so"
    ended
    is "$status" 0 "the service lives on"
    like "$(cat "$folder/err")" '^train_service: .*File too large' "and tells its log"
}

impossible_requests_are_refused_at_once() {
    for words in abc 99999 -1 '0 runs 0' '0 runs x' '0 runs 2 3'; do
        try "$builddir/examples/train_service" $words
        like "$status $err" '^2 usage: train_service ' "$words"
    done
    try "$builddir/examples/train_service" --help
    like "$status $out" '^0 usage: train_service ' "--help"
    service
    try "$builddir/examples/train_service" "${url##*:}" "$folder/others"
    like "$status $err" "^1 train_service: 127.0.0.1:${url##*:}: Address already in use" "a port that is taken"
    ended
    try timeout 300 "$builddir/examples/train_service" 0 "$folder"/$'r\xfcns'
    is "$status $err" '2 train_service: the name of the folder ROOT is not UTF-8' "a folder of another encoding"
    : >"$folder/file"
    try "$builddir/examples/train_service" 0 "$folder/file"
    like "$status $err" '^1 train_service: .*/file cannot be opened: Not a directory' "a folder that is none"
}

an_unanswered_notification_ends_nothing() {
    NOTIFY_SOCKET=$folder/absent service
    ended
    is "$status" 0 "a service whose NOTIFY_SOCKET is not there serves"
    like "$(cat "$folder/err")" '^train_service: NOTIFY_SOCKET: No such file or directory' "and says so, by its name"
}

# notified PATH - what a service tells there
notified() {
    python3 - "$1" "$builddir/examples/train_service" "$folder" <<'PYTHON'
import os, signal, socket, subprocess, sys
path, program, folder = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("\0" + path[1:] if path[0] == "@" else path)
listener.settimeout(30)
service = subprocess.Popen([program, "0", folder + "/notified"], env=dict(os.environ, NOTIFY_SOCKET=path),
                           stdout=subprocess.DEVNULL)
print(listener.recv(100).decode())
service.send_signal(signal.SIGTERM)
print(listener.recv(100).decode())
print(service.wait(30))
PYTHON
}

systemd_is_notified() {
    if ! command -v python3 >/dev/null; then
        skip "no python3"
        return
    fi
    for path in "$folder/notify" "@paceline-$$"; do
        is "$(notified "$path" | tr '\n' ' ')" "READY=1 STOPPING=1 0 " "at ${path%%[a-z]*}: ready, then stopping"
    done
}

if ! command -v curl >/dev/null; then
    skip "no curl"
else
    run a_run_is_trained_and_shown trains
    run mistakes_are_answered_in_json trains
    run pages_of_other_sites_reach_nothing trains
    run silent_connections_keep_no_client_out
    run followers_keep_no_client_out trains
    run unread_input_has_to_wait trains
    run every_command_is_answered trains
    run a_service_ends_while_it_computes_an_answer trains
    run predictions_are_bounded_and_end_with_their_client trains
    run answers_are_by_the_newest_weights trains
    run a_run_without_checkpoints_has_no_predictions trains
    run events_of_old_runs_are_let_go_of trains
    run a_long_run_takes_commands trains
    run events_tell_how_far_a_run_is_while_it_trains trains
    run two_runs_train_at_once trains
    run clients_that_leave_end_nothing trains
    run runs_beyond_the_limit_wait trains
    run a_service_that_gets_a_signal_saves_first trains
    run a_second_signal_asks_again trains
    run a_service_that_starts_again_knows_its_runs trains
    run a_run_that_was_killed_before_it_saved_starts_from_the_beginning trains
    run a_full_disk_is_reported trains
    run impossible_requests_are_refused_at_once
    run systemd_is_notified
    run an_unanswered_notification_ends_nothing
fi
done_testing
