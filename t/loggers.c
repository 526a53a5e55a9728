/* loggers.c - tests of the logger connector and what it writes: connectors/logger.c,
 * recorder.c; what the files hold is in log_files.c */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actors/connectors/connectors.h"
#include "actors/connectors/loggers/loggers.h"
#include "base/clock.h"
#include "base/options.h"
#include "files.h"
#include "queen.h"
#include "scarce.h"
#include "tap.h"

static pl_address_t logger;
static asked_t life;
static char run_dir[PATH_MAX - 64];

/* ---- the rig ---- */

static char *in_run_dir(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    return path;
}

static void name_run_dir(const char *name)
{
    snprintf(run_dir, sizeof run_dir, "%s/%s", tap_folder(), name);
}

/* The connector for a run whose loggers are a JSON list. */
static void start(const char *loggers)
{
    char options[PATH_MAX + 64];
    pl_job_t *job = queen_job("{\"loggers\": %s}", loggers);
    queen_open();
    snprintf(options, sizeof options, "{\"run_dir\": \"%s\"}", run_dir);
    const pl_start_t reported = {.options = options, .context = &job->object};
    logger = queen_spawn(&pl_logger_connector, &reported, &life);
    pl_object_unref(job);
}

/* The same in a new folder of that name. */
static void start_in(const char *name, const char *loggers)
{
    name_run_dir(name);
    mkdir(run_dir, 0777);
    start(loggers);
}

static struct rlimit no_limit;

static void limit_files(rlim_t bytes)
{
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, no_limit.rlim_max});
}

static int warnings;
static char first_warning[PL_ERROR_TEXT + 100], warning[PL_ERROR_TEXT + 100];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)rank, (void)actor, (void)user;
    if (level != PL_LOG_WARNING)
        return;
    snprintf(warning, sizeof warning, "%s", text);
    if (warnings++ == 0)
        snprintf(first_warning, sizeof first_warning, "%s", text);
}

static bool warned(void)
{
    return warnings > 0;
}

/* Turns the reactor until something holds. */
static void until(bool (*holds)(void))
{
    int64_t limit = pl_now() + 60 * PL_SECOND;
    while (!holds() && pl_now() < limit)
        queen_turn();
}

static int log_step(uint64_t step, const char *metrics)
{
    const pl_log_metrics_t fields = {.epoch = 2, .global_step = step, .metrics = metrics};
    return queen_call(logger, PL_MESSAGE_log_metrics, &fields)->error.code;
}

/* The text of a file of the run, or "": until the next call. */
static const char *text_of(const char *name)
{
    static uint8_t *text;
    size_t size;
    free(text);
    text = file_get(in_run_dir(name), &size);
    return text ? (const char *)text : "";
}

/* The steps in metrics.jsonl, each line an object: the count, or -1 - the first bad
 * line. */
static int steps_in_file(uint64_t *steps, int max)
{
    char line[16384];
    FILE *file = fopen(in_run_dir("metrics.jsonl"), "r");
    int count = 0;
    bool bad = false;
    while (file && !bad && count < max && fgets(line, sizeof line, file)) {
        json_t *value = json_loads(line, 0, NULL);
        bad = !value || line[strlen(line) - 1] != '\n';
        if (!bad)
            steps[count++] =
                (uint64_t)json_integer_value(json_object_get(value, "global_step"));
        json_decref(value);
    }
    if (file)
        fclose(file);
    return bad ? -1 - count : count;
}

/* ---- metrics.jsonl ---- */

static void a_line_has_step_epoch_time_and_metrics(void)
{
    start_in("line", "[\"jsonl\"]");
    is_int(log_step(938, "{\"train_loss\": 0.1, \"lr-adamw\": 1e-3, \"epoch\": 77}"),
           PL_OK, "logged");
    queen_close();
    const char *text = text_of("metrics.jsonl");
    json_t *line = json_loads(text, 0, NULL);
    is_int(json_object_size(line), 5, "one object of 5 names");
    is_int(json_integer_value(json_object_get(line, "global_step")), 938, "the step");
    is_int(json_integer_value(json_object_get(line, "epoch")), 2,
           "the epoch, which no metric can change");
    is_near(json_real_value(json_object_get(line, "time")), pl_wall_clock(), 1e-7,
            "the time");
    ok(strstr(text, "\"train_loss\":0.1,") != NULL, "numbers are short");
    json_decref(line);
}

