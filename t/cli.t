#!/usr/bin/env bash
# cli.t - tests of engine/cli: the paceline command as its users see it
. "$(dirname "$0")/tap.sh"

points '"max_epochs": 3'
for i in $(seq 200); do echo "the quick brown fox jumps over the lazy dog"; done >text.txt
cat >text.json <<'J'
{
  "module": {"name": "gpt", "layers": 1, "heads": 1, "width": 8},
  "data": {"name": "text", "path": "text.txt", "context": 8, "batch_size": 8},
  "optimizer": "adamw",
  "trainer": {"max_steps": 3, "run_name": "text", "accelerator": {"name": "cpu", "threads": 1}}
}
J

# ---- helpers ----

sample_plugin=$builddir/t/.libs/sample_plugin.so

# Starts a fit that publishes and would take for ever; where it does is in stream.
start_stream() {
    rm -f notes
    mkfifo notes
    "$paceline" fit run.json --set trainer.max_epochs=-1 --set trainer.run_name="$1" --monitor 'tcp://127.0.0.1:*' \
        "${@:2}" >/dev/null 2>notes </dev/null &
    pid=$!
    exec 4<notes
    while read -r line <&4 && [[ $line != *tcp://* ]]; do :; done
    stream=${line##* }
}

# ---- the command itself ----

all_mistakes_of_a_run_file_are_reported_at_once() {
    cat >mistakes.json <<'J'
{
  "module": {"name": "mlp", "hiden": [4], "dropout": 2},
  "data": {"name": "csv", "path": 5, "val_split": 3, "batchsize": 4},
  "optimizer": {"name": "adamww"},
  "trainr": {},
  "trainer": {"max_epoch": 1, "devices": 0, "run_name": "a/b"},
  "callbacks": ["lr_monitor", {"name": "early_stopping", "patience": -1}, "nix"]
}
J
    for command in fit "predict --checkpoint x" tune; do
        try "$paceline" ${command%% *} mistakes.json ${command#"${command%% *}"} --set trainer.max_steps=some
        is "$status" 2 "$command: status 2"
        is "$(sed -E 's/^paceline: (mistakes.json:)?([0-9:]* )?[^"]*"([^"]*)".*/\2\3/' <<<"$err")" "2:29: module.hiden
2:54: module.dropout
3:35: data.path
3:51: data.val_split
3:54: data.batchsize
4:25: optimizer.name
5:3: trainr
6:15: trainer.max_epoch
6:42: trainer.devices
6:57: trainer.run_name
7:70: callbacks.1.patience
7:75: callbacks.2
trainer.max_steps" "each mistake with its place, in the order of the file"
    done
    try "$paceline" fit mistakes.json --json
    is "$(grep -o '"text":"mistakes.json' <<<"$out" | wc -l)" 12 "with --json too"
    like "$out" '"error":\{[^}]*module.hiden.*"more_errors":\[\{[^}]*module.dropout' "the first as the error, the others beside it"
    try "$paceline" fit mistakes.json --plugin ./none.so
    is "$(sed 's/\(none.so\|trainr"\).*/\1/' <<<"$err")" $'paceline: mistakes.json:5:3: unknown key "trainr"\npaceline: plug-in ./none.so' \
        "without its plug-in no component is called unknown"
    { echo '{"trainer": {' && for i in {1..30}; do echo "\"key$i\": $i,"; done && echo '}}'; } >many.json
    try "$paceline" fit many.json
    is "$(grep -c 'unknown key' <<<"$err")$(tail -n 1 <<<"$err")" "20paceline: there may be more mistakes: correct these first" \
        "of very many the first"
}

a_path_that_is_wrong_gives_status_2() {
    try "$paceline" fit run.json --set trainer.run_name=paths --set trainer.max_steps=1 --set trainer.max_epochs=-1
    is "$status" 0 "a run: $err"
    printf 'no numbers\n' >broken.csv
    printf 'no weights\n' >broken.safetensors
    while read -r words; do
        # shellcheck disable=SC2086
        try timeout 60 "$paceline" $words
        is "$status" 2 "$words"
        is "$(grep -c '^paceline: ' <<<"$err")" 1 "with one error: $err"
    done <<'W'
fit none.json
tune none.json
test none.json --checkpoint runs/paths
fit .
fit run.json --resume none
fit run.json --plugin ./none.so
fit run.json --journal none/journal
fit run.json --trace none/trace
fit run.json --monitor ipc://none/socket
fit run.json --control ipc://none/socket
fit run.json --set data.path=none.csv
fit run.json --set data.path=broken.csv
fit run.json --set module.init_from=none
fit run.json --set module.init_from=broken.safetensors
fit run.json --set trainer.default_root_dir=/proc/none
validate run.json --checkpoint none
predict run.json --checkpoint none
predict run.json --checkpoint broken.safetensors
predict run.json --checkpoint runs/paths --output none/classes.txt
predict run.json --checkpoint runs/paths --output none/classes.npy
inspect none
inspect broken.safetensors
explain none
explain run.json
replay none
replay run.json
compile none.json
list --plugin ./none.so
launch --job-key none/key -- true
launch -- none
W
}

help_and_version_are_on_standard_output() {
    try "$paceline" --version
    like "$out" '^paceline [0-9]+\.[0-9]+' "a version"
    try "$paceline" --help
    is "$status" 0 "help is no error"
    for command in fit validate test predict monitor inspect list doctor help; do
        like "$out" "^  $command +[a-z]" "$command is explained"
        try "$paceline" "$command" --help
        like "$out" "^usage: paceline $command" "and has help of its own"
        is "$status$err" 0 "which is no error"
        try "$paceline" --help
    done
    try "$paceline" help fit
    like "$out" '^  --set KEY=VALUE' "paceline help fit shows its options"
    is "$(awk 'length > 80' <<<"$out")" "" "within 80 columns"
}

wrong_words_are_refused() {
    refused 2 '^paceline: no command given'
    refused 2 '^paceline: no command is called "train": did you mean "fit"\?' train
    refused 2 'did you mean "--version"\?' version
    refused 2 'did you mean "test"\?' evaluate
    refused 2 '^paceline: fit needs RUN.json' fit
    refused 2 '^paceline: fit has no option --jsn: did you mean --json\?' fit run.json --jsn
    refused 2 'fit has no option --se: did you mean --set\?' fit run.json --se=x
    refused 2 'did you mean --print-config\?' fit run.json --print_confg
    refused 2 'fit has no option --wholly-other: see paceline fit --help' fit run.json --wholly-other
    refused 2 '^paceline: no command is called "fitt": did you mean "fit"\?' fitt run.json
    refused 2 'fit has no option --seed: did you mean --set trainer.seed=VALUE\?' fit run.json --seed 3
    refused 2 'did you mean --set trainer.run_name=VALUE\?' fit run.json --name x
    local word
    for word in --ckpt_path --ckpt-path --checkpoint --resume_from_checkpoint; do
        refused 2 "fit has no option $word: did you mean --resume\?" fit run.json $word=x
    done
    refused 2 'validate has no option --ckpt_path: did you mean --checkpoint\?' validate run.json --ckpt_path x
    refused 2 'fit has no option --gpus: set trainer.accelerator to "cuda"' fit run.json --gpus 2
    refused 2 'fit has no option --barebones: set ' fit run.json --barebones
    refused 2 'the search is not needed' fit run.json --find_unused_parameters
    refused 2 '^paceline: fit has one operand too many, "b"' fit run.json b
    refused 2 '^paceline: --set needs a value: KEY=VALUE' fit run.json --set
    refused 2 '^paceline: --set takes KEY=VALUE' fit run.json --set trainer.max_epochs
    refused 2 '^paceline: --json takes no value' fit run.json --json=1
    refused 2 '^paceline: --tokens takes an integer of at least 1' predict run.json --checkpoint x --tokens 0
    refused 2 '^paceline: --temperature takes a number of at least 0' predict run.json --checkpoint x --temperature=-1
    refused 2 '^paceline: no command is called "fitt"' help fitt
}

a_reader_that_goes_away_is_no_failure() {
    "$paceline" list module 2>err.txt | head -n 1 >/dev/null
    is "${PIPESTATUS[0]}" 0 "status 0"
    is "$(cat err.txt)" "" "and nothing is said"
}

a_failed_write_is_a_failure() {
    [ -w /dev/full ] || { skip "no /dev/full here"; return; }
    "$paceline" list >/dev/full 2>err.txt
    is "$?" 1 "status 1"
    like "$(cat err.txt)" '^paceline: cannot write to standard output: No space' "and why"
}

# ---- fit ----

a_fit_ends_with_its_result() {
    try "$paceline" fit run.json
    is "$status" 0 "status 0"
    like "$out" '^val_acc +[01]\.[0-9]+$' "the validation result"
    like "$out" '^done after 3 epochs, 36 steps in [0-9.]+ s$' "how long it took"
    like "$out" '^written to runs/0001: checkpoints metrics.jsonl model.safetensors run.json$' "and where all is"
    is "$(grep -c 'next steps' <<<"$out")" 0 "without hints where output is not a terminal"
    is "$(tr -d '\n' <<<"$err" | grep -c "$(printf '[\r\033]')")" 0 "progress is plain lines where there is no terminal"
    like "$err" '^epoch 3/3 .*val_acc' "with the validations"
}

every_epoch_leaves_a_line() {
    try "$paceline" fit run.json --set trainer.max_epochs=40
    is "$(grep -cE '^epoch +[0-9]+/40 .*val_loss [0-9.e-]+' <<<"$err")" 40 "one for each of 40 short epochs"
    try "$paceline" fit run.json --set trainer.max_epochs=5 --set data.val_split=0
    is "$(grep -cE '^epoch [1-5]/5  step +[0-9]+  train_loss [0-9.e-]+' <<<"$err")" 5 "without validation too"
    try "$paceline" fit run.json --set trainer.max_epochs=4 --set trainer.val_check_interval=20 \
        --set trainer.check_val_every_n_epoch=0
    is "$(grep -cE '^epoch [1-4]/4  step (12|24|36|48)  ' <<<"$err")" 4 "and where validations come between"
    is "$(grep -cE '^epoch [1-4]/4 .*val_loss' <<<"$err")" 3 "which have lines of their own, the last one too"
}

