#!/usr/bin/env bash
# cuda.t - tests of the accelerator "cuda" with the command: the reports of doctor and list about a machine, the choice
# of "auto", and runs; over replacements of NVIDIA's libraries
. "$(dirname "$0")/tap.sh"
. "$srcdir/t/dashboard.sh"

points '"max_epochs": 2'
stand_in=$builddir/t/stand_in/.libs
# Ranks that are killed leave files of compilations there.
mkdir "$folder/tmp"
export XDG_CACHE_HOME=$folder/cache TMPDIR=$folder/tmp top_srcdir=$srcdir
unset CUDA_VISIBLE_DEVICES CUDA_HOME CUDA_PATH

# with FAULTS WORDS... - the command on a machine with cards, and with these faults
with() {
    local faults=$1
    shift
    try env STAND_IN="$faults" PACELINE_CUDA_PATH="$stand_in" LD_LIBRARY_PATH="$stand_in" "$paceline" "$@"
}

without_a_driver_errors_name_the_package() {
    try "$paceline" doctor
    is "$status" 0 "doctor reports"
    like "$out" '^accelerators .*cuda' "the accelerator is there"
    if [ -e /dev/nvidiactl ]; then skip "this machine has a card"; return; fi
    like "$out" '^NVIDIA driver +not needed: this machine has no GPU of NVIDIA$' "its driver is not needed"
    like "$out" '^CUDA path +.*LD_LIBRARY_PATH.*/usr/local/cuda/lib64' "where libraries are looked for"
    for library in NVRTC cuBLASLt cuDNN NCCL; do
        like "$out" "^$library +([0-9]+\\.[0-9.]+ \\(/|NVIDIA's .*is not found: apt-get install .*; it was looked for in )" \
            "$library is found, or how to get it"
    done
    like "$out" '^no problems found$' "that is no problem"
    try env PACELINE_CUDA_PATH="$stand_in" "$paceline" doctor
    like "$out" '^NVRTC +13\.99 \(.*libnvrtc.*\), sm_75 to sm_100$' "the compiler is found without a driver"
    like "$out" '^NCCL +2\.28\.9 \(.*libnccl' "and the library of collectives"
    like "$out" "^CUDA path +$stand_in, " "in the folder that a variable names"
    try env PACELINE_CUDA_PATH=/nowhere "$paceline" doctor
    like "$out" '^warning: PACELINE_CUDA_PATH names /nowhere, which does not exist$' "which has to be there"
    if command -v unshare >/dev/null && unshare -rm true 2>/dev/null; then
        try unshare -rm sh -c 'for d in /usr/local/cuda*; do [ ! -d "$d" ] || mount -t tmpfs none "$d"; done
            HOME=/nowhere exec "$0" doctor' "$paceline"
        like "$out" "^NVRTC +NVIDIA's compiler of kernels .*is not found: apt-get install cuda-nvrtc-13-0" \
            "without the toolkit it has commands that install it"
        like "$out" '^no problems found$' "which is no problem where there is no card"
    fi
    try "$paceline" doctor
    if grep -q '^OpenCL device ' <<<"$out" && ! grep '^OpenCL device ' <<<"$out" | grep -qv PoCL; then
        try env POCL_CACHE_DIR=/proc/nowhere "$paceline" doctor
        like "$out" '^OpenCL +the drivers of OpenCL find no device; PoCL finds none .*: set POCL_CACHE_DIR to a folder' \
            "what PoCL needs"
    fi
    if command -v script >/dev/null; then
        out=$(script -qec "stty cols 80; '$paceline' doctor" /dev/null </dev/null | tr -d '\r' | grep -v '^plug-ins\|[^ ]\{60\}')
        is "$(awk 'length > 80' <<<"$out")" "" "a terminal gets lines that fit"
    fi
    try "$paceline" fit run.json --set trainer.accelerator=cuda
    is "$status" 2 "a run on a GPU is refused"
    like "$err" '^paceline: .*no NVIDIA driver is installed' "for that reason"
    try "$paceline" fit run.json --set trainer.accelerator=auto
    is "$status" 0 "auto uses the processor: $err"
    is "$(grep -ci nvidia <<<"$err")" 0 "and does not speak of a card that the machine does not have"
    try "$paceline" fit run.json --set trainer.devices=2 --set trainer.strategy.collective=nccl
    if [ "$status" = 0 ]; then
        like "$err" 'the collective nccl moves memory of cuda alone: with the accelerator cpu its "host" moves all data' \
            "NCCL for a processor does nothing"
    else
        like "$err" 'libnccl.so.2. is not found: ' "NCCL is not there: $err"
    fi
    try env PACELINE_CUDA_PATH="$stand_in" "$paceline" fit run.json --set trainer.devices=2 \
        --set trainer.strategy.collective=nccl
    like "$err" 'the collective nccl moves memory of cuda alone: with the accelerator cpu its "host" moves all data' \
        "a collective of cards reports that no card has data"
}

