#!/usr/bin/env bash
# series.t - tests of the command: run files and forecasts for time series
. "$(dirname "$0")/tap.sh"

# Two waves of 400 days, around 500 and 20.
put_series() {
    awk 'BEGIN { print "day,tide,wind"; for (k = 0; k < 400; k++)
        printf "%d,%.4f,%.4f\n", 1000 + k, 500 + 100 * sin(k / 3), 20 + 5 * cos(k / 4) }' >tides.csv
}

a_time_series_gets_windows() {
    put_series
    try "$paceline" init tides.csv --target tide
    is "$status" 0 "init succeeds: $err"
    like "$out" '"day" rises from row to row, and the other columns are numbers: this is a time series' "a series is recognised"
    like "$(<tides.json)" '"window": 33' "so says the run file"
    try "$paceline" fit tides.json --set trainer.max_epochs=30
    is "$status" 0 "fit succeeds: $err"
    ok "the waves are learnt" at_least "$(metric val_r2)" 0.95
    like "$(<tides.json)" '"restore_best": true' "the result is of the best epoch"
    try "$paceline" predict tides.json --checkpoint runs/latest
    is "$(lines "$out")" 368 "each window has a prediction, also the one at the end"
    ok "in the unit of the data: $(tail -n 1 <<<"$out")" at_least "$(tail -n 1 <<<"$out")" 380
    try "$paceline" fit tides.json --set 'data.fields={"y": "tide,wind"}' --set data.horizon=2 --set trainer.max_epochs=30
    ok "several columns and rows are learnt, too" at_least "$(metric val_r2)" 0.95
    try "$paceline" predict tides.json --set 'data.fields={"y": "tide,wind"}' --set data.horizon=2 --checkpoint runs/latest
    ok "each in its unit: $(tail -n 1 <<<"$out")" test "$(tail -n 1 <<<"$out" | awk '{
        print (NF == 4 && $1 > 350 && $1 < 650 && $2 > 10 && $2 < 30 && $3 > 350 && $4 < 30) }')" = 1
    refused 2 'the order of the samples matters, so they have no folds' fit tides.json --set data.folds=3 --set data.fold=0
}


# put_months FORMAT ROWS - a wave that rises, with a time in a form such as "01 MMM YYYY"
put_months() {
    awk -v format="$1" -v rows="$2" 'BEGIN {
        split("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", name, " ")
        print "when,load"
        for (k = 0; k < rows; k++) {
            year = 1990 + int(k / 12); month = k % 12 + 1; text = format
            gsub("YYYY", year, text); gsub("MMM", name[month], text); gsub("MM", sprintf("%02d", month), text)
            printf "%s,%.4f\n", text, 50 + k / 10 + 10 * sin(k / 2) } }' >months.csv
    rm -f months.json
}

dates_of_many_forms_are_times() {
    local form
    for form in YYYY-MM 'MMM YYYY' '01 MMM YYYY' MMM-1-YYYY; do
        put_months "$form" 60
        try "$paceline" init months.csv
        like "$out" '"when" rises from row to row.*this is a time series' "$(sed -n 2p months.csv) is a time"
    done
    echo when,load >quarters.csv
    for k in {0..59}; do printf '%dQ%d,%d.5\n' $((2000 + k / 4)) $((k % 4 + 1)) $((100 + k * k % 7 * 10)); done >>quarters.csv
    try "$paceline" init quarters.csv
    like "$out" '"when" rises from row to row' "$(sed -n 2p quarters.csv) is one, too"
    try "$paceline" fit quarters.json --set trainer.max_epochs=2
    is "$status" 0 "its run trains: $err"
}

columns_that_are_months_make_no_series_of_years() {
    awk 'BEGIN { print "YEAR,JAN,FEB,MAR,APR"; for (k = 0; k < 60; k++)
        printf "%d,%.1f,%.1f,%.1f,%.1f\n", 1950 + k, k * 7 % 5, k * 3 % 7, k * 5 % 11, k * 5 % 11 + 1 }' >years.csv
    try "$paceline" init years.csv
    is "$status" 0 "init succeeds: $err"
    like "$out" '"YEAR" looks like a time, but other columns are its months or quarters: rows are shuffled' "and says so"
    is "$(grep -c window years.json)" 0 "a row predicts its last month from the others"
}

a_time_that_cannot_be_read_is_named() {
    awk 'BEGIN { print "month,load,wind"; for (k = 0; k < 60; k++) printf "M%d-%d,%.1f,%.1f\n", k % 12, k, k * 7 % 11, k % 5 }' >odd.csv
    try "$paceline" init odd.csv
    like "$out" '"month" has the name of a time, but cells such as "M0-0" are no dates that are known: write 2010-01-31' \
        "with one of its cells"
    put_months YYYY-MM 60
    sed '9s/^[^,]*//' months.csv >hole.csv
    try "$paceline" init hole.csv
    like "$out" '"when" looks like a time, but some rows have none: rows are shuffled' "so is one that has an empty cell"
}

