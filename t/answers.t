#!/usr/bin/env bash
# answers.t - what the modules layers and mlp learn from a run file alone, and how paceline predict prints it: texts,
# several labels of a sample, and values in their unit
. "$(dirname "$0")/tap.sh"

trainer='"optimizer": {"name": "adamw", "lr": 0.02}, "trainer": {"max_epochs": 30, "accelerator": {"name": "cpu", "threads": 1}}'

layers_learn_a_text_and_continue_it() {
    for ((i = 0; i < 120; i++)); do echo "one two three four five six seven"; done >text.txt
    cat >text.json <<J
{"module": {"name": "layers", "layers": ["embedding auto 32", "positions",
    {"residual": ["layer_norm", "attention 4 causal"]}, {"residual": ["layer_norm", "linear 64", "gelu", "linear 32"]},
    "layer_norm", "linear auto"]},
 "data": {"name": "text", "path": "text.txt", "context": 32, "val_split": 0.1, "batch_size": 16}, $trainer}
J
    try "$paceline" fit text.json --set trainer.max_epochs=30 --json
    is "$status" 0 "the vocabulary is the width, and the end of the last window is left out: $err"
    like "$out" '"val_loss":' "a full validation is made"
    try "$paceline" predict text.json --checkpoint runs/latest --prompt "one two " --tokens 20 --temperature 0
    is "$status" 0 "a prompt is continued: $err"
    is "$out" "one two three four five six " "in the order of the text"
}

# labelled - l.json, a run over x.npy and y.npy of 240 samples with three labels, of whole numbers
labelled() {
    npy x.npy '<f4' 240 3
    npy y.npy '<i8' 240 3
    cat >l.json <<J
{"module": $1, "data": {"name": "npy", "x": "x.npy", "y": "y.npy", "batch_size": 24}, $trainer}
J
}

# npy FILE TYPE ROWS COLUMNS - numbers -3, -1, 1 and 3 in turns, or (whole) whether they are above 0
npy() {
    local header length k v
    header="{'descr': '$2', 'fortran_order': False, 'shape': ($3, $4), }"
    length=$(((${#header} + 11 + 63) / 64 * 64 - 10))
    {
        printf "\\x93NUMPY\\x01\\x00\\x$(printf %02x "$length")\\x00"
        printf "%-$((length - 1))s\n" "$header"
        for ((k = 0; k < $3 * $4; k++)); do
            v=$(((k * 7 + k / 3) % 4))
            case $2 in
            '<f4') case $v in 0) printf '\0\0\x40\xc0' ;; 1) printf '\0\0\x80\xbf' ;; 2) printf '\0\0\x80\x3f' ;; 3) printf '\0\0\x40\x40' ;; esac ;;
            *) printf "\\x0$((v > 1))\0\0\0\0\0\0\0" ;;
            esac
        done
    } >"$1"
}

several_labels_are_found_and_each_is_answered() {
    local module
    for module in '{"name": "mlp", "hidden": [16]}' '{"name": "layers", "layers": ["linear 16", "relu", "linear auto"]}'; do
        labelled "$module"
        try "$paceline" fit l.json
        is "$status" 0 "whole numbers of 0 and 1 in several columns are labels: $err"
        try "$paceline" predict l.json --checkpoint runs/latest --set data.y=
        is "$(sed -n 1,3p <<<"$out" | tr '\n' ' ')" "$(labels_of 0) $(labels_of 1) $(labels_of 2) " "the labels that are on, one line a sample"
        try "$paceline" predict l.json --checkpoint runs/latest --set data.y= --json
        like "$(grep '"sample":1,' <<<"$out")" "\"labels\":\[$(labels_of 1)\],\"probabilities\":\[[0-9.e-]+,[0-9.e-]+,[0-9.e-]+\]" "and with probabilities"
        try "$paceline" predict l.json --checkpoint runs/latest --set data.y= --output found.npy
        is "$(tail -c 5760 found.npy | od -An -tx1 -v)" "$(tail -c 5760 y.npy | od -An -tx1 -v)" "an array has 0 or 1 for each label"
    done
}

