#!/usr/bin/env bash
# node_faults.t - tests of ranks that another launcher has started, with faults of networks, processes and unknown peers
. "$(dirname "$0")/tap.sh"

points '' '{"name": "model_checkpoint", "every_n_train_steps": 30}'
tcp='trainer.strategy={"name":"ddp","collective":"tcp"}'
endless="--set trainer.max_epochs=-1"

# ---- helpers ----

sample_plugin=$builddir/t/.libs/sample_plugin.so

declare -A writer                               # of status.NAME: a process

# start NAME WORDS...: in the background; out.NAME, err.NAME, status.NAME when it has ended, and pid.NAME.  One of that
# name that was started before has written its status by then.
start() {
    [ -z "${writer[$1]-}" ] || wait "${writer[$1]}"
    rm -f "pid.$1" "status.$1"
    {
        exec 2>/dev/null                        # the shell reports killed processes
        timeout -k 5 300 sh -c 'echo $$ >"pid.$0"; exec "$@"' "$@" >"out.$1" 2>"err.$1" </dev/null
        echo $? >"status.$1"
    } &
    writer[$1]=$!
    until [ -s "pid.$1" ]; do sleep 0.01; done
}

# start_rank NAME JOB K WORDS...: the words as rank K of two of that job
start_rank() {
    start "$1" env TORCHELASTIC_RUN_ID="$2" RANK="$3" LOCAL_RANK="$3" WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$paceline" fit run.json "${@:4}"
}

# A signal to what was started.
signal() { kill "-$1" "$(cat "pid.$2")"; }

ended() { [ -s "status.$1" ]; }

says() { grep -qsE -- "$2" "$1"; }

# has_trained RUN STEPS - so many and more
has_trained() {
    local step
    step=$(grep -so '"global_step": *[0-9]*' "runs/$1/metrics.jsonl" | tail -n 1)
    [ "${step##*[!0-9]}" -ge "$2" ] 2>/dev/null
}

# ---- partitions ----

# Two networks with a wire between; all in them ends with this shell.
networks_make() {
    near=pl-$1-a-$$ far=pl-$1-b-$$
    ip netns add "$near" 2>/dev/null || return 1
    ip netns add "$far"
    ip link add "a$$" netns "$near" type veth peer name "b$$" netns "$far"
    ip -n "$near" addr add 10.77.0.1/24 dev "a$$"
    ip -n "$far" addr add 10.77.0.2/24 dev "b$$"
    for n in "$near lo" "$near a$$" "$far lo" "$far b$$"; do ip -n ${n% *} link set ${n#* } up; done
}

# start_nodes RESTARTS WORDS...: an endless fit of two nodes; the words start the second
start_nodes() {
    local k space
    for k in 0 1; do
        [ $k = 0 ] && space=($near) || space=($far "${@:2}")
        start $k ip netns exec "${space[@]}" "$paceline" launch --nnodes 2 --node-rank $k --max-restarts "$1" \
            --rdzv-endpoint 10.77.0.1:15000 --job-key job.key -- "$paceline" fit run.json \
            --set trainer.run_name=nodes $endless
    done
}

# Packets to an unused address are lost: one direction is cut so, or both.
cut_wire() {
    [ "$1" = far ] || ip -n "$near" neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev "a$$" nud permanent
    [ "$1" = near ] || ip -n "$far" neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev "b$$" nud permanent
}

mend_wire() {
    ip -n "$near" neigh del 10.77.0.2 dev "a$$"
    ip -n "$far" neigh del 10.77.0.1 dev "b$$"
} 2>/dev/null

# cut_off KIND - in a folder of its own: a run without restarts whose wire is cut for good, in the direction KIND; or a
# run with restarts whose wire is cut in both directions for KIND seconds
cut_off() {
    mkdir "$1" && cd "$1" && ln -s ../points.csv ../run.json . && networks_make "$1" || return
    trap 'ip netns del "$near"; ip netns del "$far"' EXIT
    case $1 in
    near | far) start_nodes 0 ;;
    *) start_nodes 3 ;;
    esac
    holds 40 has_trained nodes 40 || return
    local begun=$SECONDS
    case $1 in
    near | far)
        cut_wire "$1"
        holds 40 ended 0 && holds 40 ended 1
        echo $((SECONDS - begun)) >seconds
        ;;
    *)
        cut_wire both
        sleep "$1"
        mend_wire
        [ "$1" = 1 ] || holds 40 says err.0 'resuming after step'
        continues_to_its_end
        local steps
        steps=$(sed -n 's/.*, \([0-9]*\) steps* in .*/\1/p' out.0)
        "$paceline" fit run.json --set trainer.devices=2 --set trainer.run_name=whole --set trainer.max_epochs=-1 \
            --set trainer.max_steps="$steps" >whole.out 2>whole.err
        ;;
    esac
}

