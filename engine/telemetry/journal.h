/* journal.h - a file of every message that the hub had, read record by record
 *
 * Little-endian.  Eight bytes "PLJOURN" and the version; then records: four numbers of 32
 * bits (bytes of the content, its CRC-32C, type, CRC-32C of these three), the content,
 * zeros to a multiple of 8.  doc/formats.md has the types and their contents.  taps.h has
 * the writer. */
#ifndef PL_TELEMETRY_JOURNAL_H
#define PL_TELEMETRY_JOURNAL_H

#include "runtime/tap.h"

#define PL_JOURNAL_NAME "PLJOURN"
#define PL_JOURNAL_MAGIC PL_JOURNAL_NAME "\1"

typedef enum pl_journal_type {
    PL_JOURNAL_BEGIN = 1,                       /* JSON object: version, time, messages */
    PL_JOURNAL_KIND,                            /* pl_journal_kind_t */
    PL_JOURNAL_MESSAGE,                         /* pl_journal_message_t, then the frame */
    PL_JOURNAL_GAP,                             /* pl_journal_gap_t */
    PL_JOURNAL_END,                             /* empty: the file is complete */
} pl_journal_type_t;

typedef struct pl_journal_record {
    uint32_t size, sum, type, head_sum;
} pl_journal_record_t;

typedef struct pl_journal_kind {
    uint32_t number;
    int32_t level;
    char name[48];
} pl_journal_kind_t;

typedef struct pl_journal_message {
    uint64_t seq;
    int64_t time;                                           /* ns */
    int32_t rank;
    uint32_t process_id;
} pl_journal_message_t;

#define PL_JOURNAL_ANY_RANK INT32_MIN
typedef struct pl_journal_gap {
    uint64_t count;
    int32_t rank;                   /* ANY_RANK: the disk was too slow for the messages */
    uint32_t unused;
} pl_journal_gap_t;

enum { PL_JOURNAL_MAX = sizeof(pl_journal_message_t) + PL_TAP_FRAME_MAX };

/* A hash of the fields of a message: versions with the same hash read each other's
 * records. */
uint32_t pl_journal_hash(const pl_message_info_t *info);

/* ---- reading ---- */

/* A message, a number of missing messages, or damaged bytes. */
typedef struct pl_journal_item {
    bool is_gap;
    int gap_rank;
    uint64_t gap_count;
    uint64_t lost, lost_at;                 /* damaged bytes  [0: messages are missing] */
    pl_tap_record_t record;
} pl_journal_item_t;

/* Reads the next item, after damage the next whole one.  False: the end, with err->code
 * PL_OK, or PL_EFORMAT if the file is incomplete or damaged; err->text has the place, the
 * kind and the size of the damage. */
bool pl_journal_read(pl_journal_t *journal, pl_journal_item_t *item, pl_error_t *err);

/* The number of messages that were skipped: they have other fields in this version. */
uint64_t pl_journal_strange(const pl_journal_t *journal);

/* Publishes the newest message in the stream of this process, as if it were sent now. */
int pl_journal_show_at(const pl_journal_t *journal, pl_runtime_t *runtime,
                       pl_error_t *err);

/* Reads bytes, which outlive it; for tests. */
pl_journal_t *pl_journal_of(const void *bytes, size_t size, pl_error_t *err);

#endif
