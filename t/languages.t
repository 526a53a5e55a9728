#!/usr/bin/env bash
# languages.t - tests that programs train which are not written in C
. "$(dirname "$0")/tap.sh"

a_program_in_cxx_trains() {
    local cxx
    read -ra cxx <<<"${CXX:-c++}"
    if ! command -v "${cxx[0]}" >/dev/null; then
        skip "no C++ compiler here"
        return
    fi
    try "${cxx[@]}" $(sanitized) -std=c++17 -Wall -Wextra -pedantic -Werror -I"$srcdir/engine" "$srcdir/examples/embed.cc" \
        -o embed -L"$builddir/.libs" -lpaceline -Wl,-rpath,"$builddir/.libs"
    is "$status$err" 0 "it compiles as C++17 without a warning"
    try ./embed
    is "$status$err" 0 "it ends well"
    like "$out" '^ok$' "the run does too"
    ok "val_acc is 0.95" awk '$1 == "val_acc" { exit !($2 >= 0.95) }' <<<"$out"
}

a_program_in_python_trains() {
    local python cc
    read -ra cc <<<"${CC:-cc}"
    for python in ${PYTHON:-python3 /usr/bin/python3} ""; do
        "$python" -c 'import numpy' 2>/dev/null && break
    done
    if [ -z "$python" ] || ! command -v "${cc[0]}" >/dev/null; then
        skip "no Python with NumPy here"
        return
    elif [ -n "$(sanitized)" ]; then
        skip "Python without the sanitizer cannot load the library"
        return
    fi
    export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/examples/python
    export PACELINE_LIBRARY=$builddir/.libs/libpaceline.so PACELINE_PLUGIN_PATH=$builddir/examples/.libs
    ok "the binding has 300 lines at most" test "$(wc -l <"$srcdir/examples/python/paceline.py")" -le 300
    try "$python" "$srcdir/t/binding.py" "$srcdir/engine" "${CC:-cc}" "$folder"
    while read -r line; do
        ok "${line#*- }" test "${line%% *}" = ok
    done < <(grep -E '^(not )?ok' <<<"$out")
    is "$status$err" 0 "it ends well"
    like "$out" '^1\.\.[1-9]' "after all of them"
    try "$python" "$srcdir/examples/python/train.py"
    is "$status" 0 "so does the example"
    ok "with acc 0.95" awk '$1 == "acc" { exit !($2 >= 0.95) }' <<<"$out"
}

run a_program_in_cxx_trains trains
run a_program_in_python_trains trains
done_testing