# on_terminal WORDS... - a fit on a terminal of 100 columns; all that it writes there is in out, where <CR> and <ESC>
# stand for what moves the cursor, and how often it has drawn a bar in drawn
on_terminal() {
    out=$(set -o pipefail
        timeout 300 script -qec "stty cols 100; '$paceline' fit run.json $*" /dev/null </dev/null |
            sed 's/\r$//; s/\r/<CR>/g; s/\x1b/<ESC>/g')
    status=$?
    drawn=$(grep -oE '<CR>epoch [^<]*(<ESC>\[36m)?#*(<ESC>\[90m)?\.+' <<<"$out" | wc -l)
}

a_terminal_has_a_bar_that_is_redrawn() {
    command -v script >/dev/null || { skip "there is no script(1)"; return; }
    local drawn began=$SECONDS seconds='--set trainer.max_epochs=-1 --set trainer.max_time=00:00:00:0'
    TERM=xterm on_terminal "${seconds}2"
    is "$status" 0 "a fit on a terminal"
    ok "draws its bar again and again" test "$drawn" -ge 3
    ok "but about ten times a second at most" test "$drawn" -le $(((SECONDS - began + 1) * 15))
    like "$out" '<ESC>\[K<CR>' "each time in the same line"
    like "$out" '<ESC>\[36m#' "in colours"
    like "$out" '^stopped after ' "and the result is below"
    TERM=xterm NO_COLOR=1 on_terminal "${seconds}1"
    is "$status" 0 "NO_COLOR"
    ok "has the bar too" test "$drawn" -ge 1
    is "$(grep -cE '<ESC>\[[0-9;]*m' <<<"$out")" 0 "without colours"
}

a_terminal_may_have_plain_lines() {
    command -v script >/dev/null || { skip "there is no script(1)"; return; }
    local drawn
    TERM=dumb on_terminal
    is "$status" 0 "a fit on a terminal that is dumb"
    is "$drawn$(grep -cE '<CR>|<ESC>' <<<"$out")" 00 "has no bar and moves no cursor"
    like "$out" '^epoch 3/3 .* val_loss [0-9.e-]+' "but lines of its epochs"
    TERM=xterm on_terminal --set trainer.enable_progress_bar=false
    is "$status" 0 "one that is to have no bar"
    is "$drawn$(grep -cE '<CR>|<ESC>' <<<"$out")" 00 "has none"
    like "$out" '^epoch 3/3 .* val_loss [0-9.e-]+' "but the lines"
}

# loss_at STEP - the train_loss in the line of that step
loss_at() {
    grep -E " step +$1 " <<<"$err" | grep -oE 'train_loss [0-9.e-]+'
}

the_progress_line_is_current() {
    try "$paceline" fit run.json --set trainer.run_name=halves \
        --set trainer.val_check_interval=0.5 --set trainer.freeze='fc1*'
    ok "a validation in an epoch has its own loss, not the last epoch's" \
        test -n "$(loss_at 18)" -a "$(loss_at 18)" != "$(loss_at 12)"
    is "$(awk 'NF == 2 { print index($0, $2) }' <<<"$out" | sort -u | wc -l)" 1 "the result has one column of metrics"
    like "$err" '^  .* of them are trained, .* are frozen$' "frozen parameters are reported"
    is "$(grep -c 'saved step' <<<"$err")" 0 "a save that goes well is not"
    try "$paceline" fit run.json --set trainer.fast_dev_run=2
    like "$err" '^epoch 1/1 ' "a fast run has one epoch"
}

# hints_work COUNT WORDS... - the commands that a fit suggests do what they say, as they stand
hints_work() {
    try env PACELINE_HINTS=1 "$paceline" fit "${@:2}" --set trainer.max_steps=3
    hints=$(grep "^  $builddir/paceline " <<<"$out")
    local hint
    is "$(lines "$hints")" "$1" "commands to try"
    while read -r hint; do
        try bash -o pipefail -c "$hint"
        is "$status" 0 "as printed: $hint"
    done <<<"$hints"
}

commands_to_try_next_work_as_printed() {
    mkdir elsewhere
    cp points.csv NEW.csv
    mv points.csv elsewhere
    hints_work 4 run.json --set data.path=elsewhere/points.csv
    mv elsewhere/points.csv .
    hints_work 4 run.json --set trainer.run_name=named --set "trainer.default_root_dir=it's a root"
    hints_work 3 text.json --set trainer.run_name=
    like "$hints" "--prompt 'a'$" "a prompt that the vocabulary has"
}

json_events_are_one_a_line() {
    try "$paceline" fit run.json --json --set trainer.run_name=json
    is "$status$err" 0 "nothing but events"
    is "$(grep -cv '^{"event":".*}$' <<<"$out")" 0 "each line is one"
    is "$(grep -c '"event":"validated"' <<<"$out")" 3 "each validation"
    is "$(grep -c '"event":"epoch"' <<<"$out")" 3 "each epoch"
    like "$(tail -n 1 <<<"$out")" \
        '^\{"event":"result","status":"ok","run_dir":"runs/json","global_step":36,"epoch":3,"metrics":\{.*"val_acc":[0-9.]+.*\},"seconds":[0-9.e-]+\}$' \
        "and the last is the result"
}

set_changes_the_run() {
    try "$paceline" fit run.json --json --set trainer.max_steps=5 --set=module.hidden=[4,4]
    like "$(tail -n 1 <<<"$out")" '"global_step":5,' "as many steps as were set"
    refused 2 '^paceline: unknown key "trainer.max_epoch": did you mean "max_epochs"' fit run.json --set trainer.max_epoch=3
    refused 2 'max_epochs.* takes an integer' fit run.json --set trainer.max_epochs=many
    refused 2 'did you mean "hidden"' fit run.json --set module.hiden=3
    refused 2 'not "y": to name a column, set "target" to "y"' fit run.json --set data.label=y
    refused 2 '"target" is "clas", but there is no such column, and the types of targets are auto, class, value and none' fit run.json --set data.target=clas
    refused 2 'target_column": name the column as "data.target"' fit run.json --set data.target_column=y
    refused 2 'a data source is one file: join several with cat' fit run.json --set 'data.path=*.csv'
}

names_of_other_engines_suggest_ours() {
    refused 2 'did you mean "mlp"' fit run.json --set module=MLP
    refused 2 'did you mean "adamw"' fit run.json --set optimizer=AdamW
    refused 2 'did you mean "cosine"' fit run.json --set scheduler=CosineAnnealingLR
    refused 2 'did you mean "one_cycle"' fit run.json --set scheduler=OneCycleLR
    refused 2 'did you mean "reduce_on_plateau"' fit run.json --set scheduler=ReduceLROnPlateau
    refused 2 'no accelerator "gpu": did you mean "cuda"' fit run.json --set trainer.accelerator=gpu
    local kind
    for kind in tpu mps; do
        refused 2 "no accelerator \"$kind\": known are .*cuda" fit run.json --set trainer.accelerator=$kind
    done
}

mistakes_that_the_data_shows_have_a_place_in_the_run_file() {
    local data
    while IFS='|' read -r pattern data; do
        printf '{"module": "cnn", "optimizer": "adamw",\n "data": {"name": "csv", %s}}\n' "$data" >place.json
        refused 2 "$pattern" fit place.json
    done <<'END'
place.json:2:[0-9]+: "data.label": .*"label" is 9, but the columns are|"path": "points.csv", "label": 9
place.json:2:[0-9]+: data.val_split 0.0001 .* leaves nothing|"path": "points.csv", "val_split": 0.0001
place.json:1:12: module "cnn" needs "classes"|"path": "values.csv"
place.json:2:[0-9]+: "data.path" takes text, not .*: a data source is one file|"path": ["a.csv", "b.csv"]
END
}

an_address_that_is_a_path_is_answered_with_one() {
    refused 2 'cannot connect to "'$folder'/x": did you mean ipc://'$folder'/x\?' monitor "$folder/x"
    refused 2 'is a directory, not the address of a run' monitor runs/latest
}

several_values_are_several_runs() {
    try "$paceline" fit run.json --set optimizer.lr=1e-2,1e-3 --set 'module.hidden=[4],[8,8]' --set trainer.run_name=sweep
    is "$status" 0 "status 0"
    like "$err" '^run 2 of 4: optimizer.lr=0.01 module.hidden=\[8, 8\]$' "each run is announced"
    is "$(lines "$out")" 6 "a heading, four runs and the best"
    like "$out" '^optimizer.lr  module.hidden  val_loss  val_acc  status  steps  seconds  run_dir$' "the heading"
    like "$out" '^0.001         \[8, 8\]         [0-9.]+    [0-9.]+   ok      36     [0-9.]+      runs/sweep-4$' \
        "a line for each combination, the last key changing fastest"
    like "$out" '^lowest val_loss: optimizer.lr=0.01 module.hidden=' "and which was best"
    try "$paceline" fit run.json --set trainer.run_name=alone --set optimizer.lr=1e-3 --set 'module.hidden=[8,8]'
    is "$(tail -n 1 runs/sweep-4/metrics.jsonl | sed 's/"time":[^,]*,//')" \
        "$(tail -n 1 runs/alone/metrics.jsonl | sed 's/"time":[^,]*,//')" "a run of a sweep is a run as any other"
}

a_sweep_ends_with_all_its_results() {
    try "$paceline" fit run.json --json --set optimizer.lr=1e38,1e-2 --set 'trainer.default_root_dir=swept,"go,od"'
    is "$status" 1 "one that failed is a failure"
    is "$(grep -c '"event":"result"' <<<"$out")" 4 "but the others are run"
    like "$out" '^\{"event":"run","run":2,"runs":4,"set":\{"optimizer.lr":1e38,"trainer.default_root_dir":"go,od"\}\}$' \
        "a value in quotes stays whole"
    like "$(tail -n 1 <<<"$out")" '^\{"event":"sweep","runs":\[\{"run":1,.*"status":"failed".*"run":4,.*"status":"ok",' \
        "the last line has all"
}

