#!/usr/bin/env bash
# gpu_command.t - tests that the command trains on the GPU of a plug-in: the emulator
. "$(dirname "$0")/tap.sh"

read -ra cc <<<"${CC:-cc}"
# Ranks that are killed leave files of compilations there.
mkdir tmp
export TMPDIR=$folder/tmp top_srcdir=$srcdir PACELINE_PLUGIN_PATH=$PWD/plugins:$builddir/examples/.libs

the_emulator_is_built_as_a_plug_in() {
    local sources=("$srcdir"/t/{emulated_code,emulated_layers,kernel_texts,backend_emulated,streams}.c) flags
    flags=(-fPIC -O1 -g -D_GNU_SOURCE -I"$builddir" -I"$srcdir" -I"$srcdir/engine" -I"$srcdir/t")
    mkdir plugins
    echo '#include "t/backend_emulated.h"
PL_PLUGIN({"accelerator", &emulated_accelerator})' >plugin.c
    # As in Makefile.am: the emulator reports its fibers to ThreadSanitizer itself.
    try "${cc[@]}" $(sanitized | sed 's/-fsanitize=thread/-DEMULATOR_TSAN/') "${flags[@]}" -c "$srcdir/t/emulator.c"
    is "$status$err" 0 "the emulator can be built"
    try "${cc[@]}" $(sanitized) -shared "${flags[@]}" plugin.c emulator.o "${sources[@]}" -o plugins/emulated.so -lm -lpthread
    is "$status$err" 0 "and the plug-in"
    try "$paceline" list accelerators
    like "$out" '^emulated .*the emulator of a GPU' "the command lists it"
}

# loss ACCELERATOR WORDS... - the loss of a run there
loss() {
    try "$paceline" fit run.json --set "trainer.accelerator=$1" "${@:2}"
    is "$status" 0 "fit ends well with $1"
    loss=$(sed -n 's/^train_loss  *//p' <<<"$out")
}

the_command_trains_as_on_the_processor() {
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

# profiled ACCELERATOR KERNEL - a measured run there
profiled() {
    local whole=$loss
    loss "$1" --set trainer.profiler=operators --trace trace.json
    is "$loss" "$whole" "to the same loss"
    like "$err" '^profile of the device: [0-9.]+ s in 16 replays, by layer$' "a table follows"
    like "$err" "^ +h\\.0\\.ln_1 +layer_norm +8 +[0-9.]+ [um]?s +[0-9.]+ [um]?s +[0-9.]+ %$" "with a layer of the module"
    is "$(sed -n '/^profile of the device/,/^[^ ]/p' <<<"$err" | awk 'length > 80')" "" "lines fit into 80 columns"
    like "$err" "^ +h\\.0\\.mlp\\.c_fc +$2 +" "and another"
    like "$(cat trace.json)" '"name":"h.0.ln_1: layer_norm"' "the trace has it, too"
    like "$(cat trace.json)" '"thread_name","args":\{"name":"device: kernels"' "on a track of the device"
}

a_table_shows_the_time_of_the_device_by_layer() {
    profiled emulated linear
    like "$err" '^  - +copy to the device +16 ' "copies to it"
    like "$err" '^  - +copy to the host +16 ' "and from it are in the table"
    like "$(cat trace.json)" '"name":"device: copies in"' "and in the trace"
    profiled cpu linear
    loss cpu --trace trace.json
    is "$(grep -c 'device: ' trace.json)" 0 "nothing is measured unless that is wanted"
}

run the_emulator_is_built_as_a_plug_in
run the_command_trains_as_on_the_processor trains
run a_table_shows_the_time_of_the_device_by_layer trains
done_testing
