#!/usr/bin/env bash
# data_given.t - tests of the command: data in place of a run file, and run files that are there already
. "$(dirname "$0")/tap.sh"

# put_table FILE SEED [DELIMITER]
put_table() {
    mkdir -p "$(dirname "$1")"
    awk -v d="${3-,}" -v seed="$2" 'BEGIN { srand(seed); print "size" d "weight" d "kind"
        for (k = 0; k < 60; k++) { r = rand(); print r d rand() d (r > 0.5 ? "big" : "small") } }' >"$1"
}

fit_refuses_the_run_file_of_other_data() {
    put_table a/train.csv 1
    put_table b/train.csv 2
    put_table b/train.tsv 3 $'\t'
    try "$paceline" fit a/train.csv --set trainer.max_steps=1
    is "$status" 0 "the first fit writes train.json: $err"
    refused 2 'train.json exists and trains on a/train.csv, not on b/train.csv: remove it, or name the new run file: ' \
        fit b/train.csv
    like "$err" 'paceline init b/train.csv --output NAME.json; paceline fit NAME.json' "with the commands"
    refused 2 'trains on a/train.csv, not on b/train.tsv' fit b/train.tsv
    try "$paceline" fit ./b/../a/train.csv --set trainer.max_steps=1
    is "$status" 0 "the same file by another path is trained on"
    like "$err" '^train.json exists: this run does as it says, and trains on a/train.csv$' "the note says on what"
    printf '{"data": {"name": "text"}}' >train.json
    refused 2 'train.json exists and trains on other data, not on a/train.csv' fit a/train.csv
}

fit_takes_the_options_of_init() {
    put_table goods.csv 4
    rm -f goods.json
    try "$paceline" fit goods.csv --target weight --set trainer.max_steps=1
    is "$status" 0 "fit takes a target: $err"
    like "$(<goods.json)" '"y": "weight"' "it stands in the run file"
    refused 2 'goods.json exists, and --target is for a new run file: remove it, or write another: paceline init goods.csv' \
        fit goods.csv --target size
    refused 2 '--target is for data in place of a run file, and goods.json is a run file' fit goods.json --target size
    rm goods.json
    try "$paceline" fit goods.csv --print-config
    is "$(head -c 1 <<<"$out")" "{" "--print-config prints the run file alone"
}

a_name_behind_the_file_chooses_a_table_or_an_array() {
    cp "$srcdir/t/data/shapes.npz" odd.npz
    try "$paceline" init odd.npz:y --target x
    is "$status" 0 "an array of samples and one of targets: $err"
    like "$(<odd-y.json)" '"x": "odd.npz:y"' "the run file names both: samples"
    like "$(<odd-y.json)" '"y": "odd.npz:x"' "and targets"
    refused 2 'no array "z"; there are x, y: .*; init and fit take the samples as FILE:NAME, the target by --target' \
        init odd.npz:z
    put_table plain.csv 5
    refused 2 'plain.csv:kind: only a SQLite database .a table. and an archive of arrays .NumPy, HDF5. take a name' \
        init plain.csv:kind
    command -v sqlite3 >/dev/null || { skip "there is no sqlite3"; return; }
    sqlite3 shop.db 'create table "my goods" (a, b, y); create table wine (a, b, y);
        with recursive n(k) as (select 0 union all select k + 1 from n where k < 39)
        insert into "my goods" select k % 7, k % 5, iif(k % 2, "p", "q") from n; insert into wine select * from "my goods"'
    try "$paceline" init shop.db
    like "$err" 'set "table" to one of my goods, wine, or "query"; init and fit take one as shop.db:TABLE' "tables are named"
    try "$paceline" fit 'shop.db:my goods' --set trainer.max_steps=1
    is "$status" 0 "fit takes one of them: $err"
    like "$(<'shop-my goods.json')" '"table": "my goods"' "it stands in the run file"
    try "$paceline" fit 'shop.db:my goods' --set trainer.max_steps=1
    like "$err" 'shop-my goods.json exists: this run does as it says, and trains on shop.db' "and is found again"
    try "$paceline" fit shop.db:wine --set trainer.max_steps=1
    is "$status" 0 "another table has a run file of its own: $err"
}