a_sweep_is_checked_before_it_starts() {
    refused 2 '"optimizer.lr" takes a number from 0 up, not "x"' fit run.json --set trainer.run_name=checked --set optimizer.lr=1,x
    ok "nothing was started" test ! -e runs/checked-1
    refused 2 'between commas is empty.*data.path="a,b"' fit run.json --set data.path=a,,b
    try "$paceline" fit run.json --print-config --set 'data.path=SELECT a, b FROM t'
    is "$status" 0 "a query is one value"
    like "$out" '"path": "SELECT a, b FROM t"' "with its commas"
    try "$paceline" fit run.json --print-config --set "data.path='a,b' (c,d)"
    like "$out" "\"path\": \"'a,b' \(c,d\)\"" "so are quotes and parentheses"
    refused 2 'has several values and is set twice' fit run.json --set optimizer.lr=1,2 --set optimizer.lr=3
    refused 2 'at most 1000' fit run.json --set "trainer.seed=$(seq -s, 40)" --set "trainer.max_steps=$(seq -s, 40)"
    refused 2 '"trainer.devices" takes .* from 1 up .*not 0' fit run.json --set trainer.devices=0,2
    try "$paceline" fit run.json --print-config --set 'trainer.devices=[0,2]'
    like "$(tr -d ' \n' <<<"$out")" '"devices":\[0,2\]' "a list in brackets is one value"
    refused 2 'prints one run' fit run.json --print-config --set optimizer.lr=1,2
}

folds_are_trained_in_turn() {
    try "$paceline" fit run.json --set data.folds=3 --set data.stratify=true --set trainer.run_name=fold
    is "$status" 0 "status 0: $err"
    like "$err" '^run 2 of 3: data.fold=1$' "each fold is a run"
    like "$out" '^mean of 3 folds$' "the end has the mean"
    like "$out" '^val_loss +[0-9.]+ ± [0-9.]+$' "of each metric, with its deviation"
    is "$(grep -ho '"fold": [0-9]' runs/fold-[123]/run.json | tr -dc '0-9\n' | paste -sd ' ')" "0 1 2" "runs have one fold each"
    try "$paceline" fit runs/fold-2/run.json --set trainer.run_name=alone-1
    is "$(tail -n 1 runs/alone-1/metrics.jsonl | sed 's/"time":[^,]*,//')" \
        "$(tail -n 1 runs/fold-2/metrics.jsonl | sed 's/"time":[^,]*,//')" "one fold can be trained alone"
    try "$paceline" fit run.json --json --set data.folds=2 --set optimizer.lr=1e-2,1e-3
    like "$(tail -n 1 <<<"$out")" '"folds":\[\{"set":\{"optimizer.lr":0.01\},"folds":2,"metrics":\{.*"deviations":' \
        "with other keys each combination has a mean"
    try "$paceline" fit run.json --json --set data.folds=3 --set data.stratify=true
    local losses mean
    losses=$(grep '"event":"result"' <<<"$out" | grep -o '"val_loss":[0-9.e-]*' | cut -d : -f 2)
    mean=$(tail -n 1 <<<"$out" | sed 's/.*"folds":\[//; s/.*"metrics":{[^}]*"val_loss":\([0-9.e-]*\)[^}]*},"deviations":{[^}]*"val_loss":\([0-9.e-]*\).*/\1 \2/')
    ok "mean and deviation are those of the three runs: $mean of $(tr '\n' ' ' <<<"$losses")" awk -v got="$mean" '
        { sum += $1; square += $1 * $1; n++ }
        END { split(got, of, " "); m = sum / n; d = sqrt((square - n * m * m) / (n - 1))
              exit !(n == 3 && (of[1] - m) ^ 2 < 1e-12 && (of[2] - d) ^ 2 < 1e-8) }' <<<"$losses"
    refused 2 'data.folds: give one number of folds' fit run.json --set data.folds=2,3
    refused 2 '"data.folds" is 1, but one part leaves nothing to train on' fit run.json --set data.folds=1
    refused 2 '"data.fold" is 3, but "data.folds" makes 3 parts, which count from 0' fit run.json --set data.folds=3 --set data.fold=3
    refused 2 '"data.folds" is 3: set "data.fold" to the part for validation, 0 to 2' validate run.json --set data.folds=3 --checkpoint runs/fold-1
    try "$paceline" fit run.json --print-config --set data.folds=3
    like "$out" '"fold": -1' "--print-config prints the whole request"
}

a_run_can_end_with_its_best_weights() {
    local best='{"name": "model_checkpoint", "monitor": "val_loss", "mode": "max", "restore_best": true'
    try "$paceline" fit run.json --set trainer.run_name=best --set "callbacks=[$best, \"verbose\": false}]"
    is "$status" 0 "status 0: $err"
    like "$out" '^the weights and metrics are those of step 12, the best by val_loss$' "the first epoch has the largest loss"
    ok "the final weights are those" cmp runs/best/model.safetensors runs/best/checkpoints/*/model.safetensors
    is "$(metric val_loss)" "$(printf %.4f "$(grep -o '"val_loss":[0-9.e-]*' runs/best/metrics.jsonl | head -n 1 | cut -d: -f2)")" \
        "so are the metrics"
    is "$(grep -c "saved step" <<<"$err")" 0 "with verbose false, single checkpoints are not reported"
    like "$err" 'saved 1 checkpoint, of which the best is in runs/best/checkpoints' "but their number at the end"
    try "$paceline" fit run.json --set trainer.run_name=told --set "callbacks=[$best}]"
    like "$err" 'saved step 12: ' "otherwise they are"
    refused 2 '"callbacks.0.restore_best": true needs a metric as "monitor"' \
        fit run.json --set 'callbacks=[{"name": "model_checkpoint", "restore_best": true}]'
}

a_signal_ends_the_whole_sweep() {
    start_endless_fit swept --set optimizer.lr=1e-2,1e-3
    kill -INT "$pid"
    end_of_fit
    is "$status" 130 "status 130"
    like "$last" '"run":1,.*"status":"stopped","reason":"SIGINT","run_dir":"runs/swept-1".*"run":2,"set":\{"optimizer.lr":0.001\},"status":"not run"' \
        "the run stops, and the others are not begun"
    ok "indeed" test ! -e runs/swept-2
}

print_config_shows_every_default() {
    try "$paceline" fit run.json --print-config --set trainer.seed=7
    is "$status$(grep '^paceline: ' <<<"$err")" 0 "no error"
    like "$out" '"seed": 7' "what was set"
    like "$out" '"log_every_n_steps": 50' "a default"
    like "$out" '"activation": "relu"' "a default of the module"
    printf '%s\n' "$out" >effective.json
    try "$paceline" fit effective.json --print-config
    is "$out" "$(cat effective.json)" "and it is a run file itself"
}

a_malformed_run_file_is_refused_with_its_place() {
    printf '{\n  "module": {"name": "mlp", "hiden": [4]}\n}\n' >bad.json
    refused 2 '^paceline: bad.json:2:29: .*"hidden"' fit bad.json
    printf '{"module": "mlp", "module": "cnn"}' >bad.json
    refused 2 '^paceline: bad.json:1:19: ' fit bad.json
    printf '{"module": ' >bad.json
    refused 2 '^paceline: bad.json:1:' fit bad.json
    refused 2 '^paceline: cannot read none.json: No such file' fit none.json
    mkdir -p nothing
    refused 2 '^paceline: nothing is a folder without train-images-idx3-ubyte' fit nothing
    printf '{"module": "mpl", "data": {"name": "csv", "path": "points.csv"}, "optimizer": "sgd"}' >bad.json
    refused 2 '^paceline: bad.json:1:12: .*did you mean "mlp"' fit bad.json
    is "$(ls -d runs/bad* 2>/dev/null)" "" "nothing was started"
}

an_impossible_run_is_refused_before_it_starts() {
    printf '{\n  "module": {"name": "mlp", "classes": 3},\n  "optimizer": "sgd",\n  "trainer": {"devices": 2, "strategy": "single"}\n}\n' >bad.json
    local csv=(--set data.name=csv --set data.path=points.csv)
    refused 2 '^paceline: bad.json: the run has no data: set "data"' fit bad.json
    refused 2 '^paceline: bad.json:4:26: "trainer.devices" is 2, but strategy "single" works with at most 1' \
        fit bad.json "${csv[@]}"
    refused 2 'has no optimizer: set "optimizer"' fit bad.json "${csv[@]}" --set optimizer=null
    refused 2 'has no module: set "module"' fit bad.json "${csv[@]}" --set module=null
    refused 2 'no data set for this stage: set "data.train"' fit bad.json --set data.test.name=csv --set data.test.path=points.csv
    refused 2 'there is no logger "parchment": known are csv, jsonl, (mlflow, )?tensorboard' fit run.json --set loggers.0=parchment
    refused 2 'there is no strategy "dpp"' fit run.json --set trainer.strategy=dpp
    refused 2 'there is no launcher "inlin".*"inline"' fit run.json --set trainer.launcher=inlin
    mkdir -p runs/taken
    refused 2 '^paceline: runs/taken: a run of that name exists' fit run.json --set trainer.run_name=taken
    sed 's/"max_epochs": 3/"run_name": "taken"/' run.json >named.json
    refused 2 '^paceline: named.json:5:27: runs/taken: a run of that name exists' fit named.json
    refused 2 'trainer.run_name" takes the name of the run.s directory.*not "a/b"' fit run.json --set trainer.run_name=a/b
    refused 2 'not "latest"' fit run.json --set trainer.run_name=latest
    refused 2 'the run has no data' predict bad.json --checkpoint x
    is "$(ls runs/taken)" "" "nothing was started"
}

with_json_a_refusal_has_a_result_too() {
    local pattern='^\{"event":"result","status":"failed","error":\{"code":"PL_E[A-Z]+","where":"","text":"'
    refused_in_json() {
        try "$paceline" "${@:2}" --json
        is "$status" 2 "paceline ${*:2}: status 2"
        is "$(lines "$out")" 1 "one line"
        like "$out" "$pattern.*$1.*\"\}\}\$" "the result: $1"
        like "$err" "^paceline: .*$1" "and the same for people"
    }
    refused_in_json 'cannot read none.json' fit none.json
    refused_in_json 'unknown key' fit run.json --set trainer.max_epoch=3
    refused_in_json 'the run has no data' fit run.json --set data=null
    refused_in_json 'takes KEY=VALUE' fit run.json --set nonsense
    refused_in_json '0.0.0.0' fit run.json --monitor tcp://0.0.0.0:1
    refused_in_json 'needs --checkpoint' predict run.json
    refused_in_json 'has no option --sett' fit run.json --sett x
    refused_in_json 'no command' fitt run.json
    refused_in_json 'needs RUN.json' fit
    refused_in_json 'cannot read runs/nothing' inspect runs/nothing
    refused_in_json 'cannot connect' monitor nonsense
    refused_in_json 'no role is called' list modul
    refused_in_json 'cannot write /nowhere/x' predict run.json --checkpoint runs/0001 --output /nowhere/x
}

a_classifier_says_that_it_needs_classes() {
    printf '1,2,0.5\n3,4,1.5\n5,6,2.5\n' >values.csv
    refused 2 'needs "classes", but the target is a value, and module cnn classifies; module mlp predicts values, too \("Models for values"' \
        fit run.json --set module=cnn --set data.path=values.csv --set data.val_split=0
}

an_accelerator_missing_here_is_reported_with_the_key() {
    refused 2 'trainer.accelerator.threads is 4096' fit run.json --set trainer.accelerator.threads=4096
}

a_run_that_failed_says_how_far_it_came() {
    try "$paceline" fit run.json --json --set optimizer.lr=1e38 --set trainer.run_name=short
    is "$status" 1 "status 1"
    like "$(tail -n 1 <<<"$out")" \
        '^\{"event":"result","status":"failed","run_dir":"runs/short","global_step":[1-9][0-9]*,"epoch":[0-9]+,.*"error":\{"code":"PL_ENAN"' \
        "where its files are and how many steps it made"
    like "$(tail -n 1 <<<"$out")" '"metrics":\{[^}]*"train_loss":[0-9].*"seconds":[0-9.e-]+' \
        "its newest metrics and how long it took"
}

a_missing_file_is_a_wrong_request() {
    for paths in points.csv,none.csv none.csv,points.csv; do
        try "$paceline" fit run.json --set data.path=$paths --set trainer.max_epochs=1
        is "$status" 2 "of several runs one alone: status 2"
    done
    refused 2 'no checkpoint or run is at nosuch: ' fit run.json --resume nosuch
    refused 2 '^paceline: .*none\.csv' fit run.json --set data.path=none.csv
    refused 2 '^paceline: "callbacks.0.monitor": the module computes no metric "val_ac", did you mean "val_acc"; the' \
        fit run.json --set 'callbacks=[{"name": "model_checkpoint", "monitor": "val_ac"}]'
    try "$paceline" fit run.json --set data.path=none.csv --json
    is "$status" 2 "status 2 with --json too"
    like "$(tail -n 1 <<<"$out")" \
        '^\{"event":"result","status":"failed",.*"error":\{"code":"PL_E[A-Z]+","where":".*","text":".*none.csv.*"\}\}$' \
        "and the last event says why"
}

a_plugin_is_loaded_by_hand() {
    [ -e "$sample_plugin" ] || { skip "the sample plug-in was not built"; return; }
    try "$paceline" list modules --plugin "$sample_plugin"
    like "$out" '^guest - from a plug-in' "and its components are known"
    try "$paceline" fit run.json --plugin "$sample_plugin" --print-config
    like "$out" '"plugins": \[".*sample_plugin.so"\]' "and the effective run names it"
    refused 2 'plug-in ./none.so does not exist' fit run.json --plugin ./none.so
}

a_folder_that_cannot_be_written_fails_the_run() {
    : >file
    refused 2 '^paceline: .*file' fit run.json --set trainer.default_root_dir=file
}

a_full_disk_fails_the_run_and_leaves_nothing_half() {
    (
        trap '' XFSZ
        ulimit -f 16
        exec "$paceline" fit run.json --set module.hidden=[512,512] --set trainer.run_name=full >out.txt 2>err.txt
    )
    status=$? out=$(cat out.txt) err=$(cat err.txt)
    is "$status" 1 "status 1"
    like "$err" '^paceline: runs/full/model.safetensors: byte [0-9]+ cannot be written: File too large$' \
        "the file and the reason"
    is "$(grep -c 'runs/full/model.safetensors' <<<"$err")" 1 "said once"
    ok "and no weights that are none" test ! -e runs/full/model.safetensors
}

sigint_stops_saves_and_says_130() {
    start_endless_fit int
    kill -INT "$pid"
    end_of_fit
    is "$status" 130 "status 130"
    like "$last" '"event":"result","status":"stopped","reason":"SIGINT","run_dir":"runs/int"' "stopped"
    like "$err" '^stopping after this step' "the stop is announced"
    ok "and the weights are there" test -s runs/int/model.safetensors
}

sigterm_stops_saves_and_says_0() {
    start_endless_fit term
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "status 0"
    like "$last" '"event":"result","status":"stopped"' "stopped"
    ok "and the weights are there" test -s runs/term/model.safetensors
}

a_stopped_run_can_be_resumed() {
    rm -f err.txt
    "$paceline" fit run.json --set trainer.max_epochs=-1 --set trainer.run_name="its own" >out.txt 2>err.txt </dev/null &
    pid=$!
    ok "it trains" holds 30 grep -qs '^epoch' err.txt
    kill -TERM "$pid"
    ended
    is "$status" 0 "it is stopped"
    is "$(grep -c warning err.txt)" 0 "without a warning"
    like "$(tail -n 2 out.txt)" '^the state at the stop is saved; to resume' "and the command that resumes is shown"
    like "$(tail -n 1 out.txt)" "^  .* fit 'runs/its own/run.json' --resume 'runs/its own'\$" "and how"
    step=$(sed -nE 's/.*, ([0-9]+) steps? in .*/\1/p' out.txt)
    eval "try $(tail -n 1 out.txt | sed "s|^  [^ ]*|'$paceline'|") --set trainer.max_steps=$((step + 2))"
    is "$status" 0 "which it does"
    like "$out" " $((step + 2)) steps in" "from there"
}

