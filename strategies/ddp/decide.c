/* decide.c - messages of rank zero, for all ranks
 *
 * Their bytes travel through the control buffer in two pieces: first their length and as
 * many as fit next to it, because most messages are short. */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"

enum {
    LENGTH = sizeof(uint64_t),
    FIRST = 1024,                          /* bytes of the first piece, with the length */
    LONGEST = PL_DDP_DECIDED - LENGTH - sizeof(double)
};

/* What lies in ddp->decided. */
typedef struct decided {
    uint64_t length;
    char bytes[LONGEST];
    double poll;                                            /* ranks that object */
} decided_t;

_Static_assert(sizeof(decided_t) == PL_DDP_DECIDED, "it fills its buffer");

/* Metrics are summed by their positions, so all ranks must have the same. */
static int names_compare(const pl_ddp_t *ddp, const char *own, const char *theirs,
                         pl_error_t *err)
{
    const char *line[] = {own, theirs};
    int place = 1, length[2];
    for (size_t same;
         *line[0] && (same = strcspn(line[0], "\n")) == strcspn(line[1], "\n")
         && !strncmp(line[0], line[1], same);
         place++)
        for (int k = 0; k < 2; k++)
            line[k] += same + (line[k][same] == '\n');
    if (!*line[0] && !*line[1])
        return PL_OK;
    for (int k = 0; k < 2; k++) {            /* the name in the line, without its marks */
        line[k] += *line[k] == '=';
        length[k] = (int)strcspn(line[k], "\t\n");
        length[k] -= length[k] && line[k][length[k] - 1] == '*';
    }
    return pl_fail(
        err, PL_EINVAL,
        "metric %d of a step is \"%.*s\" on rank %u and \"%.*s\" on rank 0: the module "
        "must log the same metrics, in the same way and order, on all ranks",
        place, length[0], line[0], (unsigned)ddp->replica.rank, length[1], line[1]);
}

/* The names of metrics, in the reply among the messages. */
static int names_take(pl_bytes_t list, pl_body_t *body, pl_error_t *err)
{
    pl_message_t message;
    bool is_reply;
    int code = pl_messages_take(&list, &message, &is_reply, body, err);
    if (code == PL_OK && (message != PL_MESSAGE_metric_names || !is_reply))
        code = pl_fail(err, PL_EPROTOCOL, "rank 0 sent no names of metrics");
    return code;
}

/* The bytes are read where the control buffer has them: the reply copies them. */
static void messages_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_error_t err = {0};
    const decided_t *decided = ddp->decided->data;
    pl_replica_waited(&ddp->replica);
    if (failure) {
        pl_call_fail(point->call, failure);
        return;
    }
    const pl_bytes_t messages = {decided->bytes, decided->length};
    const bool objected = point->polls && decided->poll > 0;
    if (!point->compares) {
        pl_reply_decide(point->call,
                        &(pl_decide_reply_t){.messages = messages, .objected = objected});
        return;
    }
    pl_body_t own, first;
    int code = names_take(pl_messages_bytes(&point->messages), &own, &err);
    if (code == PL_OK)
        code = names_take(messages, &first, &err);
    if (code == PL_OK)
        code = names_compare(ddp, own.metric_names_reply.names,
                             first.metric_names_reply.names, &err);
    if (code == PL_OK)
        code = pl_reply_metric_names(point->call, &first.metric_names_reply);
    if (code != PL_OK)
        pl_call_fail(point->call, &err);
}

static int rest_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    (void)point;
    const decided_t *decided = ddp->decided->data;
    return pl_ddp_call_broadcast(ddp, (pl_reg_ptr_t){ddp->decided, FIRST},
                                 LENGTH + decided->length - FIRST, 0, err);
}

/* The rest is a sync point of its own, before any other. */
static void first_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_error_t err = {0};
    if (failure || LENGTH + ((const decided_t *)ddp->decided->data)->length <= FIRST) {
        messages_end(ddp, point, failure);
        return;
    }
    pl_sync_point_t rest = {.begin = rest_begin,
                            .end = messages_end,
                            .call = point->call,
                            .messages = point->messages,
                            .polls = point->polls,
                            .compares = point->compares,
                            .is_next = true};
    point->messages = (pl_messages_t){0};
    if (pl_ddp_sync(ddp, &rest, &err) == PL_OK)
        return;
    pl_messages_release(&rest.messages);
    pl_replica_waited(&ddp->replica);
    pl_call_fail(rest.call, &err);
}

static int first_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    decided_t *decided = ddp->decided->data;
    if (ddp->replica.rank == 0) {
        decided->length = point->messages.size;
        if (decided->length)
            memcpy(decided->bytes, point->messages.data, decided->length);
    }
    int code = pl_ddp_call_broadcast(ddp, (pl_reg_ptr_t){ddp->decided, 0}, FIRST, 0, err);
    if (code != PL_OK || !point->polls)
        return code;
    decided->poll = point->objects;
    const pl_reg_ptr_t poll = {ddp->decided, offsetof(decided_t, poll)};
    return pl_ddp_call_sum(ddp, poll, 1, PL_F64, err);
}

int pl_ddp_decide(pl_ddp_t *ddp, pl_call_t *call, const pl_decide_t *msg, bool compares,
                  pl_error_t *err)
{
    const size_t size = msg->messages.size;
    if (size > LONGEST)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "rank 0 has %zu bytes to send to the other ranks; at most %zu are possible",
            size, (size_t)LONGEST);
    unsigned char *bytes = size ? pl_alloc(size) : NULL;
    if (size && !bytes)
        return pl_no_memory(err);
    if (size)
        memcpy(bytes, msg->messages.data, size);
    pl_sync_point_t first = {.begin = first_begin,
                             .end = first_end,
                             .call = call,
                             .messages = {bytes, size, size},
                             .polls = msg->polls,
                             .objects = msg->objects,
                             .compares = compares};
    int code = pl_ddp_sync(ddp, &first, err);
    if (code != PL_OK)
        pl_messages_release(&first.messages);
    return code;
}
