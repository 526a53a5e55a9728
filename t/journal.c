/* journal.c - tests of engine/telemetry/journal.c: what is written can be read, and
 * damage is reported */
#include "telemetry/journal.h"
#include "telemetry/taps.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actor_rig.h"
#include "runtime/monitor.h"
#include "tap.h"

static pl_error_t err;
static char path[256];

/* Lines of a tap, beside the journal. */
typedef struct lines {
    json_t *list;
    bool is_closed;
} lines_t;

static void lines_record(void *self, const pl_tap_record_t *record)
{
    char text[PL_TAP_LINE_MAX];
    const size_t length = pl_tap_line(record, text, sizeof text);
    json_array_append_new(((lines_t *)self)->list, json_loadb(text, length, 0, NULL));
}

static void lines_close(void *self)
{
    ((lines_t *)self)->is_closed = true;
}

static const pl_tap_ops_t lines_ops = {.record = lines_record, .close = lines_close};

/* A run of actors, with a journal at path; what a tap had of it. */
static json_t *act(void)
{
    lines_t lines = {.list = json_array()};
    pl_address_t bee, boss;
    snprintf(path, sizeof path, "%s/run.journal", tap_folder());
    rig_open();
    pl_tap_add(rig.runtime, &lines_ops, &lines, &err);
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_OK, "a journal %s", err.text);
    const uint64_t life = rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    rig_spawn(&boss_ops, PL_AS_RANK_0, "own", &boss);
    rig_ask(bee, DO_PROGRESS);
    rig_ask(bee, DO_FAIL);
    rig_wait(2);
    pl_cancel(rig.queen, life);
    rig_wait(1);
    rig_close();
    ok(lines.is_closed && json_array_size(lines.list) > 10, "a run of %zu messages",
       json_array_size(lines.list));
    return lines.list;
}

/* All lines of a file; err says how it ended. */
static json_t *read_all(const char *from)
{
    json_t *list = json_array();
    const char *line;
    err = (pl_error_t){0};
    pl_journal_t *journal = pl_journal_open(from, &err);
    while (journal && (line = pl_journal_next(journal, &err)))
        json_array_append_new(list, json_loads(line, 0, NULL));
    pl_journal_close(journal);
    return list;
}

static void a_journal_has_what_the_stream_had(void)
{
    json_t *had = act(), *kept = read_all(path);
    is_int(err.code, PL_OK, "it is whole: %s", err.text);
    ok(json_equal(had, kept), "and line for line the stream");
    struct stat status;
    ok(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600,
       "for its owner alone");
    json_decref(had);
    json_decref(kept);
}

static void an_existing_journal_is_kept(void)
{
    char old[300];
    snprintf(old, sizeof old, "%s.old", path);
    json_t *had = act(), *kept = read_all(old);
    is_int(err.code, PL_OK, "the journal of before is beside it: %s", err.text);
    json_decref(had);
    json_decref(kept);
    rig_open();
    is_int(pl_journal_tap(rig.runtime, tap_folder(), &err), PL_EINVAL,
           "a folder is no place for one");
    like(err.text, "it is not a regular file", "and that is said");
    rig_close();
}

static void write_text(const char *to, const char *text)
{
    FILE *out = fopen(to, "w");
    fputs(text, out);
    fclose(out);
}

static bool has_text(const char *from, const char *text)
{
    char there[64] = "";
    FILE *in = fopen(from, "r");
    if (!in)
        return false;
    there[fread(there, 1, sizeof there - 1, in)] = '\0';
    fclose(in);
    return !strcmp(there, text);
}