a_run_stopped_by_a_callback_is_complete() {
    try "$paceline" fit run.json --set trainer.val_check_interval=2 --set optimizer.lr=0 --set trainer.run_name=early \
        --set 'callbacks=[{"name":"early_stopping","monitor":"val_loss","patience":1},
            {"name":"model_checkpoint","monitor":"val_loss"}]'
    like "$out" '^stopped .*: early_stopping' "it is stopped"
    ok "and saved" test -e runs/early/checkpoints/stopped
    is "$(grep -c 'to resume' <<<"$out")" 0 "but no command that resumes is shown"
}

signals_that_come_together_are_one_request() {
    start_endless_fit together
    kill -TERM "$pid"
    kill -HUP "$pid"
    kill -INT "$pid"
    end_of_fit
    like "$status" '^(0|130)$' "a run that is stopped"
    like "$last" '"event":"result","status":"stopped"' "not aborted"
    ok "and the weights are there" test -s runs/together/model.safetensors
    is "$(grep -c stopping <<<"$err")" 1 "it says so once"
}

sighup_stops_saves_and_says_0() {
    [ -z "$(trap -p HUP)" ] || { skip "SIGHUP is ignored here, as by nohup"; return; }
    start_endless_fit hup
    kill -HUP "$pid"
    end_of_fit
    is "$status" 0 "status 0"
    like "$last" '"event":"result","status":"stopped"' "stopped"
    ok "and the weights are there" test -s runs/hup/model.safetensors
}

a_process_that_was_suspended_continues() {
    start_endless_fit paused --set trainer.step_timeout=1
    kill -STOP "$pid"
    sleep 2.5                                               # longer than the limit of silence
    kill -CONT "$pid"
    for _ in $(seq 8); do
        read -r line <&3                                    # many events, each at least 0.1 s after the other
    done
    kill -TERM "$pid"
    end_of_fit
    is "$status" 0 "no actor is taken for stuck"
    like "$last" '"event":"result","status":"stopped"' "and it ends in order"
}

a_later_signal_ends_at_once() {
    [ -e "$sample_plugin" ] || { skip "the sample plug-in was not built"; return; }
    start_stream twice --plugin "$sample_plugin" --set 'data={"name": "silent"}'
    kill -INT "$pid"
    read -r line <&4
    like "$line" '^stopping; Ctrl-C again' "a run is asked to stop that cannot: its data do not open"
    local end=$((SECONDS + 30))
    until read -r -t 0.2 line <&4 || [ $SECONDS -ge $end ]; do
        kill -TERM "$pid" || break
    done
    ended $((end - SECONDS))
    out= err=$line$(timeout 300 cat <&4)
    exec 4<&-
    is "$status" 130 "status 130"
    is "$err" "aborted: nothing was saved" "and the loss is reported"
    start_stream terminated --plugin "$sample_plugin" --set 'data={"name": "silent"}'
    kill -TERM "$pid"
    read -r line <&4
    end=$((SECONDS + 30))
    until read -r -t 0.2 line <&4 || [ $SECONDS -ge $end ]; do
        kill -TERM "$pid" || break
    done
    ended $((end - SECONDS))
    exec 4<&-
    is "$status" 1 "a second SIGTERM is not Ctrl-C: status 1"
}

# ---- validate, test ----

validate_and_test_write_metrics() {
    try "$paceline" fit run.json --json --set trainer.run_name=measured
    fitted=$(grep -o '"val_loss":[0-9.]*' <<<"$out" | tail -n 1)
    try "$paceline" validate run.json --checkpoint runs/measured --json
    is "$status$err" 0 "nothing but events"
    like "$(tail -n 1 <<<"$out")" \
        '^\{"event":"result","status":"ok","run_dir":"runs/validate/0001","metrics":\{.*"val_acc":.*\},"seconds":[0-9.e-]+\}$' \
        "the result last"
    is "$(grep -o '"val_loss":[0-9.]*' <<<"$out" | tail -n 1)" "$fitted" "with the metrics of the fit"
    try "$paceline" test run.json --checkpoint runs/measured
    is "$status" 0 "a test goes well"
    like "$err" 'the test uses all samples of the source for training and validation: if these weights were trained on it, .* data.test names another source$' \
        "with a warning that these are the training data"
    like "$out" '^test_loss +[0-9]\.[0-9]{4}$' "and writes its metrics"
    like "$out" '^logged to runs/test/0001$' "and hands them to the loggers"
    like "$(cat runs/test/0001/metrics.jsonl)" '^\{"global_step":36,"epoch":3,"time":[0-9.]+,"test_loss":' "at their step"
    is "$(cat runs/latest)" measured "the newest run is a training"
    try "$paceline" test run.json --checkpoint runs/measured --set 'data={"batch_size": 20,
        "train": {"name": "csv", "path": "points.csv"}, "test": {"name": "csv", "path": "./points.csv"}}'
    is "$status$err" 0 "which a source of its own is not"
    like "$out" '^done in [0-9.]+ s$' "and that it is done"
}

