/* fuzz_journal.c - any bytes as a journal: read up to the damage, as lines of JSON, and
 * explained as JSON */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "telemetry/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Checksums would hide all that is behind them: they are set right, of every other
 * input. */
static void sums_set(uint8_t *bytes, size_t size)
{
    pl_journal_record_t r;
    for (size_t at = 8; at + sizeof r <= size;) {
        memcpy(&r, bytes + at, sizeof r);
        const size_t whole = sizeof r + r.size + -(size_t)r.size % 8;
        if (whole > size - at)
            r.size = (uint32_t)(size - at - sizeof r) & ~7u;
        r.sum = pl_crc32c(0, bytes + at + sizeof r, r.size);
        r.head_sum = pl_crc32c(0, &r, offsetof(pl_journal_record_t, head_sum));
        memcpy(bytes + at, &r, sizeof r);
        at += sizeof r + r.size + -(size_t)r.size % 8;
    }
}

static void explain(const uint8_t *bytes, size_t size)
{
    char path[40];
    const int fd = memfd_create("journal", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, bytes, size) != (ssize_t)size)
        abort();
    pl_error_t err = {0};
    char *text = pl_journal_explain(path, &err);
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    if (!json && (text || err.code == PL_OK))
        abort();
    json_decref(json);
    pl_text_free(text);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_error_t err = {0};
    uint8_t *own = malloc(size + 1);
    const char *line;
    memcpy(own, data, size);
    if (size && data[size - 1] % 2 == 0)
        sums_set(own, size);
    pl_journal_t *journal = pl_journal_of(own, size, &err);
    while (journal && (line = pl_journal_next(journal, &err))) {
        json_t *json = json_loads(line, 0, NULL);
        if (!json)
            abort();
        json_decref(json);
    }
    if (!journal && err.code == PL_OK)
        abort();
    pl_journal_close(journal);
    explain(own, size);
    free(own);
    return 0;
}
