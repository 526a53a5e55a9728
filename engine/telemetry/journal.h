/* journal.h - a file of all that the hub had: written by a tap, read record by record
 *
 * Little-endian.  Eight bytes "PLJOURN" and the version; then records: four numbers of 32
 * bits (bytes of what follows, CRC-32C of that, type, CRC-32C of these three), what
 * follows, zeros to a multiple of 8.  Types and what follows: doc/formats.md. */
#ifndef PL_TELEMETRY_JOURNAL_H
#define PL_TELEMETRY_JOURNAL_H

#include "runtime/tap.h"

#define PL_JOURNAL_NAME "PLJOURN"
#define PL_JOURNAL_MAGIC PL_JOURNAL_NAME "\1"

typedef enum pl_journal_type {
    PL_JOURNAL_BEGIN = 1,                  /* JSON object: who wrote it, when, messages */
    PL_JOURNAL_KIND,                       /* pl_journal_kind_t */
    PL_JOURNAL_MESSAGE,                    /* pl_journal_message_t, then the frame */
    PL_JOURNAL_GAP,                        /* pl_journal_gap_t */
    PL_JOURNAL_END,                        /* nothing: what was written is whole */
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
    int32_t rank;                 /* ANY_RANK: those that the disk did not keep up with */
    uint32_t unused;
} pl_journal_gap_t;

enum { PL_JOURNAL_MAX = sizeof(pl_journal_message_t) + PL_TAP_FRAME_MAX };

/* What the fields of a message are, in a number: two versions that agree in it read each
 * other's. */
uint32_t pl_journal_hash(const pl_message_info_t *info);

/* ---- reading ---- */

/* What was read last: a message; messages that are missing; or bytes that are damaged. */
typedef struct pl_journal_item {
    bool is_gap;
    int gap_rank;
    uint64_t gap_count;
    uint64_t lost, lost_at;                      /* bytes of damage  [0: messages miss] */
    pl_tap_record_t record;
} pl_journal_item_t;

/* The next one, behind damage the next that is whole; false at the end, with err->code
 * PL_OK, or PL_EFORMAT where the file was cut off or damaged: err->text says at which
 * byte, how, and how much is lost. */
bool pl_journal_read(pl_journal_t *journal, pl_journal_item_t *item, pl_error_t *err);

/* Messages that were passed over: their fields are others in this version. */
uint64_t pl_journal_strange(const pl_journal_t *journal);

/* Shows the message that was read last in the stream of this process, as if it came from
 * there now. */
int pl_journal_show_at(const pl_journal_t *journal, pl_runtime_t *runtime,
                       pl_error_t *err);

/* As pl_journal_open(), of bytes that outlive it; for tests. */
pl_journal_t *pl_journal_of(const void *bytes, size_t size, pl_error_t *err);

#endif
