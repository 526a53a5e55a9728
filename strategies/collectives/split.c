/* split.c - groups of ranks: those of the same color get a collective of their own
 *
 * Each rank starts a further collective of the same kind. The ranks gather addresses
 * and colors with the collective of all ranks. Then the ranks of a color join. So a
 * group has memory, failures and aborts of its own, and works beside the others.
 *
 * A rank that cannot open its group still takes part in the gather, with the reason:
 * the others would wait for it without end. */
#include "strategies/collectives/split.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* The entry of a rank; chunks of all_gather are multiples of PL_CHUNK_STEP. */
typedef struct split_entry {
    char address[PL_ADDRESS_TEXT];
    char cause[PL_ERROR_TEXT];                      /* why this rank has no group  [""] */
    int32_t color, unused[3];
} split_entry_t;

_Static_assert(sizeof(split_entry_t) % PL_CHUNK_STEP == 0, "an entry is a chunk");

static void split_end(void *self, pl_group_split_t *split)
{
    split->life = 0;
    split->ended(self, split, split->end.code ? &split->end : NULL);
}

/* No call to `from` is open then. The struct may be gone after done(), unless a group
 * has yet to end. */
static void split_done(void *self, pl_group_split_t *split, const pl_error_t *failure)
{
    const bool has_ended = split->has_ended;
    split->is_done = true;
    pl_object_unref(split->buffer);
    split->buffer = NULL;
    split->done(self, split, failure);
    if (has_ended)
        split_end(self, split);
}

/* Answers to alloc_buffer, all_gather and join. */
static void stepped(void *self, const pl_answer_t *answer)
{
    pl_group_split_t *split = answer->context;
    if (split->is_done)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        split_done(self, split, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        split->next(self, split, answer->body);
}

static pl_how_t then(pl_group_split_t *split,
                     void (*next)(void *self, pl_group_split_t *split,
                                  const pl_body_t *body))
{
    split->next = next;
    return (pl_how_t){.on_answer = stepped, .context = split};
}

/* ---- the ranks have gathered ---- */

static void joined(void *self, pl_group_split_t *split, const pl_body_t *body)
{
    (void)body;
    split_done(self, split, NULL);
}

/* Fails for the first rank that has no group; this rank's may have ended since it was
 * gathered. */
static int entries_check(const pl_group_split_t *split, pl_error_t *err)
{
    const split_entry_t *entry = split->buffer->data;
    int rank = 0;
    while (rank < split->size && !*entry[rank].cause)
        rank++;
    if (rank == split->size && !split->failure.code)
        return PL_OK;
    const bool is_own = rank == split->rank || rank == split->size;
    return pl_fail(err, is_own ? split->failure.code : PL_EPEER,
                   "rank %d cannot open the collective of its group: %.*s",
                   is_own ? split->rank : rank, PL_ERROR_TEXT - 1,
                   is_own ? split->failure.text : entry[rank].cause);
}

static void gathered(void *self, pl_group_split_t *split, const pl_body_t *body)
{
    (void)body;
    pl_error_t err = {0};
    char *members = NULL;
    int code = entries_check(split, &err);
    if (code == PL_OK) {
        /* The addresses of the ranks of this color, a line each. */
        const split_entry_t *entry = split->buffer->data;
        const size_t capacity = (size_t)split->size * (PL_ADDRESS_TEXT + 1);
        size_t at = 0;
        members = pl_alloc(capacity);
        split->group_size = 0;
        for (int rank = 0; rank < split->size && members; rank++) {
            if (entry[rank].color != split->color)
                continue;
            if (rank == split->rank)
                split->group_rank = split->group_size;
            split->group_size++;
            at += (size_t)snprintf(members + at, capacity - at, "%.*s\n",
                                   PL_ADDRESS_TEXT - 1, entry[rank].address);
        }
        code = members ? PL_OK : pl_no_memory(&err);
    }
    const pl_join_t msg = {.rank = (uint32_t)split->group_rank,
                           .world_size = (uint32_t)split->group_size,
                           .addresses = members};
    if (code == PL_OK)
        split->joining = pl_call_join(self, split->group, &msg, then(split, joined),
                                      &err);
    if (!split->joining)
        split_done(self, split, &err);
    pl_free(members);
}

/* ---- what this rank gives ---- */

/* Gathers once there is memory for the entry and an address or a cause. */
static void entry_give(void *self, pl_group_split_t *split)
{
    pl_error_t err = {0};
    if (split->is_given || !split->buffer || (!*split->address && !split->failure.code))
        return;
    split_entry_t *own = (split_entry_t *)split->buffer->data + split->rank;
    split->is_given = true;
    own->color = split->color;
    strcpy(own->address, split->address);
    if (split->failure.code)
        strcpy(own->cause, split->failure.text);
    const pl_all_gather_t msg = {.memory = &split->buffer->object,
                                 .count = (uint64_t)split->size * sizeof(split_entry_t),
                                 .dtype = PL_U8};
    if (pl_call_all_gather(self, split->from, &msg, then(split, gathered), &err))
        return;
    pl_call_abort(self, split->from, &(pl_abort_t){.reason = err.text}, (pl_how_t){0},
                  NULL);
    split_done(self, split, &err);
}

static void buffer_allocated(void *self, pl_group_split_t *split, const pl_body_t *body)
{
    split->buffer = pl_object_ref(body->alloc_buffer_reply.memory);
    entry_give(self, split);
}

/* Answers to `start` of the group's collective. */
static void lived(void *self, const pl_answer_t *answer)
{
    pl_group_split_t *split = answer->context;
    if (answer->kind == PL_ANSWER_LATE)
        return;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        snprintf(split->address, sizeof split->address, "%s",
                 answer->body->start_progress.address);
        entry_give(self, split);
        return;
    }
    split->has_ended = true;
    if (answer->kind == PL_ANSWER_ERROR)
        split->end = *answer->error;
    if (split->is_done) {
        split_end(self, split);
        return;
    }
    pl_fail(&split->failure, PL_ECANCELLED, "it has ended");
    if (split->end.code)
        split->failure = split->end;
    if (!split->joining) {
        entry_give(self, split);
        return;
    }
    pl_abandon(self,
               split->joining);   /* its thread has ended, perhaps before the call came */
    split_done(self, split, &split->failure);
}

