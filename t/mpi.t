#!/usr/bin/env bash
# mpi.t - tests of the collective mpi, under the mpirun of the MPI that it was built with; all is skipped where there is none
. "$(dirname "$0")/tap.sh"

rank=$builddir/t/collective_mpi
export PACELINE_PLUGIN_PATH=$builddir/strategies/collectives/.libs
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl=self,vader

# ranks N WHAT
ranks() {
    try timeout 300 "$mpirun" -n "$1" "$rank" "$2"
}

# Whose ranks find each other: another MPI's mpirun starts each as if it were alone.
mpirun_find() {
    for mpirun in ${MPIRUN:-mpirun mpirun.mpich mpirun.openmpi}; do
        command -v "$mpirun" >/dev/null && ranks 2 size && [ "$out" = 2 ] && return
    done
    return 1
}

every_operation_gives_what_it_should() {
    for n in 1 2 4; do
        ranks $n operations
        is "$status$out" 0 "$n ranks"
    done
}

other_types_are_reduced_too() {
    ranks 2 types
    is "$status$out" 0 "and a maximum with a NaN is one"
}

ranks_with_different_operations_get_an_error() {
    ranks 2 unlike
    is "$out" "" "with each rank's operation"
}

a_missing_rank_is_named() {
    for n in 2 4; do
        rm -f given-up
        ranks $n late                                       # mpirun may complain that they ended so
        is "$(grep -E '^(late|abort)' <<<"$out")" "" "$n ranks"
    done
}

a_process_may_use_it_again() {
    ranks 2 again
    is "$status$out" 0 "in its next run"
}

one_rank_of_a_process_can_use_mpi() {
    ranks 2 two
    is "$status$out" 0 "a second is refused, and a run of another size"
}

without_mpirun_a_run_of_one_rank_works() {
    try timeout 300 "$rank" operations
    is "$status$out" 0 "which is how MPI begins by itself"
}

# metric NAME - of the newest result
metric() {
    grep -oE "\"$1\":[0-9.e-]+" <<<"$out" | tail -n 1 | cut -d: -f2
}

# The same sums in another order: nearly the same bits.
ranks_train_by_it() {
    points '"max_epochs": 3'
    try "$paceline" fit run.json --json --set trainer.run_name=threads --set trainer.devices=4
    local loss=$(metric val_loss)
    PACELINE_ENDPOINT=ipc://$folder/meet PACELINE_PLUGIN_PATH= \
        try timeout 300 "$mpirun" -n 4 "$paceline" fit run.json --json \
        --set trainer.run_name=mpi --set 'trainer.strategy={"name": "ddp", "collective": "mpi"}'
    is "$status" 0 "it trains"
    ok "to what threads do: $loss, $(metric val_loss)" \
        awk -v a="$loss" -v b="$(metric val_loss)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-8) }'
    ok "the manifest says whose order it was" grep -q '"order": *"mpi"' runs/mpi/checkpoints/*/manifest.json
    ok "which of others it does not" test -z "$(grep -l '"order"' runs/threads/checkpoints/*/manifest.json)"
    try "$paceline" fit run.json --resume runs/mpi --set trainer.run_name=mpi --set trainer.max_epochs=4 \
        --set trainer.devices=4 --set trainer.strategy=ddp
    like "$err" '"mpi" determined the order of sums .*now "tree" does' "a run that resumes in another order says so"
}

if [ -x "$rank" ] && mpirun_find; then
    run every_operation_gives_what_it_should
    run other_types_are_reduced_too
    run ranks_with_different_operations_get_an_error
    run a_missing_rank_is_named
    run a_process_may_use_it_again
    run one_rank_of_a_process_can_use_mpi
    run ranks_train_by_it trains
    run without_mpirun_a_run_of_one_rank_works
else
    skip "Paceline was built without MPI, or there is no mpirun of it"
fi
done_testing