static void lines_come_in_order_and_all_before_the_end(void)
{
    enum { LINES = 60 };
    static asked_t asked[LINES];
    uint64_t steps[LINES + 1];
    start_in("order", "[\"jsonl\"]");
    for (uint64_t k = 0; k < LINES; k++) {
        const pl_log_metrics_t fields = {.global_step = k, .metrics = "{\"a\": 1}"};
        queen_ask(&asked[k], logger, PL_MESSAGE_log_metrics, &fields);
    }
    queen_end(&life);
    is_int(steps_in_file(steps, LINES + 1), LINES, "all lines are there at the end");
    int wrong = 0;
    for (uint64_t k = 0; k < LINES; k++)
        wrong += steps[k] != k;
    is_int(wrong, 0, "in order");
    queen_close();
}

static void a_failed_append_is_reported_once_and_the_run_continues(void)
{
    uint64_t steps[8];
    name_run_dir("later");
    warnings = 0;
    start("[\"jsonl\"]");
    for (uint64_t k = 0; k < 3; k++)
        is_int(log_step(k, "{\"a\": 1}"), PL_OK, "the caller is not troubled");
    until(warned);
    like(warning, "later/metrics.jsonl.*No such file", "with file and reason");
    mkdir(run_dir, 0777);
    log_step(3, "{\"a\": 1}");
    queen_end(&life);
    is_int(steps_in_file(steps, 8), 1, "once it works again, it writes again");
    is_int(warnings, 2, "one warning, and one at the end");
    like(warning, "\"jsonl\": 3 of 4 records", "that says how much is lost");
    queen_close();
    warnings = 0;
    start_in("bad", "[\"jsonl\"]");
    log_step(0, "no JSON");
    queen_close();
    like(first_warning, "metrics are lost.*metrics:1:1",
         "metrics that are not JSON are lost");
}

static void a_full_disk_leaves_whole_lines(void)
{
    char metrics[3000];
    uint64_t steps[32];
    memset(metrics, ' ', sizeof metrics);
    memcpy(metrics, "{\"long_name\": \"", 15);
    memset(metrics + 15, 'x', 2900);
    strcpy(metrics + 15 + 2900, "\"}");
    warnings = 0;
    limit_files(4096);
    start_in("full", "[\"jsonl\"]");
    log_step(1, "{}");
    for (uint64_t k = 0; k < 5; k++)
        log_step(k, metrics);
    until(warned);
    is_int(steps_in_file(steps, 32), 0, "what does not fit is not there in part");
    like(warning, "full/metrics.jsonl.*too large", "with file and reason");
    setrlimit(RLIMIT_FSIZE, &no_limit);
    log_step(9, "{}");
    queen_end(&life);
    is_int(steps_in_file(steps, 32), 1, "later lines follow");
    is_int(steps[0], 9, "behind the whole ones");
    queen_close();
}

/* ---- any logger ---- */

static void run_without_a_writable_file_continues(const char *name, const char *file)
{
    char loggers[64];
    snprintf(loggers, sizeof loggers, "[\"%s\"]", name);
    warnings = 0;
    name_run_dir(name);
    mkdir(run_dir, 0777);
    tap_ok(symlink("/dev/full", in_run_dir(file)) == 0, __FILE__, __LINE__,
           "a full disk");
    start(loggers);
    log_step(1, "{\"a\": 1}");
    queen_end(&life);
    queen_close();
    like(first_warning, "No space left", "no space: %s says so", name);
    unlink(in_run_dir(file));
    mkdir(in_run_dir(file), 0777);
    warnings = 0;
    start(loggers);
    log_step(1, "{\"a\": 1}");
    queen_end(&life);
    queen_close();
    like(first_warning, "directory", "nor a folder in the way of %s", name);
    rmdir(in_run_dir(file));
    chmod(run_dir, 0500);
    if (geteuid() == 0) {
        tap_skip("root may write anywhere");
        return;
    }
    warnings = 0;
    start(loggers);
    log_step(1, "{\"a\": 1}");
    queen_end(&life);
    queen_close();
    like(first_warning, "ermission", "nor does %s without permission", name);
    chmod(run_dir, 0700);
}

static void a_run_continues_without_a_writable_file(void)
{
    run_without_a_writable_file_continues("jsonl", "metrics.jsonl");
}

