#!/usr/bin/env bash
# python.t - tests of the package for Python: its own sentences, and the example
. "$(dirname "$0")/tap.sh"

# sentences PROGRAM ARGUMENTS... - those of a program in Python
sentences() {
    local line
    try "$python" "$srcdir/t/$1.py" "${@:2}"
    while read -r line; do
        ok "${line#*- }" test "${line%% *}" = ok
    done < <(grep -E '^(not )?ok' <<<"$out")
    is "$status$err" 0 "it ends well"
    like "$out" '^1\.\.[1-9]' "after all of them"
}

the_package_works() {
    local cc
    read -ra cc <<<"${CC:-cc}"
    if ! command -v "${cc[0]}" >/dev/null; then
        skip "no C compiler here"
        return
    fi
    sentences python_package "$srcdir/engine" "${CC:-cc}" "$folder" "$paceline"
}

graphs_have_all_that_c_has() {
    sentences python_graph "$folder"
}

samples_are_read_while_a_run_trains() {
    sentences python_streams "$folder"
}

what_it_is_given_is_used_or_refused() {
    sentences python_inputs "$folder"
}

a_notebook_shows_and_interrupts_runs() {
    sentences python_notebook "$folder"
}

runs_and_engines_end() {
    sentences python_ends "$folder"
}

the_example_trains() {
    try "$python" "$srcdir/examples/python/train.py"
    is "$status" 0 "it ends well"
    ok "with acc 0.95" awk '$1 == "acc" { exit !($2 >= 0.95) }' <<<"$out"
}

the_notebook_runs() {
    try "$python" -c '
import json, sys
names = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)' "$srcdir/examples/python/circle.ipynb"
    is "$status$err" 0 "all cells do"
    ok "with acc 0.95" awk '$1 == "acc" { exit !($2 + 0 >= 0.95) }' <<<"$out"
}

if ! python_with numpy; then
    skip "no Python with NumPy here"
elif [ -n "$(sanitized)" ]; then
    skip "Python without the sanitizer cannot load the library"
else
    export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$builddir/python-package
    export PACELINE_LIBRARY=$builddir/.libs/libpaceline.so PACELINE_PLUGIN_PATH=$builddir/examples/.libs
    run the_package_works trains
    run graphs_have_all_that_c_has trains
    run samples_are_read_while_a_run_trains trains
    run what_it_is_given_is_used_or_refused trains
    run a_notebook_shows_and_interrupts_runs trains
    run runs_and_engines_end trains
    run the_example_trains trains
    run the_notebook_runs trains
fi
done_testing