# loss_of CHECKPOINT - the val_loss of its weights
loss_of() {
    "$paceline" validate run.json --checkpoint "$1" --json 2>&1 | grep -o '"val_loss":[0-9.]*' | tail -n 1
}

a_run_directory_stands_for_its_best_or_newest_weights() {
    try "$paceline" fit run.json --set trainer.run_name=plain
    is "$(echo runs/plain/checkpoints/*)" "runs/plain/checkpoints/epoch=2-step=36" "a run keeps its newest epoch unasked"
    try "$paceline" inspect runs/plain
    like "$out" '^  weights +model.safetensors, the final ones of the run$' "and stands for its final weights"
    rm runs/plain/model.safetensors
    try "$paceline" inspect runs/plain
    like "$out" '^  weights +checkpoints/epoch=2-step=36, the newest$' "or else for the newest checkpoint"
    is "$(loss_of runs/plain)" "$(loss_of runs/plain/checkpoints/epoch=2-step=36)" "which is used"
    "$paceline" fit run.json --set trainer.run_name=worst \
        --set 'callbacks=[{"name": "model_checkpoint", "monitor": "val_loss", "mode": "max"}]' 2>err.txt >out.txt
    try "$paceline" inspect runs/worst
    like "$out" '^  weights +checkpoints/epoch=0-step=12, the best by val_loss$' "with a monitor for the best"
    is "$(loss_of runs/worst)" "$(loss_of runs/worst/checkpoints/epoch=0-step=12)" "which is used"
    ok "and another than the last" test "$(loss_of runs/worst)" != "$(loss_of runs/worst/model.safetensors)"
    echo >>runs/worst/checkpoints/epoch=0-step=12/model.safetensors
    is "$(loss_of runs/worst)" "$(loss_of runs/worst/model.safetensors)" "unless it is damaged"
    try "$paceline" fit run.json --set trainer.run_name=bare --set trainer.enable_checkpointing=false
    ok "with enable_checkpointing false nothing is kept" test ! -e runs/bare/checkpoints
    refused 2 '"model_checkpoint" is listed, but "trainer.enable_checkpointing" is false' fit run.json \
        --set trainer.enable_checkpointing=false --set 'callbacks=["model_checkpoint"]'
}

validate_and_test_refuse_what_they_cannot_do() {
    refused 2 '^paceline: validate needs --checkpoint' validate run.json
    refused 2 '^paceline: test needs --checkpoint' test run.json
    refused 2 'data.val_split' validate run.json --checkpoint runs/measured --set data.val_split=0
    refused 2 'runs/none' test run.json --checkpoint runs/none
    refused 2 'limit_test_batches' test run.json --checkpoint runs/measured --set trainer.limit_test_batches=1.5
}

tune_suggests_a_learning_rate() {
    local runs=$(ls runs | wc -l)
    try "$paceline" tune run.json --max-lr 10
    is "$status$(grep -v "^data set csv: .* classes in" <<<"$err")" 0 "no error"
    like "$out" '^lr +loss$' "a table"
    like "$out" '^1e-08 +[01]\.[0-9]+ ' "from the first rate on"
    like "$out" '^the loss falls most steeply at a learning rate of [0-9.e-]+:$' "the suggestion"
    like "$out" '^  .*paceline fit run.json --set optimizer.lr=[0-9.e-]+$' "and how to use it"
    is "$(ls runs | wc -l)" "$runs" "nothing is written"
    try "$paceline" tune run.json --json --num-training 20 --set trainer.run_name=json
    like "$(grep train <<<"$out")" '"metrics":\{"lr":[0-9.e-]+,"train_loss":[0-9.]+\}' "with --json the rate that is tried"
    like "$(tail -n 1 <<<"$out")" '^\{"event":"result","status":"ok","global_step":20,.*"metrics":\{"lr":[0-9.e-]+\},.*"trials":\[\{"lr":1e-8,"loss":' \
        "and all trials"
    try "$paceline" tune run.json --max-lr 1e6 --early-stop-threshold 0 --set optimizer=sgd
    like "$out" '^[0-9.e+-]+ +([0-9.e+-]+|not finite) +#{40}>$' "a loss that is out of range is marked"
    like "$out" '^1e-08 +[01]\.[0-9]+ +#{20}' "and does not press the others together"
    is "$(grep -cE '^[0-9.e+-]+ +[0-9]{8}' <<<"$out")" 0 "no number has more digits than one can read"
    refused 2 'the first must be above 0 and below the last' tune run.json --min-lr 2
}

tune_suggests_a_batch_size() {
    try "$paceline" tune run.json --batch-size power --steps-per-trial 1 --max-trials 3
    is "$status$(grep -v "^data set csv: .* classes in" <<<"$err")" 0 "no error"
    like "$out" '^batch_size +samples/s +memory$' "a table"
    like "$out" '^8 +[0-9]+ +([0-9.]+ [KMG]?i?B|unknown)$' "of three sizes"
    like "$out" '^suggested: [248], with [0-9]+ samples/s; batches of up to 8 fit$' "the suggestion"
    like "$out" '^suggested: 8,|^larger ones (reach|are) ' "and why no larger one"
    like "$out" '^  .*paceline fit run.json --set data.batch_size=[248]$' "and how to use it"
    is "$(grep -c '^[248] ' <<<"$out")" 3 "each once"
    try "$paceline" tune run.json --batch-size power --steps-per-trial 1 --max-trials 3 --json
    is "$(sed -nE 's/.*"event":"(train|trial)".*"metrics":\{"batch_size":([0-9]+).*/\1 \2/p' <<<"$out" | grep -v 'train 2' | tr '\n' ,)" \
        "trial 2,train 4,trial 4,train 8,trial 8," "with --json each size, and when it has been tried"
    out=$(script -qec "stty cols 60; '$paceline' tune run.json --batch-size power --max-trials 3" /dev/null </dev/null | tr -d '\r')
    like "$out" 'trial 3: batches of 8 samples' "a terminal shows the size that is tried"
    refused 2 'the modes "power" and "binsearch", not "luck"' tune run.json --batch-size luck
}

# ---- predict ----

predict_writes_classes() {
    try "$paceline" fit run.json --set trainer.run_name=classes --set trainer.max_epochs=20
    try "$paceline" predict run.json --checkpoint runs/classes
    is "$status$err" 0 "nothing but answers"
    is "$(lines "$out")" 300 "one a line for each sample"
    is "$(grep -cv '^[012]$' <<<"$out")" 0 "classes"
    paste -d ' ' <(cut -d , -f 3 points.csv) - <<<"$out" >both
    ok "nearly all are right" test "$(awk '$1 == $2' both | wc -l)" -ge 270
    plain=$out
    try "$paceline" predict run.json --checkpoint runs/classes/model.safetensors --output answers.txt
    is "$status$out$err" 0 "with --output it says nothing"
    is "$(cat answers.txt)" "$plain" "and writes the same to the file"
    echo 'a line' >lines.txt
    "$paceline" predict run.json --checkpoint runs/classes --output /dev/stdout >>lines.txt 2>.err
    is "$(head -n 1 lines.txt), $(wc -l <lines.txt)" "a line, 301" "a file to which the output is appended keeps its lines"
    try "$paceline" predict run.json --checkpoint runs/classes --output answers.npy
    is "$(head -c 6 answers.npy | tail -c 5)" NUMPY "or a NumPy array"
    is "$(wc -c <answers.npy)" $((128 + 8 * 300)) "of 300 int64"
    try "$paceline" predict run.json --checkpoint runs/classes --json
    like "$out" '^\{"event":"prediction","sample":299,"class":[012],"logits":\[.*\]\}$' "with --json all outputs"
    like "$(tail -n 1 <<<"$out")" '^\{"event":"result","status":"ok","samples":300,"seconds":[0-9.e-]+\}$' \
        "and the result last, with the members that apply"
}

# layers - prints run.json with these layers
layers() {
    sed "s/\"module\": *{[^}]*}/\"module\": {\"name\": \"layers\", \"layers\": [$1]}/" run.json
}

a_list_of_layers_is_a_model() {
    layers '"linear 16", "silu", {"residual": ["layer_norm", "linear 16"]}, "linear auto"' >layers.json
    like "$(cat layers.json)" '"name": "layers"' "the run file has layers"
    try "$paceline" fit layers.json --set trainer.run_name=layers --set trainer.max_epochs=20
    is "$status" 0 "it is trained: $err"
    try "$paceline" predict layers.json --checkpoint runs/layers
    paste -d ' ' <(cut -d , -f 3 points.csv) - <<<"$out" >both
    ok "nearly all predictions are right" test "$(awk '$1 == $2' both | wc -l)" -ge 270
    layers '"linear 16", "output hidden", "relu", "linear auto"' >layers.json
    try "$paceline" fit layers.json --set trainer.run_name=outputs --set trainer.max_epochs=1
    try "$paceline" predict layers.json --checkpoint runs/outputs
    is "$(grep -cv '^[012]$' <<<"$out")" 0 "the logits have the class, wherever they stand among the outputs"
    layers '"linear 16",\n    "conv 8 3", "linear auto"' >layers.json
    refused 2 'layers.json:3:5: "module.layers.1", conv 8 3: conv takes .*, got \[[0-9]+, 16\]' \
        fit layers.json --set trainer.launcher=spawn --set trainer.devices=2
    layers '"linear 16", "tahn"' >layers.json
    refused 2 'layers.json:[0-9:]+ "module.layers.1": there is no layer "tahn": did you mean "tanh"' fit layers.json
}

a_callback_may_take_all_predictions() {
    try "$paceline" predict run.json --checkpoint runs/classes --set 'callbacks=[{"name":"prediction_writer"}]'
    is "$status$out" 0 "nothing is left to print, which is no failure"
    like "$err" 'a callback, such as prediction_writer, has taken the predictions' "and that is said"
    is "$(ls predictions | wc -l)" 15 "there is a file of each batch"
}