continues_to_its_end() {
    local lines
    lines=$(grep -c . runs/nodes/metrics.jsonl)
    holds 30 has_trained nodes $((lines * 6 + 60)) && touch continues
    signal TERM 0
    holds 30 ended 0 && holds 30 ended 1
}

# Without the header, which has the epochs that are over: none is where a stop came before its validation.
weights() { tail -c 396 "$1/model.safetensors"; }

steps_once() {
    ! grep '"train_loss"' "$1" | grep -o '"global_step": *[0-9]*' | sort | uniq -d | grep -q .
}

partitions_are_noticed_on_both_sides() {
    ip netns add "pl-$$" 2>/dev/null || { skip "network namespaces need root"; return; }
    ip netns del "pl-$$"
    if ! "$paceline" launch --job-key try.key -- true 2>/dev/null; then skip "there is no libsodium"; return; fi
    local kind
    for kind in near far 1 4 6 20; do (cut_off $kind) & done
    wait
    if grep -qs 'built without libsodium' near/err.0; then skip "there is no libsodium"; return; fi
    for kind in near far; do
        like "$(cat $kind/status.0 $kind/status.1 | tr '\n' ' ')" '^(1|75) (1|75) $' \
            "cut ($kind): both sides fail, with an error or as their rank has lost another"
        like "$(text $kind/err.0)" 'paceline: (node 1 \(.*\): it is gone|rank 1 \(.*\) is gone after step [0-9]+): ' \
            "node 0 names the lost node or rank"
        like "$(text $kind/err.1)" 'paceline: (node 0 is gone|rank 1: .*lease has expired)' "the other ends itself"
        ok "in $(cat $kind/seconds) s" test "$(cat $kind/seconds)" -lt 40
        ok "no step was logged twice" steps_once $kind/runs/nodes/metrics.jsonl
    done
    for kind in 1 4 6 20; do
        ok "cut for $kind s: the run continues" test -e "$kind/continues"
        is "$(cat "$kind/status.0" "$kind/status.1" | tr -d '\n')" 00 "both sides end well: $(tail -n 3 "$kind/err.0")"
        ok "no step is logged twice" steps_once "$kind/runs/nodes/metrics.jsonl"
        ok "the weights equal those of an uninterrupted run" \
            cmp <(weights "$kind/runs/whole") <(weights "$kind/runs/nodes")
        if [ "$kind" = 1 ]; then
            is "$(grep -c 'started again' 1/err.0)" 0 "no rank is started again"
        else
            is "$(grep -c 'all ranks are started again (1 of 3)' "$kind/err.0")" 1 "node 0 starts all ranks again once"
            like "$(text "$kind/err.1")" 'node 0 is gone: no data .* for 3.7 s: .*; waiting for it to return' \
                "node 1 notices the cut and waits for node 0"
        fi
    done
}

# filter KIND PORTS - the near node takes no connections at these ports any more: packets are dropped (blackhole) or
# rejected by ICMP (prohibit)
filter() {
    ip netns exec "$near" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    ip -n "$near" rule add pref 200 lookup local
    ip -n "$near" rule del pref 0
    ip -n "$near" rule add pref 100 iif "a$$" ipproto tcp dport "$2" "$1"
}

# start_apart K WORDS...: rank K of two, each on a node of its own
start_apart() {
    local space=$near
    [ "$1" = 0 ] || space=$far
    start "$1" ip netns exec "$space" env TORCHELASTIC_RUN_ID=job RANK="$1" LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 \
        GROUP_RANK="$1" MASTER_ADDR=10.77.0.1 MASTER_PORT=15000 PACELINE_JOB_KEY_FILE=job.key \
        "$paceline" fit run.json "${@:2}"
}