predict_says_how_it_reads_other_data() {
    put_table goods.csv 6
    rm -f goods.json
    try "$paceline" fit goods.csv --set trainer.max_steps=1
    refused 2 'predict takes one run file, and not "goods.csv" beside it: other data are read by --set data.path=goods.csv' \
        predict goods.json --checkpoint runs/latest goods.csv
    refused 2 'goods.csv is data and no run file: .*--set data.path=goods.csv; paceline init goods.csv writes a new one' \
        predict goods.csv --checkpoint runs/latest
    refused 2 'predict has one operand too many, "more": see' predict goods.json more
}

what_init_prints_comes_before_its_error() {
    put_table goods.csv 7
    rm -f goods.json
    try "$paceline" init goods.csv --output there.json
    refused 2 'there.json exists: choose another name with --output, or remove it' init goods.csv --output there.json
    rm -f goods.json
    "$paceline" fit goods.csv --set trainer.max_steps=1 --set data.val_split=0.999 >both 2>&1
    ok "the reasons of init come before what the run says" \
        matches "$(head -n 1 both)" '^A table of 60 rows and 3 columns'
}

folds_that_cannot_work_are_refused_once() {
    put_table goods.csv 8
    rm -f goods.json
    try "$paceline" init goods.csv
    try "$paceline" fit goods.json --set data.folds=99 --set trainer.max_steps=1
    is "$status" 2 "more folds than samples are refused"
    is "$(grep -c 'data.folds 99 of 60 samples leaves nothing to validate on' <<<"$err")" 1 "one error says so"
    is "$out" "" "there is no table of runs that failed"
    try "$paceline" fit goods.json --set data.folds=99 --json
    is "$(grep -c '"event":"result"' <<<"$out")" 1 "events have one result"
    like "$(tail -n 1 <<<"$out")" '"event":"sweep".*"status":"not run"' "and the sweep says that the others did not run"
    awk 'BEGIN { print "day,tide"; for (k = 0; k < 100; k++) print k "," 100 * sin(k / 3) }' >tides.csv
    try "$paceline" init tides.csv --target tide
    try "$paceline" fit tides.json --set data.folds=5
    is "$(grep -c 'the order of the samples matters, so they have no folds' <<<"$err")" 1 "a series is refused once"
}

names_with_commas_are_one_value_of_set() {
    put_table goods.csv 9
    sed 's/$/,1/; 1s/,1$/,a,b/; 2,$s/$/,2/' goods.csv >wide.csv
    rm -f wide.json
    try "$paceline" init wide.csv --target kind
    try "$paceline" fit wide.json --set data.ignore=a,b,weight --set data.missing_values=NA,none --set trainer.max_steps=1
    is "$status" 0 "columns to ignore are one run: $err"
    like "$("$paceline" inspect runs/latest)" '"x":."size".,' "which ignores all of them"
    is "$(grep -c 'a comma in' <<<"$err")" 0 "nothing is to be explained"
    try "$paceline" fit wide.json --set optimizer.lr=0.01,0.02 --set trainer.max_steps=1
    like "$err" "^2 runs: a comma in --set optimizer.lr separates values; .* --set 'optimizer.lr=\"0.01,0.02\"'" \
        "a sweep says how to quote"
}

a_run_without_epochs_names_no_checkpoints() {
    put_table goods.csv 10
    rm -f goods.json
    try "$paceline" fit goods.csv --set trainer.max_epochs=0
    is "$status" 0 "a run without epochs ends well"
    is "$(grep -c 'saved 0 checkpoints' <<<"$err")" 0 "there are none, and no folder of them"
    try "$paceline" fit goods.json --set trainer.max_epochs=1
    run_dir=$(sed -n 's/^written to \([^:]*\):.*/\1/p' <<<"$out")
    like "$("$paceline" inspect "$run_dir"/checkpoints/*)" 'after step 2, epochs done 1,' \
        "a checkpoint behind the last batch of an epoch counts it"
}

# known NAME PATTERN BYTES - a file with these bytes is refused with its format
known() {
    printf "$3" >"$1"
    refused 2 "$1 is no table as text, it is $2" init "$1"
}

