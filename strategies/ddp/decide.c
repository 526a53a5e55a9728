/* decide.c - texts of rank zero, for all ranks
 *
 * A text travels through the control buffer in two pieces: first its length and as
 * much as fits next to it, because most texts are short. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"

enum {
    LENGTH = sizeof(uint64_t),
    FIRST = 1024,
    POLL = PL_DDP_TEXTS - sizeof(double),            /* its place in the control buffer */
    LONGEST = POLL - LENGTH
};

static double *poll_on(const pl_ddp_t *ddp)
{
    return (double *)(void *)((char *)ddp->texts->data + POLL);
}

static uint64_t length_on(const pl_ddp_t *ddp)
{
    uint64_t length;
    memcpy(&length, ddp->texts->data, sizeof length);
    return length;
}

/* The name in a line of metric_names: where it begins and its length. */
static int name_of(const char **line)
{
    *line += **line == '=';
    const int length = (int)strcspn(*line, "\t\n");
    return length - (length && (*line)[length - 1] == '*');
}

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* Metrics are summed by their positions, so all ranks must have the same. */
static int names_compare(const pl_ddp_t *ddp, const char *own, const char *theirs,
                         pl_error_t *err)
{
    int place = 1;
    while (*own && strcspn(own, "\n") == strcspn(theirs, "\n")
           && !strncmp(own, theirs, strcspn(own, "\n"))) {
        own = next_line(own);
        theirs = next_line(theirs);
        place++;
    }
    if (!*own && !*theirs)
        return PL_OK;
    const int own_length = name_of(&own), their_length = name_of(&theirs);
    return pl_fail(
        err, PL_EINVAL,
        "metric %d of a step is \"%.*s\" on rank %u and \"%.*s\" on rank 0: the module "
        "must log the same metrics, in the same way and order, on all ranks",
        place, own_length, own, (unsigned)ddp->replica.rank, their_length, theirs);
}

static void text_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_error_t err = {0};
    char *text = NULL;
    const uint64_t length = failure ? 0 : length_on(ddp);
    pl_replica_waited(&ddp->replica);
    if (failure)
        err = *failure;
    else if (!(text = pl_alloc(length + 1)))
        pl_no_memory(&err);
    if (!text) {
        pl_call_fail(point->call, &err);
        return;
    }
    memcpy(text, (const char *)ddp->texts->data + LENGTH, length);
    text[length] = '\0';
    const bool objected = point->polls && *poll_on(ddp) > 0;
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
    return pl_ddp_call_broadcast(ddp, FIRST, LENGTH + length_on(ddp) - FIRST, err);
}

/* The rest is a sync point of its own, before any other. */
static void first_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_error_t err = {0};
    if (failure || LENGTH + length_on(ddp) <= FIRST) {
        text_end(ddp, point, failure);
        return;
    }
    const pl_sync_point_t rest = {.begin = rest_begin,
                                  .end = text_end,
                                  .call = point->call,
                                  .text = point->text,
                                  .polls = point->polls,
                                  .compares = point->compares};
    point->text = NULL;
    if (pl_ddp_sync_next(ddp, &rest, &err) == PL_OK)
        return;
    pl_free(rest.text);
    pl_replica_waited(&ddp->replica);
    pl_call_fail(rest.call, &err);
}

static int first_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const uint64_t length = strlen(point->text);
    if (ddp->replica.rank == 0) {
        memcpy(ddp->texts->data, &length, sizeof length);
        memcpy((char *)ddp->texts->data + LENGTH, point->text, length);
    }
    int code = pl_ddp_call_broadcast(ddp, 0, FIRST, err);
    if (code != PL_OK || !point->polls)
        return code;
    *poll_on(ddp) = point->objects;
    return pl_ddp_call_sum(ddp, (pl_reg_ptr_t){ddp->texts, POLL}, 1, PL_F64, err);
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
