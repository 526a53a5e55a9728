/* link_path.c - what one end of a link keeps for a peer: messages that are not
 * acknowledged, and the number of the last one received
 *
 * A connection delivers in order or breaks.  So a message is missing only after the
 * connection broke, and is sent again over the next one; single messages need no timers.
 */
#include "transport/link_parts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

int link_path_queue(link_path_t *path, uint8_t kind, pl_bytes_t bytes, size_t max,
                    pl_error_t *err)
{
    if (path->oldest && path->bytes + bytes.size > max)
        return pl_fail(err, PL_EBUSY, "%zu bytes wait for the peer; the limit is %zu",
                       path->bytes, max);
    link_entry_t *entry = pl_alloc(sizeof *entry + bytes.size);
    if (!entry)
        return pl_no_memory(err);
    entry->sequence = ++path->last;
    entry->kind = kind;
    entry->size = bytes.size;
    if (bytes.size)
        memcpy(entry->bytes, bytes.data, bytes.size);
    path->bytes += bytes.size;
    if (path->newest)
        path->newest->next = entry;
    else
        path->oldest = entry;
    path->newest = entry;
    if (!path->unsent)
        path->unsent = entry;
    return PL_OK;
}

bool link_path_acknowledge(link_path_t *path, uint64_t sequence)
{
    uint64_t sent = path->unsent ? path->unsent->sequence - 1 : path->last;
    if (sequence > sent)
        return false;
    while (path->oldest && path->oldest->sequence <= sequence) {
        link_entry_t *next = path->oldest->next;
        path->bytes -= path->oldest->size;
        pl_free(path->oldest);
        path->oldest = next;
    }
    if (!path->oldest)
        path->newest = NULL;
    return true;
}

int link_path_rewind(link_path_t *path)
{
    int sent = 0;
    for (link_entry_t *entry = path->oldest; entry != path->unsent; entry = entry->next)
        sent++;
    path->unsent = path->oldest;
    return sent;
}

bool link_path_take(link_path_t *path, uint64_t sequence, size_t size)
{
    if (sequence != path->received + 1)
        return false;
    path->received = sequence;
    path->unacknowledged_bytes += size;
    return true;
}

void link_path_release(link_path_t *path)
{
    while (path->oldest) {
        link_entry_t *next = path->oldest->next;
        pl_free(path->oldest);
        path->oldest = next;
    }
    path->newest = path->unsent = NULL;
    path->bytes = 0;
}