static void a_file_that_is_no_journal_is_left_alone(void)
{
    char old[300];
    rig_open();
    snprintf(path, sizeof path, "%s/run.json", tap_folder());
    snprintf(old, sizeof old, "%s.old", path);
    write_text(path, "{}\n");
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_EINVAL, "a run file is refused");
    like(err.text, "run.json: the existing file is not a journal and is left unchanged",
         "and what to do is said");
    ok(has_text(path, "{}\n") && access(old, F_OK) != 0, "it is where it was");
    write_text(path, "PLJ");
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_EINVAL, "so is half a beginning");
    write_text(path, "");
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_OK, "an empty file is taken");
    ok(access(old, F_OK) != 0, "and not kept");
    rig_close();
    rig_open();
    write_text(old, "mine");
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_EINVAL,
           "a journal is not set aside where something else lies");
    like(err.text, "run.json.old: the existing file is not a journal",
         "the error names it");
    ok(has_text(old, "mine"), "which is left alone, too");
    rig_close();
    unlink(old);
    unlink(path);
}

static void a_journal_that_is_being_written_is_left_alone(void)
{
    char old[300];
    snprintf(path, sizeof path, "%s/busy.journal", tap_folder());
    snprintf(old, sizeof old, "%s.old", path);
    rig_open();
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_OK, "a journal");
    for (int k = 0; k < 2; k++)
        is_int(pl_journal_tap(rig.runtime, path, &err), PL_EBUSY, "is not written twice");
    like(err.text, "busy.journal: another run is writing to it: choose another file",
         "what to do is said");
    ok(access(old, F_OK) != 0, "nor set aside");
    rig_close();
    json_decref(read_all(path));
    is_int(err.code, PL_OK, "the first one is whole: %s", err.text);
    rig_open();
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_OK, "then there may be another");
    ok(access(old, F_OK) == 0, "and the first is kept");
    rig_close();
}

static size_t load(unsigned char **bytes)
{
    FILE *file = fopen(path, "rb");
    *bytes = malloc(1 << 20);
    const size_t size = fread(*bytes, 1, 1 << 20, file);
    fclose(file);
    return size;
}

static json_t *read_bytes(const unsigned char *bytes, size_t size)
{
    json_t *list = json_array();
    const char *line;
    err = (pl_error_t){0};
    pl_journal_t *journal = pl_journal_of(bytes, size, &err);
    while (journal && (line = pl_journal_next(journal, &err)))
        json_array_append_new(list, json_loads(line, 0, NULL));
    pl_journal_close(journal);
    return list;
}

/* Whether list begins as all does. */
static bool is_start(const json_t *list, const json_t *all)
{
    bool same = json_array_size(list) < json_array_size(all);
    for (size_t k = 0; k < json_array_size(list); k++)
        same &= json_equal(json_array_get(list, k), json_array_get(all, k));
    return same;
}

static void a_file_that_is_cut_off_is_read_up_to_there(void)
{
    unsigned char *bytes;
    json_t *all = act(), *list;
    const size_t size = load(&bytes);
    int wrong = 0, reported = 0;
    for (size_t cut = 8; cut < size - 16; cut += 7) {
        list = read_bytes(bytes, cut);
        wrong += !is_start(list, all) && json_array_size(list) != json_array_size(all);
        reported += err.code == PL_EFORMAT
                    && strstr(err.text, "it has no end record after byte");
        json_decref(list);
    }
    is_int(wrong, 0, "what is there is read");
    is_int(reported, (int)((size - 16 - 8 + 6) / 7), "and the place is reported: %s",
           err.text);
    json_decref(all);
    free(bytes);
}

static size_t lines_of(const json_t *list)
{
    size_t count = 0;
    for (size_t k = 0; k < json_array_size(list); k++)
        count += !json_object_get(json_array_get(list, k), "damaged");
    return count;
}

/* Behind the first record. */
static size_t second_record(const unsigned char *bytes)
{
    pl_journal_record_t r;
    memcpy(&r, bytes + 8, sizeof r);
    return 8 + sizeof r + r.size + -(size_t)r.size % 8;
}

