#!/usr/bin/env bash
# dashboard.t - tests of the dashboard while a run trains: access, commands, and clients that misbehave
. "$(dirname "$0")/tap.sh"
. "$srcdir/t/dashboard.sh"

the_token_opens_the_page_and_nothing_else_does() {
    train
    matches "$url" '^http://127\.0\.0\.1:[0-9]+/\?token=[0-9a-f]{32}$'
    is "$?" 0 "standard error tells an address of this machine with a token"
    answers 401 "the page without" "$base/"
    answers 401 "with a wrong one" "$base/?token=${token%?}x"
    answers 401 "with a part of it" "$base/?token=${token%?}"
    answers 401 "with more than it" "$base/?token=${token}0"
    answers 401 "by another name" "$base/?xtoken=$token"
    for path in events state metrics page.js page.css dygraph.js drawings.js; do
        answers 401 "/$path" "$base/$path"
    done
    answers 401 "with a wrong bearer" -H "Authorization: Bearer ${token%?}x" "$base/metrics"
    answers 401 "with a wrong cookie" -H "Cookie: paceline_$port=${token%?}x" "$base/state"
    answers 303 "the page with it" -c jar -D head "$url"
    like "$(cat head)" "^Set-Cookie: paceline_$port=$token; Path=/; HttpOnly; SameSite=Strict" "it becomes a cookie"
    answers 303 "among others, too" "$base/?xtoken=1&token=$token"
    answers 200 "which opens the page" -b jar "$base/"
    like "$out" '<title>Paceline</title>' "namely this one"
    answers 200 "and its script" -b jar "$base/page.js"
    answers 200 "a bearer opens the metrics" -H "$bearer" "$base/metrics"
    ok "the token stands in no answer" test "$(curl -s -b jar "$base/state" "$base/metrics" "$base/" | grep -c "$token")" = 0
    answers 200 "health needs none" "$base/healthz"
    answers 200 "nor does readiness" "$base/readyz"
    stop
}

every_answer_has_the_headers_that_keep_it_here() {
    train
    for path in / state healthz nowhere; do
        curl -s --max-time 30 -D head -o .body -H "$bearer" "$base/$path"
        for header in 'Cache-Control: no-store' 'X-Content-Type-Options: nosniff' 'Referrer-Policy: no-referrer' \
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'"; do
            like "$(cat head)" "^$header" "/$path: $header"
        done
    done
    answers 200 "the page" -H "$bearer" "$base/"
    ok "it loads nothing from elsewhere" test "$(grep -cE '(src|href)="(https?:)?//' <<<"$out")" = 0
    ok "and has nothing inline" test "$(grep -cE '<style|style=|<script>|onclick=' <<<"$out")" = 0
    stop
}

# keeps_here STATUS SENTENCE - what has come back raw is that, with our headers in its head and one empty line behind it
keeps_here() {
    local header head
    head=$(tr -d '\r' <<<"$out" | sed '/^$/q')
    like "$head" "^HTTP/1\.[01] $1 " "$2: $1"
    for header in 'Cache-Control: no-store' 'X-Content-Type-Options: nosniff' 'X-Frame-Options: DENY' \
        "Content-Security-Policy: default-src 'none'" 'Content-Type: text/'; do
        like "$head" "^$header" "$2: $header"
    done
    is "$(grep -c '^Cache-Control' <<<"$head")" 1 "$2: once"
}

# request METHOD PATH - a raw one of that method
request() {
    raw "$1 $2 HTTP/1.1\r\nHost: localhost\r\n$bearer\r\n\r\n"
}