# unreachable KIND CASE - in a folder of its own: ranks that cannot reach each other, at the rendezvous, for what is sent
# in bulk, or for what they exchange
unreachable() {
    mkdir "$1-$2" && cd "$1-$2" && ln -s ../points.csv ../run.json ../job.key . && networks_make "$1-$2" || return
    trap 'ip netns del "$near"; ip netns del "$far"' EXIT
    local k set=(--set 'trainer.strategy={"name":"ddp","collective":{"name":"tcp","port":16000}}')
    case $2 in
    rendezvous | bulk) set+=(--set 'trainer.launcher={"name":"external","join_timeout":2}') ;;
    exchange) set+=(--set trainer.step_timeout=2) ;;
    esac
    case $2 in
    rendezvous) filter "$1" 15000 ;;
    bulk) filter "$1" 32768-60999 ;;
    *) filter "$1" 16000 ;;
    esac
    for k in 0 1; do start_apart $k "${set[@]}" --set trainer.run_name=apart; done
    if [[ $2 = stop* ]]; then
        holds 40 ports_are_open 16000 && holds 40 says err.1 'rank 1 of 2' || return
        signal TERM "${2#stop}"
    fi
    holds 40 ended 0 && holds 40 ended 1 && touch over
}

# Both ranks listen there, each on its node.
ports_are_open() {
    ip netns exec "$near" grep -q ":$(printf %04X "$1") " /proc/net/tcp \
        && ip netns exec "$far" grep -q ":$(printf %04X "$1") " /proc/net/tcp
}

