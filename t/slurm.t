#!/usr/bin/env bash
# slurm.t - tests of ranks that Slurm starts, on two nodes that are namespaces of this machine (make check-slurm)
#
# Root runs it; Slurm is installed from Debian's packages where it is not there.  All that is started lives in namespaces
# and a folder of its own and ends with them: no service, port or file of the machine is touched.

packages="slurmctld slurmd slurm-client munge iproute2"

if [ "${1-}" != inside ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "check-slurm needs root: it makes namespaces for two nodes of Slurm, and installs $packages" >&2
        exit 1
    fi
    dpkg-query -W $packages >/dev/null 2>&1 || DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends $packages >&2 || exit 1
    exec unshare --mount --net --uts --pid --fork --kill-child --mount-proc "$0" inside
fi

. "$(dirname "$0")/tap.sh"

# ---- two nodes ----

# until_true WORDS... - or all is over
until_true() {
    for _ in $(seq 300); do
        "$@" && return
        sleep 0.1
    done
    echo "Bail out! not within 30 s: $*"
    tail -n 40 daemons.log >&2
    exit 1
}

has_own_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

# The first is where this runs; the second has a network and a name of its own, kept by a process that sleeps.
make_nodes() {
    printf '127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n' >hosts
    mount --bind hosts /etc/hosts
    unshare --net --uts sleep infinity &
    started=$!
    until_true has_own_network $!
    node2="nsenter --net --uts --target $!"
    ip link add wire1 type veth peer name wire2 netns $!
    hostname node1
    $node2 hostname node2
    ip addr add 10.77.0.1/24 dev wire1
    $node2 ip addr add 10.77.0.2/24 dev wire2
    for end in lo wire1; do ip link set $end up; done
    for end in lo wire2; do $node2 ip link set $end up; done
}

# ---- Slurm ----

configure() {
    mkdir state
    (umask 077 && head -c 128 /dev/urandom >munge.key)
    cat >slurm.conf <<C
ClusterName=paceline
SlurmctldHost=node1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=0
SlurmdParameters=config_overrides
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
NodeName=node[1-2] CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
C
    export SLURM_CONF=$folder/slurm.conf
}

start() {
    "$@" >>daemons.log 2>&1 &
    started+=" $!"
}

is_up() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; }

start_slurm() {
    start munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munged.seed"
    until_true test -S munge.socket
    start slurmctld -D
    start slurmd -D -N node1
    start $node2 slurmd -D -N node2
    until_true is_up
}

stop_all() {
    kill $started
    wait
}

# ---- jobs ----

# submit - a batch job of the script on standard input, two tasks on each node
submit() {
    { echo '#!/bin/sh' && cat; } >script
    rm -f job.out job.err
    job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 -o job.out -e job.err script)
}

has_ended() {
    status=$(scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p')
    [[ $status =~ ^(COMPLETED|FAILED|CANCELLED)$ ]] && is_up
}

end_of_job() {
    until_true has_ended
    out=$(cat job.out) err=$(cat job.err)
}

# task K - the process of that task
task() {
    grep -lzx "SLURM_PROCID=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
}

same_bits() {
    ok "$1: the bits of 4 threads" cmp runs/inline/model.safetensors "runs/$1/model.safetensors"
}

# ---- tests ----

srun_starts_ranks() {
    try timeout 300 srun --nodes=2 --ntasks-per-node=2 paceline fit run.json --set trainer.run_name=srun
    is "$status" 0 "status 0"
    like "$err" 'rank 3 of 4, set by Slurm; the ranks connect at tcp://node1:150' "by Slurm's variables"
    like "$err" 'tcp between 2 machines, with shm on each' "two nodes of two"
    is "$(grep -c '^done' <<<"$out")" 1 "one of them writes the result"
    same_bits srun
}

steps_of_a_batch_job_are_ranks() {
    submit <<'J'
srun paceline fit run.json --set trainer.run_name=first
srun paceline fit run.json --set trainer.run_name=second
J
    end_of_job
    is "$status" COMPLETED "the job is well"
    same_bits first
    same_bits second
}

a_batch_script_is_no_rank() {
    submit <<<'paceline fit run.json'
    end_of_job
    is "$status" FAILED "it is refused"
    like "$err" '4 tasks .*but this process is not one of them: start it with srun' "with a remedy"
    submit <<<'paceline fit run.json --set trainer.run_name=inside --set trainer.launcher=inline --set trainer.devices=4'
    end_of_job
    is "$status" COMPLETED "unless it means to start ranks itself"
    same_bits inside
}

paceline_launch_starts_ranks() {
    submit <<'J'
export head=$(scontrol show hostnames | head -n 1)
srun --ntasks=2 --ntasks-per-node=1 sh -c 'exec paceline launch --nnodes 2 --node-rank $SLURM_NODEID --devices 2 \
    --rdzv-endpoint $head:15000 --job-key job.key -- paceline fit run.json --set trainer.run_name=launched'
J
    end_of_job
    is "$status" COMPLETED "the job is well"
    like "$err" '^rank 0: .*rank 0 of 4, set by Paceline' "which tells ranks their place"
    same_bits launched
}

a_task_that_is_killed_fails_the_job_by_name() {
    submit <<<'srun paceline fit run.json --set trainer.max_epochs=-1 --set trainer.run_name=killed'
    until_true test -s runs/killed/metrics.jsonl
    kill -KILL "$(task 2)"
    end_of_job
    is "$status" FAILED "the job failed"
    like "$err" '^paceline: rank 2 \(node2 process [0-9]+\) is gone after step [0-9]+' "the error names the rank and its step"
}

scancel_saves_the_run() {
    submit <<<'srun paceline fit run.json --set trainer.max_epochs=-1 --set trainer.run_name=cancelled'
    until_true test -s runs/cancelled/metrics.jsonl
    scancel "$job"
    end_of_job
    is "$status" CANCELLED "the job is cancelled"
    ok "with its state" test -s runs/cancelled/checkpoints/stopped/manifest.json
    try timeout 300 srun --nodes=2 --ntasks-per-node=2 paceline fit run.json --resume runs/cancelled
    is "$status" 0 "another job resumes"
    like "$err" 'resuming after step [0-9]+: runs/cancelled/checkpoints/' "from there"
}

export PATH=$builddir:$PATH PACELINE_JOB_KEY_FILE=$folder/job.key
points
make_nodes
configure
start_slurm
paceline launch --job-key job.key -- true
paceline fit run.json --set trainer.run_name=inline --set trainer.devices=4 >inline.out 2>inline.err
run srun_starts_ranks trains
run steps_of_a_batch_job_are_ranks trains
run a_batch_script_is_no_rank trains
run paceline_launch_starts_ranks trains
run a_task_that_is_killed_fails_the_job_by_name trains
run scancel_saves_the_run trains
stop_all
done_testing
