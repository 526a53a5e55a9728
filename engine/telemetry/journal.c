/* journal.c - a journal: a file of every message that the hub had
 *
 * A tap writes frames as they were sent.  What only this process knows, the names of
 * kinds of actors and the fields of messages, is written next to them.  Four times a
 * second the buffered records go to the file, so a process that is killed leaves
 * nearly all of them.
 *
 * The reader trusts nothing in the file: lengths are bounded, a checksum is verified
 * before its data is used, and frames are decoded as those of another process.  After
 * damage it continues at the next valid record header: headers are at multiples of 8.
 * Kinds of actors become kinds of this process, so a message reads as if it were new. */
#include "telemetry/journal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "config.h"
#include "runtime/monitor.h"
#include "telemetry/sink.h"
#include "telemetry/taps.h"

enum { KINDS = 1024, MESSAGES = 256 };

/* ---- writing ---- */

typedef struct journal_writer {
    pl_sink_t *sink;
    uint64_t lost;                               /* messages that the disk did not take */
    bool is_kept[KINDS];                         /* the name of a kind is in the file */
} journal_writer_t;

static bool put(journal_writer_t *j, pl_journal_type_t type, const void *head,
                size_t head_size, pl_bytes_t body)
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

static int put_begin(journal_writer_t *j, pl_error_t *err)
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
    json_t *json = json_pack("{s:s, s:i, s:I, s:o}", "paceline", PACKAGE_VERSION,
                             "protocol", PL_PROTOCOL_VERSION, "time",
                             (json_int_t)time(NULL), "messages", list);
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

static void keep_kind(void *user, uint32_t *number)
{
    journal_writer_t *j = user;
    pl_journal_kind_t kind = {.number = *number, .level = pl_kind_level(*number)};
    if (*number >= KINDS || j->is_kept[*number])
        return;
    strncpy(kind.name, pl_kind_name(*number), sizeof kind.name - 1);
    j->is_kept[*number] = put(j, PL_JOURNAL_KIND, &kind, sizeof kind, (pl_bytes_t){0});
}

static bool put_gap(journal_writer_t *j, int rank, uint64_t count)
{
    const pl_journal_gap_t gap = {.count = count, .rank = rank};
    return put(j, PL_JOURNAL_GAP, &gap, sizeof gap, (pl_bytes_t){0});
}

static void journal_record(void *self, const pl_tap_record_t *record)
{
    journal_writer_t *j = self;
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
    journal_writer_t *j = self;
    if (!put_gap(j, rank, count))
        j->lost += count;
}

static void journal_tick(void *self)
{
    pl_sink_push(((journal_writer_t *)self)->sink);
}

static void journal_close(void *self)
{
    journal_writer_t *j = self;
    pl_sink_last(j->sink);
    if (!j->lost || put_gap(j, PL_JOURNAL_ANY_RANK, j->lost))
        put(j, PL_JOURNAL_END, "", 0, (pl_bytes_t){0});
    pl_sink_close(j->sink);
    pl_free(j);
}

/* A buffer begins with a record; the first buffer of the file begins with the magic. */
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

int pl_journal_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err)
{
    static const pl_tap_ops_t ops = {.record = journal_record,
                                     .gap = journal_gap,
                                     .tick = journal_tick,
                                     .close = journal_close};
    static const pl_sink_kind_t file = {.name = "journal",
                                        .begin = PL_JOURNAL_NAME,
                                        .whole = journal_whole};
    pl_error_t own;
    journal_writer_t *j = pl_alloc(sizeof *j);
    if (!j)
        return pl_no_memory(err);
    if (!err)
        err = &own;
    j->sink = pl_sink_new(runtime, path, &file, err);
    if (j->sink && put_begin(j, err) == PL_OK
        && pl_tap_add(runtime, &ops, j, err) == PL_OK)
        return PL_OK;
    if (j->sink)
        pl_sink_close(j->sink);
    pl_free(j);
    return err->code;
}

/* ---- reading ---- */