errors_of_the_protocol_have_the_headers_too() {
    local method refused
    train
    raw 'nonsense\r\n\r\n'
    keeps_here 400 "what is no HTTP"
    raw 'GET / HTTP/1.1\r\nno header\r\n\r\n'
    keeps_here 400 "a line that is no header"
    raw "GET / HTTP/1.1\r\nHost: localhost\r\nX: $(printf '%09000d' 0)\r\n\r\n"
    keeps_here 4.. "long headers"
    raw 'POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n'
    keeps_here 413 "a body that is not even read"
    raw 'POST /command HTTP/1.1\r\nHost: localhost\r\nExpect: a miracle\r\nContent-Length: 2\r\n\r\n{}'
    keeps_here 4.. "what cannot be expected"
    raw "POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4097\r\n\r\n$(printf '%04097d' 0)"
    keeps_here 413 "one byte more than a request has"
    like "$out" 'has at most 4096 bytes' "which says how many it may have"
    raw "POST /command HTTP/1.1\r\nHost: localhost\r\n$bearer\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    like "$(tr -d '\r' <<<"$out" | sed -n 1,3p)" $'^HTTP/1.1 100 Continue\n\nHTTP/1.1 403 ' "100 Continue is sent without"
    for method in PUT DELETE OPTIONS TRACE PATCH BREW; do
        request "$method" /state
        keeps_here 405 "$method"
        like "$out" '^Allow: GET, HEAD' "which says what there is"
    done
    request GET /command
    like "$out" '^Allow: POST' "also where that is another"
    refused=$(metric 'paceline_http_answers_total{code="4xx"}')
    ok "all are counted: $refused" test "$refused" -ge 14
    stop
}

has_connections() {
    [ "$(metric paceline_http_connections)" = "$1" ]
}

a_request_of_the_head_gets_no_body() {
    train
    for path in / /state /metrics /healthz /events /nowhere; do
        raw "HEAD $path HTTP/1.1\r\nHost: localhost\r\n$bearer\r\n\r\n" 5
        like "$out" '^Content-Type: ' "$path has a head"
        is "$(tr -d '\r' <<<"$out" | sed '1,/^$/d')" "" "and nothing behind it"
    done
    ok "none of them stays" holds 30 has_connections 1
    stop
}

# More than are served at once.
silent_connections_make_room_for_others() {
    local fd silent=()
    train
    for _ in $(seq 200); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" 2>/dev/null && silent+=("$fd")
    done
    is "${#silent[@]}" 200 "200 connections that say nothing"
    answers 200 "do not keep others out for long" --max-time 8 -H "$bearer" "$base/metrics"
    for fd in "${silent[@]}"; do
        exec {fd}>&-
    done
    stop
}

a_foreign_host_name_is_refused() {
    train
    for host in evil.example "evil.example:$port" 127.0.0.1.evil.example 128.0.0.1 '[::2]' localhost.evil; do
        answers 421 "Host: $host" -H "Host: $host" -H "$bearer" "$base/state"
    done
    for host in localhost "localhost:$port" 127.0.0.1:9 '[::1]:8080'; do
        answers 200 "Host: $host" -H "Host: $host" -H "$bearer" "$base/state"
    done
    raw "GET /state HTTP/1.0\r\nAuthorization: Bearer $token\r\n\r\n"
    like "$out" '^HTTP/1.. 421' "none at all is refused as well"
    stop
}

commands_come_from_the_page_alone() {
    train
    answers 405 "GET of a path that takes POST" -H "$bearer" "$base/command"
    answers 405 "POST to what takes GET" -H "$bearer" -d x "$base/state"
    answers 401 "no token" -H 'X-Paceline: 1' -d '{}' "$base/command"
    answers 403 "no header of its own" -H "$bearer" -d '{}' "$base/command"
    answers 403 "another page's" -H "$bearer" -H 'X-Paceline: 1' -H 'Origin: http://evil.example' -d '{}' "$base/command"
    answers 403 "which the browser says" -H "$bearer" -H 'X-Paceline: 1' -H 'Sec-Fetch-Site: cross-site' -d '{}' \
        "$base/command"
    stop
}

buttons_command_the_run() {
    train
    holds 30 has_steps 0
    post '{"command": "pause"}'
    is "$code" 200 "pause is taken"
    like "$out" '"ok": ?true' "and has come about"
    ok "the page shows it" holds 30 state_is paused
    post '{"command": "continue"}'
    like "$out" '"ok": ?true' "it continues"
    ok "as the page shows" holds 30 state_is '\(train\|validate\)'
    post '{"command": "save"}'
    like "$out" '"checkpoint": ?"' "the answer names the checkpoint"
    post '{"command": "dance"}'
    like "$out" '"error": ?\{"code": ?"PL_EINVAL"' "what is no command is refused"
    is "$code" 400 "by its status as well"
    post 'nonsense'
    like "$code $out" '^400 .*"error"' "so is what is no JSON"
    post '{"command": "pause", "run": 7}'
    like "$code $out" '^404 .*"PL_ENOTFOUND"' "a run that is not there"
    post '{"command": "stop"}'
    like "$out" '"ok": ?true' "it stops"
    wait "$fit"
    is "$?" 0 "and ends well"
}

