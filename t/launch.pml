/* launch.pml - a model of launch, result, death, restart and fencing, for spin
 *
 * What the launchers promise, in the small: three ranks, of which any two may die or be cut
 * off at any moment.  The trainer gets exactly one answer, rank zero's result or a failure;
 * no rank of an older incarnation commits a checkpoint once a newer incarnation has begun; every call
 * ends and no process waits for ever.
 *
 * A rank that is cut off is not dead.  It continues until its lease runs out, which is before
 * the launcher counts it as gone; here both come as one message on `deaths`.  What it had
 * sent may still arrive, at any later time.
 *
 * Each of UNFENCED, IMPATIENT and HASTY takes one precaution away; spin then finds an error.
 */
#define RANKS    3
#define RESTARTS 1                              /* one more failure ends the run */
#define CRASHES  2

mtype = { JOB, JOINED, RESULT, FAILED, ACK };

chan to_rank[RANKS] = [1] of { mtype, byte };           /* what, incarnation */
chan to_launcher = [6] of { mtype, byte, byte };        /* what, rank, incarnation */
chan late = [1] of { mtype, byte, byte };               /* held back by a cut connection */
chan deaths = [6] of { byte, byte };                    /* rank, incarnation; proven */
chan answers = [2] of { mtype };                        /* to the trainer */

byte incarnation;                                     /* that the launcher is in, from 1 */
byte crashes, restarts;
byte running;                                   /* ranks not proven dead */
byte entered[RANKS];                            /* incarnation whose collective a rank is in */
byte committed;                                 /* newest incarnation that has */
byte committing;                                /* ranks at it */
bool arrived;                                   /* a result is there to be taken */
byte results, failures;                         /* that the trainer got */
bool cut[RANKS], killed[RANKS];

inline may_be_struck()
{
    if
    :: crashes < CRASHES -> crashes++; goto dead
    :: crashes < CRASHES && !cut[me] -> crashes++; cut[me] = true
    :: skip
    fi
}

#define is_over (killed[me] || cut[me])

proctype rank(byte me; byte mine)
{
    mtype what;
    byte at;

    may_be_struck();
    if
    :: !cut[me] -> to_launcher ! JOINED, me, mine
    :: else
    fi;
    do
    :: is_over -> goto dead
    :: to_rank[me] ? what, at ->
        if
        :: at == mine && what == JOB -> break
        :: else
        fi
    od;
    may_be_struck();

    /* A step: a collective that all enter, given up when a rank is gone. */
    entered[me] = mine;
    do
    :: entered[0] == mine && entered[1] == mine && entered[2] == mine -> break
    :: is_over -> goto dead
    od;
    may_be_struck();

    if
    :: me == 0 ->
        atomic {
            assert(incarnation == mine);
            committing++;
            assert(committing == 1)
        };
        if
        :: crashes < CRASHES -> crashes++; committing--; goto dead
        :: skip
        fi;
        atomic {
            assert(mine >= committed);
            committed = mine;
            committing--
        };
        if
        :: !cut[me] -> atomic { to_launcher ! RESULT, me, mine; arrived = true }
        :: else -> late ! RESULT, me, mine; goto dead
        fi;
        may_be_struck()                         /* killed right after sending */
    :: else
    fi;
    do
    :: is_over -> break
    :: to_rank[me] ? what, at ->
        if
        :: at == mine && what == ACK -> break
        :: else
        fi
    od;
dead:
    deaths ! me, mine
}

/* A connection is made again: what it held back comes. */
active proctype network()
{
    mtype what;
    byte peer, at;
end:
    do
    :: late ? what, peer, at -> to_launcher ! what, peer, at
    od
}

inline tell_all(message)
{
    k = 0;
    do
    :: k < RANKS ->
        if
        :: nfull(to_rank[k]) -> to_rank[k] ! message, incarnation
        :: full(to_rank[k])                     /* it does not read any more */
        fi;
        k++
    :: else -> break
    od
}

proctype launcher()
{
    byte k, peer, at, joined;
    mtype what;
    bool has_result, has_failed;

again:
    atomic {
        incarnation++;
        joined = 0;
        has_failed = false;
        k = 0;
        do
        :: k < RANKS ->
            killed[k] = false;
            cut[k] = false;
            do
            :: nempty(to_rank[k]) -> to_rank[k] ? what, at
            :: empty(to_rank[k]) -> break
            od;
            run rank(k, incarnation);
            running++;
            k++
        :: else -> break
        od
    };
    do
    :: to_launcher ? what, peer, at ->
        if
#ifndef UNFENCED
        :: at != incarnation
#endif
#ifdef UNFENCED
        :: what == JOINED ->
#else
        :: at == incarnation && what == JOINED ->
#endif
            joined++;
            if
            :: joined == RANKS -> tell_all(JOB)
            :: else
            fi
#ifdef UNFENCED
        :: what == RESULT ->
#else
        :: at == incarnation && what == RESULT ->
#endif
            assert(committed == incarnation);
            has_result = true;
            tell_all(ACK)
        fi
    /* What a rank has sent before it died is taken before its death is. */
#ifdef HASTY
    :: nempty(deaths) ->
#else
    :: empty(to_launcher) && nempty(deaths) ->
#endif
        deaths ? peer, at;
        running--;
        if
        :: !has_result && !has_failed ->        /* the first: all others end */
            has_failed = true;
            k = 0;
            do
            :: k < RANKS -> killed[k] = true; k++
            :: else -> break
            od
        :: else
        fi
#ifdef IMPATIENT
    :: has_failed -> running = 0; break
#elif defined(HASTY)
    :: running == 0 && empty(deaths) -> break
#else
    :: running == 0 && empty(to_launcher) && empty(deaths) -> break
#endif
    od;
    if
    :: has_result -> answers ! RESULT
    :: !has_result && restarts < RESTARTS -> assert(!arrived); restarts++; goto again
    :: !has_result && restarts == RESTARTS -> assert(!arrived); answers ! FAILED
    fi
}

proctype trainer()
{
end:
    do
    :: answers ? RESULT -> results++; assert(results + failures == 1)
    :: answers ? FAILED -> failures++; assert(results + failures == 1)
    od
}

init
{
    atomic {
        run trainer();
        run launcher()
    }
}

ltl answered { <> (results + failures == 1) }
