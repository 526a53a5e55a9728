/* collective_mpi.c - a rank of t/mpi.t under some mpirun: what the collective "mpi" must
 * do
 *
 *     collective_mpi size | operations | types | unlike | late | again | two
 *
 * Prints nothing when all is well, but "size", how many ranks there are.  Sums are of
 * whole numbers, so that they are exact in whatever order. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective_rig.h"

static void must(bool holds, const char *what, const char *detail)
{
    if (!holds)
        printf("%s %s\n", what, detail);
}

static int size_of(const char *address)
{
    int rank = 0, size = 0;
    sscanf(address, "mpi %d %d", &rank, &size);
    return size;
}

static int rank_of(const char *address)
{
    return (int)strtol(address + 4, NULL, 10);
}

/* The table of addresses is known: MPI gave the numbers. */
static int join_ranks(member_t *m)
{
    static char text[MEMBERS_MAX][PL_ADDRESS_TEXT];
    const char *address[MEMBERS_MAX];
    int code = member_open(m, "\"mpi\"", NULL);
    must(code == PL_OK, "open", m->err.text);
    if (code != PL_OK)
        return code;
    const int size = size_of(m->address);
    for (int k = 0; k < size; k++) {
        snprintf(text[k], sizeof text[k], "mpi %d %d", k, size);
        address[k] = text[k];
    }
    code = member_join(m, rank_of(m->address), size, address);
    must(code == PL_OK, "join", m->err.text);
    return code;
}

/* ---- every operation ---- */

static float value(int rank, uint64_t k)
{
    return (float)((k * 31 + (uint64_t)rank * 17) % 1000);
}

static float expected(const member_t *m, pl_coll_op_t op, uint64_t k, uint64_t chunk)
{
    float sum = 0;
    if (op == PL_COLL_OP_broadcast)
        return value(0, k);
    if (op == PL_COLL_OP_all_gather)
        return value((int)(k / chunk), k);
    for (int rank = 0; rank < m->size; rank++)
        sum += value(rank, k);
    return sum;
}

static void op_check(member_t *m, pl_coll_op_t op, pl_reg_buffer_t *buffer,
                     uint64_t count)
{
    float *data = (float *)((char *)buffer->data + 12);
    uint64_t first, length, chunk;
    int wrong = 0;
    for (uint64_t k = 0; k < count; k++)
        data[k] = value(m->rank, k);
    int code = member_call(m, op, buffer, 12, count);
    must(code == PL_OK, pl_coll_op_name(op), m->err.text);
    pl_chunk_by(count, PL_CHUNK_STEP, m->size, 0, &first, &chunk);
    pl_chunk_by(count, PL_CHUNK_STEP, m->size, m->rank, &first, &length);
    if (op != PL_COLL_OP_reduce_scatter)
        first = 0, length = count;
    for (uint64_t k = first; k < first + length; k++)
        wrong += data[k] != expected(m, op, k, chunk);
    must(!wrong, pl_coll_op_name(op), "gives something else");
}

static void exchange_check(member_t *m, pl_reg_buffer_t *buffer, uint64_t per_rank)
{
    float *data = buffer->data;
    const uint64_t count = per_rank * (uint64_t)m->size;
    int wrong = 0;
    for (uint64_t k = 0; k < count; k++)
        data[k] = value(m->rank, k);
    must(member_call(m, PL_COLL_OP_all_to_all, buffer, 0, count) == PL_OK, "all_to_all",
         m->err.text);
    for (uint64_t k = 0; k < count; k++)
        wrong += data[k]
                 != value((int)(k / per_rank),
                          (uint64_t)m->rank * per_rank + k % per_rank);
    must(!wrong, "all_to_all", "gives something else");
}

/* From rank 1 to rank 0. */
static void send_check(member_t *m, pl_reg_buffer_t *buffer, uint64_t count)
{
    float *data = buffer->data;
    pl_coll_request_t req = {.memory = buffer,
                             .desc = {.op = PL_COLL_OP_send,
                                      .dtype = PL_F32,
                                      .root = 1,
                                      .memory = buffer->number,
                                      .count = count}};
    int wrong = 0;
    for (uint64_t k = 0; k < count; k++)
        data[k] = value(m->rank, k);
    must(member_do(m, &req) == PL_OK, "send", m->err.text);
    for (uint64_t k = 0; k < count; k++)
        wrong += data[k] != value(m->rank ? m->rank : 1, k);
    must(!wrong, "send", "gives something else");
}

static void operations(member_t *m)
{
    static const uint64_t counts[] = {0, 1, 33, 1000, 300001};
    pl_reg_buffer_t *buffer = member_alloc(m, 2 << 20);
    for (int k = 0; buffer && k < 5; k++) {
        op_check(m, PL_COLL_OP_all_reduce, buffer, counts[k]);
        op_check(m, PL_COLL_OP_reduce_scatter, buffer, counts[k]);
        op_check(m, PL_COLL_OP_all_gather, buffer, counts[k]);
        op_check(m, PL_COLL_OP_broadcast, buffer, counts[k]);
        exchange_check(m, buffer, counts[k] / (uint64_t)m->size);
        if (m->size > 1)
            send_check(m, buffer, counts[k]);
        must(member_call(m, PL_COLL_OP_barrier, NULL, 0, 0) == PL_OK, "barrier",
             m->err.text);
    }
    pl_object_unref(buffer);
}

