# tap.sh - tests that are sentences, for the command: Test Anything Protocol on standard output
#
# A test is a function named as a sentence.  Commands are run by `try`, which keeps what they said in out and err and
# their exit status in status.

tests=0
failures=0
builddir=$(cd "${top_builddir:-.}" && pwd)
srcdir=$(cd "${top_srcdir:-$(dirname "$0")/..}" && pwd)
paceline=$builddir/paceline
folder=$(mktemp -d /tmp/paceline-t-XXXXXX) || exit 99
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
export LC_ALL=C
unset NO_COLOR PACELINE_HINTS PACELINE_PLUGIN_PATH COLUMNS

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

# refused STATUS PATTERN WORDS... - the command fails with one line that matches, and says nothing else
refused() {
    local want=$1 pattern=$2
    shift 2
    try "$paceline" "$@"
    is "$status" "$want" "paceline $*: status $want"
    ok "one line says why" test "$(grep -c . <<<"$err")" = 1
    like "$err" "$pattern" "namely $pattern"
    is "$out" "" "and nothing on standard output"
}

# points - in points.csv, three classes around three corners; a run that trains on them in run.json
points() {
    awk 'BEGIN { for (i = 0; i < 300; i++) { c = i % 3; a = i * 0.7; b = i * 1.3
        printf "%.4f,%.4f,%d\n", (c == 1) * 3 + sin(a), (c == 2) * 3 + cos(b), c } }' >points.csv
    cat >run.json <<'J'
{
  "module": {"name": "mlp", "hidden": [16]},
  "data": {"name": "csv", "path": "points.csv", "val_split": 0.2, "batch_size": 20},
  "optimizer": {"name": "adamw", "lr": 1e-2},
  "trainer": {"max_epochs": 2, "accelerator": {"name": "cpu", "threads": 1}}
}
J
}

# lines TEXT - how many there are
lines() {
    grep -c '' <<<"$1"
}

done_testing() {
    echo "1..$tests"
    exit $((failures > 0))
}
