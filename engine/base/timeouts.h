/* timeouts.h - all timeouts: how soon a death is noticed, and how long an actor or a
 * rank may take to end
 *
 * The kernel reports the death of a child at once, and mostly the death of any process
 * of this machine; everything else is noticed by silence.  Each actor and process has
 * a time limit to end, and inner ones have shorter limits: an actor ends before its
 * rank, a rank before the process that started it.  So the first to give up is next to
 * what hangs, and names it.  Steps have a limit of their own, trainer.step_timeout. */
#ifndef PL_BASE_TIMEOUTS_H
#define PL_BASE_TIMEOUTS_H

/* In milliseconds. */
enum {
    /* ---- noticing ---- */

    PL_SOCKET_BEAT_MS = 500,               /* of ZeroMQ's thread, over TCP: the machine */
    PL_SOCKET_SILENCE_MS = 2000,           /* after which a connection is cut */
    PL_LINK_BEAT_MS = 500,                 /* of the thread that has the link's end, */
    PL_LINK_TICKS = 4,                     /* which looks so often in that time */

    /* Without data for this time, the other end of a link counts as silent, a rank that
     * does not die with its launcher ends itself (its lease), and a rank is lost for the
     * TCP collective.  TCP repeats what was lost after 0.2, 0.6, 1.4 and 3.0 s, or a
     * little later; a connection of ZeroMQ is replaced sooner.  So all planes survive a
     * cut of 2.5 s, and none survives one of 4 s. */
    PL_SILENCE_MS = 3700,
    PL_REJOIN_MS = 4200,              /* that a connection of a link may be cut; after
                                         which a launcher gives a silent rank with a lease
                                         up, which has ended by then */
    PL_LINK_DRAIN_MS = 1000,          /* what a dead process had sent is still received */
    PL_STEPS_BEAT_MS = 500,           /* of a rank's steps, to its launcher */
    PL_TCP_ASK_MS = 1000,             /* the machine of a collective's rank, by the
                                         kernel */

    /* ---- ending ---- */

    PL_GRACE_MS = 5000,                /* an actor of the lowest level; the same again for
                                          each PL_GRACE_LEVELS that it is higher */
    PL_GRACE_LEVELS = 20,
    PL_RANK_END_MS = 30000,          /* all actors of a rank that has to end */
    PL_LEAVE_MS = 3000,              /* a rank that leaves waits until its last messages
                                        are acknowledged */
    PL_LINGER_MS = 2000,             /* the same for the closed host of a link */
    PL_STOP_START_MS = 2000,         /* a phase of the start-up, after a stop */
    PL_STOP_SAVE_MS = 10000,         /* a save whose disk does nothing, after a stop */
    PL_START_END_MS = 50,            /* a rank that starts, after another has failed */
    PL_FAILURE_REPORT_MS = 60,       /* after which a failure is reported before all ranks
                                        have ended */
    PL_EXIT_MS = 5000,               /* the process of a rank that has left */
    PL_BACKTRACE_MS = 4000,          /* between SIGABRT and SIGKILL */
    PL_KILLED_MS = 1000,             /* the kernel, after SIGKILL */
    PL_BROADCAST_RESULT_MS = 15000,  /* until all ranks have received the result */
    PL_SCRIPT_END_MS = 5000,         /* a script, after the last run of its host */
    PL_NODE_STOP_MS = 30000,         /* ranks of `paceline launch`, after a request to
                                        stop, */
    PL_NODE_END_MS = 5000,           /* and after another rank has failed */
    PL_NODE_CAUSE_MS = 1000,         /* a rank that lost another one may report that so
                                        much earlier than the cause arrives */
};

#define PL_IN_ORDER(a, b, why) _Static_assert((a) < (b), why)

PL_IN_ORDER(2 * PL_SOCKET_BEAT_MS, PL_SOCKET_SILENCE_MS, "one beat may be lost");
PL_IN_ORDER(3000 + PL_LINK_BEAT_MS + PL_LINK_BEAT_MS / PL_LINK_TICKS, PL_SILENCE_MS,
            "what TCP repeats has arrived");
PL_IN_ORDER(2 * PL_TCP_ASK_MS, PL_SILENCE_MS, "one answer may be lost");
PL_IN_ORDER(PL_SILENCE_MS, PL_REJOIN_MS, "the old rank is gone before a new one");
PL_IN_ORDER(PL_REJOIN_MS, PL_NODE_END_MS,
            "a rank that lost a peer reports it and ends by itself");
PL_IN_ORDER(PL_NODE_CAUSE_MS, PL_NODE_END_MS,
            "the cause is reported before the other ranks end");
PL_IN_ORDER(PL_LINK_DRAIN_MS, PL_REJOIN_MS, "a known death is reported sooner");
PL_IN_ORDER(PL_LEAVE_MS, PL_EXIT_MS, "a rank that leaves has left before it is killed");
PL_IN_ORDER(PL_LINGER_MS, PL_EXIT_MS, "the same of a host");
PL_IN_ORDER(PL_LEAVE_MS, PL_BROADCAST_RESULT_MS,
            "a participant may leave before it is given up");

#undef PL_IN_ORDER

#endif
