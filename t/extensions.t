#!/usr/bin/env bash
# extensions.t - tests that components of every role can come from shared objects made with the installed headers alone
. "$(dirname "$0")/tap.sh"

read -ra cc <<<"${CC:-cc}"                                # "ccache gcc"
installed="install-pkgincludeHEADERS install-nobase_pkgincludeHEADERS install-baseincludeHEADERS
    install-messagesincludeHEADERS install-runtimeincludeHEADERS
    install-tensorincludeHEADERS install-libLTLIBRARIES install-pkgconfigDATA install-nodist_cmakeDATA"

headers_are_installed() {
    try env -u MAKEFLAGS -u MFLAGS make -C "$builddir" $installed DESTDIR="$folder/root"
    is "$status" 0 "make can install them"
    include=$(dirname "$(find root -name paceline.h)")
    ok "paceline.h among them" test -f "$include/paceline.h"
}

# asked WORDS... - the answer of pkg-config after the installation
asked() {
    if command -v pkg-config >/dev/null; then
        env PKG_CONFIG_PATH="$(dirname "$(find "$folder/root" -name paceline.pc)")" PKG_CONFIG_SYSROOT_DIR="$folder/root" \
            pkg-config "$@" paceline
    else
        printf -- '-I%s -L%s -lpaceline\n' "$include" "$(dirname "$(find "$folder/root" -name libpaceline.so)")"
    fi
}

# built FILE - FILE.c as its name.so
built() {
    try "${cc[@]}" -shared -fPIC -Wall -Wextra -Werror $(asked --cflags) "$srcdir/$1.c" -o "plugins/${1##*/}.so" -lm
    is "$status$err" 0 "$1.c can be built"
}

a_program_is_built_with_the_installed_files() {
    try "${cc[@]}" $(sanitized) -Wall -Wextra -Werror "$srcdir/examples/epoll_host.c" -o epoll_host $(asked --cflags --libs)
    is "$status$err" 0 "a program can be built"
    if "$paceline" list accelerators | grep -q '^cpu '; then
        try env LD_LIBRARY_PATH="$(dirname "$(find "$folder/root" -name libpaceline.so.0)")" ./epoll_host
        like "$out" '^ok$' "and trains"
    fi
}

a_program_is_built_by_cmake() {
    if ! command -v cmake >/dev/null; then
        skip "cmake is not installed"
        return
    fi
    mkdir -p cmake
    cat >cmake/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.13)
project(embedded C)
find_package(Paceline ${1-0.1} REQUIRED)
add_executable(epoll_host $srcdir/examples/epoll_host.c)
target_link_libraries(epoll_host Paceline::paceline)
END
    prefix=$(dirname "$(dirname "$(dirname "$(find "$folder/root" -name paceline-config.cmake)")")")
    try cmake -S cmake -B cmake/build -DCMAKE_C_COMPILER="${cc[-1]}" -DCMAKE_C_FLAGS="$(sanitized)" \
        -DPaceline_DIR="$prefix/cmake/Paceline"
    is "$status" 0 "find_package(Paceline) finds it"
    try cmake --build cmake/build
    is "$status" 0 "a program can be built"
    if "$paceline" list accelerators | grep -q '^cpu '; then
        try env LD_LIBRARY_PATH="$prefix" cmake/build/epoll_host
        like "$out" '^ok$' "and trains"
    fi
    sed -i 's/find_package(Paceline [0-9.]*/find_package(Paceline 7/' cmake/CMakeLists.txt
    try cmake -S cmake -B cmake/seven -DPaceline_DIR="$prefix/cmake/Paceline"
    ok "version 7 is refused" test "$status" != 0
    like "$err" 'version: 0\.1' "with the version that is there"
}

# As doc/embedding.md says.
the_service_of_the_examples_is_built() {
    try "${cc[@]}" $(sanitized) -D_GNU_SOURCE "$srcdir"/examples/train_*.c -o train_service $(asked --cflags --libs) \
        -levent -ljansson
    is "$status$err" 0 "the service can be built"
}

