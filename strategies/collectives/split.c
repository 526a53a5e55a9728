/* split.c - groups of ranks: those of the same color get a collective of their own
 *
 * Each rank starts a further collective of the same kind and has the ranks gather
 * addresses and colors by the collective of all.  Then those of its color meet.  So a
 * group has memory, deaths and aborts of its own, and works beside the others. */
#include "strategies/collectives/split.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* What a rank gives; chunks of all_gather are multiples of PL_CHUNK_STEP. */
typedef struct card {
    char address[PL_ADDRESS_TEXT];
    int32_t color, unused[3];
} card_t;

_Static_assert(sizeof(card_t) % PL_CHUNK_STEP == 0, "a card is a chunk");

static void split_end(void *self, pl_split_t *split, const pl_error_t *failure)
{
    if (split->is_done)
        return;
    split->is_done = true;
    pl_object_unref(split->lent);
    split->lent = NULL;
    split->done(self, split, failure);
}

static void joined(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        split_end(self, answer->context, NULL);
    else if (answer->kind == PL_ANSWER_ERROR)
        split_end(self, answer->context, answer->error);
}

/* Those of this rank's color; a line for each. */
static char *members_list(pl_split_t *split)
{
    const card_t *card = split->lent->data;
    const size_t room = (size_t)split->size * (PL_ADDRESS_TEXT + 1);
    char *text = pl_alloc(room);
    size_t at = 0;
    split->group_size = 0;
    for (int rank = 0; rank < split->size && text; rank++) {
        if (card[rank].color != split->color)
            continue;
        if (rank == split->rank)
            split->group_rank = split->group_size;
        split->group_size++;
        at += (size_t)snprintf(text + at, room - at, "%.*s\n", PL_ADDRESS_TEXT - 1,
                               card[rank].address);
    }
    return text;
}

static void gathered(void *self, const pl_answer_t *answer)
{
    pl_split_t *split = answer->context;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        split_end(self, split, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || split->is_done)
        return;
    char *members = members_list(split);
    const pl_join_t msg = {.rank = (uint32_t)split->group_rank,
                           .world_size = (uint32_t)split->group_size,
                           .addresses = members};
    const pl_how_t how = {.on_answer = joined, .context = split};
    if (!members)
        pl_no_memory(&err);
    if (!members || !pl_call_join(self, split->group, &msg, how, &err))
        split_end(self, split, &err);
    pl_free(members);
}

static void lent(void *self, const pl_answer_t *answer)
{
    pl_split_t *split = answer->context;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        split_end(self, split, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || split->is_done)
        return;
    split->lent = pl_object_ref(answer->body->lend_memory_reply.memory);
    card_t *own = (card_t *)split->lent->data + split->rank;
    own->color = split->color;
    strcpy(own->address, split->address);
    const pl_all_gather_t msg = {.memory = &split->lent->object,
                                 .count = (uint64_t)split->size * sizeof(card_t),
                                 .dtype = PL_U8};
    const pl_how_t how = {.on_answer = gathered, .context = split};
    if (!pl_call_all_gather(self, split->from, &msg, how, &err))
        split_end(self, split, &err);
}

/* The address of the group's collective is known. */
static void address_take(void *self, pl_split_t *split, const char *address)
{
    pl_error_t err = {0};
    const pl_lend_memory_t msg = {.bytes = (uint64_t)split->size * sizeof(card_t)};
    const pl_how_t how = {.on_answer = lent, .context = split};
    snprintf(split->address, sizeof split->address, "%s", address);
    if (!pl_call_lend_memory(self, split->from, &msg, how, &err))
        split_end(self, split, &err);
}

static void lived(void *self, const pl_answer_t *answer)
{
    pl_split_t *split = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS && *answer->body->start_progress.address)
        address_take(self, split, answer->body->start_progress.address);
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    const pl_error_t *err = answer->kind == PL_ANSWER_ERROR ? answer->error : NULL;
    pl_error_t early = {0};
    if (!err)
        pl_fail(&early, PL_ECANCELLED, "the collective of the group has ended");
    split->life = 0;
    split_end(self, split, err ? err : &early);
    if (split->ended)
        split->ended(self, split, err);
}

int pl_collective_split(void *self, pl_split_t *split, pl_error_t *err)
{
    const char *name = ((const pl_part_t *)split->part->part.ops)->name;
    const pl_actor_ops_t *ops = pl_collective_actor(name, err);
    const pl_start_t start = {.options = "", .context = &split->part->object};
    const pl_how_t how = {.on_answer = lived, .context = split};
    if (split->color < 0)
        return pl_fail(err, PL_EINVAL, "color %d: 0 or more is needed", split->color);
    if (ops)
        split->life = pl_spawn(self, ops, PL_OWN_THREAD, &start, how, &split->group, err);
    return split->life ? PL_OK : err->code;
}