static void group_start(void *self, pl_group_split_t *split)
{
    pl_error_t *err = &split->failure;
    const char *name = ((const pl_component_t *)split->component->component.ops)->name;
    const pl_actor_ops_t *ops = pl_collective_actor(name, err);
    const pl_start_t start = {.options = "", .context = &split->component->object};
    const pl_how_t how = {.on_answer = lived, .context = split};
    if (ops && split->color < 0)
        pl_fail(err, PL_EINVAL, "color %d: 0 or more is needed", split->color);
    else if (ops)
        split->life = pl_spawn(self, ops, PL_OWN_THREAD, &start, how, &split->group, err);
}

static bool is_splitting(void *self, pl_address_t from)
{
    const pl_group_split_t *split;
    for (int k = 0; (split = pl_open_call(self, stepped, k)); k++)
        if (split->from.actor == from.actor)
            return true;
    for (int k = 0; (split = pl_open_call(self, lived, k)); k++)
        if (split->from.actor == from.actor && !split->is_done)
            return true;
    return false;
}

int pl_collective_split(void *self, pl_group_split_t *split, pl_error_t *err)
{
    const pl_alloc_buffer_t msg = {.bytes = (uint64_t)split->size
                                            * sizeof(split_entry_t)};
    if (split->rank < 0 || split->size > PL_RANKS_MAX || split->rank >= split->size)
        return pl_fail(err, PL_EINVAL, "rank %d of %d: at most %d ranks are possible",
                       split->rank, split->size, PL_RANKS_MAX);
    if (is_splitting(self, split->from))
        return pl_fail(err, PL_EBUSY,
                       "a collective is split once at a time: wait for done()");
    split->life = split->joining = 0;
    split->buffer = NULL;
    split->address[0] = '\0';
    split->failure = split->end = (pl_error_t){0};
    split->is_given = split->is_done = split->has_ended = false;
    if (!pl_call_alloc_buffer(self, split->from, &msg, then(split, buffer_allocated),
                              err))
        return err ? err->code : PL_EIO;
    group_start(self, split);
    return PL_OK;
}
