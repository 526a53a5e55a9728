#!/usr/bin/env bash
# documents.t - tests of the documents: they agree with the sources
. "$(dirname "$0")/tap.sh"

packages_of_quickstart() {
    sed -n '/^packages="/,/"$/p' "$srcdir/quickstart" | tr -d '"' | sed 's/^packages=//' | xargs -n 1 | sort
}

the_list_of_messages_is_the_newest() {
    try "$builddir/engine/generate/messages"
    is "$status" 0 "it is written"
    ok "doc/messages.md says the same (make doc)" cmp "$folder/.out" "$srcdir/doc/messages.md"
}

the_list_of_operators_is_the_newest() {
    try "$builddir/engine/generate/operators"
    is "$status" 0 "it is written"
    ok "doc/operators.md says the same (make doc)" cmp "$folder/.out" "$srcdir/doc/operators.md"
}

the_list_of_callbacks_is_the_newest() {
    try env PACELINE_PLUGIN_PATH="$builddir/examples/.libs" "$builddir/engine/generate/callbacks"
    is "$status" 0 "it is written"
    ok "doc/callbacks.md says the same (make doc)" cmp "$folder/.out" "$srcdir/doc/callbacks.md"
}

the_list_of_options_is_the_newest() {
    if ! "$paceline" list accelerators | grep -q '^cpu '; then
        skip "a build without an accelerator has fewer options"
        return
    fi
    local plugins=$builddir/accelerators/cuda/.libs:$builddir/accelerators/opencl/.libs:$builddir/examples/.libs:$builddir/actors/connectors/loggers/.libs
    try env PACELINE_PLUGIN_PATH="$plugins:$builddir/strategies/collectives/.libs" \
        "$builddir/engine/generate/options"
    is "$status" 0 "it is written"
    ok "doc/options.md says the same (make doc)" cmp "$folder/.out" "$srcdir/doc/options.md"
}

# What a run tells of itself, as its message describes it: but for what is not for the program.
events() {
    sed -n '/^### run_event/,/^### run_command/p' "$srcdir/doc/messages.md" | sed -n 's/^| [0-9]* | `\([a-z]*\)` .*/\1/p' |
        grep -vx 'ready\|alive'
}

every_event_is_described() {
    sed -n '/^typedef struct pl_progress /,/^} pl_progress_t/p' "$srcdir/engine/paceline.h" >progress.h
    ok "there are several" test "$(events | wc -l)" -ge 8
    for event in $(events); do
        ok "$event in doc/formats.md" grep -q "\`$event\`\|\"event\": \"$event\"" "$srcdir/doc/formats.md"
        ok "$event in paceline.h" grep -qF "\"$event\"" progress.h
    done
    for event in $(grep -oh 'tell_endpoint(session, "[a-z]*"' "$srcdir/engine/cli/session.c" | grep -o '"[a-z]*"' | tr -d '"'); do
        ok "$event of the command" grep -q "^| \`$event\` |" "$srcdir/doc/formats.md"
    done
}

# places HEADING - the files that a section of doc/extending.md names
places() {
    sed -n "/^## $1/,/^## /p" "$srcdir/doc/extending.md" | grep -o '`[A-Za-z0-9_./*-]*[/.][A-Za-z0-9_./*-]*`' | tr -d '`' |
        (cd "$srcdir" && while read -r place; do
            for path in $place; do
                if [ -d "$path" ]; then find "${path%/}" -type f; else echo "$path"; fi
            done
        done)
}

# lacks HEADING WORD - files of the engine with that word that the section does not name, except a user of all
lacks() {
    (cd "$srcdir" && grep -rlwE --include='*.[chk]' --include='*.def' -- "$2" engine accelerators actors strategies) |
        grep -v '/layers_module.c$' | sort -u >with_word
    places "$1" | sort -u | comm -23 with_word -
}

