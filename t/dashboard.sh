# dashboard.sh - what tests of the dashboard share: a run that has one, what is asked of its server

# ask WORDS... - curl with a limit; the body in out, the status in code
ask() {
    code=$(curl -s --max-time 30 -o "$folder/.body" -w '%{http_code}' "$@")
    out=$(tr -d '\0' <"$folder/.body" 2>/dev/null)
    rm -f "$folder/.body"
}

# answers STATUS SENTENCE WORDS... - a request has that status
answers() {
    local expected=$1 sentence=$2
    shift 2
    ask "$@"
    is "$code" "$expected" "$sentence: $expected"
}

# raw TEXT - sends bytes as they are; what comes back until the connection ends, or a limit
raw() {
    out=$(exec 3<>"/dev/tcp/127.0.0.1/$port" && printf "$1" >&3 && timeout "${2:-20}" cat <&3 | tr -d '\0')
}

has_address() {
    grep -qs '^dashboard: http' fit.err
}

# train WORDS... - a run that does not end by itself, with a dashboard, at a port of its own unless there is one in `at`
train() {
    points
    rm -f fit.err
    "$paceline" fit run.json --set trainer.max_epochs=-1 --dashboard "${at:-0}" "$@" >fit.out 2>fit.err </dev/null &
    fit=$!
    holds 30 has_address || return
    url=$(sed -n 's/^dashboard: //p' fit.err)
    base=${url%/\?token=*}
    token=${url#*token=}
    port=${base##*:}
    bearer="Authorization: Bearer $token"
}

stop() {
    kill -TERM "$fit"
    wait "$fit"
    is "$?" 0 "the run has ended well"
}

metric() {
    curl -s --max-time 30 -H "$bearer" "$base/metrics" | awk -v name="$1" '$1 == name { print $2 }'
}

has_steps() {
    [ "$(metric 'paceline_global_step{run="1"}')" -gt "${1:-0}" ] 2>/dev/null
}

run_continues() {
    local before
    before=$(metric 'paceline_global_step{run="1"}')
    ok "the run continues" holds 30 has_steps "$before"
}

# post COMMAND - as the page does
post() {
    ask -H "$bearer" -H 'X-Paceline: 1' -d "$1" "$base/command"
}

state_is() {
    curl -s --max-time 30 -H "$bearer" "$base/state" | grep -q "\"doing\":\"$1\""
}

# start_nginx - as doc/monitoring.md has it; the page is then at the address in behind
start_nginx() {
    local own=$port
    free_port
    behind=http://127.0.0.1:$port/training
    {
        echo "daemon off; master_process off; pid nginx.pid; error_log nginx.log;"
        echo "events {}"
        echo "http { access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .;"
        echo "uwsgi_temp_path .; scgi_temp_path .; server { listen 127.0.0.1:$port;"
        sed -n '/^    location \/training/,/^    }/p' "$srcdir/doc/monitoring.md" | sed "s/8080/$own/"
        echo "} }"
    } >nginx.conf
    port=$own
    nginx_again
}

nginx_again() {
    nginx -p "$folder" -e nginx.log -c nginx.conf >nginx.out 2>&1 </dev/null &
    nginx=$!
    holds 30 curl -s --max-time 5 -o .body "$behind/healthz"
}

stop_nginx() {
    kill "$nginx"
    wait "$nginx"
}