a_machine_with_cards_is_described() {
    with devices=2 doctor
    is "$status" 0 "doctor reports"
    like "$out" '^NVIDIA driver +CUDA 13\.0 \(.*libcuda' "the driver with its path"
    like "$out" '^NVRTC +13\.[0-9]+ \(.*libnvrtc.*\), sm_75 to sm_100$' "the compiler, and what it compiles for"
    like "$out" '^cuBLASLt +13\.99 \(.*libcublasLt' "the library of products"
    like "$out" '^NCCL +2\.28\.9 \(.*libnccl' "the library of collectives"
    like "$out" '^cuDNN +9\.99\.0 \(.*libcudnn' "the library of attention and convolution"
    like "$out" '^NVML +/.*libnvidia-ml' "the library that measures cards"
    like "$out" '^GPU 0 +Stand-in 0, sm_90, 512 of 512 MiB free, .*ECC off, bus 0000:00:00\.0$' "the first card"
    like "$out" '^GPU 1 +Stand-in 1, ' "the second"
    like "$out" '^GPU to GPU +0-1 yes$' "and that they reach each other"
    like "$out" "^kernel cache +$folder/cache/paceline, 0 entries" "compiled kernels"
    with devices=1 doctor --json
    like "$out" '"GPU 0": ?"Stand-in 0' "the same as JSON"
    with devices=1 list accelerators
    like "$out" '^cuda - GPUs of NVIDIA' "list has the accelerator"
    like "$out" '^ +GPU 0 +Stand-in 0' "and its card"
    with nccl_version=21705 doctor
    like "$out" '^warning: NCCL 2\.17\.5 \(.*\) is too old: install 2\.18 or later' "an old library of collectives"
    with devices=1 list collectives
    like "$out" '^nccl - ' "list has the collective"
    like "$out" '^ +NCCL +2\.28\.9 \(.*libnccl' "and its library"
    with capability=120 doctor
    like "$out" '^warning: GPU 0 is newer than NVRTC' "a card that the compiler does not know"
    with old_cudnn doctor
    if grep -q '^cuDNN ' <<<"$out"; then
        skip "this machine has a cuDNN that is used then"
    else
        like "$out" '^warning: cuDNN 9\.5 for CUDA 13 \(.*libcudnn.*\) cannot be used: install 9\.8 or later' \
            "a cuDNN that is too old"
    fi
}

an_error_of_a_driver_is_a_warning() {
    local fault pattern
    while read -r fault pattern; do
        with "$fault" doctor
        is "$status" 0 "$fault: doctor reports"
        like "$out" "^warning: $pattern" "$pattern"
        like "$out" '^NVIDIA driver +cannot be used: a warning says why$' "it is listed"
        with "$fault" fit run.json --set trainer.accelerator=cuda
        is "$status" 2 "a run on a GPU is refused"
        like "$err" "$pattern" "with the same words"
        with "$fault" fit run.json --set trainer.accelerator=auto
        is "$status" 0 "and with auto trains on the processor"
    done <<'END'
stub .*libcuda\.so\.1.* is the stub of NVIDIA's toolkit, not a driver: remove its folder from LD_LIBRARY_PATH
no_device NVIDIA's driver finds no GPU
old NVIDIA's driver is too old: it supports CUDA 11\.8; install version 525
END
}

