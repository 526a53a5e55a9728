/* journal_read.c - a journal, read record by record
 *
 * Nothing in the file is trusted: lengths are bounded, checksums come before what they
 * are of, and frames are decoded as if a stranger had sent them.  Kinds of actors become
 * kinds of this process, so that all else reads a message as if it were new. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "runtime/monitor.h"
#include "sight/journal.h"

enum { KINDS = 1024, MESSAGES = 256 };

struct pl_journal {
    FILE *file;
    char *path;
    uint64_t offset;                                 /* of the next record */
    bool is_whole, is_over;                          /* its end has come; or its damage */
    pl_error_t damage;
    uint32_t kind[KINDS];                            /* here, of a number there */
    bool is_known[MESSAGES];                         /* its fields are as they are here */
    uint64_t strange;                                /* messages that are not */
    int64_t time;
    pl_journal_item_t item;
    char line[PL_TAP_LINE_MOST];
    _Alignas(8) unsigned char room[PL_JOURNAL_MOST + 8];
};

/* ---- records ---- */

static bool damaged(pl_journal_t *j, const char *how)
{
    j->is_over = true;
    pl_fail(&j->damage, PL_EFORMAT, "%s: damaged at byte %llu: %s", j->path,
            (unsigned long long)j->offset, how);
    return false;
}

/* A process that was killed writes no end, and may leave half a record. */
static bool cut_off(pl_journal_t *j)
{
    j->is_over = true;
    if (j->is_whole)
        return false;
    pl_fail(
        &j->damage, PL_EFORMAT,
        "%s: it has no end behind byte %llu: what wrote it was killed, or is still at "
        "it, or part of the file is missing",
        j->path, (unsigned long long)j->offset);
    return false;
}

/* The next record into the room, whole. */
static bool record_read(pl_journal_t *j, pl_journal_record_t *r)
{
    if (fread(r, 1, sizeof *r, j->file) != sizeof *r)
        return cut_off(j);
    if (r->head_sum != pl_crc32c(0, r, offsetof(pl_journal_record_t, head_sum)))
        return damaged(j, "what is there is no record");
    if (j->is_whole)
        return damaged(j, "something follows the end");
    if (r->size > PL_JOURNAL_MOST)
        return damaged(j, "a record longer than any");
    const size_t size = r->size + -(size_t)r->size % 8;
    if (fread(j->room, 1, size, j->file) != size)
        return cut_off(j);
    if (r->sum != pl_crc32c(0, j->room, r->size))
        return damaged(j, "its checksum is another");
    j->offset += sizeof *r + size;
    return true;
}

static bool take_kind(pl_journal_t *j, const pl_journal_record_t *r)
{
    pl_journal_kind_t kind;
    if (r->size != sizeof kind)
        return damaged(j, "a kind of actor of another size");
    memcpy(&kind, j->room, sizeof kind);
    if (kind.number >= KINDS || !memchr(kind.name, 0, sizeof kind.name))
        return damaged(j, "a kind of actor that cannot be");
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
        return damaged(j, "a message that is too short");
    memcpy(&head, j->room, sizeof head);
    if (head.seq > INT64_MAX || head.time < 0)
        return damaged(j, "a message of a number or time that cannot be");
    *record = (pl_tap_record_t){.stamp = {head.seq, head.time, head.rank},
                                .origin = head.origin,
                                .frame = {j->room + sizeof head, r->size - sizeof head}};
    memcpy(&record->envelope, record->frame.data, sizeof record->envelope);
    if (record->envelope.message >= MESSAGES || !j->is_known[record->envelope.message]) {
        j->strange++;
        return false;
    }
    if (pl_envelope_read(record->frame, &record->envelope, NULL) != PL_OK)
        return damaged(j, "a message that is none");
    pl_frame_kinds(record->frame, kind_translate, j);
    memcpy(&record->envelope, record->frame.data, sizeof record->envelope);
    j->time = head.time;
    return true;
}

static bool take_gap(pl_journal_t *j, const pl_journal_record_t *r)
{
    pl_journal_gap_t gap;
    if (r->size != sizeof gap)
        return damaged(j, "a gap of another size");
    memcpy(&gap, j->room, sizeof gap);
    if (gap.count > INT64_MAX)
        return damaged(j, "a gap that cannot be");
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
    while (!j->is_over && record_read(j, &r))
        if (take(j, &r)) {
            *item = j->item;
            return true;
        }
    if (err)
        *err = j->damage;
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
        return pl_fail(err, PL_EFORMAT,
                       "%s was written by Paceline %s, whose messages are of version "
                       "%lld; this one reads version %d",
                       j->path, version ? version : "?", (long long)protocol,
                       PL_PROTOCOL_VERSION);
    know_messages(j, json_object_get(begin, "messages"));
    return PL_OK;
}

static int begin_read(pl_journal_t *j, pl_error_t *err)
{
    char magic[8];
    pl_journal_record_t r;
    if (fread(magic, 1, sizeof magic, j->file) != sizeof magic
        || memcmp(magic, PL_JOURNAL_MAGIC, 7) != 0)
        return pl_fail(err, PL_EFORMAT, "%s is no journal of Paceline", j->path);
    if (magic[7] != PL_JOURNAL_MAGIC[7])
        return pl_fail(err, PL_EFORMAT,
                       "%s is a journal of version %d; this Paceline reads version %d",
                       j->path, magic[7], PL_JOURNAL_MAGIC[7]);
    j->offset = sizeof magic;
    if (!record_read(j, &r)) {
        *err = j->damage;
        return PL_EFORMAT;
    }
    json_t *begin = r.type == PL_JOURNAL_BEGIN
                        ? pl_json_read((char *)j->room, r.size, "its beginning", NULL)
                        : NULL;
    const int code = begin
                         ? begin_check(j, begin, err)
                         : pl_fail(err, PL_EFORMAT, "%s: its beginning is none", j->path);
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
    if (pl_given(path, "a path", err) != PL_OK)
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
    if (pl_given(j, "a journal", err) != PL_OK)
        return NULL;
    do {
        if (!pl_journal_read(j, &item, err))
            return NULL;
        if (item.is_gap && item.gap_rank == PL_JOURNAL_ANY_RANK)
            snprintf(j->line, sizeof j->line, "{\"gap\": %llu}",
                     (unsigned long long)item.gap_count);
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
        return pl_fail(err, PL_EBUSY, "nobody watches");
    return record->frame.size ? pl_monitor_show(runtime, record, err) : PL_OK;
}