struct pl_journal {
    FILE *file;
    char *path;
    uint64_t offset;                                  /* of the next record */
    bool is_whole;                                    /* the end record was read */
    bool is_over;                                     /* nothing more can be read */
    const char *how;                                  /* the first damage  [NULL: none] */
    uint64_t damaged_at, lost, lost_until;            /* bytes; lost: in all */
    int places;
    bool is_cut_off;
    uint32_t kind[KINDS];                            /* in this process, by its number in
                                                        the file */
    bool is_known[MESSAGES];                         /* with the fields of this version */
    uint64_t strange;                                /* messages with other fields */
    int64_t time;
    pl_journal_item_t item;
    char line[PL_TAP_LINE_MAX];
    _Alignas(8) unsigned char buffer[PL_JOURNAL_MAX + 8];
};

/* Notes that the bytes at a place cannot be used. */
static bool damaged(pl_journal_t *j, uint64_t at, uint64_t bytes, const char *how)
{
    if (!j->how) {
        j->how = how;
        j->damaged_at = at;
    }
    if (!j->places || at != j->lost_until)
        j->places++;
    j->lost += bytes;
    j->lost_until = at + bytes;
    return false;
}

/* The file ends.  A process that was killed writes no end record, and may leave half a
 * record. */
static bool cut_off(pl_journal_t *j)
{
    j->is_over = true;
    j->is_cut_off = !j->is_whole;
    return false;
}

static void report_damage(const pl_journal_t *j, pl_error_t *err)
{
    char end[200] = "", more[64] = "";
    if (j->is_cut_off)
        snprintf(
            end, sizeof end,
            "it has no end record after byte %llu: the writer was killed or is still "
            "running, the disk was full, or a part of the file is missing",
            (unsigned long long)j->offset);
    if (j->places > 1)
        snprintf(more, sizeof more, " there and at %d other places", j->places - 1);
    if (j->how)
        pl_fail(err, PL_EFORMAT,
                "%s: damaged at byte %llu: %s; %llu bytes are lost%s%s%s", j->path,
                (unsigned long long)j->damaged_at, j->how, (unsigned long long)j->lost,
                more, *end ? "; " : "", end);
    else if (*end)
        pl_fail(err, PL_EFORMAT, "%s: %s", j->path, end);
    else
        err->code = PL_OK;
}

static bool is_head(const pl_journal_record_t *r)
{
    return r->head_sum == pl_crc32c(0, r, offsetof(pl_journal_record_t, head_sum))
           && r->size <= PL_JOURNAL_MAX;
}

/* Reads the next record into the buffer; false: it is damaged, or there is none. */
static bool record_read(pl_journal_t *j, pl_journal_record_t *r)
{
    const uint64_t at = j->offset;
    if (fread(r, 1, sizeof *r, j->file) != sizeof *r)
        return cut_off(j);
    if (!is_head(r)) {                                 /* seek the next one, or the end */
        unsigned char *bytes = (unsigned char *)r;
        size_t more;
        do {
            memmove(bytes, bytes + 8, 8);
            more = fread(bytes + 8, 1, 8, j->file);
            j->offset += 8;
        } while (more == 8 && !is_head(r));
        if (more < 8)
            j->offset += 8 + more;
        j->is_over = more < 8 || fseeko(j->file, (off_t)j->offset, SEEK_SET) != 0;
        return damaged(j, at, j->offset - at, "no record begins there");
    }
    const size_t size = r->size + -(size_t)r->size % 8, whole = sizeof *r + size;
    if (fread(j->buffer, 1, size, j->file) != size)
        return cut_off(j);
    j->offset += whole;
    if (r->sum != pl_crc32c(0, j->buffer, r->size))
        return damaged(j, at, whole, "the checksum does not match");
    return !j->is_whole || damaged(j, at, whole, "data follows the end record");
}

/* The checksum of the record is right, but not its content. */
static bool content_damaged(pl_journal_t *j, const pl_journal_record_t *r,
                            const char *how)
{
    const size_t size = sizeof *r + r->size + -(size_t)r->size % 8;
    return damaged(j, j->offset - size, size, how);
}

static void kind_translate(void *user, uint32_t *number)
{
    const pl_journal_t *j = user;
    *number = *number < KINDS ? j->kind[*number] : 0;
}

