#!/usr/bin/env bash
# gpu_command.t - tests that the command trains on a GPU that a plug-in brings: the emulator
. "$(dirname "$0")/tap.sh"

read -ra cc <<<"${CC:-cc}"
export top_srcdir=$srcdir PACELINE_PLUGIN_PATH=$PWD/plugins:$builddir/examples/.libs

the_emulator_is_built_as_a_plug_in() {
    local sources=("$srcdir"/t/{emulated_code,emulator,kernel_texts,machine_emulated,streams}.c)
    mkdir plugins
    echo '#include "t/machine_emulated.h"
PL_PLUGIN({"accelerator", &emulated_accelerator})' >plugin.c
    try "${cc[@]}" $(sanitized) -shared -fPIC -O1 -g -D_GNU_SOURCE \
        -I"$builddir" -I"$srcdir" -I"$srcdir/engine" -I"$srcdir/t" plugin.c "${sources[@]}" -o plugins/emulated.so -lm -lpthread
    is "$status$err" 0 "it can be built"
    try "$paceline" list accelerators
    like "$out" '^emulated .*the emulator of a GPU' "the command lists it"
}

# loss ACCELERATOR - of a run there
loss() {
    try "$paceline" fit run.json --set "trainer.accelerator=$1"
    is "$status" 0 "fit ends well with $1"
    loss=$(sed -n 's/^train_loss  *//p' <<<"$out")
}

it_trains_as_the_processor() {
    local cpu
    for _ in {1..60}; do echo "abcd efg."; done >text.txt
    cat >run.json <<'RUN'
{
    "module": {"name": "gpt", "layers": 1, "heads": 2, "width": 16},
    "data": {"name": "text", "path": "text.txt", "context": 8, "batch_size": 8},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "trainer": {"max_steps": 8}
}
RUN
    loss cpu
    cpu=$loss
    loss emulated
    ok "to a loss" test -n "$loss"
    is "$loss" "$cpu" "that is the same as far as it is printed"
}

run the_emulator_is_built_as_a_plug_in
run it_trains_as_the_processor trains
done_testing
