/* telemetry_scarce.c - tests of engine/telemetry/{journal,trace,sink}.c where memory
 * runs out or the disk takes nothing */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/monitor.h"
#include "runtime/reactor.h"
#include "scarce.h"
#include "telemetry/journal.h"
#include "telemetry/taps.h"
#include "tap.h"

enum { CALLS = 12 };

typedef struct file {
    const char *path;
    int (*tap)(pl_runtime_t *runtime, const char *path, pl_error_t *err);
} file_t;

static void offer(pl_reactor_t *reactor, unsigned kind, uint64_t call, uint64_t cause)
{
    pl_frame_t frame;
    const pl_body_t body = {.save = {.global_step = call}};
    const pl_body_t reply = {.save_reply = {.path = "there"}};
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = (uint8_t)kind,
                             .message = PL_MESSAGE_save,
                             .remaining = -1,
                             .call = call,
                             .cause = cause,
                             .from_actor = kind == PL_KIND_CALL ? 1 : 2,
                             .to_actor = kind == PL_KIND_CALL ? 2 : 1,
                             .from_kind = pl_kind_enter("bee.near", 60, NULL),
                             .to_kind = pl_kind_enter("bee.far", 40, NULL)};
    if (pl_frame_make(&frame, &e, kind == PL_KIND_CALL ? &body : &reply, NULL) != PL_OK)
        return;
    pl_monitor_offer(reactor, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

/* A stream with a file of it, from its beginning to its end. */
static int file_write(void *user)
{
    const file_t *file = user;
    static pl_runtime_t runtime;
    pl_error_t err = {0};
    int code = pl_runtime_init(&runtime, &err);
    if (code != PL_OK)
        return code;
    pl_reactor_t *reactor = pl_reactor_new(&runtime, 0, &err);
    code = reactor ? file->tap(&runtime, file->path, &err) : err.code;
    for (uint64_t call = 1; code == PL_OK && call <= CALLS; call++)
        offer(reactor, PL_KIND_CALL, call, call - 1);
    for (uint64_t call = CALLS; code == PL_OK && call > 0; call--)
        offer(reactor, PL_KIND_REPLY, call, call - 1);
    pl_monitor_stop(&runtime);
    pl_reactor_free(reactor);
    pl_runtime_release(&runtime);
    return code;
}

static const char *place(const char *name)
{
    static char path[2][256];
    static int turn;
    char *text = path[turn++ % 2];
    snprintf(text, sizeof *path, "%s/%s", tap_folder(), name);
    return text;
}

static void a_journal_does_without_memory(void)
{
    file_t file = {place("scarce.journal"), pl_journal_tap};
    is_int(file_write(&file), PL_OK, "a journal");
    scarce_try(file_write, &file, "a journal");
    pl_error_t err = {0};
    pl_journal_t *journal = pl_journal_open(file.path, &err);
    int lines = 0;
    while (journal && pl_journal_next(journal, &err))
        lines++;
    pl_journal_close(journal);
    is_int(lines, 2 * CALLS, "the last one has every message");
    is_int(err.code, PL_OK, "and its end %s", err.text);
}

static void a_trace_does_without_memory(void)
{
    file_t file = {place("scarce.trace"), pl_trace_tap};
    is_int(file_write(&file), PL_OK, "a trace");
    scarce_try(file_write, &file, "a trace");
    json_t *events = json_load_file(file.path, JSON_REJECT_DUPLICATES, NULL);
    ok(json_array_size(events) > 2 * CALLS, "the last one is whole");
    json_decref(events);
}

static char said[512];

static void note_line(pl_log_level_t level, int rank, const char *actor, const char *text,
                      void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    snprintf(said, sizeof said, "%s", text);
}

static void a_disk_that_takes_nothing_ends_the_file_alone(void)
{
    file_t journal = {"/dev/full", pl_journal_tap}, trace = {"/dev/full", pl_trace_tap};
    if (access("/dev/full", W_OK) != 0) {
        tap_skip("there is no /dev/full");
        return;
    }
    pl_log_hook(note_line, PL_LOG_WARNING, NULL);
    is_int(file_write(&journal), PL_OK, "a journal's stream continues");
    like(said, "the journal /dev/full ends here: No space left.*the run continues",
         "and it is said");
    said[0] = '\0';
    is_int(file_write(&trace), PL_OK, "a trace's stream continues");
    like(said, "the trace /dev/full ends here: No space left.*the run continues",
         "and it is said");
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
}

int main(void)
{
    scarce_init();
    run(a_journal_does_without_memory);
    run(a_trace_does_without_memory);
    run(a_disk_that_takes_nothing_ends_the_file_alone);
    return tap_done();
}