other_formats_are_refused_by_their_names() {
    known a.png 'a PNG picture: pictures are read from a folder that has a folder for each class' '\x89PNG\r\n\x1a\n\0\0'
    known a.parquet 'a Parquet file: convert it by DuckDB .COPY .*to_csv' 'PAR1\x15\x04\0'
    known a.xlsx 'a workbook .*: save its sheet as CSV' 'PK\3\4\x14\0\0\0\0\0[Content_Types].xml'
    known a.zip 'an archive of ZIP: unpack it' 'PK\3\4\x14\0\0\0\0\0table.csv'
    known a.csv.bz2 'compressed by bzip2: unpack it, such as by: bunzip2 FILE' 'BZh91AY&SY\0'
    known a.csv.xz 'compressed by xz: unpack it, such as by: unxz FILE' '\xfd7zXZ\0\0'
    known list.json "a list of JSON: write an object on each line, .*jq -c '...'" '[\n {"a": 1, "y": 2},\n {"a": 2, "y": 3}]\n'
    known a.libsvm 'a file of LIBSVM: convert it by scikit-learn' '1 3:0.5 7:1\n-1 2:0.25 7:0.5\n'
    printf '[kg] 1,at\n1.5,2:30\n2.5,3:30\n0.5,2:30\n2,3:30\n' >plain2.csv
    try "$paceline" init plain2.csv
    is "$status" 0 "a table with brackets and colons is a table: $err"
}

predictions_are_written_as_tables_and_objects() {
    put_table goods.csv 11
    sed -i 's/big/"big, old"/' goods.csv
    rm -f goods.json
    try env PACELINE_HINTS=1 "$paceline" fit goods.csv --set trainer.max_epochs=20
    like "$out" 'predict runs/[0-9]+/run.json --checkpoint runs/[0-9]+ --set data.path=NEW.csv --output predictions.csv' \
        "the next steps say how new data are predicted"
    try "$paceline" predict goods.json --checkpoint runs/latest --output p.csv
    is "$(head -n 1 p.csv)" "sample,class,probability" "a table of classes has a header"
    is "$(tail -n +2 p.csv | cut -d , -f 1 | tr '\n' ' ')" "$(seq -s ' ' 0 59) " "and numbers the samples"
    is "$(grep -cE '^[0-9]+,("big, old"|small),(1|0[.][5-9][0-9]*)$' p.csv)" 60 "with names and probabilities of two classes"
    try "$paceline" predict goods.json --checkpoint runs/latest --output p.jsonl
    is "$(grep -cE '^[{]"sample":[0-9]+,"class":[01],"class_name":"(big, old|small)","logits":\[[^]]*\][}]$' p.jsonl)" 60 \
        "objects have all outputs"
    try "$paceline" predict goods.json --checkpoint runs/latest --output p.txt
    is "$(sort -u p.txt | tr '\n' ';')" "big, old;small;" "other files have an answer a line"
    try "$paceline" init goods.csv --target weight --output weights.json
    try "$paceline" fit weights.json --set trainer.max_steps=1
    try "$paceline" predict weights.json --checkpoint runs/latest --output values.csv
    is "$(head -n 1 values.csv)" "sample,value" "values have another header"
    is "$(grep -cE '^[0-9]+,-?[0-9.e-]+$' values.csv)" 60 "and no probability"
}

empty_files_are_named_as_tables() {
    : >empty.csv
    printf '\n\n' >blank.tsv
    local file
    for file in empty.csv blank.tsv; do
        try "$paceline" fit "$file"
        is "$status" 2 "$file is refused"
        like "$err" "^paceline: $file.*(empty|rows|no data)" "as a table: $err"
    done
    : >run.json
    try "$paceline" fit run.json
    like "$err" 'run.json:1:1: empty: an object such as' "an empty run file is one"
}

classes_with_line_ends_have_one_line() {
    {
        echo 'a,kind'
        for ((i = 0; i < 20; i++)); do printf '%d,alpha\n%d,"mid\nline"\n' "$i" "$((i + 100))"; done
    } >ends.csv
    try "$paceline" fit ends.csv --set trainer.max_epochs=2
    try "$paceline" predict ends.json --checkpoint runs/latest
    is "$(wc -l <<<"$out")" 40 "each sample has one line"
    is "$(grep -cvE '^(alpha|mid.nline)$' <<<"$out")" 0 "which has the name"
}

run empty_files_are_named_as_tables
run classes_with_line_ends_have_one_line trains
run predictions_are_written_as_tables_and_objects trains
run other_formats_are_refused_by_their_names
run folds_that_cannot_work_are_refused_once trains
run names_with_commas_are_one_value_of_set trains
run a_run_without_epochs_names_no_checkpoints trains
run fit_refuses_the_run_file_of_other_data trains
run fit_takes_the_options_of_init trains
run a_name_behind_the_file_chooses_a_table_or_an_array trains
run predict_says_how_it_reads_other_data trains
run what_init_prints_comes_before_its_error trains
done_testing
