/* ddp_decide.c - what rank zero says, to all ranks
 *
 * A text goes over the control buffer in two pieces: its length and as much as fits
 * beside it first, because most are short. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp_parts.h"

enum {
    LENGTH = sizeof(uint64_t),
    FIRST = 1024,
    POLL = PL_DDP_TEXTS - sizeof(double),                   /* where it lies */
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

/* Of a line of metric_names the name alone: where it begins and how long it is. */
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

/* Figures are added up by their places. */
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

static void names_reply(pl_ddp_t *ddp, const pl_meeting_t *meeting, const char *text)
{
    pl_error_t err = {0};
    if (names_compare(ddp, meeting->text, text, &err) == PL_OK)
        pl_reply_metric_names(meeting->call, &(pl_metric_names_reply_t){.names = text});
    else
        pl_call_fail(meeting->call, &err);
}

static void text_end(pl_ddp_t *ddp, pl_meeting_t *meeting, const pl_error_t *failure)
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
        pl_call_fail(meeting->call, &err);
        return;
    }
    memcpy(text, (const char *)ddp->texts->data + LENGTH, length);
    text[length] = '\0';
    const bool objected = meeting->polls && *poll_on(ddp) > 0;
    if (meeting->compares)
        names_reply(ddp, meeting, text);
    else
        pl_reply_decide(meeting->call,
                        &(pl_decide_reply_t){.text = text, .objected = objected});
    pl_free(text);
}

static int rest_begin(pl_ddp_t *ddp, pl_meeting_t *meeting, pl_error_t *err)
{
    (void)meeting;
    return pl_ddp_call_broadcast(ddp, FIRST, LENGTH + length_on(ddp) - FIRST, err);
}

/* The rest is a meeting of its own, before any other. */
static void first_end(pl_ddp_t *ddp, pl_meeting_t *meeting, const pl_error_t *failure)
{
    pl_error_t err = {0};
    if (failure || LENGTH + length_on(ddp) <= FIRST) {
        text_end(ddp, meeting, failure);
        return;
    }
    const pl_meeting_t rest = {.begin = rest_begin,
                               .end = text_end,
                               .call = meeting->call,
                               .text = meeting->text,
                               .polls = meeting->polls,
                               .compares = meeting->compares};
    meeting->text = NULL;
    if (pl_ddp_meet_next(ddp, &rest, &err) == PL_OK)
        return;
    pl_free(rest.text);
    pl_replica_waited(&ddp->replica);
    pl_call_fail(rest.call, &err);
}

static int first_begin(pl_ddp_t *ddp, pl_meeting_t *meeting, pl_error_t *err)
{
    const uint64_t length = strlen(meeting->text);
    if (ddp->replica.rank == 0) {
        memcpy(ddp->texts->data, &length, sizeof length);
        memcpy((char *)ddp->texts->data + LENGTH, meeting->text, length);
    }
    int code = pl_ddp_call_broadcast(ddp, 0, FIRST, err);
    if (code != PL_OK || !meeting->polls)
        return code;
    *poll_on(ddp) = meeting->objects;
    return pl_ddp_call_sum(ddp, (pl_lent_at_t){ddp->texts, POLL}, 1, PL_F64, err);
}

static int meet_over(pl_ddp_t *ddp, pl_call_t *call, const pl_decide_t *msg,
                     bool compares, pl_error_t *err)
{
    if (strlen(msg->text) > LONGEST)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "rank 0 has %zu bytes to send to the other ranks; at most %zu are possible",
            strlen(msg->text), (size_t)LONGEST);
    const pl_meeting_t first = {.begin = first_begin,
                                .end = first_end,
                                .call = call,
                                .text = pl_strdup(msg->text),
                                .polls = msg->polls,
                                .objects = msg->objects,
                                .compares = compares};
    int code = first.text ? pl_ddp_meet(ddp, &first, err) : pl_no_memory(err);
    if (code != PL_OK)
        pl_free(first.text);
    return code;
}

int pl_ddp_decide(pl_ddp_t *ddp, pl_call_t *call, const pl_decide_t *msg, pl_error_t *err)
{
    return meet_over(ddp, call, msg, false, err);
}

int pl_ddp_agree_on_names(pl_ddp_t *ddp, pl_call_t *call, const char *names,
                          pl_error_t *err)
{
    return meet_over(ddp, call, &(pl_decide_t){.text = names}, true, err);
}
