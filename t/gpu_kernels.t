#!/usr/bin/env bash
# gpu_kernels.t - tests of the emulator: the kernels of gpu_kernels.k under sanitizers, and with faults that have to be
# found; CUDA's own compiler takes the same text where its toolkit is installed
. "$(dirname "$0")/tap.sh"

# build NAME SANITIZER FAULT WORDS... - in status whether it is built; emulator.c itself is not watched by
# ThreadSanitizer
build() {
    local flags=(-O1 -g -DALONE -DFAULT="$3" -ffp-contract=off -I"$srcdir" -I"$srcdir/engine")
    local watch="-fsanitize=$2 -fno-sanitize-recover=all" engine=-fsanitize=$2
    [ "$2" != thread ] || engine=-DEMULATOR_TSAN
    try ${CC:-cc} "${flags[@]}" $engine -c "$srcdir/t/emulator.c" -o "$1.emulator.o" \
        && try ${CC:-cc} "${flags[@]}" $watch "$srcdir/t/gpu_kernels.c" "$srcdir/engine/base/random.c" "$1.emulator.o" -o "$1" -lm
    [ "$status" = 0 ]
}

# finds NAME SANITIZER FAULT PATTERN - a fault is found by that sanitizer
finds() {
    build "$1" "$2" "$3" || { ok "$1 can be built" false; return; }
    try "./$1"
    ok "$1 is found" test "$status" != 0
    like "$err" "$4" "by its name"
}

sanitizers_are_there() {
    echo 'int main(void) { return 0; }' >probe.c
    ${CC:-cc} -fsanitize="$1" probe.c -o probe 2>/dev/null && ./probe
}

kernels_are_clean() {
    local kind
    for kind in address,undefined thread; do
        sanitizers_are_there $kind || { skip "$kind: not in this compiler"; continue; }
        ok "kernels are built with $kind" build "clean-$kind" $kind 0
        try "./clean-$kind"
        is "$status" 0 "and run without a word"
        is "$err" "" "of it"
    done
}

faults_are_found() {
    if sanitizers_are_there thread; then
        finds a-missing-barrier thread 1 'data race'
        finds a-race-in-global-memory thread 2 'data race'
        finds a-missing-barrier-in-sums thread 3 'data race'
    else
        skip "thread: not in this compiler"
    fi
    if sanitizers_are_there address,undefined; then
        finds a-store-beyond-the-end address,undefined 4 'heap-buffer-overflow'
        finds a-barrier-not-for-all address,undefined 5 'emulator: a barrier that some threads never come to'
        finds a-shuffle-not-for-all address,undefined 6 'emulator: a shuffle that a part of a warp never comes to'
        finds a-store-beyond-a-local-array address,undefined 7 'use-after-poison'
        finds local-memory-that-nothing-wrote address,undefined 8 '^$'
        finds four-elements-that-are-not-aligned address,undefined 9 'misaligned address'
    else
        skip "address,undefined: not in this compiler"
    fi
}

cudas_compiler_takes_them() {
    local kernels=accelerators/gpu/kernels
    try ${CC:-cc} -D_GNU_SOURCE "$srcdir/t/nvrtc.c" "$srcdir/t/kernel_texts.c" -o nvrtc -ldl
    is "$status" 0 "what asks it is built"
    ln -s "$srcdir/accelerators" "$srcdir/t/gpu_kernels.k" .
    try ./nvrtc sm_80,sm_90,sm_100 gpu_kernels.k $kernels/dialect.h $kernels/functions.k
    if [ "$status" = 77 ]; then skip "CUDA's run-time compiler is not installed"; return; fi
    is "$out" "" "it prints nothing"
    is "$status" 0 "and makes code for sm_80, sm_90 and sm_100"
    echo 'extern "C" __global__ void half(float *x) { x[threadIdx.x] = }' >half.k
    try ./nvrtc sm_90 half.k
    is "$status" 1 "a text that is not whole is refused"
    like "$out" 'sm_90: .*error: expected an expression' "with the reason"
}

run kernels_are_clean
run faults_are_found
run cudas_compiler_takes_them
done_testing
