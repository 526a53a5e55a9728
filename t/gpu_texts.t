#!/usr/bin/env bash
# gpu_texts.t - tests of the texts of kernels: people can read them, and CUDA's compiler takes each kernel of every
# operator case, where its toolkit is installed
. "$(dirname "$0")/tap.sh"

KERNELS=$PWD/texts
export KERNELS
mkdir "$KERNELS"

# Texts alone: nothing is compiled or run.
texts_are_made() {
    KERNELS_ALONE=1 "$builddir/t/gpu_operators" >made 2>&1
    ok "there are hundreds" test "$(ls "$KERNELS" | wc -l)" -gt 300
}

texts_can_be_read() {
    is "$(cat "$KERNELS"/*.k | grep -c ' $')" 0 "no line ends in a space"
    is "$(cat "$KERNELS"/*.k | awk '!NF && last { print FILENAME; exit } { last = !NF }')" "" "no line is empty after an empty one"
    is "$(awk '/^ *{$/ && !/^{/ { print FILENAME ": " FNR; exit }' "$KERNELS"/*.k)" "" "no brace stands alone"
    is "$(awk '/^[^#\/]/ { line = $0; depth = gsub(/^ +/, "", line) ? (length($0) - length(line)) / 4 : 0
                           if (depth != int(depth)) { print FILENAME ": " FNR; exit } }' "$KERNELS"/*.k)" "" "levels are four columns"
}

cudas_compiler_takes_them() {
    local every=16 kernels
    try ${CC:-cc} -D_GNU_SOURCE -O1 "$srcdir/t/nvrtc.c" "$srcdir/t/kernel_texts.c" -o nvrtc -ldl
    is "$status" 0 "what asks it is built"
    ln -s "$srcdir/accelerators" .
    kernels=(accelerators/gpu/kernels/*)
    try ./nvrtc sm_90 1 "$KERNELS" "${kernels[@]}"
    if [ "$status" = 77 ]; then skip "CUDA's run-time compiler is not installed"; return; fi
    like "$out" '^[0-9]+ kernels$' "it prints only their number"
    is "$status" 0 "and makes code for sm_90 that hardly spills"
    [ -z "$PACELINE_TEST_LONG" ] || every=1
    try ./nvrtc sm_80,sm_100 $every "$KERNELS" "${kernels[@]}"
    like "$out" '^[0-9]+ kernels$' "nor does it for others"
    is "$status" 0 "sm_80 and sm_100 (each kernel with PACELINE_TEST_LONG)"
}

run texts_are_made
run texts_can_be_read
run cudas_compiler_takes_them
done_testing