extending_names_every_place_that_changes() {
    missing=$(places '' | sort -u | while read -r path; do
        [ -e "$srcdir/$path" ] || [ -e "$srcdir/engine/messages/$path" ] || echo "$path"
    done)
    is "$missing" "" "each file that doc/extending.md names exists"
    ok "they are many" test "$(places '' | sort -u | wc -l)" -gt 50
    missing=$(grep -o '`[a-z_]*()`' "$srcdir/doc/extending.md" | tr -d '`()' | sort -u | grep -v '^pl_call_name$' |
        while read -r name; do
            grep -rqw --include='*.[ch]' "$name" "$srcdir"/{engine,accelerators,actors,strategies} || echo "$name"
        done)
    is "$missing" "" "each function that it names exists"
    is "$(lacks 'A loss or another operator' 'cross_entropy(_grad)?')" "" \
        "the places of an operator are those of cross_entropy"
    is "$(lacks 'A command to a running fit' 'RUN_COMMAND_SAVE')" "" "the places of a command are those of save"
}

# What every key and component is called that the command knows.
known_names() {
    "$paceline" list --json | grep -o '"name":"[^"]*"'
    for section in data trainer averaging optimizer module; do
        "$paceline" list "$section" --json | grep -o '"name":"[^"]*"'
    done
}

the_list_of_options_has_every_component_and_key() {
    missing=$(known_names | sed 's/.*:"\(.*\)"/\1/' | sort -u | while read -r name; do
        grep -qF "\`$name\`" "$srcdir/doc/options.md" || echo "$name"
    done)
    is "$missing" "" "keys of plug-ins that come with it, of sections and of lists in them"
    ok "that is many" test "$(known_names | sort -u | wc -l)" -gt 150
}

readme_and_quickstart_need_the_same_packages() {
    readme=$(sed -n '/^## What it needs/,/^## /p' "$srcdir/README.md" | sed -n 's/^    //p' | tr -d '\\' |
        sed 's/apt-get install//' | xargs -n 1 | sort)
    is "$readme" "$(packages_of_quickstart)" "one list"
}

targets() {
    awk '/^\.PHONY:/ { inside = 1 } inside { inside = /\\$/; sub(/^\.PHONY:/, ""); sub(/\\$/, ""); print }' \
        "$srcdir/Makefile.am" | xargs -n 1
}