/* ---- slow ones ---- */

static sem_t gate;
static int passed;                                          /* atomic: records */
static char ended_as[16];

static int slow_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    (void)self, (void)record, (void)err;
    while (sem_wait(&gate) != 0)
        continue;
    __atomic_add_fetch(&passed, 1, __ATOMIC_RELAXED);
    return PL_OK;
}

static void slow_close(void *self, const char *status)
{
    (void)self;
    snprintf(ended_as, sizeof ended_as, "%s", status);
}

static void slow_interrupt(void *self)
{
    (void)self;
    for (int k = 0; k < 10000; k++)
        sem_post(&gate);
}

static const pl_logger_ops_t slow = {.name = "slow",
                                     .size = 1,
                                     .log = slow_log,
                                     .close = slow_close,
                                     .interrupt = slow_interrupt};

static void shut_the_gate(void)
{
    while (sem_trywait(&gate) == 0)
        continue;
    passed = 0;
    warnings = 0;
}

static bool lines_are_there(void)
{
    uint64_t steps[2];
    return steps_in_file(steps, 2) > 0;
}

static void a_slow_logger_delays_no_other(void)
{
    shut_the_gate();
    start_in("slow", "[\"slow\", \"jsonl\"]");
    log_step(0, "{\"a\": 1}");
    until(lines_are_there);
    ok(lines_are_there(), "the other logger has its line");
    is_int(passed, 0, "while this one waits");
    slow_interrupt(NULL);
    queen_close();
}

/* The reported positions of the loggers, parsed. */
static json_t *positions(void)
{
    asked_t *asked = queen_call(logger, PL_MESSAGE_get_state, &(pl_get_state_t){0});
    return json_loads(asked->text, 0, NULL);
}

static const char *position_in(json_t *all, size_t k)
{
    const char *text = json_string_value(
        json_object_get(json_array_get(json_object_get(all, "loggers"), k), "position"));
    return text ? text : "";
}

static char synced[256];                         /* names of files, and "/" for folders */
static bool unsyncable;

int fsync(int fd)
{
    char link[64], path[PATH_MAX] = "";
    struct stat what;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0 || fstat(fd, &what) != 0)
        return -1;
    const size_t at = strlen(synced);
    snprintf(synced + at, sizeof synced - at, "%s ",
             S_ISDIR(what.st_mode) ? "/" : strrchr(path, '/') + 1);
    errno = EIO;
    return unsyncable ? -1 : (int)syscall(SYS_fsync, fd);
}

static void a_place_is_reported_once_the_disk_has_what_is_before_it(void)
{
    start_in("synced", "[\"jsonl\"]");
    log_step(1, "{\"a\": 1}");
    synced[0] = '\0';
    json_t *first = positions();
    is_text(synced, "metrics.jsonl / ", "the file is synced, and the folder it is in");
    json_t *again = positions();
    is_text(synced, "metrics.jsonl / ", "once, while nothing is written");
    ok(json_equal(first, again), "and the place is the same");
    log_step(2, "{\"a\": 1}");
    unsyncable = true;
    warnings = 0;
    json_decref(again);
    again = positions();
    is_text(position_in(again, 0), position_in(first, 0),
            "the disk's failed lines are in no position");
    unsyncable = false;
    log_step(3, "{\"a\": 1}");
    synced[0] = '\0';
    json_decref(again);
    again = positions();
    is_text(synced, "", "nor is it asked again: it might forget and say yes");
    is_text(position_in(again, 0), position_in(first, 0), "the place stays");
    is_int(warnings, 1, "which is reported once");
    like(warning, "metrics.jsonl: cannot be synced to the disk", "with the reason");
    json_decref(first), json_decref(again);
    queen_close();
}

