/* decide.c - texts of rank zero, for all ranks
 *
 * A text travels through the control buffer in two pieces: first its length and as
 * much as fits next to it, because most texts are short. */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"

enum {
    LENGTH = sizeof(uint64_t),
    FIRST = 1024,                          /* bytes of the first piece, with the length */
    LONGEST = PL_DDP_TEXTS - LENGTH - sizeof(double)
};

/* What lies in ddp->texts. */
typedef struct texts {
    uint64_t length;
    char text[LONGEST];
    double poll;                                            /* ranks that object */
} texts_t;

_Static_assert(sizeof(texts_t) == PL_DDP_TEXTS, "the texts fill their buffer");

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

static void text_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_error_t err = {0};
    char *text = NULL;
    const texts_t *texts = ddp->texts->data;
    const uint64_t length = failure ? 0 : texts->length;
    pl_replica_waited(&ddp->replica);
    if (failure)
        err = *failure;
    else if (!(text = pl_alloc(length + 1)))
        pl_no_memory(&err);
    if (!text) {
        pl_call_fail(point->call, &err);
        return;
    }
    memcpy(text, texts->text, length);
    text[length] = '\0';
    const bool objected = point->polls && texts->poll > 0;
    if (point->compares) {
        if (names_compare(ddp, point->text, text, &err) == PL_OK)
            pl_reply_metric_names(point->call, &(pl_metric_names_reply_t){.names = text});
        else
            pl_call_fail(point->call, &err);
    } else
        pl_reply_decide(point->call,
                        &(pl_decide_reply_t){.text = text, .objected = objected});
    pl_free(text);
}

static int rest_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    (void)point;
    const texts_t *texts = ddp->texts->data;
    return pl_ddp_call_broadcast(ddp, FIRST, LENGTH + texts->length - FIRST, err);
}

/* The rest is a sync point of its own, before any other. */
static void first_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_error_t err = {0};
    if (failure || LENGTH + ((const texts_t *)ddp->texts->data)->length <= FIRST) {
        text_end(ddp, point, failure);
        return;
    }
    const pl_sync_point_t rest = {.begin = rest_begin,
                                  .end = text_end,
                                  .call = point->call,
                                  .text = point->text,
                                  .polls = point->polls,
                                  .compares = point->compares,
                                  .is_next = true};
    point->text = NULL;
    if (pl_ddp_sync(ddp, &rest, &err) == PL_OK)
        return;
    pl_free(rest.text);
    pl_replica_waited(&ddp->replica);
    pl_call_fail(rest.call, &err);
}

static int first_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    texts_t *texts = ddp->texts->data;
    if (ddp->replica.rank == 0) {
        texts->length = strlen(point->text);
        memcpy(texts->text, point->text, texts->length);
    }
    int code = pl_ddp_call_broadcast(ddp, 0, FIRST, err);
    if (code != PL_OK || !point->polls)
        return code;
    texts->poll = point->objects;
    const pl_reg_ptr_t poll = {ddp->texts, offsetof(texts_t, poll)};
    return pl_ddp_call_sum(ddp, poll, 1, PL_F64, err);
}

int pl_ddp_decide(pl_ddp_t *ddp, pl_call_t *call, const pl_decide_t *msg, bool compares,
                  pl_error_t *err)
{
    if (strlen(msg->text) > LONGEST)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "rank 0 has %zu bytes to send to the other ranks; at most %zu are possible",
            strlen(msg->text), (size_t)LONGEST);
    const pl_sync_point_t first = {.begin = first_begin,
                                   .end = first_end,
                                   .call = call,
                                   .text = pl_strdup(msg->text),
                                   .polls = msg->polls,
                                   .objects = msg->objects,
                                   .compares = compares};
    int code = first.text ? pl_ddp_sync(ddp, &first, err) : pl_no_memory(err);
    if (code != PL_OK)
        pl_free(first.text);
    return code;
}
