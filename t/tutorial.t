#!/usr/bin/env bash
# tutorial.t - runs doc/tutorial.md: its C is compiled, its run file read, its commands do what it says
. "$(dirname "$0")/tap.sh"

# block KIND - all blocks of that kind, one after the other
block() {
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$srcdir/doc/tutorial.md" | grep -v '^```'
}

pkg-config() {
    echo "-I$srcdir/engine"
}

# The run that is to be killed stands still once it has a checkpoint: its end comes no sooner.
mkdir bin
cat >bin/paceline <<EOF
#!/bin/sh
case "\$*" in
    *--resume*) ;;
    *run_name=parts*)
        export FAULT=saved:STOP LD_PRELOAD=$builddir/t/.libs/fault.so
        export ASAN_OPTIONS=\${ASAN_OPTIONS-}:verify_asan_link_order=0 ;;
esac
exec "$paceline" "\$@"
EOF
chmod +x bin/paceline
PATH=$folder/bin:$PATH

every_block_of_the_tutorial_does_what_it_says() {
    block c >spirals.c
    block json >spirals.json
    while read -r line <&3; do
        case $line in *--resume*) ok "the run was cut off" test ! -e runs/parts/model.safetensors ;; esac
        try eval "$line"
        is "$status" 0 "$line"
        case $line in *--resume*) like "$err" 'resuming after step 640:' "after its first epoch" ;; esac
        case $line in "paceline test"*) cp .out tested ;; esac
    done 3< <(block sh)
    ok "the tested model is good" awk '$1 == "test_acc" { good = $2 >= 0.95 } END { exit !good }' tested
    ok "what was predicted is there" test -s classes.npy
}

run every_block_of_the_tutorial_does_what_it_says trains
done_testing
