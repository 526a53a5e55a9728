#!/usr/bin/env bash
# languages.t - tests that programs train which are not written in C, and that others read what was learnt
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

pythons_safetensors_reads_the_weights() {
    local python
    if ! python_with 'numpy, safetensors.numpy'; then
        skip "no Python with safetensors and NumPy here"
        return
    fi
    points
    "$paceline" fit run.json --set trainer.run_name=read >fit.out 2>fit.err
    "$paceline" inspect runs/read/model.safetensors --json >inspect.json
    try "$python" -c '
import json
from safetensors.numpy import load_file
path = "runs/read/model.safetensors"
read, shown = load_file(path), json.load(open("inspect.json"))["tensors"]
kinds = {"float32": "F32"}
print("names", sorted(read) == sorted(shown), len(read))
print("shapes", all(list(read[name].shape) == shown[name]["shape"] for name in shown))
print("types", all(kinds[str(read[name].dtype)] == shown[name]["dtype"] for name in shown))
with open(path, "rb") as file:
    for name, tensor in shown.items():
        file.seek(tensor["offset"])
        if file.read(tensor["bytes"]) != read[name].tobytes():
            print("differs", name)'
    is "$status$err" 0 "it reads the file"
    is "$out" $'names True 4\nshapes True\ntypes True' "with what paceline inspect shows, where it says"
}

run a_program_in_cxx_trains trains
run pythons_safetensors_reads_the_weights trains
done_testing
