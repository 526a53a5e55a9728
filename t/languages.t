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
    try "${cxx[@]}" -std=c++17 -Wall -Wextra -pedantic -Werror -I"$srcdir/engine" "$srcdir/examples/embed.cc" \
        -o embed -L"$builddir/.libs" -lpaceline -Wl,-rpath,"$builddir/.libs"
    is "$status$err" 0 "it compiles as C++17 without a warning"
    if grep -q __asan_init "$builddir/.libs/libpaceline.so"; then
        skip "a program without the sanitizer cannot load the library"
        return
    fi
    try ./embed
    is "$status$err" 0 "it ends well"
    like "$out" '^ok ' "the run does too"
    ok "val_acc is 0.95" awk '$1 == "val_acc" { exit !($2 >= 0.95) }' <<<"$out"
}

run a_program_in_cxx_trains trains
done_testing
