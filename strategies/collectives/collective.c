/* collective.c - what all collectives share: chunks, checks, texts, registered buffers,
 * and the choice for "auto" */
#include "strategies/collectives/collective.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/registry.h"
#include "strategies/collectives/actor.h"
#include "strategies/collectives/tree.h"

const char *pl_coll_op_name(uint32_t op)
{
    static const char *const names[] = {
#define PL_X(name) #name,
        PL_COLL_OPS(PL_X)
#undef PL_X
    };
    return op < PL_COLL_OP_COUNT ? names[op] : "?";
}

void pl_coll_chunk(const pl_coll_desc_t *desc, int size, int rank, uint64_t *first,
                   uint64_t *length)
{
    pl_chunk_by(desc->count, desc->step ? desc->step : PL_CHUNK_STEP, size, rank, first,
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

/* Whether the collective moves memory of this kind. */
static int memory_check(const pl_underway_t *now, const pl_coll_request_t *req,
                        pl_error_t *err)
{
    const pl_reg_buffer_t *memory = req->memory;
    const bool shares = req->desc.op == PL_COLL_OP_register_buffer;
    if (shares && !(memory && memory->device))
        return pl_fail(err, PL_EINVAL, "register_buffer needs memory of a device");
    if (!memory || !memory->device
        || (now->device && !strcmp(memory->device->kind, now->device)))
        return PL_OK;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "%s of memory of a device of kind \"%s\": the collective moves memory "
                   "of the host%s%s; keep the elements in memory of alloc_buffer",
                   pl_coll_op_name(req->desc.op), memory->device->kind,
                   now->device ? " and of kind " : "", now->device ? now->device : "");
}

static int request_check(const pl_underway_t *now, const pl_coll_request_t *req, int size,
                         pl_error_t *err)
{
    const int code = memory_check(now, req, err);
    const pl_coll_desc_t *desc = &req->desc;
    const char *name = pl_coll_op_name(desc->op);
    const bool reduces = desc->op == PL_COLL_OP_all_reduce
                         || desc->op == PL_COLL_OP_reduce_scatter;
    if (code != PL_OK || !pl_has_elements(desc))
        return code;
    if (reduces && !pl_tree_can(desc->dtype, desc->reduction))
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s: reduction %u of elements of type %u is not supported; sums "
                       "and maxima of float32, float64 and int64 are",
                       name, desc->reduction, desc->dtype);
    if ((desc->op == PL_COLL_OP_broadcast || desc->op == PL_COLL_OP_send)
        && desc->root >= (uint32_t)size)
        return pl_fail(err, PL_EINVAL, "%s from rank %u: there are only %d ranks", name,
                       desc->root, size);
    if (desc->op == PL_COLL_OP_send
        && (desc->to >= (uint32_t)size || desc->to == desc->root))
        return pl_fail(err, PL_EINVAL,
                       "send from rank %u to rank %u: two ranks of %d are needed",
                       desc->root, desc->to, size);
    if (desc->op == PL_COLL_OP_all_to_all && desc->count % (uint64_t)size)
        return pl_fail(err, PL_EINVAL,
                       "all_to_all of %llu elements: %d ranks need a multiple of their "
                       "number",
                       (unsigned long long)desc->count, size);
    if (desc->step % PL_CHUNK_STEP)
        return pl_fail(err, PL_EINVAL,
                       "%s by chunks of multiples of %llu elements: it has to be a "
                       "multiple of %d",
                       name, (unsigned long long)desc->step, PL_CHUNK_STEP);
    const size_t bytes = pl_dtype_bytes(desc->dtype);
    if (!bytes || !req->memory || desc->memory != req->memory->number
        || (desc->is_device != 0) != (req->memory->device != NULL))
        return pl_fail(err, PL_EINVAL,
                       "%s of elements of type %u needs memory of alloc_buffer", name,
                       desc->dtype);
    if (desc->offset % bytes || desc->offset > req->memory->bytes
        || desc->count > (req->memory->bytes - desc->offset) / bytes)
        return pl_fail(
            err, PL_EINVAL,
            "%s of %llu elements at byte %llu does not fit registered buffer %u, "
            "which has %zu bytes",
            name, (unsigned long long)desc->count, (unsigned long long)desc->offset,
            req->memory->number, req->memory->bytes);
    return PL_OK;
}

int pl_underway_check(const pl_underway_t *now, const pl_coll_request_t *req, int size,
                      pl_error_t *err)
{
    if (now->broken.code)
        return pl_fail(err, now->broken.code, "%s", now->broken.text);
    if (now->req)
        return pl_fail(err, PL_ESTATE, "%s was requested while %s is running",
                       pl_coll_op_name(req->desc.op), pl_coll_op_name(now->req->desc.op));
    if ((size > 0) == (req->desc.op == PL_COLL_OP_join))
        return pl_fail(err, PL_ESTATE,
                       size ? "the ranks have joined already"
                            : "the ranks have not joined yet");
    return request_check(now, req, size, err);
}

