/* collective_rig.h - ranks for tests of collectives: threads of the test, or processes of
 * its program, without actors */
#ifndef T_COLLECTIVE_RIG_H
#define T_COLLECTIVE_RIG_H

#include <stdio.h>
#include <sys/types.h>

#include "strategies/collectives/collective.h"

enum { MEMBERS_MAX = 80 };

/* A rank, driven by the thread that calls for it. */
typedef struct member {
    pl_instance_t component;
    const pl_collective_ops_t *ops;
    int rank, size, descriptor;
    uint64_t step;                              /* of chunks  [0: a cache line's] */
    const char *place;                          /* machine of each rank  [the real one] */
    char address[PL_ADDRESS_TEXT];
    unsigned char arrived[MEMBERS_MAX];                     /* at the last operation */
    bool done;                                              /* of that */
    pl_error_t err;                                         /* code 0: it went well */
} member_t;

/* The part as a run file has it: "\"shm\"", or an object.  "\"best\"@0012": the ranks
 * believe that they are on these machines. */
int member_open(member_t *m, const char *component,
                const pl_collective_context_t *context);
int member_join(member_t *m, int rank, int size, const char *const *address);
void member_close(member_t *m);

/* Begins an operation; then helps until it is done, at most so long: -> its code, or
 * PL_ETIMEOUT while it is under way.  A failure aborts, as in the actor. */
int member_begin(member_t *m, pl_coll_request_t *req);
int member_wait(member_t *m, int milliseconds);
void member_help(member_t *m);                             /* with what can be done now */
int member_do(member_t *m, pl_coll_request_t *req);
pl_reg_buffer_t *member_alloc(member_t *m, size_t bytes);
/* Of float32, sums, from a byte of the memory on. */
int member_call(member_t *m, pl_coll_op_t op, pl_reg_buffer_t *buffer, uint64_t offset,
                uint64_t count);

/* The sum by the canonical tree, written down as its definition has it. */
float tree_sum(const float *value, int n);
/* A rank's k-th element: magnitudes far apart, so that the order shows. */
float element_of(int rank, uint64_t k);

/* So many ranks, each on a thread, meet, run the script and part. */
typedef void (*script_t)(member_t *m, void *user);
void members_run(const char *component, int size, script_t script, void *user);
/* The first error of the last members_run() that was not reported by another rank. */
extern pl_error_t members_error;

/* ---- processes ---- */

/* A rank in a process of its own that runs a script of that name (see main() of the
 * test); it prints its address first, and later the output of the script. */
typedef struct rank_process {
    pid_t pid;
    int rank;
    FILE *to, *from;
    char address[PL_ADDRESS_TEXT];
} rank_process_t;

typedef struct named_script {
    const char *name;
    script_t script;
} named_script_t;

/* Of a program whose own main() begins with rank_main().  With the environment's
 * RANK_NODE, a file of a network namespace, it is in there, at the address RANK_HOST, and
 * has a key. */
void rank_start(rank_process_t *p, const char *component, const char *script, int rank,
                int size);
void rank_tell(rank_process_t *p, const char *const *address, int size);
/* A line that it prints; "" at its end. */
const char *rank_line(rank_process_t *p);
void rank_end(rank_process_t *p);                       /* waits for it; kills it first */

/* Whether this process is such a rank; then it has run its script. */
bool rank_main(int argc, char **argv, const named_script_t *scripts);

#endif
