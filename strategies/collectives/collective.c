/* collective.c - what all collectives share: chunks, checks, texts, memory to lend */
#include "strategies/collectives/collective.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/collectives/tree.h"

const char *pl_move_name(uint32_t move)
{
    static const char *const names[] = {
#define PL_X(name) #name,
        PL_MOVES(PL_X)
#undef PL_X
    };
    return move < PL_MOVE_COUNT ? names[move] : "?";
}

void pl_chunk_of(uint64_t count, int size, int rank, uint64_t *first, uint64_t *length)
{
    pl_chunk_by(count, PL_CHUNK_STEP, size, rank, first, length);
}

void pl_want_chunk(const pl_want_t *want, int size, int rank, uint64_t *first,
                   uint64_t *length)
{
    pl_chunk_by(want->count, want->step ? want->step : PL_CHUNK_STEP, size, rank, first,
                length);
}

void pl_chunk_by(uint64_t count, uint64_t step, int size, int rank, uint64_t *first,
                 uint64_t *length)
{
    uint64_t partition = count / (uint64_t)size + (count % (uint64_t)size > 0);
    partition = (partition + step - 1) / step * step;
    const uint64_t from = partition * (uint64_t)rank;
    *first = from < count ? from : count;
    *length = count - *first < partition ? count - *first : partition;
}

void pl_partition_of(uint64_t count, int size, int rank, uint64_t *first,
                     uint64_t *length)
{
    *length = count / (uint64_t)size;
    *first = *length * (uint64_t)rank;
}

size_t pl_dtype_bytes(uint32_t dtype)
{
    static const size_t bytes[] = {
        [PL_F32] = 4, [PL_F64] = 8,  [PL_I32] = 4, [PL_I64] = 8,
        [PL_U8] = 1,  [PL_BF16] = 2, [PL_F16] = 2};
    return dtype < sizeof bytes / sizeof *bytes ? bytes[dtype] : 0;
}

/* Whether memory of this kind is moved here. */
static int memory_check(const pl_underway_t *now, const pl_operation_t *op,
                        pl_error_t *err)
{
    const pl_lent_t *memory = op->memory;
    const bool shares = op->want.move == PL_MOVE_share_memory;
    if (shares && !(memory && memory->device))
        return pl_fail(err, PL_EINVAL, "share_memory needs memory of a device");
    if (!memory || !memory->device
        || (now->device && !strcmp(memory->device->kind, now->device)))
        return PL_OK;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "%s of memory of a device of kind \"%s\": the collective moves memory "
                   "of the host%s%s; keep the elements in memory of lend_memory",
                   pl_move_name(op->want.move), memory->device->kind,
                   now->device ? " and of kind " : "", now->device ? now->device : "");
}

static int elements_check(const pl_operation_t *op, pl_error_t *err)
{
    const pl_want_t *want = &op->want;
    const char *name = pl_move_name(want->move);
    const size_t bytes = pl_dtype_bytes(want->dtype);
    if (!bytes || !op->memory || want->memory != op->memory->number
        || (want->is_device != 0) != (op->memory->device != NULL))
        return pl_fail(err, PL_EINVAL,
                       "%s of elements of type %u needs memory of lend_memory", name,
                       want->dtype);
    if (want->offset % bytes || want->offset > op->memory->bytes
        || want->count > (op->memory->bytes - want->offset) / bytes)
        return pl_fail(err, PL_EINVAL,
                       "%s of %llu elements at byte %llu does not fit lent memory %u, "
                       "which has %zu bytes",
                       name, (unsigned long long)want->count,
                       (unsigned long long)want->offset, op->memory->number,
                       op->memory->bytes);
    return PL_OK;
}