static void much_damage_is_skipped(void)
{
    unsigned char *bytes;
    json_t *all = act(), *list;
    const size_t size = load(&bytes), from = second_record(bytes) + 400;
    memset(bytes + from, 0x5a, 301);
    list = read_bytes(bytes, size);
    ok(lines_of(list) > json_array_size(all) / 2 && lines_of(list) < json_array_size(all),
       "what is behind 300 wrong bytes is read: %zu of %zu", lines_of(list),
       json_array_size(all));
    const json_t *last = json_array_get(list, json_array_size(list) - 1),
                 *written = json_array_get(all, json_array_size(all) - 1);
    ok(json_equal(json_object_get(last, "seq"), json_object_get(written, "seq"))
           && json_equal(json_object_get(last, "time"), json_object_get(written, "time")),
       "to the last, though names of actors may be lost");
    long long lost = 0;
    for (size_t k = 0; k < json_array_size(list); k++)
        lost += json_integer_value(json_object_get(json_array_get(list, k), "damaged"));
    ok(lost >= 301 && lost < 1200, "%lld bytes are said to be lost", lost);
    like(err.text, "damaged at byte [0-9]+: .*; [0-9]+ bytes are lost", "%s", err.text);
    json_decref(list);
    json_decref(all);
    free(bytes);
}

static void damage_is_reported_with_its_place(void)
{
    unsigned char *bytes;
    json_t *all = act(), *list;
    const size_t size = load(&bytes), first = second_record(bytes);
    int wrong = 0, reported = 0, places = 0;
    for (size_t at = 8; at < size; at += 5) {
        bytes[at] ^= 0x10;
        list = read_bytes(bytes, size);
        const char *place = strstr(err.text, "at byte ");
        if (err.code == PL_OK) {                            /* zeros between records */
            wrong += !json_equal(list, all);
        } else {
            reported += err.code == PL_EFORMAT && place;
            wrong += at >= first && lines_of(list) + 1 < json_array_size(all);
            wrong += at >= first && !strstr(err.text, "bytes are lost");
            wrong += place && strtoull(place + 8, NULL, 10) > at;
            places++;
        }
        json_decref(list);
        bytes[at] ^= 0x10;
    }
    is_int(wrong, 0, "but for one record all is read");
    is_int(reported, places, "and all %d damages are reported: %s", places, err.text);
    memcpy(bytes, "something", 8);
    json_decref(read_bytes(bytes, size));
    like(err.text, "not a Paceline journal", "another file is none: %s", err.text);
    memcpy(bytes, "PLJOURN\2", 8);
    json_decref(read_bytes(bytes, size));
    like(err.text, "of version 2; this Paceline reads version 1", "nor is a later one");
    json_decref(all);
    free(bytes);
}

static void say(const char *reason, int times)
{
    pl_frame_t frame;
    const pl_stop_t stop = {.reason = reason};
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .message = PL_MESSAGE_stop,
                             .remaining = -1};
    pl_frame_make(&frame, &e, &stop, NULL);
    for (int k = 0; k < times; k++)
        pl_monitor_offer(rig.reactor, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

static char said[512];

static void keep_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    if (strstr(text, "journal"))
        snprintf(said, sizeof said, "%s", text);
}

/* Files of this process may not grow beyond a limit. */
static void a_full_disk_ends_the_journal_and_nothing_else(void)
{
    struct rlimit limit, before;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){100000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    rig_open();
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_OK, "a journal");
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int k = 0; k < 100; k++) {
        say("much", 100);
        usleep(1);
    }
    rig_close();
    setrlimit(RLIMIT_FSIZE, &before);
    like(said, "the journal .* ends here: File too large; the run continues",
         "is reported");
    json_t *list = read_all(path);
    ok(json_array_size(list) > 100, "what was written can be read: %zu",
       json_array_size(list));
    like(err.text, "no end record .* the disk was full", "and shows that it ends early");
    struct stat status;
    const char *end = strstr(err.text, "byte ");
    ok(end && stat(path, &status) == 0 && atoll(end + 5) == (long long)status.st_size,
       "behind a whole record: %s", err.text);
    json_decref(list);
}

/* ---- gaps ---- */

/* A tap that holds up the hub, until it is let go; disks keep up with it then. */
typedef struct gate {
    pthread_mutex_t lock;
    long long records;                                      /* atomic */
} gate_t;

enum { BREATH_RECORDS = 64, BREATH_US = 1000 };