/* False: the message cannot be shown, or is damaged. */
static bool take_message(pl_journal_t *j, const pl_journal_record_t *r)
{
    pl_journal_message_t head;
    pl_tap_record_t *record = &j->item.record;
    if (r->size < sizeof head + sizeof record->envelope)
        return content_damaged(j, r, "a message is too short");
    memcpy(&head, j->buffer, sizeof head);
    if (head.seq > INT64_MAX || head.time < 0)
        return content_damaged(j, r, "a message has an invalid number or time");
    *record =
        (pl_tap_record_t){.stamp = {head.seq, head.time, head.rank},
                          .process_id = head.process_id,
                          .was_kept = true,
                          .frame = {j->buffer + sizeof head, r->size - sizeof head}};
    memcpy(&record->envelope, record->frame.data, sizeof record->envelope);
    if (record->envelope.message >= MESSAGES || !j->is_known[record->envelope.message]) {
        j->strange++;
        return false;
    }
    if (pl_envelope_read(record->frame, &record->envelope, NULL) != PL_OK)
        return content_damaged(j, r, "a message is invalid");
    pl_frame_kinds(record->frame, kind_translate, j);
    memcpy(&record->envelope, record->frame.data, sizeof record->envelope);
    j->time = head.time;
    return true;
}

/* True: the record is an item.  Types of later versions are skipped. */
static bool take(pl_journal_t *j, const pl_journal_record_t *r)
{
    pl_journal_kind_t kind;
    pl_journal_gap_t gap;
    j->item = (pl_journal_item_t){0};
    switch (r->type) {
    case PL_JOURNAL_MESSAGE: return take_message(j, r);
    case PL_JOURNAL_GAP:
        if (r->size != sizeof gap)
            return content_damaged(j, r, "a record of a gap has a wrong size");
        memcpy(&gap, j->buffer, sizeof gap);
        if (gap.count > INT64_MAX)
            return content_damaged(j, r, "a record of a gap is invalid");
        j->item.is_gap = true;
        j->item.gap_rank = gap.rank;
        j->item.gap_count = gap.count;
        return true;
    case PL_JOURNAL_KIND:
        if (r->size != sizeof kind)
            return content_damaged(j, r, "a record of an actor kind has a wrong size");
        memcpy(&kind, j->buffer, sizeof kind);
        if (kind.number >= KINDS || !memchr(kind.name, 0, sizeof kind.name))
            return content_damaged(j, r, "a record of an actor kind is invalid");
        j->kind[kind.number] = pl_kind_enter(kind.name, kind.level, NULL);
        return false;
    case PL_JOURNAL_END: j->is_whole = true; return false;
    default: return false;
    }
}

bool pl_journal_read(pl_journal_t *j, pl_journal_item_t *item, pl_error_t *err)
{
    pl_journal_record_t r;
    while (!j->is_over) {
        const uint64_t lost = j->lost;
        const bool has_one = record_read(j, &r) && take(j, &r);
        if (j->lost > lost)
            j->item = (pl_journal_item_t){.is_gap = true,
                                          .lost = j->lost - lost,
                                          .lost_at = j->lost_until - (j->lost - lost)};
        else if (!has_one)
            continue;
        *item = j->item;
        return true;
    }
    if (err)
        report_damage(j, err);
    return false;
}

uint64_t pl_journal_strange(const pl_journal_t *j)
{
    return j->strange;
}

/* ---- opening ---- */

/* Checks the versions, and which messages have the fields of this version. */
static int begin_read(pl_journal_t *j, pl_error_t *err)
{
    char magic[8];
    pl_journal_record_t r;
    if (fread(magic, 1, sizeof magic, j->file) != sizeof magic
        || memcmp(magic, PL_JOURNAL_MAGIC, 7) != 0)
        return pl_fail(err, PL_EFORMAT, "%s: not a Paceline journal", j->path);
    if (magic[7] != PL_JOURNAL_MAGIC[7])
        return pl_fail(err, PL_EFORMAT,
                       "%s is a journal of version %d; this Paceline reads version %d",
                       j->path, magic[7], PL_JOURNAL_MAGIC[7]);
    j->offset = sizeof magic;
    if (!record_read(j, &r)) {
        j->is_cut_off = !j->how;
        report_damage(j, err);
        return PL_EFORMAT;
    }
    json_t *begin = r.type == PL_JOURNAL_BEGIN ? pl_json_read((char *)j->buffer, r.size,
                                                              "its first record", NULL)
                                               : NULL;
    const json_int_t protocol = json_integer_value(json_object_get(begin, "protocol"));
    const char *version = json_string_value(json_object_get(begin, "paceline"));
    const json_t *entry;
    size_t k;
    int code = PL_OK;
    if (!begin)
        code = pl_fail(err, PL_EFORMAT, "%s: its first record is invalid", j->path);
    else if (protocol != PL_PROTOCOL_VERSION)
        code =
            pl_fail(err, PL_EFORMAT,
                    "%s was written by Paceline %s with messages of version %lld; this "
                    "Paceline reads version %d",
                    j->path, version ? version : "?", (long long)protocol,
                    PL_PROTOCOL_VERSION);
    json_array_foreach(code == PL_OK ? json_object_get(begin, "messages") : NULL, k,
                       entry) {
        const json_int_t number = json_integer_value(json_array_get(entry, 0));
        const pl_message_info_t *info = number >= 0 && number < MESSAGES
                                            ? pl_message_info((unsigned)number)
                                            : NULL;
        if (info)
            j->is_known[number] = json_integer_value(json_array_get(entry, 2))
                                  == (json_int_t)pl_journal_hash(info);
    }
    json_decref(begin);
    return code;
}