each_header_is_complete_in_c_and_in_cxx() {
    for header in $(cd "$include" && find . -name '*.h' | LC_ALL=C sort); do
        printf '#include <%s>\ntypedef int not_empty;\n' "${header#./}" >alone.c
        try "${cc[@]}" -std=c11 -fsyntax-only -Wall -Wextra -pedantic -Werror -I"$include" alone.c
        is "$status$err" 0 "${header#./} in C11"
        command -v "${CXX:-c++}" >/dev/null || continue
        try "${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra -pedantic -Werror -I"$include" -x c++ alone.c
        is "$status$err" 0 "${header#./} in C++17"
    done
}

all_declarations_are_exported() {
    local library=$builddir/.libs/libpaceline.so
    nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort >exported
    (cd "$include" && cat $(find . -name '*.h')) | tr '\n' ' ' | grep -oE 'PL_API [^;{]*[;{]' |
        grep -oE '\<(pl|paceline)_[a-z0-9_]+ ?[([]' | tr -d ' ([' | LC_ALL=C sort -u |
        grep -vxE 'paceline_plugin' >declared
    ok "there are many" test "$(grep -c . declared)" -gt 150
    is "$(grep '^pl_[a-z_]*$' declared | LC_ALL=C comm -23 - exported | grep -v '_t$')" "" "none is missing"
}

# A run of 7 steps on rings, with further options of the command.
rings() {
    rm -rf runs
    try "$paceline" fit rings.json --plugin plugins/components.so --plugin plugins/rings.so "$@"
    is "$status$(grep -E 'warning|error|paceline:' <<<"$err")" 0 "it trains: $*"
    like "$out" '^stopped .* 7 steps' "until the callback has it end"
}

a_dataset_and_a_callback_of_users_work() {
    printf '{"module": "mlp", "data": {"name": "rings", "val_split": 0.1}, "optimizer": {"name": "sgd", "lr": 0.02},
        "callbacks": ["enough"], "trainer": {"max_epochs": 3, "default_root_dir": "runs"}}' >rings.json
    rings
    cp runs/0001/model.safetensors built-in
}

a_strategy_of_users_works() {
    rings --plugin plugins/strategy.so --set trainer.strategy=plain
    ok "with the same bits as single" cmp runs/0001/model.safetensors built-in
    rings --plugin plugins/strategy.so --set trainer.strategy=plain --set trainer.strategy.factor=0.5
    cp runs/0001/model.safetensors halved
    rings --set optimizer.lr=0.01
    ok "and an option of its own" cmp runs/0001/model.safetensors halved
    try "$paceline" predict rings.json --plugin plugins/components.so --plugin plugins/rings.so --plugin plugins/strategy.so \
        --set trainer.strategy=plain --checkpoint runs/0001
    is "$status$err" 0 "it predicts, too"
}

# steered NAME LOADER - the weights of a run with a strategy that sets this of the loader
steered() {
    rings --plugin plugins/strategy.so --set trainer.strategy="{\"name\": \"steered\", $2}" "${@:3}"
    cp runs/0001/model.safetensors "$1"
}

a_strategy_of_users_controls_how_data_is_loaded() {
    steered unchanged '"loader": ""'
    ok "it may leave the loader as it is" cmp unchanged built-in
    rings --set data.sampler=balanced
    cp runs/0001/model.safetensors balanced
    steered replaced '"loader": "{\"sampler\": \"balanced\"}"'
    ok "it replaces the sampler" cmp replaced balanced
    ok "which changes what is drawn" test "$(cmp replaced built-in)"
    rings --set 'data.sampler={"name": "weighted", "class_weights": [1, 5]}'
    cp runs/0001/model.safetensors weighted
    steered weighing '"loader": "{\"sampler\": {\"name\": \"weighted\", \"class_weights\": [1, 5]}}"'
    ok "it weights samples" cmp weighing weighted
    rings --plugin plugins/strategy.so --set 'data.sampler={"name": "backwards", "of": "balanced"}'
    cp runs/0001/model.safetensors turned
    steered wrapped '"wraps": true' --set data.sampler=balanced
    ok "it wraps the sampler of the run in one of its own" cmp wrapped turned
    ok "which changes the order" test "$(cmp wrapped balanced)"
    rings --set data.shuffle=false
    cp runs/0001/model.safetensors ordered
    steered still '"loader": "{\"shuffle\": false}"'
    ok "it sets the other options of the loader" cmp still ordered
    local with=(--plugin plugins/components.so --plugin plugins/rings.so --plugin plugins/strategy.so)
    try "$paceline" fit rings.json "${with[@]}" \
        --set trainer.strategy='{"name": "steered", "loader": "{\"sampler\": \"balancd\"}"}'
    like "$status$err" '^[1-9].*the loader that the strategy sets.*balancd' "a loader that cannot be is refused"
    try "$paceline" fit rings.json "${with[@]}" --set trainer.strategy='{"name": "steered", "wraps": true}'
    like "$status$err" '^[1-9].*there is no sampler to wrap: set "data.sampler"' "so is a wrapper around none"
}