# inside SCRIPT FACTS [SIZE] - the doctor on a machine with a /dev/shm of that size and with /sys/class and /sys/module
# the script makes
inside() {
    cat >inside.sh <<END
mkdir -p sys && mount --rbind /sys sys && mount -t tmpfs none /sys && mkdir /sys/devices /sys/class /sys/module &&
    mount --rbind sys/devices /sys/devices && mount -t tmpfs -o size=${3:-2g} none /dev/shm || exit 9
$1
exec "\$@"
END
    try unshare -rm env STAND_IN="$2" PACELINE_CUDA_PATH="$stand_in" LD_LIBRARY_PATH="$stand_in" sh inside.sh \
        "$paceline" doctor
    is "$status" 0 "doctor reports: $err"
}

a_requirement_of_nccl_is_a_warning() {
    local network='mkdir -p /sys/class/infiniband/mlx5_0/device'
    if ! unshare -rm mount -t tmpfs none /sys 2>/dev/null; then skip "there are no namespaces"; return; fi
    inside : devices=2
    like "$out" '^NCCL +2' "there is NCCL"
    is "$(grep '^warning: ' <<<"$out")" "" "a machine that has all has no warnings"
    inside : devices=2 64m
    like "$out" '^warning: /dev/shm has 64 MiB, which may be too small for NCCL with 2 cards: .*--shm-size=1g' \
        "a small /dev/shm"
    inside : devices=1 64m
    is "$(grep -c '^warning: /dev/shm' <<<"$out")" 0 "which one card does not need"
    inside "$network" devices=1
    like "$out" '^warning: the kernel module nvidia_peermem is not loaded: .* mlx5_0; modprobe nvidia-peermem' \
        "a network card that does not reach the memory of cards"
    inside "$network /sys/module/nvidia_peermem" devices=1
    is "$(grep -c peermem <<<"$out")" 0 "unless the module is there"
    inside "$network" 'devices=1 dma_buf'
    is "$(grep -c peermem <<<"$out")" 0 "or the driver does without"
    inside 'mkdir -p /sys/class/infiniband/rxe0' devices=1
    is "$(grep -c peermem <<<"$out")" 0 "or the network card is an emulation"
    with 'devices=2 one_card' doctor
    like "$out" '^warning: GPU 0 and GPU 1 are one card \(bus 0000:00:00\.0\): NCCL accepts one rank on it' "one card twice"
    NCCL_HOSTID=a with devices=2 doctor
    like "$out" '^warning: NCCL_HOSTID is set \(a\): two ranks on one card are not refused' "or what permits that"
}

auto_uses_a_card_that_works() {
    sed -i 's/, "accelerator": {[^}]*}//' run.json
    with devices=1 fit run.json
    is "$status" 0 "a run without an accelerator trains: $err"
    ok "on the card, with a cache of kernels" test "$(ls "$folder/cache/paceline" | grep -c 'kernels$')" -gt 0
    is "$(grep -c 'is left\|are left' <<<"$err")" 0 "and leaves nothing there"
    rm -r "$folder/cache"
    with devices=1 fit run.json --set trainer.accelerator.threads=1
    is "$status" 0 "with an option of the processor it trains"
    ok "on that" test ! -e "$folder/cache"
}

auto_uses_the_processor_where_a_card_does_not_work() {
    local fault pattern
    while read -r fault pattern; do
        with "devices=2 $fault" fit run.json
        is "$status" 0 "$fault: a run trains"
        like "$err" "trainer.accelerator auto: the run uses the CPU: cuda:[01].*$pattern" "on the processor, and a line has the reason"
        with "devices=2 $fault" fit run.json --set trainer.devices=2
        is "$status" 0 "two ranks train"
        is "$(grep -c 'uses the CPU' <<<"$err")" 1 "and one line has the reason"
        with "devices=1 $fault" fit run.json --set trainer.accelerator=cuda
        ok "a run that names the card fails" test "$status" -ne 0
        is "$(grep -c 'uses the CPU' <<<"$err")" 0 "without that line"
    done <<'END'
capability=50 has compute capability 5\.0, and NVRTC 13\.99 compiles for 7\.5 and later
cuDevicePrimaryCtxRetain=1:46 opening the card failed
memory_mb=0 allocating memory failed
END
}