static int operation_check(const pl_underway_t *now, const pl_operation_t *op, int size,
                           pl_error_t *err)
{
    const int code = memory_check(now, op, err);
    const pl_want_t *want = &op->want;
    const bool reduces = want->move == PL_MOVE_all_reduce
                         || want->move == PL_MOVE_reduce_scatter;
    if (code != PL_OK || !pl_has_elements(want))
        return code;
    if (reduces && !pl_tree_can(want->dtype, want->reduction))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: reduction %u of elements of type %u is not supported; sums "
                       "and maxima of float32, float64 and int64 are",
                       pl_move_name(want->move), want->reduction, want->dtype);
    if ((want->move == PL_MOVE_broadcast || want->move == PL_MOVE_send)
        && want->root >= (uint32_t)size)
        return pl_fail(err, PL_EINVAL, "%s from rank %u: there are only %d ranks",
                       pl_move_name(want->move), want->root, size);
    if (want->move == PL_MOVE_send
        && (want->to >= (uint32_t)size || want->to == want->root))
        return pl_fail(err, PL_EINVAL,
                       "send from rank %u to rank %u: two ranks of %d are needed",
                       want->root, want->to, size);
    if (want->move == PL_MOVE_all_to_all && want->count % (uint64_t)size)
        return pl_fail(err, PL_EINVAL,
                       "all_to_all of %llu elements: %d ranks need a multiple of their "
                       "number",
                       (unsigned long long)want->count, size);
    if (want->step % PL_CHUNK_STEP)
        return pl_fail(err, PL_EINVAL,
                       "%s by chunks of multiples of %llu elements: it has to be a "
                       "multiple of %d",
                       pl_move_name(want->move), (unsigned long long)want->step,
                       PL_CHUNK_STEP);
    return elements_check(op, err);
}

int pl_underway_check(const pl_underway_t *now, const pl_operation_t *op, int size,
                      pl_error_t *err)
{
    if (now->broken.code)
        return pl_fail(err, now->broken.code, "%s", now->broken.text);
    if (now->op)
        return pl_fail(err, PL_ESTATE, "%s was requested while %s is running",
                       pl_move_name(op->want.move), pl_move_name(now->op->want.move));
    if ((size > 0) == (op->want.move == PL_MOVE_join))
        return pl_fail(err, PL_ESTATE,
                       size ? "the ranks have joined already"
                            : "the ranks have not joined yet");
    return operation_check(now, op, size, err);
}

bool pl_has_elements(const pl_want_t *want)
{
    return want->move != PL_MOVE_join && want->move != PL_MOVE_lend_memory
           && want->move != PL_MOVE_share_memory && want->move != PL_MOVE_barrier;
}

void pl_underway_end(pl_underway_t *now, const pl_error_t *err)
{
    pl_operation_t *op = now->op;
    now->op = NULL;
    if (op)
        op->done(op, err);
}

void pl_underway_break(pl_underway_t *now, const pl_error_t *why)
{
    if (!now->broken.code)
        now->broken = *why;
    pl_underway_end(now, &now->broken);
}

/* The ranks that have come, or have not: "rank 0, rank 2"; the text ends early when
 * there are many. */
static int ranks_list(const unsigned char *arrived, int size, bool here, char *text,
                      size_t capacity)
{
    int listed = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int rank = 0; rank < size; rank++) {
        if ((arrived[rank] != 0) != here)
            continue;
        if (capacity - at < 24) {
            snprintf(text + at, capacity - at, ", …");
            break;
        }
        at += (size_t)snprintf(text + at, capacity - at, "%srank %d",
                               listed++ ? ", " : "", rank);
    }
    return listed;
}

const char *pl_arrived_text(const unsigned char *arrived, int size,
                            char text[PL_ARRIVED_TEXT])
{
    char here[80], missing[80];
    int there = ranks_list(arrived, size, true, here, sizeof here);
    if (ranks_list(arrived, size, false, missing, sizeof missing))
        snprintf(text, PL_ARRIVED_TEXT, "%s arrived, %s did not",
                 there ? here : "no rank", missing);
    else
        snprintf(text, PL_ARRIVED_TEXT, "all ranks arrived");
    return text;
}

/* Of the operation that a barrier is before, or of the own one. */
static const char *want_name(const pl_want_t *want)
{
    return pl_move_name(want->agrees ? (uint32_t)(want->agrees - 1) : want->move);
}

