/* sequence.c - calls that an actor makes one after the other, as one table */
#include "actors/sequence.h"

#include "base/error.h"

static void sequence_run(pl_sequence_t *sequence, void *self);

static void sequence_fail(pl_sequence_t *sequence, void *self, const pl_error_t *error)
{
    sequence->step = NULL;
    sequence->ops->fail(self, error);
}

static void sequence_answered(void *self, const pl_answer_t *answer)
{
    pl_sequence_t *sequence = answer->context;
    const pl_sequence_step_t *step = sequence->step;
    pl_error_t err = {0};
    /* An answer that comes from within send() has no number. */
    if (!step || (answer->call && answer->call != sequence->call))
        return;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        if (sequence->ops->on_progress)
            sequence->ops->on_progress(self);
        return;
    }
    if (answer->kind == PL_ANSWER_LATE) {
        if (sequence->ops->on_late)
            sequence->ops->on_late(self);
        return;
    }
    if (answer->kind == PL_ANSWER_ERROR) {
        err = *answer->error;
        if (!step->on_error || !step->on_error(self, &err)) {
            sequence_fail(sequence, self, &err);
            return;
        }
    } else if (step->on_reply && step->on_reply(self, answer->body, &err) != PL_OK) {
        sequence_fail(sequence, self, &err);
        return;
    }
    if (!sequence->step)
        return;
    sequence->step++;
    sequence_run(sequence, self);
}

static void sequence_run(pl_sequence_t *sequence, void *self)
{
    const pl_how_t how = {.on_answer = sequence_answered, .context = sequence};
    for (; sequence->step && sequence->step->send; sequence->step++) {
        const pl_sequence_step_t *step = sequence->step;
        pl_error_t err = {0};
        sequence->call = 0;
        if (sequence->ops->begin_step)
            sequence->ops->begin_step(self, step);
        const uint64_t call = step->send(self, how, &err);
        if (call) {
            if (sequence->step == step)
                sequence->call = call;
            return;
        }
        if (err.code != PL_OK) {
            sequence_fail(sequence, self, &err);
            return;
        }
        if (!sequence->step)
            return;
    }
    if (!sequence->step)
        return;
    sequence->step = NULL;
    sequence->ops->done(self);
}

void pl_sequence_begin(pl_sequence_t *sequence, void *self, const pl_sequence_ops_t *ops)
{
    *sequence = (pl_sequence_t){.ops = ops, .step = ops->steps};
    sequence_run(sequence, self);
}

void pl_sequence_end(pl_sequence_t *sequence)
{
    sequence->step = NULL;
}