# train_on_card FOLDER - a run with a dashboard on a machine that has the libraries of that folder
train_on_card() {
    local -x STAND_IN="no_power" PACELINE_CUDA_PATH="$stand_in" LD_LIBRARY_PATH="$1"
    train --set trainer.accelerator=cuda --monitor "ipc://$folder/stream"
    LD_LIBRARY_PATH=''
    ok "a run trains" holds 60 has_steps 5
    ok "its card is measured" holds 30 has_device
}

has_device() {
    ask -H "$bearer" "$base/metrics"
    [[ $out == *'paceline_device_memory_used_bytes{'* ]]
}

on_terminal() { tmux -f /dev/null -S "$folder/tmux" "$@"; }
top_has() { on_terminal capture-pane -p | grep -q -- "$1"; }

measurements_of_a_card_are_shown() {
    train_on_card "$stand_in"
    like "$out" '^paceline_device_memory_used_bytes.run="1",rank="0". 104857600$' "memory in use"
    like "$out" '^paceline_device_memory_total_bytes.run="1",rank="0". 536870912$' "of how much"
    like "$out" '^paceline_device_utilization_ratio.run="1",rank="0". 0.87$' "utilization"
    like "$out" '^paceline_device_temperature_celsius.run="1",rank="0". 61$' "temperature"
    is "$(grep -c '^paceline_device_power_watts' <<<"$out")" 0 "and no power, which this card does not measure"
    ask -H "$bearer" "$base/state"
    like "$out" '"devices":\[.*"utilization":0.87' "the page has the same"
    if command -v tmux >/dev/null; then
        on_terminal new-session -d -x 100 -y 24 "$paceline top ipc://$folder/stream"
        ok "top too" holds 30 top_has '^device  87 %  100 MiB of 512 MiB  61 C$'
        on_terminal kill-server
    else
        skip "tmux is not installed"
    fi
    stop
}

without_nvml_the_driver_reports_the_memory() {
    mkdir libraries
    ln -s "$stand_in"/libcuda.so* "$stand_in"/libnvrtc.so* "$stand_in"/libcublasLt.so* libraries
    train_on_card "$folder/libraries"
    like "$out" '^paceline_device_memory_total_bytes.run="1",rank="0". 536870912$' "memory of the card"
    is "$(grep -cE '^paceline_device_(utilization|temperature|power)' <<<"$out")" 0 "the rest is unknown"
    stop
    try env STAND_IN= PACELINE_CUDA_PATH="$stand_in" LD_LIBRARY_PATH="$folder/libraries" "$paceline" doctor
    like "$out" '^warning: libnvidia-ml.so.1 is not found: utilization, power and temperature are unknown' \
        "doctor names the packages"
}

# ahead WORDS... - the kernels of the run, compiled on a machine without a card
ahead() {
    try env STAND_IN= PACELINE_CUDA_PATH="$stand_in" "$paceline" compile run.json "$@"
}