int pl_want_compare(const pl_want_t *own, int rank, const pl_want_t *theirs,
                    pl_error_t *err)
{
    if (!memcmp(own, theirs, sizeof *own))
        return PL_OK;
    return pl_fail(err, PL_EPROTOCOL,
                   "the ranks do different operations: rank %d begins %s of %llu "
                   "elements of type %u, this rank begins %s of %llu elements of type %u",
                   rank, want_name(theirs), (unsigned long long)theirs->count,
                   theirs->dtype, want_name(own), (unsigned long long)own->count,
                   own->dtype);
}

static void chunk_copy(const pl_want_t *want, int size, int rank, const void *from,
                       void *own)
{
    uint64_t first, length;
    const size_t bytes = pl_dtype_bytes(want->dtype);
    pl_want_chunk(want, size, rank, &first, &length);
    memcpy((char *)own + first * bytes, (const char *)from + first * bytes,
           length * bytes);
}

/* What another rank has for this one. */
static void partition_copy(const pl_want_t *want, int size, int rank, int other,
                           const void *from, void *own)
{
    uint64_t there, here, length;
    const size_t bytes = pl_dtype_bytes(want->dtype);
    pl_partition_of(want->count, size, rank, &there, &length);
    pl_partition_of(want->count, size, other, &here, &length);
    memcpy((char *)own + here * bytes, (const char *)from + there * bytes,
           length * bytes);
}

void pl_few_elements(const pl_want_t *want, int size, int rank, const void **in,
                     void *own)
{
    if (want->move == PL_MOVE_broadcast
        || (want->move == PL_MOVE_send && want->to == (uint32_t)rank))
        memcpy(own, in[want->root], want->count * pl_dtype_bytes(want->dtype));
    else if (want->move == PL_MOVE_all_gather)
        for (int other = 0; other < size; other++)
            chunk_copy(want, size, other, in[other], own);
    else if (want->move == PL_MOVE_all_to_all)
        for (int other = 0; other < size; other++)
            partition_copy(want, size, rank, other, in[other], own);
    else if (want->move != PL_MOVE_send)
        pl_tree_reduce(own, in, size, want->count, want->dtype, want->reduction);
}

/* ---- memory ---- */

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes ? (bytes + page - 1) / page * page : page;
}

static void lent_release(pl_object_t *object)
{
    pl_lent_t *lent = (pl_lent_t *)object;
    munmap(lent->data, whole_pages(lent->bytes));
    pl_free(lent);
}

/* Pages are taken now, so that what is not there is an error and not a signal later. */
static int shared_make(size_t bytes, pl_error_t *err)
{
    int fd = memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return pl_fail(err, PL_EIO, "cannot create shared memory: %s", strerror(errno));
    int code = posix_fallocate(fd, 0, (off_t)bytes);
    if (code == 0
        && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    close(fd);
    return pl_fail(err, PL_ENOMEM, "cannot allocate %zu bytes that ranks share: %s",
                   bytes, strerror(code ? code : errno));
}

pl_lent_t *pl_lent_new(size_t bytes, uint32_t number, int *fd, pl_error_t *err)
{
    pl_lent_t *lent = bytes <= SIZE_MAX / 4 ? pl_alloc(sizeof *lent) : NULL;
    if (!lent) {
        pl_no_memory(err);
        return NULL;
    }
    const size_t pages = whole_pages(bytes);
    int file = shared_make(pages, err);
    *lent = (pl_lent_t){.bytes = bytes, .number = number, .data = MAP_FAILED};
    pl_object_init(&lent->object, lent_release);
    if (file >= 0)
        lent->data = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                          file, 0);
    if (file >= 0 && lent->data == MAP_FAILED)
        pl_fail(err, PL_ENOMEM, "cannot map %zu bytes of shared memory: %s", bytes,
                strerror(errno));
    if (file >= 0 && (lent->data == MAP_FAILED || !fd))
        close(file);
    if (lent->data == MAP_FAILED) {
        pl_free(lent);
        return NULL;
    }
    if (fd)
        *fd = file;
    return lent;
}
