/* journal.c - a file of all that the hub had, written by a tap
 *
 * Frames are kept as they were sent; what belongs to the process alone, the names of its
 * kinds of actors and the fields of its messages, is kept beside them.  Each quarter of a
 * second what there is goes to the file, so that a process that is killed leaves nearly
 * all of it. */
#include "telemetry/journal.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "config.h"
#include "telemetry/sink.h"

enum { KINDS = 1024 };

typedef struct journal {
    pl_sink_t *sink;
    uint64_t lost;                                          /* the disk did not keep up */
    bool is_kept[KINDS];                                    /* the name of a kind */
} journal_t;

static bool put(journal_t *j, pl_journal_type_t type, const void *head, size_t head_size,
                pl_bytes_t body)
{
    static _Thread_local struct {
        pl_journal_record_t record;
        unsigned char bytes[PL_JOURNAL_MAX + 8];
    } whole;
    const size_t size = head_size + body.size, end = size + -size % 8;
    memcpy(whole.bytes, head, head_size);
    if (body.size)
        memcpy(whole.bytes + head_size, body.data, body.size);
    memset(whole.bytes + size, 0, end - size);
    whole.record = (pl_journal_record_t){.size = (uint32_t)size,
                                         .sum = pl_crc32c(0, whole.bytes, size),
                                         .type = type};
    whole.record.head_sum = pl_crc32c(0, &whole.record,
                                      offsetof(pl_journal_record_t, head_sum));
    return pl_sink_put(j->sink, &whole, sizeof whole.record + end);
}

/* ---- the first record ---- */

uint32_t pl_journal_hash(const pl_message_info_t *info)
{
    uint32_t sum = pl_crc32c(0, info->name, strlen(info->name) + 1);
    for (int section = 0; section < 3; section++) {
        for (const pl_field_info_t *f = info->fields[section]; f->name; f++) {
            const unsigned char type = (unsigned char)f->type;
            sum = pl_crc32c(sum, f->name, strlen(f->name) + 1);
            sum = pl_crc32c(sum, &type, sizeof type);
            for (uint32_t v = 0; f->values && v < f->values->count; v++)
                sum = pl_crc32c(sum, f->values->names[v],
                                strlen(f->values->names[v]) + 1);
        }
        sum = pl_crc32c(sum, "", 1);
    }
    return sum;
}

static json_t *messages_list(void)
{
    json_t *list = json_array();
    unsigned number;
    const pl_message_info_t *info;
    for (int k = 0; list && (info = pl_message_at(k, &number)); k++)
        if (json_array_append_new(list,
                                  json_pack("[I, s, I]", (json_int_t)number, info->name,
                                            (json_int_t)pl_journal_hash(info)))
            != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static int put_begin(journal_t *j, pl_error_t *err)
{
    json_t *json = json_pack("{s:s, s:i, s:I, s:o}", "paceline", PACKAGE_VERSION,
                             "protocol", PL_PROTOCOL_VERSION, "time",
                             (json_int_t)time(NULL), "messages", messages_list());
    char *text = json ? pl_json_write(json, PL_JSON_COMPACT) : NULL;
    json_decref(json);
    if (!text)
        return pl_no_memory(err);
    const bool fits = strlen(text) <= PL_JOURNAL_MAX
                      && pl_sink_put(j->sink, PL_JOURNAL_MAGIC, 8)
                      && put(j, PL_JOURNAL_BEGIN, text, strlen(text), (pl_bytes_t){0});
    pl_text_free(text);
    return fits ? PL_OK
                : pl_fail(err, PL_EIO, "cannot write the first record of the journal");
}

/* ---- the tap ---- */

static void keep_kind(void *user, uint32_t *number)
{
    journal_t *j = user;
    pl_journal_kind_t kind = {.number = *number, .level = pl_kind_level(*number)};
    if (*number >= KINDS || j->is_kept[*number])
        return;
    strncpy(kind.name, pl_kind_name(*number), sizeof kind.name - 1);
    j->is_kept[*number] = put(j, PL_JOURNAL_KIND, &kind, sizeof kind, (pl_bytes_t){0});
}

static bool put_gap(journal_t *j, int rank, uint64_t count)
{
    const pl_journal_gap_t gap = {.count = count, .rank = rank};
    return put(j, PL_JOURNAL_GAP, &gap, sizeof gap, (pl_bytes_t){0});
}

static void journal_record(void *self, const pl_tap_record_t *record)
{
    journal_t *j = self;
    const pl_journal_message_t head = {.seq = record->stamp.seq,
                                       .time = record->stamp.time,
                                       .rank = record->stamp.rank,
                                       .process_id = record->process_id};
    if (j->lost && put_gap(j, PL_JOURNAL_ANY_RANK, j->lost))
        j->lost = 0;
    pl_frame_kinds(record->frame, keep_kind, j);
    j->lost += j->lost || !put(j, PL_JOURNAL_MESSAGE, &head, sizeof head, record->frame);
}

static void journal_gap(void *self, int rank, uint64_t count)
{
    journal_t *j = self;
    if (!put_gap(j, rank, count))
        j->lost += count;
}

static void journal_tick(void *self)
{
    pl_sink_push(((journal_t *)self)->sink);
}

static void journal_close(void *self)
{
    journal_t *j = self;
    pl_sink_last(j->sink);
    if (!j->lost || put_gap(j, PL_JOURNAL_ANY_RANK, j->lost))
        put(j, PL_JOURNAL_END, "", 0, (pl_bytes_t){0});
    pl_sink_close(j->sink);
    pl_free(j);
}

static const pl_tap_ops_t journal_ops = {.record = journal_record,
                                         .gap = journal_gap,
                                         .tick = journal_tick,
                                         .close = journal_close};

/* A buffer begins with a record, that of the file's beginning with the magic. */
static size_t journal_whole(const char *bytes, size_t size)
{
    pl_journal_record_t r;
    size_t at = size >= 8 && !memcmp(bytes, PL_JOURNAL_MAGIC, 8) ? 8 : 0;
    while (size - at >= sizeof r) {
        memcpy(&r, bytes + at, sizeof r);
        const size_t whole = sizeof r + r.size + -(size_t)r.size % 8;
        if (whole > size - at)
            break;
        at += whole;
    }
    return at;
}

static const pl_sink_kind_t journal_file = {.name = "journal",
                                            .begin = PL_JOURNAL_NAME,
                                            .whole = journal_whole};

static int journal_begin(journal_t *j, pl_runtime_t *runtime, const char *path,
                         pl_error_t *err)
{
    j->sink = pl_sink_new(runtime, path, &journal_file, err);
    if (!j->sink)
        return PL_EIO;
    const int code = put_begin(j, err);
    return code == PL_OK ? pl_tap_add(runtime, &journal_ops, j, err) : code;
}

int pl_journal_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err)
{
    pl_error_t own;
    journal_t *j = pl_alloc(sizeof *j);
    if (!j)
        return pl_no_memory(err);
    if (!err)
        err = &own;
    if (journal_begin(j, runtime, path, err) == PL_OK)
        return PL_OK;
    if (j->sink)
        pl_sink_close(j->sink);
    pl_free(j);
    return err->code;
}
