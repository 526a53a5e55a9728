/* time_merge.c - tests of engine/cli/time_merge.c: the order of messages of ranks */
#include "cli/stream_line.h"

#include <stdio.h>
#include <string.h>

#include "tap.h"

static void add(cli_time_merge_t *queue, int rank, double time, double came)
{
    const cli_held_t one = {.time = time,
                            .came = came,
                            .rank = rank,
                            .message = json_integer((json_int_t)(time * 100))};
    ok(cli_time_merge_add(queue, &one), "rank %d at %g", rank, time);
}

/* Times in hundredths, of those that are due. */
static const char *due(cli_time_merge_t *queue, double now, bool ends)
{
    static char text[200];
    const int count = cli_time_merge_due(queue, now, ends);
    size_t at = 0;
    *text = '\0';
    for (int k = 0; k < count; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d ",
                               (int)json_integer_value(queue->held[k].message));
    cli_time_merge_drop(queue, count);
    return text;
}

static void a_late_line_of_another_rank_is_put_before_its_effects(void)
{
    cli_time_merge_t queue = {0};
    add(&queue, 0, 1, 10);
    add(&queue, 0, 3, 10.01);
    add(&queue, 1, 2, 10.02);
    is_text(due(&queue, 10.03, false), "", "each waits for a moment");
    is_text(due(&queue, 10.055, false), "100 ", "the first has waited for long enough");
    is_text(due(&queue, 10.065, false), "200 300 ",
            "a message takes those before it along");
    add(&queue, 1, 5, 11);
    add(&queue, 0, 4, 11);
    is_text(due(&queue, 11, true), "400 500 ", "at the end all go");
    ok(!queue.held && !queue.count, "and nothing is left");
}

static void a_rank_keeps_its_order(void)
{
    cli_time_merge_t queue = {0};
    add(&queue, 1, 2, 1);
    add(&queue, 1, 1, 1);
    add(&queue, 0, 1, 1);
    is_text(due(&queue, 2, false), "200 100 100 ", "whatever its clock says");
}

static void lines_of_a_single_rank_do_not_wait(void)
{
    cli_time_merge_t queue = {0};
    add(&queue, -1, 1, 1);
    add(&queue, 0, 2, 1);
    is_text(due(&queue, 1, false), "100 200 ", "they are shown as they come");
}

int main(void)
{
    run(a_late_line_of_another_rank_is_put_before_its_effects);
    run(a_rank_keeps_its_order);
    run(lines_of_a_single_rank_do_not_wait);
    return tap_done();
}