every_target_of_make_is_described() {
    sed -n '/^## Targets of make/,/^## /s/^| \(`[^|]*\)|.*/\1/p' "$srcdir/doc/architecture.md" >targets
    ok "there are many" test "$(targets | wc -l)" -ge 15
    is "$(targets | while read -r name; do grep -qF "\`$name\`" targets || echo "$name"; done)" "" "each"
}

# A tree with quickstart alone, and programs that only say that they were called.
quickstart_alone() {
    mkdir -p alone/{accelerators,actors,doc,engine,examples,m4,strategies,build} stubs
    cp "$srcdir/quickstart" alone
    touch alone/{configure,configure.ac,Makefile.am,paceline.pc.in,build/{Makefile,config.status},engine/a.c}
    for tool in autoreconf make sudo; do
        printf '#!/bin/sh\n[ %s != sudo ]\n' "$tool" >stubs/"$tool"
    done
    printf '#!/bin/sh\necho 1000\n' >stubs/id
    printf '#!/bin/sh\necho "$STATE"\n' >stubs/dpkg-query
    printf '#!/bin/sh\ntouch Makefile config.status\n' >alone/configure
    chmod +x stubs/* alone/configure
    mkdir -p dpkg/info
    export DPKG_ADMINDIR=$folder/dpkg
}

quickstart_builds_when_a_source_is_newer() {
    quickstart_alone
    export STATE='install ok installed'
    try env PATH="$folder/stubs:$PATH" alone/quickstart build
    is "$status$err" "0building in build/ (a minute or two)" "the first time"
    touch -d '1 hour' alone/README.md alone/run.json alone/engine/notes.txt
    try env PATH="$folder/stubs:$PATH" alone/quickstart build
    is "$status$err" 0 "not for files that are no sources"
    touch -d '1 hour' alone/engine/a.c
    try env PATH="$folder/stubs:$PATH" alone/quickstart build
    like "$err" '^building in build/' "but for one that is"
}

quickstart_configures_again_for_packages_installed_since() {
    quickstart_alone
    export STATE='install ok installed'
    try env PATH="$folder/stubs:$PATH" alone/quickstart build
    touch -d '1 hour' dpkg/info/zlib1g-dev:amd64.list
    touch -d '2 hours' dpkg/info/else.list
    try env PATH="$folder/stubs:$PATH" alone/quickstart build
    is "$(head -n 1 <<<"$err")" "configuring in build/" "a package of its list is newer"
    like "$err" '^building in build/' "so all is made by what is found now"
    touch -d '2 hours' alone/build/config.status
    try env PATH="$folder/stubs:$PATH" alone/quickstart build
    is "$status$err" 0 "and not again"
}

quickstart_says_what_to_type_on_a_bare_image() {
    export STATE=
    try env PATH="$folder/stubs:$PATH" alone/quickstart deps
    is "$status" 2 "without root nothing is installed"
    like "$err" '^    apt-get update && apt-get install -y .*gcc' "the line works where there are no lists yet"
}

packages_are_not_begun_without_their_requirements() {
    quickstart_alone
    printf '#!/bin/sh\nexit 1\n' | tee stubs/dpkg-checkbuilddeps >stubs/lintian
    chmod +x stubs/*
    rm stubs/make
    try env -u MAKEFLAGS -u MFLAGS PATH="$folder/stubs:$PATH" make -C "$builddir" deb
    is "$status" 2 "make deb fails"
    like "$err" 'apt-get install .*lintian && apt-get build-dep .*/$' "and says what to type"
    is "$(grep -c 'distdir\|dist-xz' <<<"$out")" 0 "before anything is packed"
}

# block LANGUAGE NUMBER [PAGE] - what stands in that block of README, or of another page
block() {
    awk -v start="\`\`\`$1" -v number="$2" '
        $0 == start { inside = ++count == number; next }
        /^```$/ { inside = 0 }
        inside' "$srcdir/${3-README.md}"
}

a_model_for_values_trains_as_its_page_says() {
    if ! "$paceline" list accelerators | grep -q '^cpu '; then
        skip "no accelerator here"
        return
    fi
    mkdir values
    ln -s "$builddir" values/build
    sed -n '/^## Models for values/,/^## Precision/p' "$srcdir/doc/modules.md" >values/page.md
    sed -n '/^```json/,/^```$/{/^```/!p}' values/page.md >values/values.json
    sed -n '/^```sh/,/^```$/{/^```/!p}' values/page.md >values/commands
    try env -C values bash -e commands
    is "$status" 0 "all commands succeed: $err"
    like "$out" '^val_mae +0\.0[01]' "the model learns the function"
    is "$(grep -cE '^-?[0-9.]+$' <<<"$out")" 3 "and predicts values"
    sed 's/"mlp", .*},/"cnn"},/; s/20},/1}/' values/values.json >values/classes.json
    try env -C values "$paceline" fit classes.json
    like "$err" 'the target is a value, .*"Models for values" in doc/modules.md' "the error of a module for classes names the page"
    ok "which has that heading" grep -qx '## Models for values' "$srcdir/doc/modules.md"
}