# events_in FILE N - an event stream has that many events
events_in() {
    [ "$(grep -c '^data: ' "$1")" -ge "$2" ]
}

a_page_that_was_disconnected_continues_at_its_place() {
    train
    holds 30 has_steps 0
    curl -sN --max-time 20 -H "$bearer" "$base/events" >first 2>.err &
    local viewer=$!
    ok "events come by themselves" holds 30 events_in first 3
    kill "$viewer"
    wait "$viewer" 2>.err
    like "$(head -2 first)" '^id: [0-9a-f]{8}-[0-9]+$' "each has a number"
    like "$(sed -n 2p first)" '^data: \{"since":0,' "the first one has all there is"
    like "$(grep '^data: ' first | sed -n 2p)" '^data: \{"since":[1-9]' "the next what is new"
    local last
    last=$(sed -n 's/^id: //p' first | tail -1)
    curl -sN --max-time 20 -H "$bearer" -H "Last-Event-ID: $last" "$base/events" >second 2>.err &
    viewer=$!
    holds 30 events_in second 1
    kill "$viewer"
    wait "$viewer" 2>.err
    like "$(sed -n 2p second)" "^data: \\{\"since\":${last#*-}," "a page that returns names its last event"
    curl -sN --max-time 20 -H "$bearer" -H 'Last-Event-ID: 00000000-7' "$base/events" >third 2>.err &
    viewer=$!
    holds 30 events_in third 1
    kill "$viewer"
    wait "$viewer" 2>.err
    like "$(sed -n 2p third)" '^data: \{"since":0,' "a number of another server means nothing"
    curl -sN --max-time 20 -H "$bearer" "$base/events" >fourth 2>.err &
    viewer=$!
    ok "a page is open when the run ends" holds 30 events_in fourth 1
    stop
    wait "$viewer" 2>.err
    like "$(grep '^data: ' fourth | tail -n 1)" '"doing":"stopped".*"ended":true' "and gets the end of the run"
}

values_of_a_run_are_prometheus_metrics() {
    train --set trainer.gradient_clip_val=1
    ok "steps are counted" holds 30 has_steps 20
    ok "a second later stages are" holds 30 has_stages
    echo "$out" >metrics
    for name in 'run_active{run="1"} 1' 'metric{run="1",name="train_loss"} [0-9.e-]+' 'gradient_clip{run="1"} 1' \
        'step_seconds_count{run="1"} [1-9][0-9]*' 'messages_total{kind="call"} [1-9][0-9]*' 'samples_total{run="1"} [1-9]' \
        'rank_stage_seconds{run="1",rank="0",stage="forward"} [0-9.e-]*[1-9]' \
        'rank_stage_seconds{run="1",rank="0",stage="optimizer"} [0-9.e-]*[1-9]' 'build_info{version="[0-9.]+"} 1'; do
        like "$out" "^paceline_${name//[\{\}]/.}" "paceline_$name"
    done
    is "$(grep -oE 'paceline_[a-z_]+' "$srcdir/doc/monitoring.md" | sort -u)" "$(families)" "each of them is documented"
    if command -v promtool >/dev/null; then
        try promtool check metrics <metrics
        ok "promtool finds nothing to say" promtool check metrics <metrics
    else
        skip "promtool is not installed (package prometheus)"
    fi
    stop
}

has_stages() {
    ask -H "$bearer" "$base/metrics"
    [[ $out == *'paceline_rank_stage_seconds{'* ]]
}

# messages - that the page has counted
messages() {
    curl -s --max-time 30 -H "$bearer" "$base/metrics" | awk '/^paceline_messages_total/ { sum += $2 } END { print sum }'
}

a_viewer_of_the_state_shares_what_the_page_shows() {
    train --monitor "ipc://$folder/stream" --journal journal
    ok "the page has steps" holds 30 has_steps 10
    "$paceline" monitor "ipc://$folder/stream" --json --topic state >states 2>.err &
    local viewer=$!
    ok "a viewer gets the state" holds 30 grep -q '"state":' states
    ok "the page gets further steps" holds 30 has_steps "$(($(metric 'paceline_global_step{run="1"}') + 500))"
    like "$(tail -n 1 states)" '"doing":"(train|validate)"' "both show the run"
    kill "$viewer"
    wait "$viewer" 2>.err
    run_continues
    post '{"command": "pause"}'
    ok "the page shows the pause" holds 30 state_is paused
    local counted
    counted=$(messages)
    is "$(metric 'paceline_open_calls{actor="strategy.single"}')" 0 "no call of the strategy is left open"
    is "$(metric 'paceline_messages_missed_total')" 0 "no message is missing"
    stop
    local all
    all=$("$paceline" replay journal --speed max --json 2>.err | grep -c '"seq"')
    ok "each message counts once: $counted of $all" test "$counted" -le "$all" -a $((counted * 10)) -gt $((all * 8))
}