bool pl_has_elements(const pl_coll_desc_t *desc)
{
    return desc->op != PL_COLL_OP_join && desc->op != PL_COLL_OP_alloc_buffer
           && desc->op != PL_COLL_OP_register_buffer && desc->op != PL_COLL_OP_barrier;
}

void pl_underway_end(pl_underway_t *now, const pl_error_t *err)
{
    pl_coll_request_t *req = now->req;
    now->req = NULL;
    if (req)
        req->done(req, err);
}

void pl_underway_break(pl_underway_t *now, const pl_error_t *why)
{
    if (!now->broken.code)
        now->broken = *why;
    pl_underway_end(now, &now->broken);
}

/* Lists the ranks that have come, or have not: "rank 0, rank 2". The text ends early
 * if there are many. */
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

/* The name of the operation that a barrier precedes, or its own. */
static const char *desc_name(const pl_coll_desc_t *desc)
{
    return pl_coll_op_name(desc->agrees ? (uint32_t)(desc->agrees - 1) : desc->op);
}

int pl_coll_desc_compare(const pl_coll_desc_t *own, int rank,
                         const pl_coll_desc_t *theirs, pl_error_t *err)
{
    if (!memcmp(own, theirs, sizeof *own))
        return PL_OK;
    return pl_fail(err, PL_EPROTOCOL,
                   "the ranks do different operations, but all must make the same calls "
                   "in the same order: rank %d begins %s of %llu elements of type %u, "
                   "this rank begins %s of %llu elements of type %u",
                   rank, desc_name(theirs), (unsigned long long)theirs->count,
                   theirs->dtype, desc_name(own), (unsigned long long)own->count,
                   own->dtype);
}

void pl_few_elements(const pl_coll_desc_t *desc, int size, int rank, const void **in,
                     void *own)
{
    const size_t bytes = pl_dtype_bytes(desc->dtype);
    if (desc->op == PL_COLL_OP_broadcast
        || (desc->op == PL_COLL_OP_send && desc->to == (uint32_t)rank))
        memcpy(own, in[desc->root], desc->count * bytes);
    else if (desc->op == PL_COLL_OP_all_gather)
        for (int other = 0; other < size; other++) {
            uint64_t first, length;
            pl_coll_chunk(desc, size, other, &first, &length);
            memcpy((char *)own + first * bytes, (const char *)in[other] + first * bytes,
                   length * bytes);
        }
    else if (desc->op == PL_COLL_OP_all_to_all)
        for (int other = 0; other < size; other++) {     /* the partition for this rank */
            uint64_t there, here, length;
            pl_partition_of(desc->count, size, rank, &there, &length);
            pl_partition_of(desc->count, size, other, &here, &length);
            memcpy((char *)own + here * bytes, (const char *)in[other] + there * bytes,
                   length * bytes);
        }
    else if (desc->op != PL_COLL_OP_send)
        pl_tree_reduce(own, in, size, desc->count, desc->dtype, desc->reduction);
}

/* ---- memory ---- */

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes ? (bytes + page - 1) / page * page : page;
}

static void buffer_release(pl_object_t *object)
{
    pl_reg_buffer_t *buffer = (pl_reg_buffer_t *)object;
    munmap(buffer->data, whole_pages(buffer->bytes));
    pl_free(buffer);
}

/* Reserves the pages now, so that lack of memory is an error here and not a signal
 * later. */
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

pl_reg_buffer_t *pl_reg_buffer_new(size_t bytes, uint32_t number, int *fd,
                                   pl_error_t *err)
{
    pl_reg_buffer_t *buffer = bytes <= SIZE_MAX / 4 ? pl_alloc(sizeof *buffer) : NULL;
    if (!buffer) {
        pl_no_memory(err);
        return NULL;
    }
    const size_t pages = whole_pages(bytes);
    int file = shared_make(pages, err);
    *buffer = (pl_reg_buffer_t){.bytes = bytes, .number = number, .data = MAP_FAILED};
    pl_object_init(&buffer->object, buffer_release);
    if (file >= 0)
        buffer->data = mmap(NULL, pages, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_POPULATE, file, 0);
    if (file >= 0 && buffer->data == MAP_FAILED)
        pl_fail(err, PL_ENOMEM, "cannot map %zu bytes of shared memory: %s", bytes,
                strerror(errno));
    if (file >= 0 && (buffer->data == MAP_FAILED || !fd))
        close(file);
    if (buffer->data == MAP_FAILED) {
        pl_free(buffer);
        return NULL;
    }
    if (fd)
        *fd = file;
    return buffer;
}

/* ---- what this machine has ---- */

int pl_collective_report(const char *collective, pl_fact_t tell, void *user,
                         pl_error_t *err)
{
    if (pl_require(tell, "a function", err) != PL_OK)
        return PL_EINVAL;
    pl_error_t why = {0};
    const pl_collective_ops_t *ops = pl_component_find("collective", collective, &why);
    if (!ops)
        return pl_fail(err, why.code, "%s", why.text);
    if (ops->report)
        ops->report(tell, user);
    return PL_OK;
}
