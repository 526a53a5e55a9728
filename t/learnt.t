#!/usr/bin/env bash
# learnt.t - tests of the results of the examples on real data, in minutes; make check-long runs it
. "$(dirname "$0")/tap.sh"

fashion=/usr/share/datasets/fashion-mnist

# Whether there are test data, which the others of these examples read.
has_data() {
    [ -n "${PACELINE_TEST_DATA:-}" ] && return
    skip "PACELINE_TEST_DATA is not set: no $1"
    return 1
}

# learns EXAMPLE WORDS... - its run, with these set
learns() {
    try "$paceline" fit "$srcdir/examples/$1.json" --set trainer.default_root_dir=runs "${@:2}"
    is "$status" 0 "$1 trains"
    sed "s/^/#   /" <<<"$out"
}

clothes_are_classified() {
    if [ ! -d $fashion ]; then
        skip "the package dataset-fashion-mnist is not installed"
        return
    fi
    learns fashion-mlp --set data.path=$fashion
    ok "val_acc 0.87" at_least "$(metric val_acc)" 0.87
}

digits_are_classified_within_three_epochs() {
    has_data mnist || return
    learns fashion-cnn --set data.path="$PACELINE_TEST_DATA/mnist" --set data.mean=0.1307 --set data.std=0.3081 \
        --set trainer.max_epochs=3
    ok "val_acc 0.985" at_least "$(metric val_acc)" 0.985
}

text_is_learnt_and_written() {
    has_data text || return
    learns gpt-text --set data.path="$PACELINE_TEST_DATA/text/tinyshakespeare.txt" --set trainer.run_name=text
    ok "val_loss 1.92" at_least 1.92 "$(metric val_loss)"
    try "$paceline" predict runs/text/run.json --checkpoint runs/text --prompt ROMEO: --tokens 200
    is "$status" 0 "it writes on"
    ok "from the prompt" test "${out:0:6}" = ROMEO:
    ok "in words" test "$(grep -oE '\<(the|and|to|of|my|that|you|is|not|with)\>' <<<"$out" | wc -l)" -ge 3
    sed "s/^/#   /" <<<"$out"
}

run clothes_are_classified trains
run digits_are_classified_within_three_epochs trains
run text_is_learnt_and_written trains
done_testing