predict_continues_a_prompt() {
    try "$paceline" fit text.json
    is "$status" 0 "a language model is trained"
    try "$paceline" predict text.json --checkpoint runs/text --prompt "the " --tokens 20
    is "$status$err" 0 "nothing but text"
    is "${#out}" 24 "the prompt and twenty characters"
    like "$out" '^the ' "the prompt first"
    first=$out
    try "$paceline" predict text.json --checkpoint runs/text --prompt "the " --tokens 20 --output written.txt
    is "$(cat written.txt)" "$first" "the same seed gives the same text, in a file too"
    try "$paceline" predict text.json --checkpoint runs/text --prompt "the " --tokens 20 --top-k 1 --temperature 0 --json
    is "$(grep -c '"event":"text"' <<<"$out")" 20 "with --json a piece a line"
    try "$paceline" predict text.json --checkpoint runs/text
    is "$status" 0 "without a prompt it answers for the data"
    is "$(grep -cvE '^([a-z ]|\\n){8,}$' <<<"$out")" 0 "in text, a sample a line"
    refused 2 'prompt' predict text.json --checkpoint runs/text --prompt "ÄÖ"
    refused 2 'a text cannot be written as a NumPy array' predict text.json --checkpoint runs/text --prompt "the" --output x.npy
}

a_checkpoint_of_other_data_is_named() {
    cp points.csv grown.csv
    try "$paceline" fit run.json --set data.path=grown.csv --set trainer.run_name=grown --set trainer.max_epochs=1
    sed -i '$s/,[0-9]*$/,3/' grown.csv                      # one more class than before
    refused 2 'runs/grown/checkpoints/[^:]*: cannot resume with other data .*module.init_from' \
        fit run.json --set data.path=grown.csv --set trainer.max_epochs=2 --resume runs/grown
}

# Opening a pipe waits for its writer.
a_pipe_in_the_place_of_a_file_is_refused() {
    mkdir manifest
    mkfifo manifest/manifest.json
    try timeout 300 "$paceline" fit run.json --resume manifest
    is "$status" 2 "a manifest: status 2"
    like "$err" 'manifest/manifest.json: is not a regular file' "with its name"
    try timeout 300 "$paceline" inspect manifest
    is "$status" 2 "nor is it inspected"
    try "$paceline" fit run.json --set trainer.run_name=pipes --set trainer.max_epochs=1
    rm runs/pipes/metrics.jsonl
    mkfifo runs/pipes/metrics.jsonl
    try timeout 300 "$paceline" fit run.json --set trainer.max_epochs=2 --resume runs/pipes
    is "$status" 0 "a log: the run continues"
    like "$err" 'logger "jsonl": .* records of the run are lost' "and says that its log is lost"
    rm -r runs/pipes
}

runs_resume_with_equivalent_strategies() {
    local two='--set trainer.devices=2 --set trainer.max_epochs'
    try "$paceline" fit run.json $two=1 --set trainer.run_name=apart --set trainer.strategy=local_sgd
    try "$paceline" fit run.json $two=2 --resume runs/apart
    is "$status" 2 "from local_sgd to another: status 2"
    like "$err" 'runs/apart/checkpoints/[^:]*: the checkpoint is of strategy "local_sgd".* set "trainer.strategy" to "local_sgd"' \
        "it says of which it is"
    try "$paceline" fit run.json $two=1 --set trainer.run_name=sharded --set trainer.strategy=zero1
    try "$paceline" fit run.json $two=2 --resume runs/sharded
    is "$status" 0 "from zero1 to ddp: status 0"
    is "$(grep -c 'the same bits' <<<"$err")" 0 "to the same bits"
}

predict_refuses_files_that_are_no_weights() {
    refused 2 '^paceline: predict needs --checkpoint' predict run.json
    refused 2 '^paceline: .*runs/none' predict run.json --checkpoint runs/none
    head -c 100 runs/classes/model.safetensors >cut.safetensors
    refused 2 '^paceline: .*cut.safetensors' predict run.json --checkpoint cut.safetensors
    refused 2 '^paceline: cannot write /nowhere/x' predict run.json --checkpoint runs/classes --output /nowhere/x
    refused 2 'shape|tensor' predict run.json --checkpoint runs/classes --set module.hidden=[5]
}

a_prediction_leaves_whole_files() {
    refused 2 'cut.safetensors' predict run.json --checkpoint cut.safetensors --output new.txt
    ok "no file of a run that failed" test ! -e new.txt
    echo old >old.txt
    refused 2 'cut.safetensors' predict run.json --checkpoint cut.safetensors --output old.txt
    is "$(cat old.txt)" old "and the old one stays"
    try "$paceline" predict run.json --checkpoint runs/classes --output old.txt
    is "$(lines "$(cat old.txt)")" 300 "until there are answers"
    [ -w /dev/full ] || { skip "no /dev/full here"; return; }
    refused 1 '^paceline: cannot write /dev/full: No space' predict run.json --checkpoint runs/classes --output /dev/full
    err=$(trap '' XFSZ; ulimit -f 0; exec "$paceline" predict run.json --checkpoint runs/classes --output new.txt 2>&1)
    like "$err" '^paceline: cannot write new.txt: File too large' "a full disk is reported"
    ok "and leaves nothing" test ! -e new.txt
}

a_run_without_weights_points_to_one_that_has_them() {
    mkdir -p roots/0001 roots/0002 roots/0003
    cp runs/classes/model.safetensors roots/0001
    cp runs/classes/model.safetensors roots/0002
    touch -d '2001-01-01' roots/0001/model.safetensors
    echo 0003 >roots/latest
    refused 2 '^paceline: roots/0003: this directory has no weights .*; the newest run with weights is roots/0002$' \
        predict run.json --checkpoint roots/latest
    ln -sf 0003 roots/latest
    refused 2 '^paceline: roots/latest: this directory has no weights .*; the newest run with weights is roots/0002$' \
        predict run.json --checkpoint roots/latest
    rm -r roots/000[12]
    rm roots/latest && echo 0003 >roots/latest
    refused 2 '^paceline: roots/0003/: this directory has no weights [^;]*$' predict run.json --checkpoint roots/latest/
}

# ---- monitor ----

end_stream() {
    kill -TERM "$pid"
    timeout 300 cat <&4 >/dev/null
    ended
    exec 4<&-
}

monitor_follows_a_run_to_its_end() {
    start_stream followed
    mkfifo seen
    "$paceline" monitor "$stream" --json >seen 2>err.txt </dev/null &
    local monitor=$! message
    exec 5<seen
    while read -r message <&5; do
        echo "$message"
        [[ $message == *'"to": "strategy.single"'*'"kind": "call", "name": "train_batch"'* ]] && break
    done >seen.txt
    end_stream
    cat <&5 >>seen.txt
    exec 5<&-
    wait "$monitor"
    status=$? err=$(cat err.txt) out=
    is "$status$err" 0 "the viewer ends with the run"
    is "$(grep -cvE '^\{("version": 2, "seq": .*"kind": "(call|progress|reply|error|cancel)".*|"gap": [0-9]+, "rank": -?[0-9]+)\}$' seen.txt)" 0 \
        "each line is a message of the stream or a gap"
    ok "steps are among them" \
        grep -q '"to": "strategy.single", .*"kind": "call", "name": "train_batch"' seen.txt
}

monitor_reports_a_run_that_died() {
    local json
    for json in '' --json; do
        start_stream "killed$json"
        rm -f seen.out
        timeout 300 "$paceline" monitor "$stream" $json >seen.out 2>err.txt </dev/null &
        local monitor=$!
        until [ -s seen.out ] || ! kill -0 "$monitor"; do sleep 0.05; done
        kill -KILL "$pid"
        wait "$monitor"
        status=$? err=$(cat err.txt) out=
        is "$status" 1 "that is no good end"
        like "$err$(tail -n 1 seen.out)" 'has ended in the middle of a run' "and is reported"
        wait "$pid" 2>/dev/null
        exec 4<&-
    done
}

a_run_that_fails_reports_its_checkpoint() {
    "$paceline" fit run.json --set trainer.max_epochs=-1 --set trainer.default_root_dir=lost --set trainer.devices=2 \
        --set trainer.strategy=ddp --set 'trainer.launcher={"name": "spawn", "max_restarts": 0}' \
        --set 'callbacks=["model_checkpoint"]' >out.txt 2>err.txt </dev/null &
    pid=$!
    until compgen -G 'lost/0001/checkpoints/*/manifest.json' >/dev/null || ! kill -0 "$pid"; do sleep 0.05; done
    kill -KILL "$(rank 1)"
    wait "$pid"
    status=$? out=$(cat out.txt) err=$(cat err.txt)
    is "$status" 1 "it fails"
    like "$err" 'killed by SIGKILL' "with the reason"
    like "$err" '^its checkpoints are in lost/0001/checkpoints; to resume from the newest$' "and says so"
    like "$(tail -n 1 <<<"$err")" '^  .* fit lost/0001/run.json --resume lost/0001$' "with a command"
    eval "try timeout 300 $(tail -n 1 <<<"$err" | sed "s|^  [^ ]*|'$paceline'|") --set trainer.max_time=1"
    is "$status" 0 "which continues it"
    ok "in its directory" test -s lost/0001/model.safetensors -a ! -e lost/0002
}

monitor_shows_lines_for_people() {
    start_stream shown
    try "$paceline" monitor "$stream" --count 3
    is "$status$(lines "$out")" 03 "as many lines as were asked for"
    is "$(grep -cvE '^[0-9:]+  [a-z]+  epoch [0-9]+  step [0-9]+' <<<"$out")" 0 "say how far the run is"
    like "$(tail -n 1 <<<"$out")" '  loss [0-9.e-]+  [0-9.]+k? steps/s  CPU [0-9.]+ of [0-9]+ cores  [_.,=+*#-]+$' \
        "its loss, its speed, the use of the machine, and the curve"
    try "$paceline" monitor "$stream" --messages --count 5
    is "$status$(lines "$out")" 05 "or messages"
    is "$(grep -cE '=(0|""|no)( |$)' <<<"$out")" 0 "without fields that have their default"
    try "$paceline" monitor "$stream" --topic 0.strategy --count 5
    is "$status" 0 "status 0"
    is "$(lines "$out")" 5 "as many messages as were asked for"
    is "$(grep -cvE '^ +[0-9.]+ .*strategy\.single .* [a-z_]+( [a-z_]+=[^ ]*)*$' <<<"$out")" 0 \
        "to or from the strategy, with time, ends, name and fields"
    try "$paceline" monitor "$stream" --messages --duration 0.2
    is "$status" 0 "or as long"
    try timeout 300 "$paceline" monitor "$stream" $(seq -f '--topic nosuch%g' 1 3000) --topic 0.strategy --count 5
    is "$(lines "$out")" 5 "of any number of topics"
    refused 1 '^paceline: a run publishes at tcp://.*, but no message matched --topic' \
        monitor "$stream" --topic nosuch --duration 1
    local longest
    longest=$(printf '%0199d' 0)
    refused 1 'but no message matched --topic' monitor "$stream" --topic "$longest" --duration 1
    refused 2 '^paceline: --topic takes at most 199 characters$' monitor "$stream" --topic "${longest}0" --duration 1
    end_stream
}

