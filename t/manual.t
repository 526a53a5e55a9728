#!/usr/bin/env bash
# manual.t - tests of the manual: each command and each function has a page that says what it takes
. "$(dirname "$0")/tap.sh"

man=$builddir/doc/man

commands() {
    "$paceline" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'
}

every_command_has_a_page_with_its_options() {
    ok "there are many" test "$(commands | wc -l)" -ge 11
    for command in $(commands); do
        page=$man/man1/paceline-$command.1
        ok "$command" grep -qx "paceline.-$command .- .*" "$page"
        ok "is named in paceline(1)" grep -qF ".BR paceline\\-$command (1)" "$man/man1/paceline.1"
        for flag in $("$paceline" "$command" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' | grep -vx help); do
            ok "--$flag" grep -qF -- "\\fB\\-\\-${flag//-/\\-}\\fR" "$page"
        done
    done
    ok "keys of a run file stand in paceline(1)" grep -q '^.fBmax_epochs' "$man/man1/paceline.1"
}

# What the command and the library of it read; not what schedulers set, which doc/distributed.md has.
variables_read() {
    (cd "$srcdir" && find accelerators actors engine strategies -name '*.[ch]' -exec grep -ohE \
        '\<(getenv|environment)\("[A-Z_]+"\)|"PACELINE_[A-Z_]+"' {} +) | grep -oE '[A-Z_]{4,}' | sort -u
}

the_manual_describes_every_variable_file_and_status() {
    local page=$man/man1/paceline.1
    sed -n '/^\.SH ENVIRONMENT/,/^\.SH EXIT/p' "$page" >environment
    ok "there are many" test "$(variables_read | wc -l)" -ge 20
    missing=$(variables_read | while read -r name; do grep -qwF "$name" environment || echo "$name"; done)
    is "$missing" "" "each variable that is read"
    sed -n '/^\.SH FILES/,/^\.SH ENV/p' "$page" | tr -d '\\' >files
    missing=$(sed -n '/^## A run directory/,/^## /s/^| `\([^`]*\)`.*/\1/p' "$srcdir/doc/formats.md" |
        while read -r name; do grep -qxF ".I $name" files || echo "$name"; done)
    is "$missing" "" "each file of a run directory that doc/formats.md names"
    for number in $(sed -n 's/^ *CLI_[A-Z]* = \([0-9]*\).*/\1/p' "$srcdir/engine/cli/output.h"); do
        ok "status $number" grep -qx ".B $number" "$page"
        ok "also in doc/formats.md" grep -q "^| $number | " "$srcdir/doc/formats.md"
    done
}

every_function_has_a_page() {
    nm -D --defined-only "$builddir/.libs/libpaceline.so" | sed -n 's/.* \(pl_[a-z0-9_]*\)@.*/\1/p' >exported
    (cd "$man/man3" && ls) | sed 's/\.3$//' | LC_ALL=C sort >pages
    # The headers for authors of strategies and so on are no part of the manual.
    grep -oE '\<pl_[a-z0-9_]+\(' "$srcdir/engine/paceline.h" | tr -d '(' | LC_ALL=C sort -u >named
    LC_ALL=C sort exported | LC_ALL=C comm -12 - named >functions
    ok "there are many" test "$(wc -l <functions)" -gt 120
    is "$(LC_ALL=C comm -23 functions pages)" "" "each of them"
    missing=$(while read -r name; do
        grep -qE "[ *]$name\(" "$man/man3/$name.3" || echo "$name"
    done <functions)
    is "$missing" "" "which shows how it is called"
    missing=$(while read -r name; do
        grep -qF "$name" "$man/man3/paceline.3" || echo "$name"
    done <functions)
    is "$missing" "" "and paceline(3) names it"
    missing=$(grep -oE '\<pl_[a-z0-9_]+_t;' "$srcdir/engine/paceline.h" | tr -d ';' | grep -vxFf pages)
    is "$missing" "" "types have pages, too"
    is "$(find "$man/man3" -type f -exec grep -L '^\.SH DESCRIPTION' {} +)" "" "each page describes what it is about"
}

man_finds_and_shows_pages() {
    command -v man >/dev/null || { skip "no man here"; return; }
    try env MANWIDTH=80 man -M "$man" pl_trainer_fit
    like "$out" '^ +int pl_trainer_fit\(pl_trainer_t \*trainer, pl_on_done_t on_done' "how it is called"
    like "$out" 'comes +exactly +once' "what it does"
    like "$out" 'pl_on_done_t\(3\)' "and what else to read"
    try env MANWIDTH=80 man -M "$man" pl_options_free
    like "$out" 'pl_options_clone, +pl_options_free +- ' "one page serves several"
    try env MANWIDTH=200 man -M "$man" pl_trainer_save
    like "$out" "commands to a fit under way" "of those that belong together"
    like "$out" 'pl_trainer_save\(\): +Makes +a +checkpoint' "each of which is described by name"
    try env MANWIDTH=80 man -M "$man" pl_trainer_pause
    like "$out" 'pl_trainer_scale_lr +- +commands' "also those that need no words of their own"
    try env MANWIDTH=80 man -M "$man" pl_result_t
    like "$out" 'uint64_t global_step;  /\* optimizer steps done \*/' "structs say what their fields are"
    try env MANWIDTH=80 man -M "$man" paceline-predict
    like "$out" '^ +paceline predict RUN.json \[OPTION\]\.\.\.$' "commands how they are used"
}

# name_of PAGE - what it says that it is about
name_of() {
    sed -n '/^\.SH NAME/{n;s/.* \\- *//p;q}' "$1" | tr -d '\\'
}

each_page_has_a_whole_clause_as_its_title() {
    find "$man" -type f -name '*.[13]' | while read -r page; do
        name=$(name_of "$page")
        [[ $name && $name != *... && $(tr -cd '[({' <<<"$name" | wc -c) = $(tr -cd '])}' <<<"$name" | wc -c) ]] ||
            echo "$page: $name"
    done >wrong
    is "$(text wrong)" "" "none is empty or cut"
    like "$(name_of "$man/man3/pl_module_ops_t.3")" '^a module: ' "a module among them"
    is "$(grep -L 'pl_error_t \*err' "$man/man3/pl_trainer_fit.3" "$man/man3/pl_trainer_scale_lr.3")" "" \
        "a type stays with its name"
}

pages_fit_80_columns() {
    command -v man >/dev/null || { skip "no man here"; return; }
    find "$man" -type f -name '*.[13]' | while read -r page; do
        MANWIDTH=80 man "$page" | col -bx | awk -v page="${page##*/}" 'length($0) > 80 {print page ": " $0}'
    done >wide
    is "$(text wide)" "" "no line is wider than 80 columns"
}

pages_are_well_formed() {
    pages=$(find "$man" -type f -name '*.[13]')
    if command -v mandoc >/dev/null; then
        try mandoc -Tlint -Wwarning $pages
        is "$status$out$err" 0 "mandoc says nothing"
    else
        skip "no mandoc here"
    fi
    if command -v groff >/dev/null; then
        try groff -man -Tutf8 -ww $pages
        is "$err" "" "nor does groff"
    else
        skip "no groff here"
    fi
}

pages_are_installed_and_removed() {
    try env -u MAKEFLAGS -u MFLAGS make -C "$builddir" install-data-local DESTDIR="$folder/root"
    is "$status" 0 "make can install them"
    is "$(cd "$(dirname "$(find root -name man3)")" && find . -name '*.[13]' | sort)" \
        "$(cd "$man" && find . -name '*.[13]' | sort)" "all of them"
    ok "links are whole" test -z "$(find root -xtype l)"
    env -u MAKEFLAGS -u MFLAGS make -C "$builddir" uninstall-local DESTDIR="$folder/root" >/dev/null
    is "$(find root ! -type d)" "" "and nothing is left"
}

run every_command_has_a_page_with_its_options
run the_manual_describes_every_variable_file_and_status
run every_function_has_a_page
run man_finds_and_shows_pages
run each_page_has_a_whole_clause_as_its_title
run pages_fit_80_columns
run pages_are_well_formed
run pages_are_installed_and_removed
done_testing
