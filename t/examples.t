#!/usr/bin/env bash
# examples.t - tests of examples/: the run files reach what they promise, the embedded program ticks on
. "$(dirname "$0")/tap.sh"

every_run_file_is_accepted() {
    for file in "$srcdir"/examples/*.json; do
        try "$paceline" fit "$file" --print-config
        is "$status$err" 0 "$(basename "$file")"
    done
}

digits_are_learnt_in_seconds() {
    if [ -z "${PACELINE_TEST_DATA:-}" ]; then
        skip "PACELINE_TEST_DATA is not set: no digits"
        return
    fi
    try timeout 300 "$paceline" fit "$srcdir/examples/digits-mlp.json" \
        --set data.path="$PACELINE_TEST_DATA/tabular/digits.csv.gz"
    is "$status" 0 "it trains"
    ok "to val_acc 0.95" at_least "$(metric val_acc)" 0.95
}

# inside_its_loop PROGRAM - it trains while its own timer ticks
inside_its_loop() {
    try "$builddir/examples/$1"
    is "$status$err" 0 "it ends well"
    like "$out" '^ok$' "the run does too"
    ok "val_acc is 0.95" at_least "$(metric val_acc)" 0.95
    # "val_acc 0.980; 41 ticks of 10 ms in 0.40 s": a tenth of the ticks that a quiet machine would see
    ok "and its timer ticked all along" awk '/ticks/ { exit !($3 >= $9 * 1000 / 10 / 10) }' <<<"$out"
}

a_program_trains_inside_its_own_loop() {
    inside_its_loop embed
}

a_program_trains_in_a_loop_of_epoll() {
    inside_its_loop epoll_host
    like "$out" '^epoch [0-9]+, step [0-9]+' "and it gets the progress"
}

a_program_trains_in_a_loop_of_libuv() {
    if [ ! -x "$builddir/examples/libuv_host" ]; then
        skip "configure has found no libuv"
        return
    fi
    inside_its_loop libuv_host
    like "$out" '^epoch [0-9]+, step [0-9]+' "and it gets the progress"
}

# Where runs are to lie is a file.
a_run_that_fails_fails_its_program() {
    mkdir full && : >full/runs
    for program in embed epoll_host libuv_host; do
        [ -x "$builddir/examples/$program" ] || continue
        try env -C full "$builddir/examples/$program"
        is "$status" 1 "$program"
        like "$err" "^$program: .*runs" "says why"
        is "$(grep val_acc <<<"$out")" "" "and no accuracy"
    done
}

# "800 steps; accuracy before 0.97, just after 0.22, at the end 0.96"
a_program_learns_from_a_stream_that_drifts() {
    try "$builddir/examples/online_learning"
    is "$status$err" 0 "it ends well"
    read -r steps before after end < <(sed -nE 's/^([0-9]+) steps.* ([0-9.]+),.* ([0-9.]+),.* ([0-9.]+)$/\1 \2 \3 \4/p' <<<"$out")
    is "$steps" 400 "each batch was a lesson"
    ok "it knows the first meaning" at_least "$before" 0.9
    ok "not the second at once" at_least 0.7 "$after"
    ok "but at last" at_least "$end" 0.9
    try "$builddir/examples/online_learning" still
    is "$status$err" 0 "one that learns no more continues, too"
    ok "and does not come back" at_least 0.7 "${out##* }"
    if [ -w /dev/full ]; then
        "$builddir/examples/online_learning" >/dev/full 2>err
        is "$?$(cat err)" "1online_learning: standard output cannot be written" "a full disk is no success"
    fi
}

wrong_arguments_are_refused() {
    for program in embed epoll_host libuv_host online_learning; do
        [ -x "$builddir/examples/$program" ] || continue
        try "$builddir/examples/$program" --fast
        is "$status" 1 "$program --fast"
        like "$err" "^$program: (unexpected|unknown) argument --fast(:|$)" "says which"
    done
    try "$builddir/examples/online_learning" still more
    like "$status $err" '^1 online_learning: unknown argument more: ' "one too many"
}

# Rings around each other: no straight line tells them apart.
rings() {
    awk 'BEGIN {
        print "a,b,label"
        for (i = 0; i < 400; i++) {
            angle = i * 2.399; radius = i % 2 ? 1 : 2.5
            printf "%.4f,%.4f,%d\n", radius * cos(angle), radius * sin(angle), i % 2
        }
    }'
}

a_model_with_a_users_operator_learns() {
    rings >rings.csv
    printf '{"module": "swish", "data": {"name": "csv", "path": "rings.csv", "val_split": 0.2},
        "optimizer": {"name": "adamw", "lr": 0.02}, "trainer": {"max_epochs": 40}}' >rings.json
    for run in first second; do
        try "$paceline" fit rings.json --set trainer.default_root_dir="$run"
        is "$status" 0 "it trains with its shared object"
        ok "to val_acc 0.95" at_least "$(metric val_acc)" 0.95
    done
    ok "and twice the same weights" cmp first/0001/model.safetensors second/0001/model.safetensors
    try "$paceline" list operators
    like "$out" '^swish - x sigmoid' "it is listed by name"
}

a_users_callback_stops_a_run() {
    rings >rings.csv
    printf '{"module": "swish", "data": {"name": "csv", "path": "rings.csv", "val_split": 0.2},
        "optimizer": {"name": "adamw", "lr": 0.003}, "trainer": {"max_epochs": 40, "log_every_n_steps": 1},
        "callbacks": [{"name": "goal", "value": 0.9, "near": 0.3}]}' >goal.json
    try "$paceline" fit goal.json --set trainer.default_root_dir=goal
    is "$status" 0 "it trains"
    like "$out" '^stopped after [0-9] epoch' "until the metric is good enough"
    ok "as it is then" at_least "$(metric val_acc)" 0.9
    ok "what is left is logged" grep -q '"goal_left":' goal/0001/metrics.jsonl
    ok "and the rate fell once" test "$(grep -o '"lr-adamw":[0-9.]*' goal/0001/metrics.jsonl | sort -u | wc -l)" -eq 2
}

# Two sides against each other: after some epochs the points are where the data's are.
a_gan_learns() {
    for run in first second; do
        try "$paceline" fit "$srcdir/examples/mixture-gan.json" --set trainer.default_root_dir="gan-$run"
        is "$status" 0 "it trains"
    done
    ok "7 of 8 modes are hit" at_least "$(metric val_modes)" 7
    ok "by points near them" at_least "$(metric val_near)" 0.6
    local file="$srcdir/examples/mixture-gan.json"
    try "$paceline" validate "$file" --checkpoint gan-first/0001
    is "$status" 0 "the generator alone is validated"
    ok "and as good as it was" at_least "$(metric val_modes)" 7
    try "$paceline" test "$file" --checkpoint gan-first/0001/model.safetensors
    is "$status" 0 "tested"
    try "$paceline" predict gan-first/0001/run.json --checkpoint gan-first/latest --output points.npy
    is "$status" 0 "and predicts, as the run's own file says it"
    ok "and twice the same weights" cmp gan-first/0001/model.safetensors gan-second/0001/model.safetensors
}

run every_run_file_is_accepted
run a_users_callback_stops_a_run
run a_model_with_a_users_operator_learns trains
run a_gan_learns trains
run digits_are_learnt_in_seconds trains
run a_program_trains_inside_its_own_loop trains
run a_program_trains_in_a_loop_of_epoll trains
run a_program_trains_in_a_loop_of_libuv trains
run a_program_learns_from_a_stream_that_drifts trains
run a_run_that_fails_fails_its_program trains
run wrong_arguments_are_refused
done_testing