# families - of metrics, that were answered
families() {
    sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' metrics | sort
}

# expressions - of Grafana's dashboard, as texts of JSON
expressions() {
    grep -oE '"expr": "([^"\]|\\.)*"' "$srcdir/doc/grafana.json" | sed 's/^"expr": //; s/\$__rate_interval/1m/g'
}

grafana_shows_existing_metrics() {
    is "$(expressions | grep -oE 'paceline_[a-z_]+' | sed -E 's/(step_seconds)_(bucket|sum|count)$/\1/' | sort -u)" \
        "$(families)" "its panels ask for all metrics there are, and no other"
    if command -v python3 >/dev/null; then
        python3 - "$srcdir/doc/grafana.json" <<'P'
import json, sys
board = json.load(open(sys.argv[1]))
variables = {v["name"]: v["type"] for v in board["templating"]["list"]}
assert variables["datasource"] == "datasource" and board["title"] and board["schemaVersion"] >= 36, variables
ids = [p["id"] for p in board["panels"]]
assert len(ids) == len(set(ids)), ids
for p in board["panels"]:
    assert p["title"] and set(p["gridPos"]) == set("hwxy") and p["gridPos"]["x"] + p["gridPos"]["w"] <= 24, p
    if p["type"] != "row":
        assert p["datasource"]["uid"] == "${datasource}" and p["targets"], p
        assert all(t["expr"] and t["refId"] for t in p["targets"]), p
P
        is "$?" 0 "it is a dashboard as Grafana has them, of any data source"
    else
        skip "python3 is not installed"
    fi
    if command -v promtool >/dev/null; then
        { echo 'groups: [{name: all, rules: [' && expressions | awk '{ print "{record: a" NR ", expr: " $0 "}," }' &&
            echo ']}]'; } >rules.yaml
        promtool check rules rules.yaml >rules.out
        is "$?" 0 "Prometheus understands its expressions"
    else
        skip "promtool is not installed (package prometheus)"
    fi
}

misbehaving_clients_are_dropped_and_the_run_continues() {
    train
    holds 30 has_steps 0
    raw 'nonsense\r\n\r\n'
    like "$out" '^HTTP/1.. 400' "what is no HTTP is refused"
    raw "GET / HTTP/1.1\r\nHost: localhost\r\nX: $(printf '%09000d' 0)\r\n\r\n"
    like "$out" '^HTTP/1.. 4' "so are long headers"
    raw "POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    like "$out" '^HTTP/1.. 413' "and long bodies"
    raw 'PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n'
    like "$out" '^HTTP/1.. (405|501)' "and other methods"
    local k fds=()
    for ((k = 0; k < 200; k++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" && printf 'GET / HT' >&"$fd"
        fds+=("$fd")
    done 2>.err
    kill -0 "$fit"
    ok "half of a request, 200 times, ends nothing" kill -0 "$fit"
    answers 200 "a later request is served after their time limit" --max-time 60 "$base/healthz"
    for fd in "${fds[@]}"; do exec {fd}>&-; done
    exec {fd}<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n' "$bearer" >&"$fd"
    run_continues
    exec {fd}>&-
    stop
}

malformed_bytes_end_nothing() {
    train
    holds 30 has_steps 0
    local k
    for ((k = 1; k <= 40; k++)); do
        head -c $((k * 37)) /dev/urandom >noise
        (exec 3<>"/dev/tcp/127.0.0.1/$port"
            case $((k % 4)) in
            1) printf 'GET /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n' "$bearer" >&3 ;;
            2) printf 'POST /command HTTP/1.1\r\nHost: localhost\r\nX-Paceline: 1\r\n%s\r\nContent-Length: %d\r\n\r\n' \
                "$bearer" $((k * 37)) >&3 ;;
            3) printf 'GET /%%' >&3 ;;
            esac
            cat noise >&3) 2>.err
    done
    answers 200 "it still answers" "$base/healthz"
    run_continues
    stop
}

