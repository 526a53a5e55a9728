#!/usr/bin/env bash
# completion.t - tests of the completions of shells for paceline
. "$(dirname "$0")/tap.sh"

mkdir -p bin work/runs
ln -s "$paceline" bin/paceline
PATH=$folder/bin:$PATH
touch work/run.json work/other.json work/part.so work/model.safetensors
cd work || exit 99
. "$builddir/completion/bash/paceline"

# completed LINE - what bash would put in place of the last word, one a line
completed() {
    COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
    COMPREPLY=()
    _paceline
    printf '%s\n' "${COMPREPLY[@]}" | sort -u
}

commands_and_options_are_completed() {
    out=$(completed 'paceline pre')
    is "$out" predict "a command"
    out=$(completed 'paceline ')
    for command in $("$paceline" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
        like "$out" "^$command$" "$command among all"
        flags=$("$paceline" "$command" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | sort)
        is "$(completed "paceline $command -")" "$flags" "$command with its options"
    done
    is "$(completed 'paceline fit --print')" "--print-config" "an option"
    is "$(completed 'paceline list --json --k')" "--keys" "behind others, too"
    is "$(completed 'paceline help lau')" "launch" "a command as an operand"
    is "$(completed 'paceline control ipc:x s')" $'save\nscale-lr\nset-lr\nstop' "words of an operand"
}

files_are_completed() {
    is "$(completed 'paceline fit ')" $'other.json\nrun.json\nruns' "run files and folders"
    is "$(completed 'paceline fit run.json --plugin p')" "part.so" "shared objects"
    is "$(completed 'paceline test run.json --checkpoint mo')" "model.safetensors" "weights"
    is "$(completed 'paceline fit run.json --checkpoint=r')" "" "where they belong"
    is "$(completed 'paceline test run.json --checkpoint=run')" $'run.json\nruns' "behind = as well"
    is "$(completed 'paceline fit run.json --resume la')" "last" "a word that stands for itself"
    is "$(completed 'paceline launch --devices 2 -- tru' | grep -x true)" true "programs"
}

keys_and_their_values_are_completed() {
    is "$(completed 'paceline fit run.json --set trainer.max_ep')" "trainer.max_epochs=" "a key of the trainer"
    is "$(completed 'paceline fit run.json --set trainer.strategy=dd')" "ddp" "a component"
    is "$(completed 'paceline fit run.json --set trainer.strategy.buck')" "trainer.strategy.bucket_mb=" "its option"
    is "$(completed 'paceline fit run.json --set=trainer.nan_policy=s')" $'skip\nstop' "a word of a range"
    is "$(completed 'paceline fit run.json --set module.hid')" "module.hidden=" "a module's, which is a plug-in"
    is "$(completed 'paceline fit run.json --set data.drop')" "data.drop_last=" "a key of the data"
    is "$(completed 'paceline fit run.json --set data.shuffle=')" $'false\ntrue' "which is true or false"
    is "$(completed 'paceline list opt')" "optimizers" "a role"
}

# What a run's own reader of keys says of them.
every_key_can_be_set() {
    echo '{"module": "mlp", "data": {"name": "csv", "path": "points.csv"}, "optimizer": "adamw"}' >run.json
    for setting in $("$paceline" list --keys | grep -E '^(trainer\.[a-z_]*|data\.shuffle)=[^=]+$' |
        grep -vE '^trainer\.(deterministic|fast_dev_run)='); do
        try "$paceline" fit run.json --set "$setting" --print-config
        [ "$status" = 0 ] || echo "$setting: $err"
    done >refused
    is "$(cat refused)" "" "with each of its words"
}

fish_completes_the_same() {
    command -v fish >/dev/null || { skip "no fish here"; return; }
    export HOME=$folder XDG_CONFIG_HOME=$folder XDG_DATA_HOME=$folder
    fish_says() {
        fish -c "source $builddir/completion/fish/paceline.fish; complete -C '$1'" 2>&1 | cut -f 1
    }
    is "$(fish_says 'paceline pre')" predict "a command"
    is "$(fish_says 'paceline fit --print')" "--print-config" "an option"
    is "$(fish_says 'paceline fit --set trainer.strategy=dd')" "trainer.strategy=ddp" "a key with its value"
    is "$(fish_says 'paceline fit --resume la')" "last" "a word"
}

# The line that Tab makes of a word, printed by a widget when it is accepted.
zsh_says() {
    timeout 300 zsh -f -c '
        zmodload zsh/zpty
        zpty z "TERM=dumb zsh -f -i"
        zpty -w z "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; echo rea''""dy"
        zpty -r -m z seen "*ready*"
        zpty -w z "tell() { print -r -- \"<\"\"line \$BUFFER>\"; BUFFER=; zle .accept-line }
            zle -N accept-line tell; echo s""et"
        zpty -r -m z seen "*set*"
        zpty -w -n z "$2"$'"'\t'"'
        zpty -w -n z $'"'\n'"'
        zpty -r -m z seen "*<line *>*"
        print -r -- ${${seen##*\<line }%%\>*}
        zpty -d z' zsh "$builddir/completion/zsh" "$1"
}

zsh_completes_the_same() {
    command -v zsh >/dev/null || { skip "no zsh here"; return; }
    is "$(zsh_says 'paceline pre')" 'paceline predict ' "a command"
    is "$(zsh_says 'paceline fit --pri')" 'paceline fit --print-config ' "an option"
    is "$(zsh_says 'paceline fit oth')" 'paceline fit other.json ' "a run file"
    is "$(zsh_says 'paceline fit a.json --set trainer.strategy=dd')" \
        'paceline fit a.json --set trainer.strategy=ddp ' "a key with its value"
    is "$(zsh_says 'paceline fit a.json --resume la')" 'paceline fit a.json --resume last ' "a word"
    is "$(zsh_says 'paceline list opti')" 'paceline list optimizers ' "a role"
}

run commands_and_options_are_completed
run files_are_completed
run keys_and_their_values_are_completed
run every_key_can_be_set
run fish_completes_the_same
run zsh_completes_the_same
done_testing
