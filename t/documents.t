#!/usr/bin/env bash
# documents.t - tests of what is written about Paceline: it says what the sources say
. "$(dirname "$0")/tap.sh"

packages_of_quickstart() {
    sed -n '/^packages="/,/"$/p' "$srcdir/quickstart" | tr -d '"' | sed 's/^packages=//' | xargs -n 1 | sort
}

the_list_of_messages_is_the_newest() {
    try "$builddir/engine/runtime/messages_doc"
    is "$status" 0 "it is written"
    ok "doc/messages.md says the same (make doc)" cmp "$folder/.out" "$srcdir/doc/messages.md"
}

the_manual_page_names_every_command_and_option() {
    for command in fit predict monitor inspect list doctor; do
        ok "$command" grep -q "^.SS \"paceline $command" "$builddir/doc/paceline.1"
        for flag in $("$paceline" "$command" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p'); do
            [ "$flag" = help ] || ok "--$flag" grep -qF -- "\\fB\\-\\-${flag//-/\\-}\\fR" "$builddir/doc/paceline.1"
        done
    done
    ok "and the trainer's options" grep -q 'max_epochs' "$builddir/doc/paceline.1"
    if command -v groff >/dev/null; then
        try groff -man -Tutf8 -ww "$builddir/doc/paceline.1"
        is "$err" "" "and it is well formed"
    else
        skip "no groff here"
    fi
}

readme_and_quickstart_need_the_same_packages() {
    readme=$(sed -n '/^## What it needs/,/^## /p' "$srcdir/README.md" | sed -n 's/^    //p' | tr -d '\\' |
        sed 's/apt-get install//' | xargs -n 1 | sort)
    is "$readme" "$(packages_of_quickstart)" "one list"
}

what_readme_runs_can_be_run() {
    sed -n '/^```json/,/^```$/p' "$srcdir/README.md" | grep -v '^```' >run.json
    try "$paceline" fit run.json --print-config
    is "$status$err" 0 "the first run file"
    for file in $(grep -oE '\]\([a-zA-Z/._-]+\)' "$srcdir/README.md" "$srcdir/CONTRIBUTING.md" -h | tr -d ']()'); do
        ok "$file is there" test -e "$srcdir/$file"
    done
}

run the_list_of_messages_is_the_newest
run the_manual_page_names_every_command_and_option
run readme_and_quickstart_need_the_same_packages
run what_readme_runs_can_be_run
done_testing
