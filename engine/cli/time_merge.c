/* time_merge.c - sorts the messages of several ranks by time */
#include "cli/stream_line.h"

#include <stdlib.h>
#include <string.h>

enum { MAX = 100000 };                                      /* messages that wait */

bool cli_time_merge_add(cli_time_merge_t *queue, const cli_held_t *one)
{
    if (queue->count == queue->capacity) {
        const int capacity = queue->capacity ? 2 * queue->capacity : 64;
        cli_held_t *held = realloc(queue->held, (size_t)capacity * sizeof *held);
        if (!held)
            return false;
        queue->held = held;
        queue->capacity = capacity;
    }
    int at = queue->count;
    while (at > 0 && queue->held[at - 1].rank != one->rank
           && queue->held[at - 1].time > one->time)
        at--;
    memmove(&queue->held[at + 1], &queue->held[at],
            (size_t)(queue->count - at) * sizeof *queue->held);
    queue->held[at] = *one;
    queue->count++;
    queue->has_several |= one->rank > 0;
    return true;
}

/* A message that has waited long enough takes those before it along. */
int cli_time_merge_due(const cli_time_merge_t *queue, double now, bool ends)
{
    int due = queue->count;
    if (ends || !queue->has_several || queue->count >= MAX)
        return due;
    while (due > 0 && now - queue->held[due - 1].came < CLI_TIME_MERGE_MS / 1e3)
        due--;
    return due;
}

void cli_time_merge_drop(cli_time_merge_t *queue, int count)
{
    for (int k = 0; k < count; k++) {
        json_decref(queue->held[k].message);
        free(queue->held[k].text);
    }
    queue->count -= count;
    if (queue->count)
        memmove(queue->held, queue->held + count,
                (size_t)queue->count * sizeof *queue->held);
    if (queue->count)
        return;
    free(queue->held);
    queue->held = NULL;
    queue->capacity = 0;
}