kernels_are_compiled_ahead() {
    local kept
    mkdir ahead
    cd ahead || exit 99
    points
    sed -i 's/, "accelerator": {[^}]*}//' run.json
    rm -rf "$folder/cache"
    STAND_IN_NVRTC=slow=2200 ahead --card sm_90 --journal journal --set module.hidden=[16,16,16,16,16,16]
    is "$status" 0 "compile needs no card: $err"
    like "$err" '^accelerator.cuda: compiling plan train, batches of 20: 1 of [2-9] pieces$' "it tells how far it is"
    try "$paceline" explain journal
    like "$(tr -s '\n ' ' ' <<<"$out")" ' predict, .* 1 piece compiled in [0-9]' "a journal has its plans"
    try "$paceline" replay --speed max journal
    ok "it makes no first weights" test "$(grep -c allocate <<<"$out")" -gt 0 -a "$(grep -c write_region <<<"$out")" = 0
    rm -rf "$folder/cache"
    ahead --card sm_90
    like "$out" '^plan +samples +launches +pieces +from cache +compiled in$' "it shows the plans"
    like "$out" '^train +20 +[1-9][0-9]* +[1-9] +0 ' "of training"
    like "$out" '^validate +20 ' "of validation"
    like "$out" '^optimizer +- ' "of updates, which read no samples"
    like "$out" '^predict +20 ' "of predictions"
    like "$out" "^[1-9][0-9]* pieces of kernels in .* s: [1-9][0-9]* compiled, [0-9]* from the cache $folder/cache/paceline$" \
        "and where they are kept"
    ok "no run directory is made" test ! -e runs
    kept=$(ls "$folder/cache/paceline")
    ahead --card sm_90 --json
    ok "all come from the cache then" test "$(grep -oE '"pieces": ?[0-9]+, ?"from_cache": ?[0-9]+' <<<"$out" |
        grep -cE '([0-9]+),.* ?\1$')" = "$(grep -o '"pieces"' <<<"$out" | wc -l)"
    like "$out" '"status": ?"ok".*"seconds": ?[0-4]\.' "at once"
    ok "bytes are integers" test -z "$(grep -oE '"(bytes|arena)": ?[0-9]*[.e]' <<<"$out")"
    with devices=1 fit run.json --set trainer.accelerator=cuda --journal journal
    is "$status" 0 "a run on such a card trains: $err"
    is "$(ls "$folder/cache/paceline")" "$kept" "and compiles nothing"
    with devices=1 fit run.json --set trainer.accelerator=cuda --set trainer.profiler=operators --trace trace
    like "$err" '^ +fc2 +product +[0-9]+ +[0-9.]+ [mu]s ' "a profile shows its operators"
    like "$(cat trace)" '"name":"fc2: product"' "and a trace"
    try "$paceline" explain journal
    like "$(tr -s '\n ' ' ' <<<"$out")" \
        'train, batches of 20: [0-9]+ launches, [0-9.]+ [KM]iB, values .* 0 pieces compiled in [0-9.]+ s, [1-9] from' \
        "explain shows its plans"
    like "$out" ' [0-9]+ product \([0-9]+ %( of the bytes)?\)' "by kind of launch"
    like "$(tr -s '\n ' ' ' <<<"$out")" 'optimizer: [0-9]+ launch(es)?, ' "the plan of updates has no batch"
    like "$(tr -s '\n ' ' ' <<<"$out")" ', and [0-9]+ more kinds? \([0-9]+ %\)' "and the number of kinds that are not shown"
    with devices=1 compile run.json --set trainer.accelerator=cuda
    like "$out" ' s: 0 compiled, ' "nor does compile, with the card"
}

