#!/usr/bin/env bash
# deb.t - tests of the Debian packages that `make deb` has made: what is in them works where they are packages_are_unpacked
. "$(dirname "$0")/tap.sh"

root=$folder/root

packages_are_unpacked() {
    local name
    for package in "$builddir"/deb/*.deb; do
        name=$(basename "$package")
        case $name in
        *-dbgsym_*) continue ;;
        esac
        dpkg -x "$package" "$root" && packages+=" ${name%%_*}"
    done
    is "$packages" " libpaceline-dev libpaceline0 paceline" "the library, what programs need, the command"
    libraries=$(dirname "$(find "$root" -name libpaceline.so.0)")
    export LD_LIBRARY_PATH=$libraries PACELINE_PLUGIN_PATH=$libraries/paceline0
    paceline=$root/usr/bin/paceline
}

each_package_has_what_it_should() {
    field() {
        dpkg-deb -f "$builddir"/deb/"$1"_*.deb "$2"
    }
    ok "plug-ins go with the library" test -e "$libraries/paceline0/mlp.so"
    ok "and no archives of libtool" test -z "$(find "$root" -name '*.la')"
    like "$(field libpaceline0 Depends)" 'libdnnl' "which depends on what it links"
    is "$(field libpaceline0 Depends | grep -E 'mpich|curl')" "" "not on what few plug-ins do"
    like "$(field libpaceline0 Suggests)" 'libmpich' "which are suggested"
    like "$(field libpaceline0 Recommends)" 'libcurl' "or recommended"
    like "$(field libpaceline0 Recommends)" 'libjs-dygraphs' "as are the page's charts"
    like "$(field paceline Depends)" 'libpaceline0 \(= ' "the command needs its library"
    ok "functions have pages" test -e "$root/usr/share/man/man3/pl_trainer_fit.3.gz"
    (cd "$root/usr/share/doc/paceline/doc" && grep -oE '\]\([^)#:]+' -- *.md | sed 's/.*](//' | grep -vxE 'https?' | sort -u) >links
    ok "documents name others" test "$(wc -l <links)" -gt 15
    is "$(cd "$root/usr/share/doc/paceline/doc" && xargs -a "$folder/links" ls -d 2>&1 >/dev/null)" "" "which are there"
    ok "commands have pages" test -e "$root/usr/share/man/man1/paceline-fit.1.gz"
    ok "bash completes" test -e "$root/usr/share/bash-completion/completions/paceline"
    ok "the library has a list of symbols" \
        grep -q '^ pl_trainer_fit@PACELINE_0 0\.' <(dpkg-deb --ctrl-tarfile "$builddir"/deb/libpaceline0_*.deb |
            tar xO ./symbols)
}

the_command_runs_from_there() {
    try "$paceline" doctor
    is "$status" 0 "paceline doctor is content"
    like "$out" '^accelerator.* cpu|cpu' "and has an accelerator"
    points
    try "$paceline" fit run.json --set trainer.max_epochs=3
    is "$status" 0 "paceline fit trains"
    like "$out" '^done after 3 epochs' "to the end"
    is "$(find "$root" -newer run.json)" "" "and writes nothing beside it"
}

a_program_is_built_with_it() {
    export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$libraries/pkgconfig
    try ${CC:-cc} "$root/usr/share/doc/paceline/examples/embed.c" -o embed \
        $(pkg-config --cflags --libs paceline libevent_core) -Wl,-rpath-link,"$libraries"
    is "$status$err" 0 "by pkg-config"
    try ./embed
    like "$out" '^ok$' "and trains"
}

the_tree_is_as_it_was() {
    if [ ! -e "$srcdir/.git" ]; then
        skip "no repository here"
    else
        is "$(git -C "$srcdir" status --porcelain --ignored debian | grep -E "^(\?\?|!!)")" "" "debian/ has no stray files"
    fi
}

run packages_are_unpacked
run each_package_has_what_it_should
run the_command_runs_from_there
run a_program_is_built_with_it
run the_tree_is_as_it_was
done_testing
