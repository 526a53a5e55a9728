/* csv_scan.c - a table as text in parts of whole rows
 *
 * A row ends at a line end that is not in quotes, so the text is looked at from the first
 * row on.  Then each part can be read alone. */
#include <string.h>
#include <unistd.h>

#include "actors/connectors/datasets/csv_parts.h"
#include "base/alloc.h"
#include "base/error.h"

enum {
    BLOCK = 32 << 10,                                    /* bytes of a part, or one row */
    PIECE = 1 << 20,                                     /* read at once */
    ROW_MAX = 64 << 20                                   /* bytes of a row */
};

/* The bytes of whole rows at the beginning of text[0..size), where the first one begins,
 * and the lines in them; at least BLOCK, if there are so many. */
static size_t records_of(const char *text, size_t size, const pl_csv_format_t *format,
                         int64_t *lines)
{
    enum { BEGIN, FIELD, WORD, QUOTED, CLOSED, COMMENT } state = BEGIN;
    size_t whole = 0;
    int64_t seen = 0;
    for (size_t k = 0; k < size && whole < BLOCK; k++) {
        const char c = text[k];
        seen += c == '\n';
        if (state == QUOTED) {
            state = c == '"' ? CLOSED : QUOTED;
        } else if (c == '\n') {
            state = BEGIN;
            whole = k + 1;
            *lines = seen;
        } else if (state == CLOSED && c == '"') {
            state = QUOTED;                                 /* it was doubled */
        } else if (state == BEGIN && format->comment && c == format->comment) {
            state = COMMENT;
        } else if (state != COMMENT
                   && (c == format->delimiter
                       || (format->delimiter == ' ' && c == '\t'))) {
            state = FIELD;
        } else if (state == BEGIN || state == FIELD) {
            state = c == '"' ? QUOTED : (c == ' ' || c == '\t') ? FIELD : WORD;
        }
    }
    return whole;
}

int csv_scan_next(table_scan_t *scan, csv_part_t *part, pl_error_t *err)
{
    for (;;) {
        const char *text = scan->text + scan->from;
        const size_t left = scan->size - scan->from;
        int64_t count = 0;
        size_t size = 0;
        if (scan->is_json) {
            const char *end = left > BLOCK ? memchr(text + BLOCK, '\n', left - BLOCK)
                                           : NULL;
            size = end ? (size_t)(end - text) + 1 : 0;
            for (size_t k = 0; k < size; k++)
                count += text[k] == '\n';
        } else if (left) {
            size = records_of(text, left, &scan->head->format, &count);
        }
        if (size < BLOCK && scan->ends)
            size = left;
        if (size >= BLOCK || scan->ends) {
            *part = (csv_part_t){text, size, scan->head, scan->is_json, scan->line};
            scan->line += count;
            scan->from += size;
            return PL_OK;
        }
        if (left > ROW_MAX)
            return pl_fail(err, PL_EFORMAT,
                           "%s:%lld: the row that begins here has more than %d MiB: is a "
                           "quote open?",
                           scan->path, (long long)scan->line, ROW_MAX >> 20);
        if (left)
            memmove(scan->text, text, left);
        scan->at += scan->from;
        scan->size = left;
        scan->from = 0;
        if (scan->capacity < left + PIECE) {
            char *larger = pl_resize(scan->text, 2 * left + PIECE);
            if (!larger)
                return pl_no_memory(err);
            scan->text = larger;
            scan->capacity = 2 * left + PIECE;
        }
        const ssize_t n = pread(scan->fd, scan->text + left, scan->capacity - left,
                                (off_t)(scan->at + left));
        if (n < 0)
            return pl_fail(err, PL_EIO, "%s: %m", scan->path);
        scan->ends = n == 0;
        scan->size += (size_t)n;
    }
}

int csv_part_load(csv_dataset_t *csv, pl_error_t *err)
{
    const csv_part_t *part = csv->source.part;
    const pl_table_t *head = part->head;
    pl_csv_format_t format = head->format;
    format.header = PL_CSV_NO;
    format.skip = 0;
    format.columns = head->columns;
    format.line = part->line;
    int code = part->is_json
                   ? pl_jsonl_read_part(part->text, part->size, csv->options.path,
                                        part->line, head, &csv->table, err)
                   : pl_csv_read(part->text, part->size, csv->options.path, &format,
                                 &csv->table, err);
    if (!code && head->name && !csv->table.name) {
        const size_t size = (size_t)head->columns * sizeof *head->name;
        csv->table.name = pl_alloc(size);
        if (!csv->table.name)
            return pl_no_memory(err);
        memcpy(csv->table.name, head->name, size);
    }
    if (!code)
        csv_empty_cells(csv);
    return code;
}