# open_events N - N pages are open at once, from descriptors in pages
open_events() {
    local k fd
    pages=()
    for ((k = 0; k < $1; k++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" &&
            printf 'GET /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n' "$bearer" >&"$fd"
        pages+=("$fd")
    done
}

close_events() {
    local fd
    for fd in "${pages[@]}"; do exec {fd}>&-; done
}

events_answer() {
    ask -N --max-time 3 -H "$bearer" "$base/events"
    [ "$code" = "$1" ]
}

one_page_more_than_the_limit_gets_503() {
    train
    open_events 64
    ok "the 65th gets 503" holds 30 events_answer 503
    like "$out" 'Too many pages are open' "with the reason"
    answers 200 "other requests are still answered" -H "$bearer" "$base/state"
    run_continues
    close_events
    ok "when others are closed it gets in" holds 30 events_answer 200
    stop
}

has_descriptors() { [ "$(ls "/proc/$fit/fd" | wc -l)" -ge "$1" ]; }

without_descriptors_connections_wait() {
    train
    holds 30 has_steps 0
    if ! command -v prlimit >/dev/null; then
        skip "no prlimit"
        stop
        return
    fi
    local k fd fds=() most=$(($(ls "/proc/$fit/fd" | wc -l) + 2))
    prlimit --pid "$fit" --nofile=$most:
    for ((k = 0; k < 20; k++)); do exec {fd}<>"/dev/tcp/127.0.0.1/$port" && fds+=("$fd"); done
    ok "it takes all descriptors that it has" holds 30 has_descriptors $most
    prlimit --pid "$fit" --nofile=1024:
    ok "more come than there are descriptors for" test "$k" -eq 20
    answers 200 "a request behind them is answered" "$base/healthz"
    for fd in "${fds[@]}"; do exec {fd}>&-; done
    run_continues
    stop
}

rss() {
    awk '$1 == "VmRSS:" { print $2 }' "/proc/$fit/status"
}

# bounded BEFORE MORE - its memory has not grown by more, in kB; a sanitizer keeps what was freed
bounded() {
    if [ -n "$(sanitized)" ]; then
        skip "a sanitizer keeps memory"
        return
    fi
    ok "memory is bounded: $1 kB before, $(rss) after" test "$(rss)" -lt $(($1 + $2))
}

slow_or_endless_requests_take_bounded_memory() {
    train
    holds 30 has_steps 0
    local before k fds=() fd junk
    junk=$(printf '%04000d' 0)
    open_events 20
    holds 30 has_steps 100
    before=$(rss)
    for ((k = 0; k < 60; k++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" || continue
        case $((k % 6)) in
        0) printf 'POST /command HTTP/1.1\r\nHost: localhost\r\nX-Paceline: 1\r\n%s\r\n\r\n%s' "$bearer" "$junk" ;;
        1) printf 'POST /command HTTP/1.1\r\nHost: localhost\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\nfa0\r\n%s\r\n' \
            "$bearer" "$junk" ;;
        2) printf 'GET /%s?%s HTTP/1.1\r\nHost: localhost\r\n' "$junk" "$junk" ;;
        3) printf 'GET /state HTTP/1.1\r\nHost: localhost\r\nCookie: %s\r\nCookie: %s\r\n' "$junk" "$junk" ;;
        4) printf 'POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n%s\r\n\r\n' "$bearer" ;;
        5) printf 'GET /?token=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n' "$junk" ;;
        esac >&"$fd" 2>.err
        fds+=("$fd")
    done
    answers 200 "it still answers" "$base/healthz"
    run_continues
    for fd in "${fds[@]}"; do exec {fd}>&-; done
    close_events
    bounded "$before" 40000
    stop
}

# pages_talk KB - each open page sends that much without being asked, or as much of it as is taken
pages_talk() {
    local fd talkers=()
    for fd in "${pages[@]}"; do
        timeout 3 head -c "${1}k" /dev/zero >&"$fd" 2>.err &
        talkers+=("$!")
    done
    wait "${talkers[@]}"
}

