#!/usr/bin/env bash
# commanded.t - tests of commands to a running fit, with every launcher
. "$(dirname "$0")/tap.sh"

# Where the modules are that paceline knows in the build tree.
export PACELINE_PLUGIN_PATH=$builddir/examples/.libs

# ---- helpers ----

# commanded LAUNCHER COMMANDS NAME WORDS... - the program t/commanded, by that launcher, into runs/NAME
commanded() {
    local words=("$builddir/t/commanded" "$2" trainer.run_name="$3" "${@:4}")
    if [ "$1" = external ]; then
        try timeout 300 "$paceline" launch --devices 2 -- "${words[@]}"
    else
        try timeout 300 "${words[@]}" trainer.launcher="$1"
    fi
}

# said COMMAND - what was answered to it
said() { sed -n "s/^0 $1 //p" <<<"$out"; }

# rate_behind STEP RUN - at which the step behind that one was made
rate_behind() {
    sed -n "s/.*\"global_step\": *$(($1 + 1)),.*\"lr-sgd\": *\([0-9.]*\).*/\1/p" "runs/$2/metrics.jsonl"
}

# commands RUN - those that it has written down
commands() { sed 's/.*"command": *"\([a-z_]*\)".*/\1/' "runs/$1/commands.jsonl" | tr '\n' ' '; }

# ---- tests ----

is_carried_out() {
    local launcher=$1 saved
    commanded "$launcher" pause,continue,lr=0.25,scale=2,save "$launcher"
    is "$status" 0 "$launcher: the program ends well"
    like "$(said pause)" '^ok [1-9]' "a pause is answered"
    is "$(said continue)" "$(said pause)" "it continues behind the same step"
    like "$(said set_lr)" '^ok [1-9]' "a rate is set"
    is "$(said set_lr | grep -c ok)" 2 "and scaled"
    is "$(rate_behind "$(said set_lr | sed -n 's/^ok \([0-9]*\).*/\1/;2p')" "$launcher")" 0.2 "which holds for the next step"
    saved=$(said save | cut -d ' ' -f 3)
    ok "a checkpoint is made" test -s "$saved/manifest.json"
    is "$(commands "$launcher")" "pause continue set_lr set_lr save " "all are written down"
    is "$(said done)" "ok 60" "and the run has all its steps"
    cp "runs/$launcher/model.safetensors" whole
    commanded "$launcher" resume="$PWD/$saved" "$launcher"
    is "$(said done)" "ok 60" "a run resumes from the checkpoint"
    ok "to the same bits" cmp whole "runs/$launcher/model.safetensors"
}

is_paused() {
    local launcher=$1
    [ -e runs/whole ] || commanded inline '' whole
    commanded "$launcher" pause,save,continue "$launcher-paused"
    is "$(said save | cut -d ' ' -f 1,2)" "$(said pause)" "$launcher: it is saved where it is paused"
    ok "the bits equal those of threads without commands" \
        cmp runs/whole/model.safetensors "runs/$launcher-paused/model.safetensors"
}

is_stopped() {
    local launcher=$1
    commanded "$launcher" pause,stop "$launcher-stopped" trainer.max_steps=-1
    is "$status" 0 "$launcher: the program ends well"
    is "$(said done)" "stopped $(said pause | cut -d ' ' -f 2)" "it has stopped where it was paused"
}

a_process_with_one_rank_of_several_is_refused() {
    commanded script pause,continue script-others
    is "$(grep -c '^[12] pause this process is rank [01] of the run and accepts no commands: give them to the program that started it' <<<"$out")" 2 \
        "script: each process of a rank"
    is "$(said continue)" "$(said pause)" "the program itself is obeyed"
    is "$(grep -c '^[012] done ok 60' <<<"$out")" 3 "and all have the result"
    commanded external pause,continue external-others
    is "$(grep -c '^1 pause this process is rank 1 of the run and accepts no commands: give them to rank 0.s' <<<"$out")" 1 \
        "external: the other process"
    is "$(said continue)" "$(said pause)" "rank zero's is obeyed"
    is "$(grep -c '^[01] done ok 60' <<<"$out")" 2 "and both have the result"
}

each_launcher() { for launcher in inline spawn script external; do "$1" $launcher; done; }
all_commands_are_carried_out() { each_launcher is_carried_out; }
a_pause_changes_no_bit() { each_launcher is_paused; }
a_paused_run_can_be_stopped() { each_launcher is_stopped; }

run all_commands_are_carried_out trains
run a_pause_changes_no_bit trains
run a_paused_run_can_be_stopped trains
run a_process_with_one_rank_of_several_is_refused trains
done_testing