# The example is found by its name.
a_strategy_of_users_works_with_several_ranks() {
    for run in first second; do
        rings --set trainer.strategy=vote --set trainer.devices=2
        cp runs/0001/model.safetensors "$run"
    done
    ok "twice with the same bits" cmp first second
    ok "which are not those of the sums" test -n "$(cmp first built-in)"
}

an_accelerator_of_users_works() {
    rings --plugin plugins/counting.so --set trainer.accelerator=counting --set trainer.accelerator.file=counted
    ok "with the bits of the one it uses" cmp runs/0001/model.safetensors built-in
    like "$(cat counted)" '^([4-9]|[1-9][0-9]+) products$' "and sees what is compiled"
}

a_launcher_of_users_works() {
    rings --plugin plugins/lone.so --set trainer.launcher=lone
    ok "with the same result" cmp runs/0001/model.safetensors built-in
}

a_collective_of_users_works() {
    local ddp='{"name": "ddp", "collective": "shm"}'
    rings --set trainer.devices=2 --set trainer.strategy="$ddp"
    cp runs/0001/model.safetensors shared
    ddp='{"name": "ddp", "collective": {"name": "metered", "file": "moved"}}'
    rings --plugin plugins/metered.so --set trainer.devices=2 --set trainer.strategy="$ddp"
    ok "with the bits of the one it uses" cmp runs/0001/model.safetensors shared
    like "$(cat moved)" '^[1-9][0-9]* operations, [1-9][0-9]* elements' "and sees what is moved"
}

a_logger_of_users_works() {
    rings --plugin plugins/influx.so --set 'loggers=[{"name": "influx", "measurement": "rings"}]' \
        --set trainer.log_every_n_steps=2
    local lines=runs/0001/metrics.lp
    ok "a line for every second step" test "$(grep -c '^rings,run=[^ ]*0001 .*train_loss=[0-9.]*,.*step=[246]i [0-9]*$' $lines)" -eq 3
    rings --plugin plugins/influx.so --set 'loggers=[{"name": "influx", "measurement": "my a,b=c\\"}]' \
        --set 'trainer.default_root_dir="a b,c=d"' --set trainer.log_every_n_steps=2
    lines='a b,c=d/0001/metrics.lp'
    ok "what would end a name is escaped" grep -qE '^my\\ a\\,b=c_,run=[^ ]*a\\ b\\,c\\=d/0001 .*train_loss=[0-9]' "$lines"
}

run headers_are_installed
if ! command -v "${cc[0]}" >/dev/null; then
    skip "no compiler here"
else
    mkdir plugins
    run each_header_is_complete_in_c_and_in_cxx
    run all_declarations_are_exported
    for component in t/extensions/{components,strategy} examples/{counting,goal,influx,lone,metered,mlp,rings,swish,vote}; do
        built "$component"
    done
    run a_program_is_built_with_the_installed_files
    run a_program_is_built_by_cmake
    run the_service_of_the_examples_is_built
    run a_dataset_and_a_callback_of_users_work
    run a_strategy_of_users_works
    run a_strategy_of_users_controls_how_data_is_loaded
    run a_strategy_of_users_works_with_several_ranks
    run an_accelerator_of_users_works
    run a_launcher_of_users_works
    run a_collective_of_users_works
    run a_logger_of_users_works
fi
done_testing
