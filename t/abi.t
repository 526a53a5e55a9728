#!/usr/bin/env bash
# abi.t - tests of `make abi-check`: it finds what would break programs, and lets pass what would not
. "$(dirname "$0")/tap.sh"

header=$srcdir/engine/paceline.h
library=$builddir/.libs/libpaceline.so

# checked SCRIPT [LIBRARY] - holds a header that sed has changed against the description
checked() {
    mkdir -p changed
    sed "$1" "$header" >changed/paceline.h
    [ -z "$1" ] || ok "($1 changes it)" test -n "$(cmp changed/paceline.h "$header")"
    try sh "$srcdir/t/abi" check same.abi changed/paceline.h "${2:-$library}"
}

broken() {
    checked "$2"
    is "$status" 1 "$1"
    like "$out" "$3" "and says what: $3"
}

kept() {
    checked "$2"
    is "$status$out$err" 0 "$1"
}

an_incompatible_change_is_found() {
    broken "a function that is gone" '/^PL_API void pl_trainer_free/d' '\[D\].*abi_pl_trainer_free'
    broken "another parameter" 's/pl_model_unload(pl_loaded_model_t \*model/&, int k/' "type 'int' was added"
    broken "another result" 's/^PL_API int pl_rank/PL_API long pl_rank/' "return type changed"
    broken "a struct that grows" 's/^ *void \*user;  *\/\* for read;.*/int more; &/' "pl_memory_data"
    broken "a table of a role that grows" 's/^} pl_callback_ops_t;/int more; &/' "pl_callback_ops"
    broken "another number of a name" 's/^    PL_F32,/    PL_NEW, &/' "PL_F32"
}

a_compatible_change_passes() {
    is "$(sh "$srcdir/t/abi" check same.abi "$header" "$library" 2>&1; echo $?)" 0 "what is the same"
    kept "a further function" 's/^PL_API int pl_rank/PL_API int pl_new(int); &/'
    kept "a further name at the end" 's/^    PL_F16,/& PL_F8,/'
    kept "a further type" 's/^} pl_callback_ops_t;/&\ntypedef struct pl_more { int a; } pl_more_t;/'
}

a_library_without_a_recorded_function_is_found() {
    echo 'int pl_rank(void) { return 0; }' >lost.c
    echo 'PACELINE_0 { global: pl_*; local: *; };' >lost.map
    "${cc[@]}" -shared -fPIC lost.c -Wl,--version-script=lost.map -o lost.so
    checked '' "$PWD/lost.so"
    is "$status" 1 "it fails"
    like "$out" 'no longer:.* abi_pl_trainer_fit' "and names what is gone"
    ok "but not what is there" test -z "$(grep -w abi_pl_rank <<<"$out")"
}

programs_linked_with_the_recorded_interface_still_work() {
    ok "it is of this library" grep -q 'abi_pl_trainer_fit' "$srcdir/engine/paceline.abi"
    try sh "$srcdir/t/abi" check "$srcdir/engine/paceline.abi" "$header" "$library"
    is "$status$out$err" 0 "with this one (make abi-update says that they need not)"
}

read -ra cc <<<"${CC:-cc}"
if ! command -v abidiff >/dev/null || ! command -v "${cc[0]}" >/dev/null; then
    skip "no abidiff here (abigail-tools)"
else
    sh "$srcdir/t/abi" describe "$header" >same.abi
    run an_incompatible_change_is_found
    run a_compatible_change_passes
    run a_library_without_a_recorded_function_is_found
    run programs_linked_with_the_recorded_interface_still_work
fi
done_testing