static int typed(member_t *m, pl_reg_buffer_t *buffer, pl_dtype_t dtype,
                 pl_reduction_t reduction)
{
    pl_coll_request_t req = {.memory = buffer,
                             .desc = {.op = PL_COLL_OP_all_reduce,
                                      .dtype = dtype,
                                      .reduction = reduction,
                                      .memory = buffer->number,
                                      .count = 3}};
    return member_do(m, &req);
}

static void types(member_t *m)
{
    pl_reg_buffer_t *buffer = member_alloc(m, 64);
    float *f = buffer->data;
    double *d = buffer->data;
    int64_t *i = buffer->data;
    for (int k = 0; k < 3; k++)
        f[k] = k == m->rank ? NAN : (float)m->rank;
    typed(m, buffer, PL_F32, PL_REDUCE_MAX);
    must(isnan(f[0]) && isnan(f[1]) && isnan(f[2]) == (m->size > 2), "max of float32",
         "loses a NaN");
    d[0] = d[1] = d[2] = m->rank + 0.5;
    typed(m, buffer, PL_F64, PL_REDUCE_SUM);
    must(d[2] == m->size * m->size / 2.0, "sum of float64", "is something else");
    i[0] = i[1] = i[2] = (INT64_C(1) << 60) + m->rank;
    typed(m, buffer, PL_I64, PL_REDUCE_MAX);
    must(i[1] == (INT64_C(1) << 60) + m->size - 1, "max of int64", "is something else");
    must(typed(m, buffer, PL_BF16, PL_REDUCE_SUM) == PL_EUNSUPPORTED, "bfloat16",
         "is not refused");
    pl_object_unref(buffer);
}

/* ---- what goes wrong ---- */

static void unlike(member_t *m)
{
    pl_reg_buffer_t *buffer = member_alloc(m, 80000);
    int code = member_call(m, PL_COLL_OP_all_reduce, buffer, 0,
                           m->rank == 1 ? 1010 : 1000);
    must(code == PL_EPROTOCOL && strstr(m->err.text, "of 1010")
             && strstr(m->err.text, "of 1000"),
         "unlike", m->err.text);
    pl_object_unref(buffer);
}

static void file_make(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file)
        fclose(file);
}

static void file_await(const char *path)
{
    while (access(path, F_OK) != 0)
        poll(NULL, 0, 5);
}

/* Rank 1 does not come, until it is too late: the first knows that, and that all others
 * have. */
static void late(member_t *m)
{
    pl_coll_request_t req = {.desc = {.op = PL_COLL_OP_barrier}};
    if (m->rank == 1)
        file_await("given-up");
    if (m->rank != 0) {
        int code = PL_OK;            /* what MPI was asked for by all may still be done */
        for (int k = 0; k < 2 && code == PL_OK; k++)
            code = member_do(m, &req);
        must(code == PL_EPEER && strstr(m->err.text, "rank 0 aborted: too slow"), "late",
             m->err.text);
        return;
    }
    int code = member_begin(m, &req);
    for (int others = 0; code == PL_OK && others < m->size - 2;) {
        code = member_wait(m, 50) == PL_ETIMEOUT ? PL_OK : PL_EBUG;
        others = 0;
        for (int rank = 2; rank < m->size; rank++)
            others += m->arrived[rank];
    }
    must(code == PL_OK && !m->arrived[1], "late", "is another rank");
    m->ops->abort(m->component.self, &(pl_error_t){PL_ETIMEOUT, "", "too slow"});
    must(m->done && m->err.code == PL_ETIMEOUT, "abort", m->err.text);
    file_make("given-up");
}

static void again(member_t *m)
{
    member_close(m);
    if (join_ranks(m) == PL_OK)
        operations(m);
}

static void two(member_t *m)
{
    member_t second;
    must(m->ops->own_order(m->component.self), "its order", "is not reported as its own");
    must(member_open(&second, "\"mpi\"", NULL) == PL_EUNSUPPORTED
             && strstr(second.err.text, "mpi has no groups of ranks"),
         "two", second.err.text);
    member_close(&second);
    const char *address[] = {m->address};
    must(member_open(&second, "\"mpi\"", NULL) != PL_OK, "two", "in one process");
    member_close(&second);
    member_close(m);
    if (member_open(m, "\"mpi\"", NULL) == PL_OK)
        must(member_join(m, 0, 1, address) == PL_EINVAL
                 && strstr(m->err.text, "start the run with mpirun -n 1"),
             "two", m->err.text);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*script)(member_t *m);
    } scripts[] = {{"operations", operations}, {"types", types},
                   {"unlike", unlike},         {"late", late},
                   {"again", again},           {"two", two}};
    member_t m;
    pl_init(NULL, NULL, NULL, NULL);
    if (argc != 2 || join_ranks(&m) != PL_OK)
        return 1;
    if (!strcmp(argv[1], "size") && m.rank == 0)
        printf("%d\n", m.size);
    for (size_t k = 0; k < sizeof scripts / sizeof *scripts; k++)
        if (!strcmp(scripts[k].name, argv[1]))
            scripts[k].script(&m);
    fflush(stdout);
    member_close(&m);
    return 0;
}