a_year_and_a_quarter_are_a_time_together() {
    awk 'BEGIN { print "nr,yr,Quarter,rate,note"; for (k = 0; k < 60; k++)
        printf "%d,%d,%d,%.4f,same\n", k + 1, 1990 + int(k / 4), k % 4 + 1, 5 + sin(k / 3) }' >rates.csv
    try "$paceline" init rates.csv
    like "$out" '"yr,Quarter" rises from row to row' "which rise together alone"
    like "$(<rates.json)" '"time": "yr,Quarter"' "so says the run file"
    like "$out" '"nr" is left out: it numbers the rows' "so is not a column that counts"
    like "$out" '"note" is left out: it has one value' "a column of one text is no obstacle"
    try "$paceline" fit rates.json --set trainer.max_epochs=2
    is "$status" 0 "its run trains: $err"
    try "$paceline" predict rates.json --checkpoint runs/latest --output forecast.csv
    is "$(head -n 1 forecast.csv)" 'sample,time,value' "predictions have a time"
    like "$(sed -n 2p forecast.csv)" '^0,1991 2,' "of the first row behind five, as it stands in the file"
    like "$(tail -n 1 forecast.csv)" '^55,,' "behind the file there is none"
    sed -E 's/(,....),1,/\1,Jan,/; s/(,....),2,/\1,Feb,/; s/(,....),3,/\1,May,/
        s/(,....),4,/\1,December,/; s/Quarter/month/' rates.csv >named.csv
    try "$paceline" init named.csv
    like "$out" '"yr,month" rises from row to row' "months may have names"
}

missing_rows_of_a_series_are_named() {
    put_months YYYY-MM 60
    try "$paceline" init months.csv
    is "$(grep -c 'Rows are missing' <<<"$out")" 0 "months have 28 to 31 days, and none is missing"
    sed '15d;30,31d' months.csv >gaps.csv
    try "$paceline" init gaps.csv
    like "$out" 'Rows are missing in 2 places, the first above line 15: windows take the rows around them as neighbours. Add them with empty cells' \
        "one and two missing months are"
    try "$paceline" fit gaps.json --set trainer.max_epochs=1
    is "$status" 0 "such a series trains: $err"
    like "$err" 'Rows are missing in 2 places' "a run says so, too"
    (head -n 1 gaps.csv; tail -n +2 gaps.csv | tac) >newest.csv
    try "$paceline" init newest.csv
    like "$out" 'Rows are missing in 2 places, the first above line ' "also where the newest row is the first"
    awk 'BEGIN { print "yr,Quarter,rate"; for (k = 0; k < 60; k++) if (k != 20)
        printf "%d,%d,%.4f\n", 1990 + int(k / 4), k % 4 + 1, 5 + sin(k / 3) }' >gapped.csv
    try "$paceline" init gapped.csv
    like "$out" 'Rows are missing in 1 place, the first above line 22' "a quarter of a year is"
    awk 'BEGIN { print "day,rate"; for (k = 0; k < 90; k++) if (k % 7 < 5) printf "%d,%.4f\n", 1000 + k, 5 + sin(k / 3) }' >work.csv
    try "$paceline" init work.csv
    is "$(grep -c 'Rows are missing' <<<"$out")" 0 "free days of every week are not"
}

the_newest_row_may_be_the_first() {
    put_months YYYY-MM 60
    (head -n 1 months.csv; tail -n +2 months.csv | tac) >latest.csv
    try "$paceline" init latest.csv
    like "$out" '"when" falls from row to row.*Rows are read from the last one up' "init says so"
    try "$paceline" init months.csv
    try "$paceline" fit months.json --set trainer.max_epochs=3 --set trainer.run_name=rises
    try "$paceline" fit latest.json --set trainer.max_epochs=3 --set trainer.run_name=falls
    ok "the weights are those of the sorted file" cmp runs/rises/model.safetensors runs/falls/model.safetensors
}

what_looks_like_a_time_is_named_if_rows_are_shuffled() {
    local seen
    put_months YYYY-MM 30
    try "$paceline" init months.csv
    like "$out" '"when" looks like a time, but 30 rows are few: they are shuffled; a series is proposed from 40 rows on' "too few rows"
    put_months YYYY-MM 60
    awk -F, '{ print; if (NR > 1) print $1 "," $2 + 1 }' months.csv >twice.csv
    try "$paceline" init twice.csv
    like "$out" '"when" looks like a time, but its times repeat: rows are shuffled; for a series, keep one row of each' "times that repeat"
    (head -n 1 months.csv; tail -n +2 months.csv | sort -t, -k 2n) >mixed.csv
    try "$paceline" init mixed.csv
    like "$out" '"when" looks like a time, but the rows are not in its order: .* sort the file by it' "rows in another order"
    awk -F, '{ printf "%s", $1; for (k = 0; k < 17; k++) printf ",%s", NR == 1 ? "v" k : $2 + k; print "" }' months.csv >wide.csv
    try "$paceline" init wide.csv
    like "$out" '"when" looks like a time, but 17 other columns are many: rows are shuffled; for a series, set "time"' "many columns"
    awk -F, '{ print $1 "," (NR == 1 ? "place" : NR % 3 ? "north" : "south") "," $2 }' months.csv >places.csv
    try "$paceline" init places.csv
    like "$out" '"when" looks like a time, but "place" is no column of numbers: rows are shuffled' "a column of texts"
    awk -F, '{ print $1 "," $2 "," (NR == 1 ? "kind" : NR % 3 ? "a" : "b") }' months.csv >kinds.csv
    try "$paceline" init kinds.csv
    like "$out" '"when" looks like a time, but the target has classes' "a target of classes"
    awk 'BEGIN { srand(3); print "house_id,rooms,price"; for (k = 0; k < 60; k++) printf "%d,%d,%.2f\n", 1000 + k, 9 * rand(), 99 * rand() }' >ids.csv
    try "$paceline" init ids.csv
    like "$out" '"house_id" is left out: it numbers the rows' "numbers that a name says are no time"
    seen=$(for k in {1..60}; do printf '%d,%d,%s\n' $((k * 7 % 60)) $((k * 11 % 13)) $((k * k)); done)
    printf 'years_of_age,months,price\n%s\n' "$seen" >ages.csv
    try "$paceline" init ages.csv
    is "$(grep -c 'looks like a time' <<<"$out")" 0 "numbers in no order are none, whatever their name"
}