pages_that_send_take_bounded_memory() {
    train
    holds 30 has_steps 0
    open_events 20
    run_continues
    local before
    before=$(rss)
    pages_talk 4000
    run_continues
    bounded "$before" 20000
    close_events
    ok "and they are gone when they are" holds 30 has_connections 1
    stop
}

the_dashboard_works_behind_nginx() {
    if ! command -v nginx >/dev/null; then
        skip "nginx is not installed (package nginx-light)"
        return
    fi
    train
    start_nginx
    local direct=$base
    base=$behind
    answers 303 "the token opens the page below a path" -c jar "$behind/?token=$token"
    answers 200 "which is there" -b jar "$behind/"
    answers 401 "and not without it" "$behind/state"
    curl -sN --max-time 60 -b jar "$behind/events" >passed 2>.err &
    local viewer=$!
    ok "events come one by one while the answer is open" holds 30 events_in passed 4
    ok "which has not ended" kill -0 "$viewer"
    kill "$viewer"
    wait "$viewer" 2>.err
    post '{"command": "pause"}'
    like "$out" '"ok": ?true' "a button works"
    ok "as the page shows" holds 30 state_is paused
    post '{"command": "continue"}'
    run_continues
    stop_nginx
    base=$direct
    stop
}

# has_secret FILE... - some of them has the token or what is secret in the job key: two halves of pairs, and the root
has_secret() {
    grep -qaF -f secrets "$@"
}

# rank_1 WORDS... - the run's second process, which some other program has started
rank_1() {
    PACELINE_RANK=1 timeout 300 "$paceline" fit run.json --set trainer.max_epochs=-1 "$@" >rank_1.out 2>rank_1.err \
        </dev/null &
    second=$!
}

no_secret_is_shown() {
    export PACELINE_DASHBOARD_TOKEN_FILE=$folder/token PACELINE_JOB_KEY_FILE=$folder/job.key
    "$paceline" launch --job-key job.key -- true >launch.out 2>launch.err
    points
    free_port
    export PACELINE_RANK=0 PACELINE_WORLD_SIZE=2 PACELINE_ENDPOINT=127.0.0.1:$port
    sed 's/^root .*/root none/' job.key >damaged.key
    chmod 600 damaged.key
    PACELINE_JOB_KEY_FILE=damaged.key refused 2 'damaged.key: not a key file' fit run.json
    local words=(--set trainer.strategy='{"name": "ddp", "collective": "tcp"}') path secret
    rank_1 "${words[@]}"
    train "${words[@]}" --journal run.journal --trace run.trace --monitor ipc://stream
    holds 30 has_steps 20
    { awk '/^(server|client) / { print $3 } /^root / { print $2 }' job.key; cat token; } >secrets
    is "$(grep -cE '^[^ ]{32,}$' secrets)" 4 "there are secrets to look for"
    while read -r secret; do
        ok "each is found where it is" grep -qaF -e "$secret" job.key token
    done <secrets
    curl -sN --max-time 3 -H "$bearer" "$base/events" >shown.events
    for path in state metrics healthz readyz '' page.js page.css dygraph.js drawings.js icon.svg nowhere; do
        curl -s --max-time 30 -D "shown.head.$path" -H "$bearer" "$base/$path" >"shown.$path"
    done
    post '{"command": "save"}'
    echo "$out" >shown.command
    timeout 300 "$paceline" monitor ipc://stream --json --count 500 >shown.stream 2>monitor.err
    ok "the token is where one looks for it" has_secret fit.err
    stop
    wait "$second"
    is "$?" 0 "so has the other process"
    like "$(head -n 1 shown.events)" '^id: ' "events came"
    is "$(lines "$(cat shown.stream)")" 500 "and messages"
    ok "page, events and metrics have no secret" test ! "$(has_secret shown.* && echo has)"
    ok "nor have journal and trace" test ! "$(has_secret run.journal run.trace && echo has)"
    ok "nor has the run's folder" test ! "$(grep -rqaF -f secrets runs && echo has)"
    grep -v '^dashboard: ' fit.err >fit.log
    ok "nor has the log" test ! "$(has_secret fit.log fit.out rank_1.err rank_1.out launch.* monitor.err && echo has)"
    unset PACELINE_DASHBOARD_TOKEN_FILE PACELINE_JOB_KEY_FILE PACELINE_RANK PACELINE_WORLD_SIZE PACELINE_ENDPOINT
}