an_error_of_compiling_ahead_is_one_sentence() {
    try env PACELINE_CUDA_PATH="$stand_in" "$paceline" compile run.json
    is "$status" 2 "a processor keeps no kernels"
    like "$err" '^paceline: accelerator "cpu" keeps no compiled kernels: there is nothing to compile' "the error reports it"
    is "$(grep -c '^paceline: ' <<<"$err")" 1 "in one line"
    try "$paceline" compile run.json --set trainer.accelerator=opencl
    is "$status" 2 "nor does an accelerator with a driver that does"
    like "$err" '^paceline: accelerator "opencl" keeps no compiled kernels: ' "and which one"
    ahead --card sm_90 --set trainer.accelerator=opencl
    is "$status" 2 "an accelerator that has no such cards"
    like "$err" '^paceline: --card is for the accelerator "cuda", and trainer.accelerator is "opencl"' "the error reports it"
    ahead --card ''
    is "$status$err" '2paceline: --card needs a kind of card, such as sm_90' "no card"
    ahead --card sm_33
    is "$status" 2 "a card that the compiler does not know"
    like "$err" '^paceline: NVRTC 13\.99 compiles for sm_75 to sm_100, not for "sm_33": an A100 is sm_80, .* an H100 or H200 sm_90, ' \
        "the error has the known kinds"
    ahead --card sm_90 --set trainer.accelerator.name=cuda --set trainer.accelerator.cache=false
    is "$status" 2 "no cache"
    like "$err" 'keeps no compiled kernels here: there is nothing to compile; set its options cache and cache_dir' \
        "the error names the options"
    touch no-folder
    XDG_CACHE_HOME=$folder/ahead/no-folder ahead --card sm_90
    is "$status$out" 2 "a cache that cannot be written to"
    like "$err" 'kept 0 of [1-9][0-9]* pieces of kernels in .*no-folder/paceline, which cannot be written to' "the error reports it"
    try env PACELINE_CUDA_PATH="$stand_in" "$paceline" fit run.json --set trainer.accelerator.name=cuda \
        --set trainer.accelerator.compile_for=sm_90
    is "$status" 2 "a run on a card that is not there"
    like "$err" 'compile_for is for paceline compile: remove it to train on a card' "the error has the remedy"
    cd "$folder" || exit 99
    sed -i 's/, "accelerator": {[^}]*}//' run.json
    if "$paceline" compile run.json --card sm_90 >/dev/null 2>&1; then skip "NVRTC is installed"; return; fi
    refused 2 'compiler of kernels .* is not found: apt-get install cuda-nvrtc-13-0 .* or pip install nvidia-cuda-nvrtc, or' \
        compile run.json --card sm_90
}

# interrupted SIGNAL NVRTC WORDS... - a compile that gets a signal while a kernel compiles
interrupted() {
    local signal=$1 nvrtc=$2
    shift 2
    rm -rf "$TMPDIR" "$folder/cache" && mkdir "$TMPDIR"
    STAND_IN='' STAND_IN_NVRTC=$nvrtc PACELINE_CUDA_PATH=$stand_in "$paceline" compile run.json --card sm_90 "$@" \
        >out 2>err &
    pid=$!
    holds 60 is_compiling
    kill -"$signal" $pid
    wait $pid
    status=$? out=$(cat out) err=$(cat err)
}

is_compiling() { [ -n "$(ls "$TMPDIR")" ]; }

a_compile_ends_when_it_is_interrupted() {
    cd "$folder/ahead" || exit 99
    interrupted INT slow=100000
    is "$status" 130 "where the compiler can be: $err"
    like "$err" 'stopped before the first step \(SIGINT\), while compiling' "it reports that"
    interrupted INT deaf=6000
    is "$status$out" 130 "where it is waited for: $err"
    like "$err" 'waiting until the compiler has ended a kernel$' "it logs the reason for the wait"
    is "$(grep -c 'does not end' <<<"$err")" 0 "and nothing is taken for stuck"
    is "$(ls "$TMPDIR")" "" "no compiler is left in the middle"
    cd "$folder" || exit 99
}

objectives_have_plans_of_their_own() {
    mkdir gan
    cd gan || exit 99
    cp "$srcdir/examples/mixture-gan.json" run.json
    ahead --card sm_90
    is "$status" 0 "a module with two objectives: $err"
    like "$out" '^train discriminator +[0-9]' "plans of one"
    like "$out" '^train generator +[0-9]' "and of the other"
    like "$out" '^optimizer generator +- ' "with their updates"
    cd "$folder" || exit 99
}