/* Consumes the file. */
static pl_journal_t *journal_new(FILE *file, const char *path, pl_error_t *err)
{
    pl_error_t own;
    pl_journal_t *j = pl_alloc(sizeof *j);
    if (!err)
        err = &own;
    if (!j) {
        fclose(file);
        pl_no_memory(err);
        return NULL;
    }
    j->file = file;
    j->path = pl_strdup(path);
    if ((j->path || pl_no_memory(err) == PL_OK) && begin_read(j, err) == PL_OK)
        return j;
    pl_journal_close(j);
    return NULL;
}

pl_journal_t *pl_journal_open(const char *path, pl_error_t *err)
{
    if (pl_require(path, "a path", err) != PL_OK)
        return NULL;
    FILE *file = fopen(path, "rbe");
    if (file)
        return journal_new(file, path, err);
    pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "cannot read %s: %s", path,
            strerror(errno));
    return NULL;
}

pl_journal_t *pl_journal_of(const void *bytes, size_t size, pl_error_t *err)
{
    FILE *file = fmemopen((void *)bytes, size, "rb");
    if (file)
        return journal_new(file, "journal", err);
    pl_fail(err, PL_EFORMAT, "journal: empty");
    return NULL;
}

void pl_journal_close(pl_journal_t *j)
{
    if (!j)
        return;
    fclose(j->file);
    pl_free(j->path);
    pl_free(j);
}

/* ---- use ---- */

const char *pl_journal_next(pl_journal_t *j, pl_error_t *err)
{
    pl_journal_item_t item;
    if (pl_require(j, "a journal", err) != PL_OK)
        return NULL;
    do {
        if (!pl_journal_read(j, &item, err))
            return NULL;
        if (item.is_gap && item.lost)
            snprintf(j->line, sizeof j->line, "{\"damaged\": %llu, \"at\": %llu}",
                     (unsigned long long)item.lost, (unsigned long long)item.lost_at);
        else if (item.is_gap && item.gap_rank == PL_JOURNAL_ANY_RANK)
            snprintf(j->line, sizeof j->line, "{\"gap\": %llu}",
                     (unsigned long long)item.gap_count);
        else if (item.is_gap && !item.gap_count)
            snprintf(j->line, sizeof j->line, "{\"gap\": null, \"rank\": %d}",
                     item.gap_rank);
        else if (item.is_gap)
            snprintf(j->line, sizeof j->line, "{\"gap\": %llu, \"rank\": %d}",
                     (unsigned long long)item.gap_count, item.gap_rank);
    } while (!item.is_gap && !pl_tap_line(&item.record, j->line, sizeof j->line));
    return j->line;
}

double pl_journal_seconds(const pl_journal_t *j)
{
    return j ? (double)j->time * 1e-9 : 0;
}

int pl_journal_show_at(const pl_journal_t *j, pl_runtime_t *runtime, pl_error_t *err)
{
    const pl_tap_record_t *record = &j->item.record;
    if (!pl_monitor_watchers(runtime))
        return pl_fail(err, PL_EBUSY, "no process receives the stream");
    return record->frame.size ? pl_monitor_show(runtime, record, err) : PL_OK;
}