names_of_markup_are_shown_as_they_are() {
    local name='<img src=x onerror=alert(1)>"\&amp;'$'\n\e[2J'
    train --set trainer.run_name="$name"
    holds 30 has_steps 0
    answers 200 "the state of a run with such a name" -H "$bearer" "$base/state"
    like "$out" '"name":"<img src=x onerror=alert\(1\)>\\"\\\\&amp;\?\?\[2J"' "has it as a string"
    is "$(lines "$out")" 1 "in one line"
    answers 200 "its metrics" -H "$bearer" "$base/metrics"
    like "$out" 'run_dir="[^"]*/<img src=x onerror=alert\(1\)>\\"\\\\&amp;\?\?\[2J",module="mlp"' "have it as a label"
    is "$(grep -cvE '^(#|paceline_)' <<<"$out")" 0 "which breaks no line"
    if command -v promtool >/dev/null; then
        ok "promtool finds nothing to say" promtool check metrics <<<"$out"
    else
        skip "promtool is not installed (package prometheus)"
    fi
    curl -s --max-time 30 -D head -o page -H "$bearer" "$base/state"
    like "$(cat head)" '^Content-Type: application/json' "none of which a browser takes for a page"
    answers 200 "the page" -H "$bearer" "$base/"
    ok "has no name in it" test "$(grep -c 'onerror' <<<"$out")" = 0
    stop
}

an_address_beyond_this_machine_is_refused() {
    points
    for address in 0.0.0.0:0 192.0.2.1:80 example.com:1 '[::]:1' 70000 x '127.0.0.1:' '127.0.0.1:1x'; do
        refused 2 'dashboard .*\[HOST:\]PORT' fit run.json --dashboard "$address"
    done
    train
    try "$paceline" fit run.json --dashboard "$port"
    is "$status" 2 "a port that is taken is refused"
    like "$err" "$port: Address already in use: choose another port, or 0 for any" "and named"
    stop
}

a_token_that_stays_lies_in_a_file_of_ones_own() {
    export PACELINE_DASHBOARD_TOKEN_FILE=$folder/token
    train
    is "$(stat -c %a token)" 600 "it is made for its owner alone"
    is "$(cat token)" "$token" "and is the one in the address"
    stop
    local first=$token
    train
    is "$token" "$first" "the next run has the same"
    stop
    rm token
    local k made=()
    for k in 1 2 3 4; do
        "$paceline" fit run.json --dashboard 0 --set trainer.max_steps=1 --set "trainer.run_name=\"at-once-$k\"" \
            >"once-$k.out" 2>"once-$k.err" &
        made+=($!)
    done
    wait "${made[@]}"
    is "$(grep -ho 'token=[^ ]*' once-*.err | sort | uniq -c | sed 's/^ *//')" "4 token=$(cat token)" \
        "several that make it at once have one"
    is "$(echo token*)" token "and leave nothing beside it"
    chmod 644 token
    refused 2 'others may read' fit run.json --dashboard 0
    chmod 600 token
    echo 'short' >token
    refused 2 'one line of 16 to 128' fit run.json --dashboard 0
    unset PACELINE_DASHBOARD_TOKEN_FILE
}

if ! command -v curl >/dev/null; then
    skip "curl is not installed"
    done_testing
fi
run the_token_opens_the_page_and_nothing_else_does trains
run every_answer_has_the_headers_that_keep_it_here trains
run errors_of_the_protocol_have_the_headers_too trains
run a_request_of_the_head_gets_no_body trains
run silent_connections_make_room_for_others trains
run a_foreign_host_name_is_refused trains
run commands_come_from_the_page_alone trains
run buttons_command_the_run trains
run a_page_that_was_disconnected_continues_at_its_place trains
run values_of_a_run_are_prometheus_metrics trains
run a_viewer_of_the_state_shares_what_the_page_shows trains
run grafana_shows_existing_metrics trains
run misbehaving_clients_are_dropped_and_the_run_continues trains
run malformed_bytes_end_nothing trains
run one_page_more_than_the_limit_gets_503 trains
run without_descriptors_connections_wait trains
run slow_or_endless_requests_take_bounded_memory trains
run pages_that_send_take_bounded_memory trains
run the_dashboard_works_behind_nginx trains
run no_secret_is_shown trains
run names_of_markup_are_shown_as_they_are trains
run an_address_beyond_this_machine_is_refused trains
run a_token_that_stays_lies_in_a_file_of_ones_own trains
done_testing