static void gate_record(void *self, const pl_tap_record_t *record)
{
    (void)record;
    gate_t *gate = self;
    const long long records = __atomic_add_fetch(&gate->records, 1, __ATOMIC_RELEASE);
    if (records % BREATH_RECORDS == 0)
        usleep(BREATH_US);
    pthread_mutex_lock(&gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_close(void *self)
{
    (void)self;
}

static const pl_tap_ops_t gate_ops = {.record = gate_record, .close = gate_close};

static long long records_of(const gate_t *gate)
{
    return __atomic_load_n(&gate->records, __ATOMIC_ACQUIRE);
}

/* What a journal has of one rank. */
typedef struct account {
    long long messages, missing, gaps;
    bool in_place;                       /* numbers continue behind each gap as it says */
} account_t;

static account_t account_of(const json_t *list)
{
    account_t a = {.in_place = true};
    long long next = -1;
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *line = json_array_get(list, k), *gap = json_object_get(line, "gap");
        const long long seq = json_integer_value(json_object_get(line, "seq"));
        if (gap) {
            a.gaps++;
            a.missing += json_integer_value(gap);
            next += json_integer_value(gap);
            continue;
        }
        a.messages++;
        a.in_place &= next < 0 || seq == next;
        next = seq + 1;
    }
    return a;
}

/* The last gap of a journal that was offered so many messages, and one more behind the
 * gap if the stream continued. */
static const json_t *accounted_gap(const json_t *list, int reported, bool continues)
{
    const account_t a = account_of(list);
    is_int(err.code, PL_OK, "it is whole: %s", err.text);
    is_int(a.messages + a.missing, reported + continues, "it has or misses each message");
    ok(a.gaps > 0 && a.missing > 0, "%lld are missing, in %lld gaps", a.missing, a.gaps);
    ok(a.in_place, "each where the numbers of its messages leap");
    return json_array_get(list, json_array_size(list) - 1 - (size_t)continues);
}

/* So that a few of them are much. */
static const char *long_text(void)
{
    static char text[1001];
    memset(text, 'x', sizeof text - 1);
    return text;
}

/* A journal of `reported` + 1 messages and one more, if it continues, at path: its hub is
 * held up for a while. */
static void hold_up(int reported, bool continues)
{
    gate_t gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    rig_open();
    is_int(pl_journal_tap(rig.runtime, path, &err), PL_OK, "a journal");
    is_int(pl_tap_add(rig.runtime, &gate_ops, &gate, &err), PL_OK, "a slow viewer");
    pthread_mutex_lock(&gate.lock);
    say("first", 1);
    ok(eventually(records_of(&gate) == 1), "which holds up the hub");
    say(long_text(), reported);
    pthread_mutex_unlock(&gate.lock);
    if (continues) {
        pl_monitor_catch_up(rig.runtime);
        say("last", 1);
    }
    rig_close();
}

static void messages_lost_by_the_hub_are_a_gap_of_its_rank(void)
{
    enum { MANY = 60000 };
    for (int continues = 0; continues < 2; continues++) {
        hold_up(MANY, continues);
        json_t *list = read_all(path);
        const json_t *gap = accounted_gap(list, MANY + 1, continues);
        is_int(json_integer_value(json_object_get(gap, "rank")), -1,
               "it says whose messages they are, %s",
               continues ? "right before the next" : "though none follows");
        json_decref(list);
    }
}

/* Takes what comes out of a pipe into a file. */
typedef struct drain {
    int pipe;
    FILE *file;
    pthread_t thread;
    long long bytes;                                        /* atomic */
} drain_t;

static void *drain_run(void *argument)
{
    static char bytes[1 << 16];
    drain_t *d = argument;
    ssize_t got;
    while ((got = read(d->pipe, bytes, sizeof bytes)) > 0) {
        fwrite(bytes, 1, (size_t)got, d->file);
        __atomic_add_fetch(&d->bytes, got, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* The drain's pipe, with its name. */
static drain_t drain_new(char pipe[300])
{
    snprintf(pipe, 300, "%s/pipe", tap_folder());
    unlink(pipe);
    return (drain_t){.pipe = mkfifo(pipe, 0600) == 0 ? open(pipe, O_RDONLY | O_NONBLOCK)
                                                     : -1,
                     .file = fopen(path, "wb")};
}

static void drain_start(drain_t *drain)
{
    fcntl(drain->pipe, F_SETFL, 0);
    pthread_create(&drain->thread, NULL, drain_run, drain);
}

static void drain_end(drain_t *drain)
{
    pthread_join(drain->thread, NULL);
    fclose(drain->file);
    close(drain->pipe);
}

/* A journal of `reported` messages and one more, if it continues, at path: its disk
 * stands still for a while, as an unread pipe. */
static void stand_still(int reported, bool continues)
{
    enum { KEPT = 4 << 20 };
    char pipe[300];
    gate_t gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    drain_t drain = drain_new(pipe);
    rig_open();
    is_int(pl_journal_tap(rig.runtime, pipe, &err), PL_OK, "a journal");
    pl_tap_add(rig.runtime, &gate_ops, &gate, &err);
    for (int k = 100; k <= reported; k += 100) {
        say(long_text(), 100);
        eventually(records_of(&gate) == k);
    }
    is_int(records_of(&gate), reported, "the hub has all, more than is kept for a disk");
    drain_start(&drain);
    ok(eventually(__atomic_load_n(&drain.bytes, __ATOMIC_ACQUIRE) > KEPT / 2),
       "which takes what was kept for it");
    if (continues)
        say("last", 1);
    rig_close();
    drain_end(&drain);
}

static void messages_the_disk_did_not_take_are_a_gap_of_any_rank(void)
{
    enum { MANY = 8000 };
    for (int continues = 0; continues < 2; continues++) {
        stand_still(MANY, continues);
        json_t *list = read_all(path);
        const json_t *gap = accounted_gap(list, MANY, continues);
        ok(json_object_get(gap, "gap") && !json_object_get(gap, "rank"), "%s",
           continues ? "the gap of the disk right before the messages after it"
                     : "and the gap of the disk at the end, when nothing came any more");
        json_decref(list);
    }
}

/* A tap; its end lets a disk continue. */
static void drained_record(void *self, const pl_tap_record_t *record)
{
    (void)self, (void)record;
}

static void drained_close(void *self)
{
    drain_start(self);
}

static const pl_tap_ops_t drained_ops = {.record = drained_record,
                                         .close = drained_close};

/* The journal ends while its first buffer is on its way and others wait behind it. */
static void messages_that_wait_for_the_disk_at_the_end_are_written(void)
{
    enum { MANY = 2500 };
    char pipe[300];
    gate_t gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    drain_t drain = drain_new(pipe);
    rig_open();
    pl_tap_add(rig.runtime, &drained_ops, &drain, &err);
    is_int(pl_journal_tap(rig.runtime, pipe, &err), PL_OK, "a journal");
    pl_tap_add(rig.runtime, &gate_ops, &gate, &err);
    say(long_text(), MANY);
    ok(eventually(records_of(&gate) == MANY), "less than is kept for a disk");
    rig_close();
    drain_end(&drain);
    json_t *list = read_all(path);
    is_int(err.code, PL_OK, "it is whole: %s", err.text);
    is_int((long long)json_array_size(list), MANY, "it has each message");
    json_decref(list);
}

int main(void)
{
    pl_log_hook(keep_log, PL_LOG_INFO, NULL);
    run(a_journal_has_what_the_stream_had);
    run(an_existing_journal_is_kept);
    run(a_file_that_is_no_journal_is_left_alone);
    run(a_journal_that_is_being_written_is_left_alone);
    run(a_file_that_is_cut_off_is_read_up_to_there);
    run(damage_is_reported_with_its_place);
    run(much_damage_is_skipped);
    run(a_full_disk_ends_the_journal_and_nothing_else);
    run(messages_lost_by_the_hub_are_a_gap_of_its_rank);
    run(messages_the_disk_did_not_take_are_a_gap_of_any_rank);
    run(messages_that_wait_for_the_disk_at_the_end_are_written);
    return tap_done();
}
