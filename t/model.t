#!/bin/bash
# model.t - tests of the protocol of launchers itself: spin goes through all that can happen in t/launch.pml
. "${top_srcdir:-$(dirname "$0")/..}/t/tap.sh"

# explore WORDS... - every order of events; out is what spin says of them
explore() {
    out=$(spin "$@" -O2 "$srcdir/t/launch.pml" 2>&1)
}

# holds - nothing went wrong, and enough was looked at
holds() {
    [[ $out == *'errors: 0'* && $out != *'max search depth too small'* ]] && states=${out%% states, stored*} &&
        [ "${states##*[ $'\n']}" -gt 100000 ]
}

fails() {
    [[ $out == *'errors: 1'* ]]
}

whatever_dies_the_trainer_gets_one_answer() {
    explore -run -noclaim
    ok "no two epochs commit, no result twice or thrown away, no deadlock" holds
    explore -run -ltl answered
    ok "every run is answered" holds
}

each_precaution_is_needed() {
    explore -DUNFENCED -run -noclaim
    ok "without fencing it fails" fails
    explore -DIMPATIENT -run -noclaim
    ok "with a restart before all deaths are proven too" fails
    explore -DHASTY -run -noclaim
    ok "and when a death overtakes what was sent before it" fails
}

if command -v spin >/dev/null; then
    run whatever_dies_the_trainer_gets_one_answer
    run each_precaution_is_needed
else
    skip "launchers as a model: spin is not installed"
fi
done_testing