# Batches of a hundred samples fit, batches of a thousand do not.
tune_finds_what_fits_on_a_card() {
    local largest
    points '"max_epochs": 1' '' '"hidden": [512, 512]'
    sed -i 's/, "accelerator": {[^}]*}//; s/"hidden": .16., //' run.json
    for _ in 1 2 3 4; do cat points.csv; done >more.csv
    with 'devices=1 memory_mb=8' tune run.json --set trainer.accelerator=cuda --set data.path=more.csv \
        --batch-size power --init-val 16 --steps-per-trial 1
    is "$status" 0 "a search ends well where memory runs out: $err"
    like "$out" '^[0-9]+ +does not fit$' "a size does not fit"
    largest=$(sed -n 's/.*batches of up to \([0-9]*\) fit$/\1/p' <<<"$out")
    ok "others do, up to $largest" test "$largest" -ge 16
    ok "the memory is the card's: $out" \
        awk '$4 == "MiB" && $3 > 0.2 && $3 < 8 { known++ } $4 == "GiB" || $3 > 8 && $4 == "MiB" { bad++ }
             END { exit !(known && !bad) }' <<<"$out"
    with 'devices=1 memory_mb=8' tune run.json --set trainer.accelerator=cuda --set data.path=more.csv \
        --batch-size power --init-val 16 --steps-per-trial 1 --max-memory 1
    is "$status" 0 "a search with a limit ends well: $err"
    ok "a limit below the card's holds: $out" \
        test "$(sed -n 's/.*batches of up to \([0-9]*\) fit$/\1/p' <<<"$out")" -lt "$largest"
    with 'devices=1 memory_mb=8' fit run.json --set trainer.accelerator=cuda --set data.path=more.csv \
        --set data.batch_size="$largest"
    is "$status" 0 "a run trains with the largest: $err"
    with 'devices=1 memory_mb=8' tune run.json --set trainer.accelerator=cuda --set data.path=more.csv \
        --set data.batch_size=960 --set trainer.step_timeout=600 --batch-size power --init-val 960 --steps-per-trial 1
    is "$status" 0 "where neither the run file's own size nor the first fits it begins smaller: $err"
    like "$out" '^960 +does not fit$' "the first does not"
    like "$out" 'batches of up to (60|120|240|480) fit$' "one of its halves does"
}

# A batch that is in pages of its own is copied from there, without a copy by the host.
large_batches_train_as_on_the_processor() {
    local accelerator
    for accelerator in cpu cuda; do
        with devices=1 fit run.json --set data.path=more.csv --set data.batch_size=960 --set trainer.max_epochs=3 \
            --set trainer.step_timeout=600 \
            --set trainer.accelerator=$accelerator
        is "$status" 0 "a run on $accelerator: $err"
        sed -n 's/^val_loss  *//p' <<<"$out" >"loss.$accelerator"
    done
    ok "there is a loss" test -s loss.cpu
    is "$(cat loss.cuda)" "$(cat loss.cpu)" "the same on both"
}

# The script for a machine with a card, in a moment.
the_script_for_a_card_runs_here() {
    if [ ! -e /dev/nvidiactl ]; then
        try "$srcdir/t/gpu/prove" run "$builddir"
        is "$status$out" "0prove: this machine has no card of NVIDIA: skipped" "without one it reports that"
    fi
    try env OUT="$folder/proof" PROVE_WITHOUT_CARD=1 PROVE_SECONDS=8 LD_LIBRARY_PATH="$stand_in" \
        PACELINE_CUDA_PATH="$stand_in" \
        "$srcdir/t/gpu/prove" run "$builddir"
    is "$status" 0 "it ends well: $err"
    like "$out" '^nothing wrong$' "and reports that"
    ok "each result is an object on a line" test -z "$(grep -v '^{.*}$' proof/results.jsonl)"
    is "$(grep -c '"stage":"operators".*"wrong":0' proof/results.jsonl)" 4 "operators in four precisions"
    like "$(cat proof/results.jsonl)" '"stage": "resume", "same_bits": true' "a run that is resumed"
    like "$(cat proof/results.jsonl)" '"stage": "copies", "left": "the time is over"' "what does not fit in the time"
}

run without_a_driver_errors_name_the_package trains
run a_machine_with_cards_is_described
run an_error_of_a_driver_is_a_warning trains
run a_requirement_of_nccl_is_a_warning
run auto_uses_a_card_that_works trains
run auto_uses_the_processor_where_a_card_does_not_work trains
run measurements_of_a_card_are_shown trains
run without_nvml_the_driver_reports_the_memory trains
run kernels_are_compiled_ahead trains
run an_error_of_compiling_ahead_is_one_sentence trains
run a_compile_ends_when_it_is_interrupted trains
run objectives_have_plans_of_their_own trains
run tune_finds_what_fits_on_a_card trains
run large_batches_train_as_on_the_processor trains
run the_script_for_a_card_runs_here trains
done_testing