the_programs_of_readme_compile() {
    local cc
    read -ra cc <<<"${CC:-cc}"                            # "ccache gcc"
    if ! command -v "${cc[0]}" >/dev/null; then
        skip "no compiler here"
        return
    fi
    block c 1 >program.c
    try "${cc[@]}" -fsyntax-only -Wall -Wextra -Werror -I"$srcdir/engine" program.c
    is "$status$err" 0 "the program"
    block c 2 >two.c
    try "${cc[@]}" -shared -fPIC -Wall -Wextra -Werror -I"$srcdir/engine" two.c -o two.so
    is "$status$err" 0 "the module"
    try "$paceline" list modules --plugin ./two.so
    like "$out" '^two - two layers$' "which can be loaded"
}

a_program_is_built_from_the_tree_as_readme_says() {
    line=$(grep -o 'cc program.c -Iengine.*' "$srcdir/README.md")
    if ! command -v pkg-config >/dev/null; then
        skip "no pkg-config here"
        return
    fi
    block c 1 >program.c
    ln -sfn "$srcdir/engine" engine && ln -sfn "$builddir" build
    try eval "${CC:-cc}${line#cc} $(sanitized) -o program"
    is "$status" 0 "$line"
    if "$paceline" list accelerators | grep -q '^cpu '; then
        mkdir full && : >full/runs
        printf '{"module": "mlp", "data": {"name": "csv", "path": "%s"}, "optimizer": "sgd"}' "$folder/two.csv" >full/run.json
        printf 'a,b,label\n0,1,0\n1,0,1\n' >two.csv
        try env -C full PACELINE_PLUGIN_PATH="$builddir/examples/.libs" LD_LIBRARY_PATH="$builddir/.libs" ../program
        is "$status$out" 1 "a run that fails fails it"
        like "$err" '^failed: .*runs' "with the reason"
    fi
    for file in README.md doc/tutorial.md; do
        ok "$file names ldconfig after the installation" grep -q 'make.*install.*ldconfig' "$srcdir/$file"
    done
}

examples_of_components_are_built_as_readme_says() {
    local cc words example
    read -ra cc <<<"${CC:-cc}"
    if ! command -v "${cc[0]}" >/dev/null; then
        skip "no compiler here"
        return
    fi
    read -ra words < <(sed -n 's/^    cc \(-shared .*\) examples\/vote.c -o vote.so$/\1/p' "$srcdir/README.md")
    for example in rings swish goal influx vote counting lone metered; do
        ok "README names $example.c" grep -qF "(examples/$example.c)" "$srcdir/README.md"
        try env -C "$srcdir" "${cc[@]}" "${words[@]}" "examples/$example.c" -o "$folder/$example.so"
        is "$status$err" 0 "which can be built"
    done
}

commands_of_readme_can_be_run() {
    block json 1 >run.json
    try "$paceline" fit run.json --print-config
    is "$status$err" 0 "the first run file"
    for file in $(grep -oE '\]\([a-zA-Z/._-]+\)' "$srcdir/README.md" "$srcdir/CONTRIBUTING.md" -h | tr -d ']()'); do
        ok "$file is there" test -e "$srcdir/$file"
    done
}

run the_list_of_messages_is_the_newest
run the_list_of_operators_is_the_newest
run the_list_of_callbacks_is_the_newest
# The hooks of Lightning 2.6, of its callbacks, its modules and their data.
hooks="backward configure_callbacks configure_gradient_clipping configure_model configure_optimizers
    configure_sharded_model load_state_dict lr_scheduler_step on_after_backward on_after_batch_transfer
    on_before_backward on_before_batch_transfer on_before_optimizer_step on_before_zero_grad on_exception on_fit_end
    on_fit_start on_load_checkpoint on_predict_batch_end on_predict_batch_start on_predict_end on_predict_start
    on_sanity_check_end on_sanity_check_start on_save_checkpoint on_test_batch_end on_test_batch_start on_test_end
    on_test_start on_train_batch_end on_train_batch_start on_train_end on_train_epoch_end on_train_epoch_start
    on_train_start on_validation_batch_end on_validation_batch_start on_validation_end on_validation_epoch_end
    on_validation_epoch_start on_validation_model_eval on_validation_model_train on_validation_model_zero_grad
    on_validation_start optimizer_step optimizer_zero_grad prepare_data setup state_dict teardown
    train_dataloader transfer_batch_to_device"