monitor_says_how_long_a_run_will_take_and_how_it_ended() {
    start_stream planned --set trainer.max_epochs=200000
    timeout 300 "$paceline" monitor "$stream" >seen.out 2>err.txt </dev/null &
    local monitor=$!
    holds 30 grep -qE 'step [0-9]+/[0-9]+, [0-9]+ %  loss [0-9.e-]+  [0-9:]+ left' seen.out
    out=$(cat seen.out)
    like "$out" 'step [0-9]+/[0-9]+, [0-9]+ %  loss [0-9.e-]+  [0-9:]+ left' "the steps of the run, and the time left"
    end_stream
    wait "$monitor"
    status=$? err=$(cat err.txt) out=$(tail -n 1 seen.out)
    is "$status$err" 0 "it ends with the run"
    like "$out" '^run planned was stopped after [0-9]+ steps$' "and says how"
}

# Bytes without meaning, and a subscriber of another protocol.
unknown_clients_of_the_stream_disturb_no_run() {
    start_stream besieged
    local stranger strangers=() k
    for k in $(seq 40); do
        exec {stranger}<>"/dev/tcp/127.0.0.1/${stream##*:}"
        if [ $((k % 2)) = 0 ]; then
            gzip -n <points.csv | tail -c +$((20 * k)) | head -c 600
        else
            printf '\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL%b' "$(printf '\\0%.0s' {1..48})"
            printf '\4\x19\5READY\x0bSocket-Type\0\0\0\3SUB\0\1\1\0\3\2hm\2\0\0\1\0\0\0\0\0\1'
        fi >&"$stranger" 2>/dev/null
        if [ $((k % 4)) -lt 2 ]; then strangers+=("$stranger"); else exec {stranger}>&-; fi
    done
    try timeout 300 "$paceline" monitor "$stream" --topic 0.strategy.single.train_batch --count 5
    is "$status" 0 "a viewer of steps receives them"
    is "$(lines "$out")" 5 "as many as were asked for"
    # libzmq 4.3.4 may leak what it has of an unfinished message of several parts when it ends before its peer does.
    for stranger in "${strangers[@]}"; do exec {stranger}>&-; done
    end_stream
    is "$status" 0 "and the run is stopped in order"
    ok "with its weights" test -s runs/besieged/model.safetensors
}

few_descriptors_are_refused() {
    try bash -c "ulimit -n 20; exec '$paceline' fit run.json"
    is "$status" 2 "a fit with 20 descriptors is refused"
    is "$err" "paceline: the limit of open descriptors is 20, too low: raise it to 1024 or more (ulimit -n)" "with the reason"
}

monitor_ends_when_nothing_can_be_written() {
    start_endless_fit watched --monitor "ipc://$PWD/watched"
    try timeout 300 bash -c 'exec "$0" monitor "$1" >/dev/full' "$paceline" "ipc://$PWD/watched"
    is "$status" 1 "status 1"
    like "$err" '^paceline: cannot write to standard output: No space' "as is reported"
    kill -TERM "$pid"
    end_of_fit
}

monitor_reports_an_endpoint_without_a_run() {
    refused 1 '^paceline: no message came from ipc://.*: start a run with paceline fit --monitor' \
        monitor "ipc://$folder/silence" --duration 0.2
    try "$paceline" monitor "ipc://$folder/silence" --duration 1.5
    like "$err" 'no run publishes at ipc://.*/silence yet; waiting' "after a second it says so"
    refused 2 '^paceline: cannot connect to "nonsense": ' monitor nonsense
    refused 2 '^paceline: cannot connect to "ipc:///nowhere/x": No such file' monitor ipc:///nowhere/x
    refused 2 '^paceline: run.json is a regular file, not the socket of a run' monitor ipc://run.json
    if [ "$(id -u)" != 0 ]; then
        mkdir -m 000 closed
        refused 2 '^paceline: cannot connect to "ipc://closed/x": Permission' monitor ipc://closed/x
        rmdir closed
    fi
    refused 2 '^paceline: ' fit run.json --monitor tcp://0.0.0.0:1
    refused 2 '^paceline: "tcp://127.0.0.1:99999": a port is' fit run.json --monitor tcp://127.0.0.1:99999
    cp run.json precious
    refused 2 '^paceline: ipc://.*precious: something else than a socket' fit run.json --monitor "ipc://$PWD/precious"
    is "$(cmp run.json precious && echo same)" same "which stays as it was"
}

# ---- inspect, list, doctor ----

inspect_shows_weights_and_runs() {
    try "$paceline" inspect runs/classes/model.safetensors
    is "$status$(grep '^paceline: ' <<<"$err")" 0 "no error"
    like "$out" '^  fc1.weight +float32 +16x2 +128 B$' "type, shape and size of a tensor"
    like "$out" ': 4 tensors, 99 elements,' "and the sum of all"
    try "$paceline" inspect runs/classes
    like "$out" '^  val_acc +[01]' "the newest metrics of a run"
    like "$out" 'module mlp, data csv' "and its components"
    is "$(grep -E '^  epoch' <<<"$out")" '  epochs done 20' "the epochs done, once"
    try "$paceline" inspect runs/classes --json
    like "$out" '^\{"path":"runs/classes",.*"tensors":\{"fc1.weight":\{"dtype":"F32","shape":\[16,2\]' "or as JSON"
    try "$paceline" fit run.json --set trainer.run_name=counted --set 'callbacks=[{"name": "model_checkpoint"}]'
    try "$paceline" inspect runs/counted/checkpoints/*
    like "$out" '^  epochs +3 ready, 3 started, 3 processed, 3 completed$' "and what the loops of a checkpoint counted"
    printf damaged | dd of="$(echo runs/counted/checkpoints/*/model.safetensors)" bs=1 seek=90 conv=notrunc 2>/dev/null
    try "$paceline" inspect runs/counted --verify
    is "$status" 2 "damage of a checkpoint of a run changes the status too"
    like "$out" 'refused: .*model.safetensors' "and by name"
    refused 2 '^paceline: cannot read runs/nothing: No such file' inspect runs/nothing
    refused 2 'cut.safetensors: truncated at byte 100' inspect cut.safetensors
    mkdir empty
    refused 2 'is not a run directory' inspect empty
    refused 2 '^paceline: runs is not a run directory.*; the newest run in it is runs/latest$' inspect runs
}

inspect_shows_the_graph_of_a_run_file() {
    printf '{"module": {"name": "layers", "layers": ["linear 4", "batch_norm", "relu", "linear auto"]},
  "data": {"name": "csv", "path": "points.csv", "batch_size": 5}, "optimizer": "sgd"}' >graph.json
    try "$paceline" inspect graph.json
    is "$status" 0 "no error: $err"
    like "$out" '^graph.json: [0-9]+ operators, 35 parameters, 8 elements of state$' "what it consists of"
    like "$out" '^  field  x \[5, 2\] float32$' "the fields of the data"
    like "$out" '^  %0 +0 +linear +x, 0.weight \[4, 2\], 0.bias \[4\] -> \[5, 4\]$' "an operator with its parameters and shapes"
    like "$out" '^  %[0-9]+ +3 +linear +%[0-9]+, 3.weight \[3, 4\], 3.bias \[3\] -> \[5, 3\]$' "and the last one, as wide as the classes"
    like "$out" '^  output  logits = %[0-9]+$' "its output"
    like "$out" '^  metric  loss = %[0-9]+$' "and its loss"
    is "$(ls -d runs 2>/dev/null | xargs -r ls | grep -c graph)" 0 "nothing is trained"
    try sh -c '"$0" inspect - --set data.batch_size=7 --json <graph.json' "$paceline"
    like "$out" '^\{"path":"-","graphs":\{"":\{"fields":\[\{"name":"x","dtype":"float32","shape":\[7,2\]\}' "or as JSON, from standard input"
    sed 's/"batch_norm", "relu"/{"checkpoint": ["linear 4", "tanh", "linear 4", "tanh"]}/' graph.json >again.json
    try "$paceline" inspect again.json
    like "$out" '^  memory  [0-9.]+ (Ki)?B for the values of a training step, [0-9.]+ (Ki)?B without checkpoints$' \
        "with layers that are computed again, the memory with and without"
    try "$paceline" fit again.json --set trainer.max_steps=1
    like "$err" '  [0-9.]+ K?B for the values of a training step, [0-9.]+ K?B without checkpoints$' \
        "also in the summary of a fit"
    try "$paceline" inspect graph.json --dot
    like "$out" '^digraph "graph.json" \{$' "or for Graphviz"
    like "$out" '^  o0 \[label="linear\\n0\\n\[5, 4\]\\n12 parameters"\];$' "with a box for each operator"
    like "$out" '^  f0 -> o0;$' "and arrows"
    mkdir -p graphviz nothing
    printf '#!/bin/sh\necho "<svg>$*"; cat\n' >graphviz/dot
    chmod +x graphviz/dot
    try env PATH="$PWD/graphviz:$PATH" "$paceline" inspect graph.json --svg
    like "$out" '^<svg>-Tsvg$' "dot makes SVG"
    like "$out" '^digraph' "of the same text"
    ln -sf "$(command -v sh)" nothing/sh
    try env PATH="$PWD/nothing" "$(command -v "$paceline")" inspect graph.json --svg
    is "$status" 2 "without dot there is an error"
    like "$err" '^paceline: --svg needs dot of Graphviz \(apt-get install graphviz\)' "that says how to get it"
    refused 2 '"data.path": .*gone.csv: No such file' inspect graph.json --set data.path=gone.csv
    refused 2 '"module.layers.0", reshape 7: reshape keeps the number of elements' inspect graph.json --set 'module.layers=["reshape 7", "linear auto"]'
    refused 2 'dot, --svg and --set are for run files, and runs is none' inspect runs --dot
}

