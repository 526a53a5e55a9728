/* journal_read.c - a journal, read record by record
 *
 * Nothing in the file is trusted: lengths are bounded, checksums come before what they
 * are of, and frames are decoded as if a stranger had sent them.  Behind damage it goes
 * on at the next record whose head is sound: they stand at multiples of 8.  Kinds of
 * actors become kinds of this process, so that all else reads a message as if it were
 * new. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "runtime/monitor.h"
#include "telemetry/journal.h"

enum { KINDS = 1024, MESSAGES = 256 };

struct pl_journal {
    FILE *file;
    char *path;
    uint64_t offset;                                /* of the next record */
    bool is_whole, is_over;                         /* its end has come; or that of all */
    const char *how;                                /* the first damage  [none] */
    uint64_t damaged_at, lost, lost_until;          /* bytes; lost: in all */
    int places;
    bool is_cut_off;
    uint32_t kind[KINDS];                            /* here, of a number there */
    bool is_known[MESSAGES];                         /* its fields are as they are here */
    uint64_t strange;                                /* messages that are not */
    int64_t time;
    pl_journal_item_t item;
    char line[PL_TAP_LINE_MAX];
    _Alignas(8) unsigned char buffer[PL_JOURNAL_MAX + 8];
};

/* ---- records ---- */

/* So many bytes from a place on say nothing. */
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

/* A process that was killed writes no end, and may leave half a record. */
static bool cut_off(pl_journal_t *j)
{
    j->is_over = true;
    j->is_cut_off = !j->is_whole;
    return false;
}

/* What is wrong with the file, once it was read. */
static void damage_tell(const pl_journal_t *j, pl_error_t *err)
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

/* Goes to the next head, or to the end of the file; what is at the place is none. */
static bool find_head(pl_journal_t *j, pl_journal_record_t r)
{
    const uint64_t from = j->offset;
    unsigned char *bytes = (unsigned char *)&r;
    size_t more;
    do {
        memmove(bytes, bytes + 8, 8);
        more = fread(bytes + 8, 1, 8, j->file);
        j->offset += 8;
    } while (more == 8 && !is_head(&r));
    if (more < 8)
        j->offset += 8 + more;
    j->is_over = more < 8 || fseeko(j->file, (off_t)j->offset, SEEK_SET) != 0;
    return damaged(j, from, j->offset - from, "no record begins there");
}

/* The next record into the buffer, whole; false: it is damaged, or there is none. */
static bool record_read(pl_journal_t *j, pl_journal_record_t *r)
{
    const uint64_t at = j->offset;
    if (fread(r, 1, sizeof *r, j->file) != sizeof *r)
        return cut_off(j);
    if (!is_head(r))
        return find_head(j, *r);
    const size_t size = r->size + -(size_t)r->size % 8, whole = sizeof *r + size;
    if (fread(j->buffer, 1, size, j->file) != size)
        return cut_off(j);
    j->offset += whole;
    if (r->sum != pl_crc32c(0, j->buffer, r->size))
        return damaged(j, at, whole, "the checksum does not match");
    return !j->is_whole || damaged(j, at, whole, "data follows the end record");
}

/* Of a record whose checksum holds. */
static bool content_damaged(pl_journal_t *j, const pl_journal_record_t *r,
                            const char *how)
{
    const size_t size = sizeof *r + r->size + -(size_t)r->size % 8;
    return damaged(j, j->offset - size, size, how);
}

static bool take_kind(pl_journal_t *j, const pl_journal_record_t *r)
{
    pl_journal_kind_t kind;
    if (r->size != sizeof kind)
        return content_damaged(j, r, "a record of an actor kind has a wrong size");
    memcpy(&kind, j->buffer, sizeof kind);
    if (kind.number >= KINDS || !memchr(kind.name, 0, sizeof kind.name))
        return content_damaged(j, r, "a record of an actor kind is invalid");
    j->kind[kind.number] = pl_kind_enter(kind.name, kind.level, NULL);
    return true;
}

static void kind_translate(void *user, uint32_t *number)
{
    const pl_journal_t *j = user;
    *number = *number < KINDS ? j->kind[*number] : 0;
}

/* False: it is none that can be shown, and maybe damage. */
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

static bool take_gap(pl_journal_t *j, const pl_journal_record_t *r)
{
    pl_journal_gap_t gap;
    if (r->size != sizeof gap)
        return content_damaged(j, r, "a record of a gap has a wrong size");
    memcpy(&gap, j->buffer, sizeof gap);
    if (gap.count > INT64_MAX)
        return content_damaged(j, r, "a record of a gap is invalid");
    j->item.is_gap = true;
    j->item.gap_rank = gap.rank;
    j->item.gap_count = gap.count;
    return true;
}

/* Types that a later version adds are passed over. */
static bool take(pl_journal_t *j, const pl_journal_record_t *r)
{
    j->item = (pl_journal_item_t){0};
    switch (r->type) {
    case PL_JOURNAL_MESSAGE: return take_message(j, r);
    case PL_JOURNAL_GAP: return take_gap(j, r);
    case PL_JOURNAL_KIND: take_kind(j, r); return false;
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
        damage_tell(j, err);
    return false;
}

uint64_t pl_journal_strange(const pl_journal_t *j)
{
    return j->strange;
}

/* ---- opening ---- */

static void know_messages(pl_journal_t *j, const json_t *list)
{
    const json_t *entry;
    size_t k;
    json_array_foreach(list, k, entry) {
        const json_int_t number = json_integer_value(json_array_get(entry, 0));
        const pl_message_info_t *info = number >= 0 && number < MESSAGES
                                            ? pl_message_info((unsigned)number)
                                            : NULL;
        if (info)
            j->is_known[number] = json_integer_value(json_array_get(entry, 2))
                                  == (json_int_t)pl_journal_hash(info);
    }
}

static int begin_check(pl_journal_t *j, const json_t *begin, pl_error_t *err)
{
    const json_int_t protocol = json_integer_value(json_object_get(begin, "protocol"));
    const char *version = json_string_value(json_object_get(begin, "paceline"));
    if (protocol != PL_PROTOCOL_VERSION)
        return pl_fail(
            err, PL_EFORMAT,
            "%s was written by Paceline %s with messages of version %lld; this "
            "Paceline reads version %d",
            j->path, version ? version : "?", (long long)protocol, PL_PROTOCOL_VERSION);
    know_messages(j, json_object_get(begin, "messages"));
    return PL_OK;
}

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
        damage_tell(j, err);
        return PL_EFORMAT;
    }
    json_t *begin = r.type == PL_JOURNAL_BEGIN ? pl_json_read((char *)j->buffer, r.size,
                                                              "its first record", NULL)
                                               : NULL;
    const int code = begin ? begin_check(j, begin, err)
                           : pl_fail(err, PL_EFORMAT, "%s: its first record is invalid",
                                     j->path);
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

/* ---- showing ---- */

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