ranks_that_cannot_reach_each_other_have_a_limit() {
    ip netns add "pl-$$" 2>/dev/null || { skip "network namespaces need root"; return; }
    if ! ip -n "pl-$$" rule add ipproto tcp dport 1-2 prohibit 2>/dev/null; then
        ip netns del "pl-$$"
        skip "the kernel has no rules by port"
        return
    fi
    ip netns del "pl-$$"
    if ! "$paceline" launch --job-key job.key -- true 2>/dev/null; then skip "there is no libsodium"; return; fi
    local kind case
    for case in blackhole-exchange blackhole-rendezvous blackhole-bulk blackhole-stop0 blackhole-stop1 \
        prohibit-exchange prohibit-rendezvous; do
        (unreachable ${case%-*} ${case#*-}) &
    done
    wait
    for kind in blackhole prohibit; do
        ok "$kind: ranks that have joined and do not meet end" test -e $kind-exchange/over
        like "$(text $kind-exchange/err.0)" \
            'paceline: rank [01].* rank [01] at 10\.77\.0\.[12], port 16000: ' "with where they look for each other"
        ok "$kind: ranks that do not reach the rendezvous end" test -e $kind-rendezvous/over
        like "$(text $kind-rendezvous/err.0)" 'not joined within 2 s at tcp://.*:15000: rank 1' "rank 0 names the missing rank"
        like "$(text $kind-rendezvous/err.1)" \
            'rank 1 could not connect to rank 0 at tcp://10\.77\.0\.1:15000 for [12]' "rank 1 where it looks"
    done
    # One direction is blocked: which rank notices first decides the reason.
    like "$(text blackhole-exchange/err.0)" \
        'it does not answer; is there a firewall|it accepts the connection and sends nothing' "with a reason"
    ok "ranks that have no link for bulk end" test -e blackhole-bulk/over
    like "$(text blackhole-bulk/err.1)" \
        'rank 1 could not connect to rank 0 at tcp://10\.77\.0\.1:[0-9]+ for [12]' "and say so"
    ok "no word of keys" eval '! grep -q "job key" */err.[01]'
    for case in 0 1; do
        ok "ranks that do not meet stop when rank $case gets a signal" test -e blackhole-stop$case/over
        like "$(text blackhole-stop$case/err.0)" \
            'stopped before the first step \(.*SIGTERM.*\), while connecting to the other ranks' "and say so"
    done
}

# asks_name_server NAME - the process has a socket to port 53
asks_name_server() { grep -q ':0035 ' "/proc/$(cat "pid.$1")/net/udp"; }

a_stop_ends_the_look_up_of_a_name() {
    printf 'nameserver 10.99.0.2\noptions timeout:30\n' >resolv.conf
    cat >apart.sh <<-'END'
	mount --bind resolv.conf /etc/resolv.conf && ip link add near0 type veth peer name far0 &&
	    ip addr add 10.99.0.1/24 dev near0 && ip link set near0 up && ip link set far0 up &&
	    ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev near0 && exec "$@"
	END
    local apart=(unshare --mount --net sh apart.sh)
    "${apart[@]}" true 2>/dev/null || { skip "network namespaces need root"; return; }
    if ! "$paceline" launch --job-key job.key -- true 2>/dev/null; then skip "there is no libsodium"; return; fi
    local k
    for k in 0 1; do
        start $k "${apart[@]}" env RANK=$k WORLD_SIZE=2 MASTER_ADDR=node0.example MASTER_PORT=15000 \
            PACELINE_JOB_KEY_FILE=job.key "$paceline" fit run.json
    done
    start 2 "${apart[@]}" "$paceline" launch --nnodes 2 --node-rank 1 --rdzv-endpoint node0.example:15000 --job-key job.key -- true
    ok "a rank looks up where they connect" holds 20 says err.0 'rank 0 of 2.*node0'
    ok "and another" holds 20 says err.1 'rank 1 of 2.*node0'
    for k in 0 1 2; do ok "process $k asks the name server" holds 20 asks_name_server $k; done
    for k in 0 1 2; do signal TERM $k; done
    for k in 0 1 2; do ok "a stop ends that long before the name server's limit of 30 s" holds 10 ended $k; done
    like "$(text err.0)" 'had not answered for the rendezvous tcp://node0\.example:15000' "with the reason"
    like "$(text err.1)" 'rank 1: stopped before it joined' "and of the other"
    start 1 "${apart[@]}" env RANK=1 WORLD_SIZE=2 MASTER_ADDR=node0.example MASTER_PORT=15000 \
        PACELINE_JOB_KEY_FILE=job.key "$paceline" fit run.json \
        --set 'trainer.launcher={"name":"external","join_timeout":1}'
    start 2 "${apart[@]}" "$paceline" launch --nnodes 2 --node-rank 1 --rdzv-endpoint node0.example:15000 --job-key job.key \
        --join-timeout 1 -- true
    for k in 1 2; do
        ok "without a stop the limit to join ends it, 1 s" holds 10 ended $k
        like "$(text err.$k)" 'node0\.example:15000 for .* s: the name server does not answer' "with the reason"
    done
}

# The look-up of the links is the first of rank 1; what would be the second never ends.
a_name_server_that_falls_silent_does_not_stop_a_rank() {
    local cc names=$PWD/names
    read -ra cc <<<"${CC:-cc}"
    if ! command -v "${cc[0]}" >/dev/null || [ -n "$(sanitized)" ]; then
        skip "nothing can be put before the library"
        return
    fi
    if ! "$paceline" launch --job-key names.key -- true 2>/dev/null; then skip "there is no libsodium"; return; fi
    cat >names.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    static int asked;
    int (*find)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&find = dlsym(RTLD_NEXT, "getaddrinfo");
    const int is_name = host && !strcmp(host, "node0.example");
    while (is_name && __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED))
        sleep(1000);
    return find(is_name ? "127.0.0.1" : host, port, hints, found);
}
C
    "${cc[@]}" -shared -fPIC names.c -o names.so -ldl
    local k
    free_port
    for k in 0 1; do
        start $k env LD_PRELOAD="$names.so" RANK=$k WORLD_SIZE=2 MASTER_ADDR=node0.example MASTER_PORT="$port" \
            PACELINE_JOB_KEY_FILE=names.key "$paceline" fit run.json --set trainer.max_epochs=2 \
            --set trainer.strategy=ddp --set trainer.run_name=names
    done
    for k in 0 1; do
        ok "rank $k ends" holds 30 ended $k
        is "$(text status.$k)" 0 "in order"
    done
}