weights_with_a_former_name_of_the_data_info_are_read() {
    try "$paceline" fit run.json --set trainer.run_name=former
    LC_ALL=C sed 's/"data_info":/"facts":    /' runs/former/model.safetensors >former.safetensors
    ok "the file has that name" grep -aq '"facts": ' former.safetensors
    head -n 20 points.csv >few.csv
    try "$paceline" predict run.json --set data.path=few.csv --checkpoint runs/former --json
    local want=$(grep prediction <<<"$out")
    try "$paceline" predict run.json --set data.path=few.csv --checkpoint former.safetensors --json
    is "$(grep prediction <<<"$out")" "$want" "it predicts the same, from numbers that are scaled as in training"
    like "$want" '"logits"' "and predicts"
}

inspect_shows_a_graph_for_each_objective() {
    try "$paceline" inspect "$srcdir/examples/mixture-gan.json"
    like "$out" '/mixture-gan.json, discriminator: [0-9]+ operators' "one"
    like "$out" '/mixture-gan.json, generator: [0-9]+ operators' "and the other"
}

# put_safetensors FILE HEADER BYTES - a file of weights with that header and so many bytes of data
put_safetensors() {
    printf "\\x$(printf %02x ${#2})\0\0\0\0\0\0\0%s" "$2" >"$1"
    head -c "$3" /dev/zero >>"$1"
}

inspect_refuses_the_files_that_predict_refuses() {
    local a='"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    put_safetensors ok.safetensors "{$a}" 8
    try "$paceline" inspect ok.safetensors
    is "$status" 0 "a good file is shown"
    while read -r bytes pattern tensors; do
        put_safetensors bad.safetensors "{$tensors}" "$bytes"
        refused 2 "^paceline: bad.safetensors: .*$pattern" inspect bad.safetensors
        refused 2 "bad.safetensors: .*$pattern" predict run.json --checkpoint bad.safetensors
    done <<END
8 before.byte $a,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}
8 too.many.elements "a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,8]}
8 whole.number "a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}
8 type.*is.unknown "a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}
9 belongs.to.no.tensor $a
END
}

inspect_does_not_wait_for_a_pipe() {
    mkfifo pipe
    refused 2 'pipe is not a regular file' inspect pipe
    mkdir piped
    mkfifo piped/metrics.jsonl
    echo '{}' >piped/run.json
    refused 2 'piped/metrics.jsonl is not a file' inspect piped
    rm piped/*
    mkfifo piped/run.json
    refused 2 'piped/run.json is not a file' inspect piped
}

json_numbers_read_back_as_they_were() {
    mkdir exact
    echo '{}' >exact/run.json
    echo '{"time": 1795242100.1234567, "val_loss": 0.1, "x": 2.2250738585072014e-308}' >exact/metrics.jsonl
    try "$paceline" inspect exact --json
    like "$out" '"time":1795242100.123456[67],' "a time to the microsecond"
    like "$out" '"x":2.2250738585072014e-308' "and all digits of a small one"
    echo '{"val_loss": 0.1, "x": 0.58228154182434078, "y": 0.30000000000000004}' >exact/metrics.jsonl
    try "$paceline" inspect exact --json
    like "$out" '"val_loss":0.1,"x":0.5822815418243408,"y":0.30000000000000004\}' "each with its own digits"
    echo '{"val_loss": 0.1}' >exact/metrics.jsonl
    try "$paceline" inspect exact --json
    like "$out" '"val_loss":0.1\}' "and no more digits than it takes"
}

list_names_components_and_their_options() {
    try "$paceline" list
    like "$out" '^modules +cnn, gan, gpt, graph, layers, mlp, swish$' "the modules of the build tree"
    like "$out" '^strategies +ddp, elastic, local_sgd, single, vote, zero1' "and all other roles"
    try "$paceline" list module
    like "$out" '^ +hidden +units of each hidden layer' "options with help"
    like "$out" '\(1\.\., default \[128\]\)' "range and default"
    is "$out" "$("$paceline" list modules)" "in the plural as well"
    try "$paceline" list trainer
    like "$out" '^ +max_epochs ' "the trainer's own options"
    like "$out" '^  accumulate_grad_batches +batches per optimizer step' "long names too have their help beside them"
    like "$out" '\(above 0, default 60\)' "and ranges are words where brackets would be doubled"
    is "$(awk 'length > 80' <<<"$out")" "" "within 80 columns"
    try "$paceline" list optimizers --json
    is "$(grep -cv '^{"role":"optimizer","name":.*}$' <<<"$out")" 2 "or as JSON objects"
    like "$out" '^\{"section":"optimizer","options":.*"name":"groups"' "and what all optimizers take"
    like "$out" '^\{"section":"optimizer.groups","options":.*"name":"match"' "and each of their groups"
    try "$paceline" list data
    like "$out" '^  predict +data to predict' "and sources apart"
    try "$paceline" list layers
    like "$out" '^linear units \[no_bias\] - x \[\.\.\., K\]' "layers with their arguments and meaning"
    like "$out" '^silu - x / ' "element-wise operators among them"
    is "$out" "$("$paceline" list layer)" "in the singular as well"
    try "$paceline" list losses
    like "$out" '^huber \[delta=1\] - squares up to delta' "losses of lists of layers likewise"
    try "$paceline" list operators --json
    like "$out" '^\{"role":"operator","name":"add","form":"add\(x, y\)","help":"x \+ y"\}$' "operators of graphs"
    like "$out" '^\{"role":"operator","name":"matmul","form":"matmul of up to 2 inputs"' "with the number of their inputs"
    is "$(grep -c _grad <<<"$out")" 0 "but not those of backward"
    refused 2 'no role is called "modul": the roles are modules, datasets.*, layers, losses, trainer, data$' list modul
}

doctor_looks_at_machine_and_build() {
    try "$paceline" doctor
    is "$status$(grep '^paceline: ' <<<"$err")" 0 "no error"
    for fact in libevent ZeroMQ jansson 'compute library' cores instructions memory descriptors accelerators; do
        like "$out" "^$fact +[^ ]" "it tells of: $fact"
    done
    try "$paceline" doctor --json
    like "$out" '^\{"facts":\{.*\},"warnings":\[.*\]\}$' "or as one JSON object"
}

run a_path_that_is_wrong_gives_status_2 trains
run all_mistakes_of_a_run_file_are_reported_at_once
run help_and_version_are_on_standard_output
run wrong_words_are_refused
run a_reader_that_goes_away_is_no_failure
run a_failed_write_is_a_failure
run a_fit_ends_with_its_result trains
run every_epoch_leaves_a_line trains
run a_terminal_has_a_bar_that_is_redrawn trains
run a_terminal_may_have_plain_lines trains
run the_progress_line_is_current trains
run commands_to_try_next_work_as_printed trains
run json_events_are_one_a_line trains
run set_changes_the_run trains
run names_of_other_engines_suggest_ours trains
run several_values_are_several_runs trains
run a_sweep_ends_with_all_its_results trains
run a_sweep_is_checked_before_it_starts
run folds_are_trained_in_turn trains
run a_run_can_end_with_its_best_weights trains
run a_signal_ends_the_whole_sweep trains
run print_config_shows_every_default trains
run a_malformed_run_file_is_refused_with_its_place
run an_impossible_run_is_refused_before_it_starts
run with_json_a_refusal_has_a_result_too
run a_classifier_says_that_it_needs_classes trains
run mistakes_that_the_data_shows_have_a_place_in_the_run_file trains
run an_address_that_is_a_path_is_answered_with_one trains
run an_accelerator_missing_here_is_reported_with_the_key trains
run a_run_that_failed_says_how_far_it_came trains
run a_missing_file_is_a_wrong_request trains
run a_plugin_is_loaded_by_hand trains
run a_folder_that_cannot_be_written_fails_the_run trains
run a_full_disk_fails_the_run_and_leaves_nothing_half trains
run sigint_stops_saves_and_says_130 trains
run sigterm_stops_saves_and_says_0 trains
run a_stopped_run_can_be_resumed trains
run a_run_stopped_by_a_callback_is_complete trains
run signals_that_come_together_are_one_request trains
run sighup_stops_saves_and_says_0 trains
run a_process_that_was_suspended_continues trains
run a_later_signal_ends_at_once trains
run validate_and_test_write_metrics trains
run a_run_directory_stands_for_its_best_or_newest_weights trains
run validate_and_test_refuse_what_they_cannot_do trains
run tune_suggests_a_learning_rate trains
run tune_suggests_a_batch_size trains
run predict_writes_classes trains
run a_list_of_layers_is_a_model trains
run a_callback_may_take_all_predictions trains
run predict_continues_a_prompt trains
run a_checkpoint_of_other_data_is_named trains
run a_pipe_in_the_place_of_a_file_is_refused trains
run runs_resume_with_equivalent_strategies trains
run predict_refuses_files_that_are_no_weights trains
run a_prediction_leaves_whole_files trains
run a_run_without_weights_points_to_one_that_has_them trains
run monitor_follows_a_run_to_its_end trains
run monitor_says_how_long_a_run_will_take_and_how_it_ended trains
run a_run_that_fails_reports_its_checkpoint trains
run monitor_reports_a_run_that_died trains
run monitor_shows_lines_for_people trains
run monitor_ends_when_nothing_can_be_written trains
run monitor_reports_an_endpoint_without_a_run
run unknown_clients_of_the_stream_disturb_no_run trains
run few_descriptors_are_refused
run inspect_shows_weights_and_runs trains
run inspect_shows_the_graph_of_a_run_file
run weights_with_a_former_name_of_the_data_info_are_read trains
run inspect_shows_a_graph_for_each_objective
run inspect_refuses_the_files_that_predict_refuses trains
run inspect_does_not_wait_for_a_pipe
run json_numbers_read_back_as_they_were
run list_names_components_and_their_options
run doctor_looks_at_machine_and_build
done_testing