each_hook_of_lightning_has_a_line() {
    missing=$(for hook in $hooks; do grep -q "^| .*\`$hook\`.*|.*|" "$srcdir/doc/lightning.md" || echo "$hook"; done)
    is "$missing" "" "what is there instead, or why nothing is"
}

every_page_is_in_the_index_and_is_installed() {
    for page in "$srcdir"/doc/*.md; do
        name=${page##*/}
        [ "$name" = README.md ] || ok "$name is in doc/README.md" grep -qF "| [$name]($name) |" "$srcdir/doc/README.md"
    done
    try env -u MAKEFLAGS -u MFLAGS make -C "$builddir" install-dist_pagesDATA install-nodist_pagesDATA \
        install-dist_docDATA DESTDIR="$folder/pages"
    is "$status" 0 "make can install the pages"
    is "$(find pages -name '*.md' | sed 's|.*/||' | sort)" \
        "$(cd "$srcdir" && ls README.md CONTRIBUTING.md doc/*.md | sed 's|.*/||' | sort)" "all of them"
    try env -u MAKEFLAGS -u MFLAGS make -C "$builddir" install-data DESTDIR="$folder/pages"
    broken=$(find pages -name '*.md' | while read -r page; do
        grep -oE '\]\([^)#: ]+' "$page" | sed 's/](//' | grep -v '^https\?$' | sort -u | while read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "${page##*/}: $link"
        done
    done)
    is "$broken" "" "no link of an installed page is dead"
}

the_site_has_every_page_and_no_broken_link() {
    if ! command -v doxygen >/dev/null; then
        skip "doxygen is not installed"
        return
    fi
    sed "s|^OUTPUT_DIRECTORY.*|OUTPUT_DIRECTORY = $folder|; s|^WARN_LOGFILE.*||" \
        "$builddir/engine/generate/Doxyfile" >Doxyfile
    try doxygen Doxyfile
    is "$status$err" 0 "Doxygen reads the pages without a warning"
    for page in "$srcdir"/doc/*.md; do
        name=${page##*/}
        ok "$name is a page" test -s "html/md_doc_${name%.md}.html"
    done
    broken=$(cd html && grep -oE '(href|src)="[^"]+"' -- *.html | sed -E 's/:(href|src)="/ /; s/"$//' | sort -u |
        grep -vE ' (https?|javascript):' | while read -r page link; do
            file=${link%%#*}
            [ -e "${file:-$page}" ] || echo "$page: $link"
            [[ $link != *md_*#* ]] || grep -qE "(id|name)=\"${link#*#}\"" "$file" || echo "$page: $link"
        done)
    is "$broken" "" "every link leads to a file, and to a heading that is there"
    ok "a function has its description" grep -q 'returns at once\|returns when\|Enqueues\|Trains' html/paceline_8h.html
    ok "functions can be searched" grep -q pl_trainer_fit html/search/all_*.js
}

run every_event_is_described
run extending_names_every_place_that_changes
run the_list_of_options_is_the_newest
run the_list_of_options_has_every_component_and_key
run each_hook_of_lightning_has_a_line
run readme_and_quickstart_need_the_same_packages
run every_target_of_make_is_described
run quickstart_builds_when_a_source_is_newer
run quickstart_configures_again_for_packages_installed_since
run packages_are_not_begun_without_their_requirements
run quickstart_says_what_to_type_on_a_bare_image
run the_programs_of_readme_compile
run a_program_is_built_from_the_tree_as_readme_says
run a_model_for_values_trains_as_its_page_says
run examples_of_components_are_built_as_readme_says
run commands_of_readme_can_be_run
run every_page_is_in_the_index_and_is_installed
run the_site_has_every_page_and_no_broken_link
done_testing
