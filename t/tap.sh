# tap.sh - tests that are sentences, for the command: Test Anything Protocol on standard output; and what they share
#
# A test is a function named as a sentence.  Commands are run by `try`, which keeps what they said in out and err and
# their exit status in status.

tests=0
failures=0
builddir=$(cd "${top_builddir:-.}" && pwd)
srcdir=$(cd "${top_srcdir:-$(dirname "$0")/..}" && pwd)
paceline=$builddir/paceline
namespace=$(($(stat -Lc %i /proc/self/ns/pid) % 1000)) # see tap.c
folder=$(mktemp -d /tmp/paceline-t-$$.$namespace-XXXXXX) || exit 99
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
export LC_ALL=C
unset NO_COLOR COLUMNS PACELINE_ENDPOINT PACELINE_HINTS PACELINE_JOB_KEY_FILE PACELINE_RUN_DIR_INDEX PACELINE_PLUGIN_PATH \
    PACELINE_RANK PACELINE_WORLD_SIZE

# run TEST [trains] - one that trains is skipped when Paceline was built without an accelerator
run() {
    echo "# $1"
    if [ "${2-}" = trains ] && ! "$paceline" list accelerators | grep -q '^cpu '; then
        skip "$1: there is no accelerator"
    else
        "$1"
    fi
}

# ok SENTENCE WORDS... - holds when the words, as a command, succeed
ok() {
    local sentence=$1
    shift
    tests=$((tests + 1))
    if "$@"; then
        echo "ok $tests - $sentence"
    else
        echo "not ok $tests - $sentence"
        failures=$((failures + 1))
        printf '#   failed: %s\n' "$*"
        printf '#   status %s, out: %.2000s\n' "${status-}" "${out-}" | sed '2,$s/^/#   /'
        printf '#   err: %.2000s\n' "${err-}" | sed '2,$s/^/#   /'
    fi
}

is() {
    ok "$3" test "$1" = "$2"
}

matches() {
    grep -qE -- "$2" <<<"$1"
}

# like TEXT PATTERN SENTENCE - some line of the text matches
like() {
    ok "$3" matches "$1" "$2"
}

# The flags with which a program has to be made that loads the library of this build.
sanitized() {
    case $(grep -aoE -m 1 '__[at]san_init' "$builddir/.libs/libpaceline.so" | head -n 1) in
    __tsan_init) echo -fsanitize=thread ;;
    __asan_init) echo -fsanitize=address,undefined ;;
    esac
}

skip() {
    tests=$((tests + 1))
    echo "ok $tests # SKIP $1"
}

try() {
    "$@" >"$folder/.out" 2>"$folder/.err" </dev/null
    status=$?
    out=$(cat "$folder/.out")
    err=$(cat "$folder/.err")
}

# refused STATUS PATTERN WORDS... - the command fails with one line of its own that matches; others may log before it
refused() {
    local expected=$1 pattern=$2
    shift 2
    try "$paceline" "$@"
    is "$status" "$expected" "paceline $*: status $expected"
    ok "one line says why" test "$(grep -c "^paceline: " <<<"$err")" = 1
    like "$err" "$pattern" "namely $pattern"
    is "$out" "" "and nothing on standard output"
}

# points [TRAINER [CALLBACKS [MODULE]]] - in points.csv, three classes around three corners; a run that trains on them in
# run.json, with these members of its parts
points() {
    local trainer=${1:-'"max_epochs": 2'} callbacks=${2:+"  \"callbacks\": [$2],"$'\n'}
    awk 'BEGIN { for (i = 0; i < 300; i++) { c = i % 3; a = i * 0.7; b = i * 1.3
        printf "%.4f,%.4f,%d\n", (c == 1) * 3 + sin(a), (c == 2) * 3 + cos(b), c } }' >points.csv
    cat >run.json <<J
{
  "module": {"name": "mlp", "hidden": [16]${3:+, $3}},
  "data": {"name": "csv", "path": "points.csv", "val_split": 0.2, "batch_size": 20},
  "optimizer": {"name": "adamw", "lr": 1e-2},
$callbacks  "trainer": {$trainer, "accelerator": {"name": "cpu", "threads": 1}}
}
J
}

# newest ROOT - the run directory that ROOT/latest names
newest() {
    echo "$1/$(cat "$1/latest")"
}

# start_endless_fit NAME WORDS... - a fit that would take for ever, with events in a pipe, which has trained a step; each
# is given the words in always
always=
start_endless_fit() {
    rm -f events
    mkfifo events
    "$paceline" fit run.json $always --json --set trainer.max_epochs=-1 --set trainer.run_name="$1" "${@:2}" \
        >events 2>err.txt </dev/null &
    pid=$!
    exec 3<events
    local line
    while read -r line <&3; do
        [[ $line == *'"event":"train"'* ]] && break
    done
}

# ended [SECONDS] - waits until the process pid has ended, for its status; one that does not by then is killed
ended() {
    if ! holds "${1:-30}" gone "$pid"; then
        err=$(cat err.txt 2>&1)
        ok "a run that is to end does so within 30 s" false
        kill -KILL "$pid"
    fi
    wait "$pid"
    status=$?
}

# end_of_fit - its status, what it has said, and in last, and out, the last of its events; 30 s for all of it
end_of_fit() {
    local end=$((SECONDS + 30))
    last=$(timeout 300 tail -n 1 <&3)
    out=$last
    ended $((end - SECONDS))
    exec 3<&-
    err=$(cat err.txt)
}

# rank K - the number of the process of that rank of the running fit
rank() {
    local child
    for child in $(cat /proc/"$pid"/task/*/children); do
        [ "$(cat /proc/"$child"/comm)" = "rank $1" ] && echo "$child"
    done
}

# gone PID... - there are some, and none of them lives any more
gone() {
    local child
    [ $# -gt 0 ] || return 1
    for child in "$@"; do
        grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$child/status" && return 1
    done
    return 0
}

# holds SECONDS WORDS... - the words succeed by then, on a machine that lets this shell ask 20 times a second; on one that
# is too busy for that, others get no further either, and it waits until it has asked as often
holds() {
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000)) asked=0
    until "${@:2}"; do
        [ ${EPOCHREALTIME/./} -lt $end ] || [ $asked -lt $(($1 * 20)) ] || return 1
        asked=$((asked + 1))
        sleep 0.02
    done
}

# free_port - in port, one without a listener, below those that the system gives for port 0
free_port() {
    port=$((20000 + RANDOM % 12000))
    while listens; do port=$((port + 1)); done
}

# listens - a process listens at the port
listens() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

# inline_model RANKS - of run.json, trained by so many ranks that are threads, once
inline_model() {
    [ -e runs/inline ] || "$paceline" fit run.json --set trainer.run_name=inline --set trainer.devices="$1" \
        >inline.out 2>inline.err
    echo runs/inline/model.safetensors
}

text() { cat "$1"; }

# metric NAME - its value in the result, which is in out
metric() {
    awk -v name="$1" '$1 == name { print $2 }' <<<"$out"
}

# at_least GOT LEAST - as numbers; nothing counts as 0
at_least() {
    awk -v got="${1:-0}" -v least="$2" 'BEGIN { exit !(got >= least) }'
}

# lines TEXT - how many there are
lines() {
    grep -c '' <<<"$1"
}

# python_with MODULES - in python, one that has them
python_with() {
    for python in ${PYTHON:-python3 /usr/bin/python3}; do
        "$python" -c "import $1" 2>/dev/null && return
    done
    return 1
}

done_testing() {
    echo "1..$tests"
    exit $((failures > 0))
}