# labels_of SAMPLE - its labels by the numbers of npy()
labels_of() {
    local k on=
    for k in 0 1 2; do
        local i=$(($1 * 3 + k))
        [ $(((i * 7 + i / 3) % 4)) -gt 1 ] && on=$on${on:+,}$k
    done
    echo "$on"
}

layers_learn_values_in_their_unit() {
    awk 'BEGIN { print "a,b,price"; for (i = 0; i < 200; i++) { a = sin(i); b = cos(i * 3); print a "," b "," 150 + 30 * a } }' >v.csv
    cat >v.json <<J
{"module": {"name": "layers", "layers": ["linear 8", "relu", "linear auto"]},
 "data": {"name": "csv", "path": "v.csv", "batch_size": 20}, $trainer}
J
    try "$paceline" fit v.json --json
    is "$status" 0 "values around 150 are learnt: $err"
    loss=$(grep -o '"train_loss_epoch":[0-9.e-]*' <<<"$out" | tail -n 1 | cut -d: -f2)
    ok "with a loss of scaled values ($loss)" awk "BEGIN { exit !($loss < 0.1) }"
    try "$paceline" predict v.json --checkpoint runs/latest
    ok "and predicted in their unit: $(head -n 1 <<<"$out")" awk "BEGIN { v = $(head -n 1 <<<"$out"); exit !(v > 140 && v < 160) }"
}

the_task_comes_from_the_weights() {
    labelled '{"name": "mlp", "hidden": [16], "task": "labels"}'
    try "$paceline" fit l.json
    is "$status" 0 "a task is given: $err"
    try "$paceline" predict l.json --checkpoint runs/latest --set data.y=
    want=$out
    labelled '{"name": "mlp", "hidden": [16]}'
    try "$paceline" predict l.json --checkpoint runs/latest --set data.y=
    is "$out" "$want" "a run without the task takes the task of the weights"
    refused 2 'the weights were trained with module.task "labels", but the run has "value": set it as in training' \
        predict l.json --checkpoint runs/latest --set module.task=value
}

run layers_learn_a_text_and_continue_it
run several_labels_are_found_and_each_is_answered
columns_of_a_table_are_labels_or_values() {
    awk 'BEGIN { print "a,b,left,right,sum"; for (i = 0; i < 240; i++) { a = sin(i); b = cos(i * 3)
        print a "," b "," (a > 0 ? "yes" : "no") "," (b > 0) "," 100 * a + b } }' >m.csv
    cat >m.json <<J
{"module": {"name": "mlp", "hidden": [16]}, $trainer,
 "data": {"name": "csv", "path": "m.csv", "ignore": "sum", "fields": {"y": "left,right"}, "batch_size": 24}}
J
    try "$paceline" fit m.json
    is "$status" 0 "two columns are labels: $err"
    try "$paceline" predict m.json --checkpoint runs/latest
    is "$(sed -n 2,6p <<<"$out" | tr '\n' ' ')" "left left,right left right  " "which are answered by their names"
    cut -d, -f1,2 m.csv >new.csv
    try "$paceline" predict m.json --checkpoint runs/latest --set data.path=new.csv --set data.ignore=
    is "$(sed -n 2,6p <<<"$out" | tr '\n' ' ')" "left left,right left right  " "for a table without targets, too"
    try "$paceline" fit m.json --set 'data.fields={"y":"sum,right"}' --set data.ignore=left --json
    like "$out" '"train_mae"' "other numbers are values"
    try "$paceline" predict m.json --checkpoint runs/latest --set 'data.fields={"y":"sum,right"}' --set data.ignore=left
    like "$(sed -n 3p <<<"$out")" '^(8[5-9]|9[0-9])\.[0-9]+ -?[01]\.[0-9]+$' "in their unit"
    refused 2 'field "y" has 2 columns, which cannot be a class together' fit m.json --set data.target=class
    refused 2 'field "y": there is no column "middle"' fit m.json --set 'data.fields={"y":"left,middle"}'
}

run columns_of_a_table_are_labels_or_values
run the_task_comes_from_the_weights
run layers_learn_values_in_their_unit
done_testing