a_column_of_numbers_alone_is_a_series() {
    awk 'BEGIN { print "level"; for (k = 0; k < 60; k++) printf "%.3f\n", 20 + sin(k / 3) }' >level.csv
    try "$paceline" fit level.csv --set trainer.max_epochs=2
    is "$status" 0 "fit succeeds: $err"
    like "$out" 'There is one column of numbers: it is taken as a time series, in the order of the file' "it says so"
    try "$paceline" predict level.json --checkpoint runs/latest --output forecast.csv
    is "$(sed -n '1p;2s/[^,]*$//p' forecast.csv | tr '\n' ' ')" 'sample,row,value 0,5, ' "predictions have the number of their row"
    awk 'NR == 1 { print "t,level"; next } { print NR - 2 "," $1 }' level.csv >steps.csv
    try "$paceline" init steps.csv
    like "$out" 'one column of numbers, and "t" numbers the rows: it is taken as a time series' "beside numbers of the rows, too"
    like "$(<steps.json)" '"time": "t"' "which are its time"
    head -n 21 level.csv >short.csv
    refused 2 '"level" could be predicted: .*, and a time series has at least 40 rows' init short.csv
    try "$paceline" predict level.json --checkpoint runs/latest --set data.path=short.csv
    is "$(lines "$out")" 16 "a forecast needs no such number of rows"
    head -n 4 level.csv >short.csv
    refused 2 'short.csv: the file has 3 rows, but at least 5 are needed: put the last 5 rows of the older file' \
        predict level.json --checkpoint runs/latest --set data.path=short.csv
}

few_rows_of_many_columns_are_predicted_from_the_target_alone() {
    awk 'BEGIN { srand(2); print "year,a,b,c,d,e,f,g"; for (k = 0; k < 60; k++) {
        printf "%d,", 1950 + k; for (i = 0; i < 6; i++) printf "%.3f,", rand()
        printf "%.4f\n", 30 + k / 3 + sin(k / 2) } }' >wide.csv
    rm -f wide.json
    try "$paceline" init wide.csv
    like "$(<wide.json)" '"features": "g"' "from its own past"
    like "$out" '60 rows are few for windows of 7 columns.* put "slice 2 6 7" behind "use last"' "init says how to use all"
    try "$paceline" fit wide.json
    ok "a series that drifts is predicted beyond what was learnt: $(metric val_r2)" at_least "$(metric val_r2)" 0.8
    sed 's/"features": "g",//; s/"use last", "reshape/"use last", "slice 2 6 7", "reshape/' wide.json >all.json
    try "$paceline" fit all.json --set trainer.max_epochs=2
    is "$status" 0 "and that works: $err"
}

a_forecast_is_compared_with_the_last_value() {
    awk 'BEGIN { srand(9); print "day,v"; for (k = 0; k < 300; k++) { v += rand() - 0.5; printf "%d,%.4f\n", 700 + k, v } }' >walk.csv
    try "$paceline" fit walk.csv --set trainer.max_epochs=1
    like "$err" 'val_mae is [0-9.]*, but a forecast that repeats the last value has [0-9.]*: this one is no better' "a random walk after one epoch: $err"
    put_months YYYY-MM 120
    try "$paceline" fit months.csv
    is "$(grep -c 'repeats the last value' <<<"$err")" 0 "a wave is predicted better: $err"
}

run a_time_series_gets_windows trains
run columns_that_are_months_make_no_series_of_years
run a_time_that_cannot_be_read_is_named
run dates_of_many_forms_are_times trains
run a_year_and_a_quarter_are_a_time_together trains
run missing_rows_of_a_series_are_named trains
run the_newest_row_may_be_the_first trains
run what_looks_like_a_time_is_named_if_rows_are_shuffled
run a_column_of_numbers_alone_is_a_series trains
run few_rows_of_many_columns_are_predicted_from_the_target_alone trains
run a_forecast_is_compared_with_the_last_value trains
done_testing