static void a_request_for_positions_does_not_wait_for_a_slow_logger(void)
{
    enum { TIMES = 20 };
    int reported = 0;
    shut_the_gate();
    start_in("position", "[\"slow\", \"jsonl\"]");
    int64_t began = pl_now();
    for (uint64_t k = 1; k <= TIMES; k++) {
        log_step(k, "{\"a\": 1}");
        json_t *all = positions();
        reported += json_is_object(all) && !*position_in(all, 0);
        if (k > 1 && k < TIMES) {
            json_decref(all);
            continue;
        }
        uint64_t steps[TIMES + 1];
        is_int(steps_in_file(steps, TIMES + 1), (int)k, "the other has written all");
        is_int(atoi(position_in(all, 1)), (int)strlen(text_of("metrics.jsonl")),
               "and says so");
        json_decref(all);
    }
    is_int(reported, TIMES, "each time there is an answer");
    ok(pl_now() - began < 10 * PL_SECOND, "and it is waited for once, for a second");
    is_int(passed, 0, "while it waits");
    slow_interrupt(NULL);
    queen_close();
    is_int(passed, TIMES, "it gets its metrics");
}

static void lines_that_a_slow_logger_cannot_take_are_counted(void)
{
    static char metrics[4096] = "{\"a\": \"";
    enum { RECORDS = 600 };
    memset(metrics + strlen(metrics), 'x', sizeof metrics - 64);
    strcat(metrics, "\"}");
    shut_the_gate();
    start_in("slower", "[\"slow\"]");
    for (uint64_t k = 0; k < RECORDS; k++)
        log_step(k, metrics);
    is_int(warnings, 1, "one warning when there is no more room");
    like(warning, "\"slow\".*too slow for the number", "with its name");
    const pl_end_log_t end = {.status = PL_RUN_STATUS_STOPPED};
    queen_call(logger, PL_MESSAGE_end_log, &end);
    slow_interrupt(NULL);
    queen_end(&life);
    queen_close();
    int lost = 0, taken = 0;
    sscanf(strstr(warning, "\": ") + 3, "%d of %d", &lost, &taken);
    is_int(taken, RECORDS, "the last warning says how many records there were");
    is_int(lost, RECORDS - passed, "and how many are lost");
    ok(passed > 200 && passed < RECORDS, "what there was room for is not");
    is_text(ended_as, "stopped", "it gets the end of the run");
}

static void a_logger_that_never_answers_is_interrupted(void)
{
    shut_the_gate();
    start_in("stuck", "[\"slow\"]");
    log_step(1, "{}");
    queen_end(&life);
    queen_close();
    is_int(life.error.code, PL_OK, "the end is orderly");
    is_int(passed, 1, "it was interrupted");
    is_text(ended_as, "", "and closed");
}

/* ---- memory ---- */

static bool logs_two_metrics(int nth)
{
    char options[PATH_MAX + 64];
    pl_job_t *job = queen_job("{\"loggers\": [\"csv\", \"jsonl\"]}");
    unlink(in_run_dir("metrics.csv"));
    snprintf(options, sizeof options, "{\"run_dir\": \"%s\"}", run_dir);
    const pl_start_t reported = {.options = options, .context = &job->object};
    queen_open();
    scarce_fail(nth);
    logger = queen_spawn(&pl_logger_connector, &reported, &life);
    const bool succeeded = log_step(1, "{\"a\": 0.5}") == PL_OK;
    queen_end(&life);
    scarce_stop();
    queen_close();
    pl_object_unref(job);
    return succeeded;
}

static void every_call_ends_whichever_allocation_fails(void)
{
    name_run_dir("scarce");
    mkdir(run_dir, 0777);
    queen_lacks_memory(logs_two_metrics, 60);
}

int main(void)
{
    scarce_init();
    signal(SIGXFSZ, SIG_IGN);
    sem_init(&gate, 0, 0);
    pl_register((pl_registration_t[]){{"logger", &pl_csv_logger},
                                      {"logger", &pl_jsonl_logger},
                                      {"logger", &slow},
                                      PL_REGISTRATIONS_END},
                NULL);
    getrlimit(RLIMIT_FSIZE, &no_limit);
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    run(a_line_has_step_epoch_time_and_metrics);
    run(lines_come_in_order_and_all_before_the_end);
    run(a_failed_append_is_reported_once_and_the_run_continues);
    run(a_full_disk_leaves_whole_lines);
    run(a_run_continues_without_a_writable_file);
    run(a_place_is_reported_once_the_disk_has_what_is_before_it);
    run(a_slow_logger_delays_no_other);
    run(a_request_for_positions_does_not_wait_for_a_slow_logger);
    run(lines_that_a_slow_logger_cannot_take_are_counted);
    run(a_logger_that_never_answers_is_interrupted);
    run(every_call_ends_whichever_allocation_fails);
    return tap_done();
}