# apart - in a folder of its own: a run whose second node has processes that cannot be seen from the first; its rank is
# killed
apart() {
    mkdir apart && cd apart && ln -s ../points.csv ../run.json . && networks_make apart || return
    trap 'ip netns del "$near"; ip netns del "$far"' EXIT
    start_nodes 0 unshare --pid --fork --kill-child --mount-proc
    holds 40 has_trained nodes 12 || return
    local node
    node=$(cat /proc/"$(cat pid.1)"/task/*/children)
    cat /proc/${node% }/task/*/children >victim
    kill -KILL $(cat victim)
    holds 40 says err.0 'rank 1: warning: proxy: .*the connection has ended' && touch noticed
    holds 30 ended 0 && holds 30 ended 1 && touch over
}

a_process_of_another_machine_that_is_killed_is_named() {
    ip netns add "pl-$$" 2>/dev/null || { skip "network namespaces need root"; return; }
    ip netns del "pl-$$"
    if ! unshare --pid --fork --kill-child --mount-proc true; then skip "there are no more namespaces"; return; fi
    if ! "$paceline" launch --job-key try.key -- true 2>/dev/null; then skip "there is no libsodium"; return; fi
    (apart)
    ok "it is noticed" test -e apart/noticed
    ok "both nodes end" test -e apart/over
    like "$(text apart/err.0)" 'paceline: node 1 \(.*\): rank 1 \(process [0-9]+\) was killed by SIGKILL' "as is said"
    like "$(text apart/err.0)" 'rank 1 \(.*\) is gone after step [0-9]+: ' "and after which step"
    ok "by a number that it does not have here" eval '! grep -qE "process $(tr -d " " <apart/victim)\>" apart/err.0'
}

# ---- processes ----

# With the same job at the same address: only the processes differ.
a_rank_that_wakes_too_late_is_fenced() {
    free_port
    local quick="--set trainer.step_timeout=1"
    start_rank 0 job 0 $endless $quick --set trainer.run_name=asleep
    start_rank stale job 1 $endless $quick
    ok "two ranks train" holds 30 has_trained asleep 12
    signal STOP stale
    ok "when one sleeps" holds 40 ended 0
    is "$(text status.0)" 1 "the run fails"
    like "$(text err.0)" 'paceline: rank 1 .*(no sign of life for 1 s|is gone after step)' "and names it"
    start_rank 0 job 0 --set trainer.run_name=awake
    ok "another begins" holds 30 says err.0 'the ranks connect at'
    signal CONT stale
    ok "the one that slept" holds 30 ended stale
    is "$(text status.stale)" 1 "has failed"
    like "$(text err.stale)" 'paceline: rank 1.*(lease has expired|another launcher replies|was disconnected)' "and knows why"
    start_rank 1 job 1
    ok "the other" holds 30 ended 0
    ok "trains as if it had never been" cmp "$(inline_model 2)" runs/awake/model.safetensors
}

# As a scheduler does, or a paused container: for longer than a lease, and than the silence of a connection.
a_suspended_job_continues() {
    free_port
    local k steps
    for k in 0 1; do start_rank $k job $k $endless --set "$tcp" --set trainer.run_name=suspended; done
    ok "two ranks train" holds 30 has_trained suspended 12
    for k in 0 1; do signal STOP $k; done
    sleep 6
    for k in 1 0; do signal CONT $k; done
    local lines
    lines=$(grep -c . runs/suspended/metrics.jsonl)
    ok "after 6 s in which they are stopped they continue" holds 30 has_trained suspended $((lines * 6 + 60))
    signal TERM 0
    ok "one ends" holds 30 ended 0
    ok "and the other" holds 30 ended 1
    is "$(cat status.0 status.1 | tr -d '\n')" 00 "well: $(tail -n 3 err.0 err.1)"
    steps=$(sed -n 's/.*, \([0-9]*\) steps* in .*/\1/p' out.0)
    "$paceline" fit run.json --set trainer.devices=2 --set trainer.run_name=resumed $endless \
        --set trainer.max_steps="$steps" >whole.out 2>whole.err
    ok "with the bits of a run that was not suspended" cmp <(weights runs/resumed) <(weights runs/suspended)
}

two_jobs_do_not_meet_at_one_port() {
    free_port
    start_rank 0 first 0 --set trainer.run_name=first
    ok "a job waits" holds 30 says err.0 'the ranks connect at'
    holds 30 listens
    start_rank second second 0
    ok "a second one" holds 30 ended second
    is "$(text status.second)" 1 "is refused"
    like "$(text err.second)" "127.0.0.1:$port is in use by process $(text pid.0):" "with the process that is there"
    start_rank lost second 1
    ok "and a rank of that" holds 30 ended lost
    like "$(text err.lost)" 'rank 1 is refused: it belongs to another run' "too"
    start_rank 1 first 1
    ok "the first" holds 30 ended 0
    ok "on both ranks" holds 30 ended 1
    ok "trains as if they had never been" cmp "$(inline_model 2)" runs/first/model.safetensors
}

# Ranks of one machine watch each other's processes; ranks of others notice that a connection is cut.
a_process_that_is_killed_ends_the_run_of_all() {
    local k other
    for k in 0 1; do
        other=$((1 - k))
        free_port
        start_rank 0 job 0 $endless --set trainer.run_name=killed-$k
        start_rank 1 job 1 $endless
        ok "rank $k of two that train" holds 30 has_trained killed-$k 12
        signal KILL $k
        ok "dies, and the other ends at once" holds 2 ended $other
        is "$(text status.$other)" 1 "with an error"
        [ $k = 1 ] || like "$(text err.1)" "paceline: rank 1: rank 0's process has died, after step [0-9]+" \
            "which names the rank"
    done
    like "$(text err.0)" 'paceline: rank 1 \(.* process [0-9]+\) is gone after step [0-9]+: its process has died' \
        "which names the rank"
}

# No other rank comes, and without a signal they would wait for a minute.
ranks_that_wait_for_others_stop_at_once() {
    local k
    for k in 0 1; do
        free_port
        start_rank $k job $k
        ok "rank $k waits for another" holds 30 says err.$k 'the ranks connect at'
        signal TERM $k
        ok "and ends by a signal" holds 20 ended $k
        like "$(text err.$k)" 'stopped before (all ranks had joined \(SIGTERM\)|it joined the other ranks)' "and says so"
        is "$(text status.$k)" 1 "as nothing was done"
    done
}

a_rank_that_dies_before_all_have_joined_ends_the_launch() {
    start node "$paceline" launch --max-restarts 0 --devices 3 -- sh -c '[ $PACELINE_RANK != 1 ] || kill -KILL $$; exec "$0" "$@"' \
        "$paceline" fit run.json
    ok "the others do not wait for it" holds 20 ended node
    like "$(text err.node)" 'paceline: rank 1 \(process [0-9]+\) was killed by SIGKILL' "the error names it"
}

# ---- signals to paceline launch ----

# start_launch NAME NODES K SCRIPT - node K of so many with one rank each (one node has two ranks), which write their
# numbers to NAME.RANK and do not take SIGTERM
start_launch() {
    local nodes=(--devices 2)
    [ "$2" = 1 ] || nodes=(--nnodes "$2" --node-rank "$3" --rdzv-endpoint "127.0.0.1:$port")
    start "$1-$3" "$paceline" launch "${nodes[@]}" --last-call-timeout 0.2 -- \
        sh -c 'trap "" TERM INT; echo $$ >"$0.$PACELINE_RANK"; '"$4" "$1"
}

endures='for k in $(seq 200); do sleep 1; done'

has_two_ranks() { [ -s "$1.0" ] && [ -s "$1.1" ]; }

ranks_that_do_not_end_are_killed_after_30_s() {
    local name k begun
    start_launch one 1 0 "$endures"
    for name in first second; do
        free_port
        for k in 0 1; do start_launch $name 2 $k "$endures"; done
    done
    for name in one first second; do ok "$name: two ranks run" holds 30 has_two_ranks $name; done
    begun=$SECONDS
    signal TERM one-0
    signal TERM first-0
    signal TERM second-1
    for name in one-0 first-0 first-1 second-0 second-1; do
        ok "$name: its launch ends" holds 60 ended $name
        is "$(text status.$name)" 137 "with the status of ranks that were killed"
        is "$(grep -c 'started again' err.$name)" 0 "they are not started again"
    done
    ok "after $((SECONDS - begun)) s" test $((SECONDS - begun)) -ge 29
    for name in one first second; do ok "$name: no rank is left" holds 5 gone $(cat $name.0 $name.1); done
}

a_second_signal_kills_all_ranks_at_once() {
    local name k
    free_port
    start_launch abort 1 0 "$endures"
    for k in 0 1; do start_launch aborts 2 $k "$endures"; done
    for name in abort aborts; do
        ok "two ranks run" holds 30 has_two_ranks $name
        until says err.$name-0 'aborted: the ranks are killed' || ended $name-0; do signal INT $name-0; sleep 0.1; done
        for k in 0 1; do
            [ $name-$k != abort-1 ] || continue
            ok "$name: its launch ends" holds 15 ended $name-$k
            is "$(text status.$name-$k)" 130 "with status 130"
        done
        ok "no rank is left" holds 5 gone $(cat $name.0 $name.1)
    done
}

a_stopped_rank_takes_a_signal() {
    start_launch stopped 1 0 'trap - TERM; kill -STOP $$'
    ok "two ranks run" holds 30 has_two_ranks stopped
    ok "and are stopped" holds 30 is_stopped $(cat stopped.0 stopped.1)
    signal TERM stopped-0
    ok "their launch ends" holds 15 ended stopped-0
    is "$(text status.stopped-0)" 143 "with the status of ranks that took the signal"
}

is_stopped() {
    local process
    for process in "$@"; do grep -q '^State:.*stopped' "/proc/$process/status" || return; done
}

a_node_that_joins_during_a_stop_changes_nothing() {
    local k
    free_port
    start_launch polite 1:2 0 'trap "echo term >>terms" TERM; until [ -e go ]; do sleep 0.02; done'
    ok "a rank runs" holds 30 test -s polite.0
    signal TERM polite-0
    ok "it has received a signal" holds 30 test -s terms
    start_launch polite 1:2 1 :
    ok "another node joins" holds 30 says err.polite-0 'node 1 .* has joined: the run is being stopped'
    touch go
    for k in 0 1; do
        ok "node $k ends" holds 30 ended polite-$k
        is "$(text status.polite-$k)" 0 "well"
    done
    is "$(grep -c term terms)" 1 "the rank got no second signal"
    ok "the other node has started none" test ! -e polite.1
}

a_rank_that_is_stopped_ends_the_launch() {
    start node "$paceline" launch --max-restarts 0 --devices 2 -- "$paceline" fit run.json $endless \
        --set trainer.run_name=stopped
    ok "two ranks train" holds 30 has_trained stopped 12
    local rank
    rank=$(children_of_launch 1)
    kill -STOP "$rank"
    ok "one is stopped, and all end" holds 30 ended node
    like "$(text err.node)" 'rank 1 \(.*\) is gone after step [0-9]+: no data for 4.2 s' "as it is silent"
    ok "nothing is left of it" gone "$rank"
}

children_of_launch() {
    local child
    for child in $(cat /proc/"$(cat pid.node)"/task/*/children); do
        [ -z "$1" ] || grep -qzx "PACELINE_RANK=$1" "/proc/$child/environ" || continue
        echo "$child"
    done
}

# The other ranks wait for a data set that never opens: the failure is reported before they have ended.
a_rank_that_dies_while_all_open_their_data_is_reported_at_once() {
    local k rank
    [ -e "$sample_plugin" ] || { skip "the sample plug-in was not built"; return; }
    for k in 0 1; do
        start node "$paceline" launch --max-restarts 0 --devices 2 -- "$paceline" fit run.json \
            --plugin "$sample_plugin" --set 'data={"name": "silent"}' --set trainer.run_name=silent-$k
        ok "two ranks open their data" holds 30 ranks_open_their_data
        rank=$(children_of_launch $k)
        kill -KILL "$rank"
        ok "the death of rank $k is reported" holds 1 says err.node "rank $k .*(killed by SIGKILL|is gone)"
        ok "all end" holds 30 ended node
        like "$(text err.node)" "paceline: rank $k \(process $rank\) was killed by SIGKILL" "with its end"
    done
}

# One of its threads waits in pause(), as the data set "silent" does.
opens_its_data() {
    grep -qs '^34 ' /proc/"$1"/task/*/syscall || grep -qs pause /proc/"$1"/task/*/wchan
}

ranks_open_their_data() {
    local rank waiting=0
    for rank in $(children_of_launch); do opens_its_data "$rank" && waiting=$((waiting + 1)); done
    [ $waiting = 2 ]
}

a_signal_to_one_rank_stops_the_run() {
    start node "$paceline" launch --devices 2 -- "$paceline" fit run.json $endless --set trainer.run_name=signalled
    ok "two ranks train" holds 30 has_trained signalled 12
    kill -TERM "$(children_of_launch 1)"
    ok "one gets a signal" holds 30 ended node
    is "$(text status.node)" 0 "and the run stops in order"
    like "$(text out.node)" 'rank 1.*SIGTERM|stopped' "as is said"
    ok "saved" test -s runs/signalled/model.safetensors
}

ranks_die_with_their_launch() {
    start node "$paceline" launch --devices 2 -- "$paceline" fit run.json $endless --set trainer.run_name=orphan
    ok "two ranks train" holds 30 has_trained orphan 12
    local ranks
    ranks=$(children_of_launch)
    is "$(wc -w <<<"$ranks")" 2 "there are two processes"
    signal KILL node
    ok "that are gone when it is killed" holds 2 gone $ranks
}

# ---- strangers ----

# The ports that these processes listen at.
ports_of() {
    local process socket
    for process in "$@"; do
        for socket in $(ls -l "/proc/$process/fd" | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p'); do
            awk -v inode="$socket" '$10 == inode && $4 == "0A" { print $2 }' /proc/net/tcp
        done
    done | sed 's/.*://' | sort -u | while read -r number; do echo $((16#$number)); done
}

# flood PORT COUNT - so many connections that stay: silent ones, noise, peers of long ago, greetings that break off
flood() {
    local k fd
    for k in $(seq "$2"); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$1" || return
        case $((k % 4)) in
        1) head -c 300 /dev/urandom >&"$fd" ;;
        2) printf '\001\000\006\000\001old' >&"$fd" ;;
        3) printf '\377\000\000\000\000\000\000\000\001\177\003\000NULL' >&"$fd" ;;
        esac
    done
} 2>/dev/null

memory_kb() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"; }

# A sanitizer keeps what was freed for a while, and its shadow is several times the memory.
many_unknown_peers_have_no_effect_on_a_run() {
    local -x ASAN_OPTIONS=${ASAN_OPTIONS-}:quarantine_size_mb=1
    free_port
    start_rank 0 job 0 $endless --set trainer.run_name=flooded
    holds 30 listens
    local floods
    (flood "$port" 200; exec sleep 60) &
    floods=$!
    start_rank 1 job 1 $endless
    ok "ranks meet where strangers crowd" holds 30 has_trained flooded 12
    local before ports k limit=65536
    [ -z "$(sanitized)" ] || limit=$((limit * 4))
    before=$(memory_kb "$(cat pid.0)")
    ports=$(ports_of "$(cat pid.0)" "$(cat pid.1)")
    ok "$(wc -w <<<"$ports") ports are crowded while they train" test "$(wc -w <<<"$ports")" -ge 2
    for k in $ports; do
        (flood "$k" 300; exec sleep 60) &
        floods="$floods $!"
    done
    local lines
    lines=$(grep -c . runs/flooded/metrics.jsonl)
    ok "they continue" holds 20 has_trained flooded $((lines * 6 + 60))
    local after
    after=$(memory_kb "$(cat pid.0)")
    ok "in no more memory ($before KiB, $after)" test "$after" -lt $((before + limit))
    kill $floods
    signal TERM 0
    ok "and stop" holds 30 ended 0
    is "$(text status.0)" 0 "in order"
}

run partitions_are_noticed_on_both_sides trains
run a_process_of_another_machine_that_is_killed_is_named trains
run a_rank_that_wakes_too_late_is_fenced trains
run ranks_that_cannot_reach_each_other_have_a_limit trains
run a_stop_ends_the_look_up_of_a_name trains
run a_name_server_that_falls_silent_does_not_stop_a_rank trains
run a_suspended_job_continues trains
run two_jobs_do_not_meet_at_one_port trains
run a_process_that_is_killed_ends_the_run_of_all trains
run ranks_that_wait_for_others_stop_at_once trains
run a_rank_that_dies_before_all_have_joined_ends_the_launch trains
run ranks_that_do_not_end_are_killed_after_30_s
run a_second_signal_kills_all_ranks_at_once
run a_stopped_rank_takes_a_signal
run a_node_that_joins_during_a_stop_changes_nothing
run a_rank_that_is_stopped_ends_the_launch trains
run a_rank_that_dies_while_all_open_their_data_is_reported_at_once trains
run a_signal_to_one_rank_stops_the_run trains
run ranks_die_with_their_launch trains
run many_unknown_peers_have_no_effect_on_a_run trains
done_testing
