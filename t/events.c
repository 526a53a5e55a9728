/* events.c - tests of TensorBoard's event files: engine/formats/events.c and the logger
 * that writes them */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/connectors/loggers/loggers.h"
#include "files.h"
#include "formats/events.h"
#include "scarce.h"
#include "tap.h"

/* ---- bytes ---- */

/* The events of t/data/make_events.py. */
static int reference_write(pl_append_t *file, pl_error_t *err)
{
    float parabola[20];
    const pl_event_scalar_t scalar[] = {{"train_loss", 0.1},
                                        {"epoch", 0},
                                        {"val_loss", NAN}};
    for (int k = 0; k < 20; k++)
        parabola[k] = 0.5f * (float)(k * k) - 3 * (float)k;
    int code = pl_events_begin(file, &(pl_event_time_t){1763690000.25, 0}, false, err);
    if (code == PL_OK)
        code = pl_events_begin(file, &(pl_event_time_t){1763690000.5, 51}, true, err);
    if (code == PL_OK)
        code = pl_events_scalars(file, &(pl_event_time_t){1763690001, 100}, scalar, 3,
                                 err);
    if (code == PL_OK)
        code = pl_events_text(file, &(pl_event_time_t){1763690002, 0},
                              "notes/text_summary", "*é* is fine", err);
    if (code == PL_OK)
        code = pl_events_histogram(file, &(pl_event_time_t){1763690003, (int64_t)1 << 40},
                                   "fc1.weight", parabola, 20, err);
    if (code == PL_OK)
        code = pl_events_histogram(file, &(pl_event_time_t){1763690004, 3}, "one",
                                   (float[]){2.5f, NAN, 2.5f}, 3, err);
    const pl_event_hparam_t hparam[] = {{.name = "lr", .number = 0.001},
                                        {.name = "name", .text = "adamw"},
                                        {.name = "nesterov", .is_truth = true}};
    if (code == PL_OK)
        code = pl_events_session(file, &(pl_event_time_t){1763690005, 0}, hparam, 3, err);
    if (code == PL_OK)
        code = pl_events_session_end(file, &(pl_event_time_t){1763690006, 0}, false, err);
    return code;
}

static void records_equal_tensorboard(void)
{
    size_t size = 0;
    pl_append_t file;
    uint8_t *want = file_get(file_of_tests("data/events.tfevents"), &size);
    pl_append_open(&file, "unused", -1, NULL);
    is_int(reference_write(&file, NULL), PL_OK, "written");
    is_int(file.length, size, "as many bytes as TensorBoard's own");
    size_t same = 0;
    while (same < size && same < file.length
           && want[same] == (uint8_t)file.gathered[same])
        same++;
    is_int(same, size, "and the same");
    pl_append_release(&file);
    free(want);
}

static int reference_attempt(void *user)
{
    pl_append_t file = {0};
    pl_error_t err;
    (void)user;
    int code = pl_append_open(&file, "unused", -1, &err);
    if (code == PL_OK)
        code = reference_write(&file, &err);
    pl_append_release(&file);
    return code;
}

static void a_lack_of_memory_is_an_error(void)
{
    scarce_try(reference_attempt, NULL, "events");
}

/* ---- the logger ---- */

#define OPS (&pl_tensorboard_logger)

static void *logger_open(const char *position, uint64_t step)
{
    void *self = calloc(1, OPS->size);
    const pl_log_run_t run = {.run_dir = tap_folder(),
                              .run = "{\n  \"a\": 1\n}\n",
                              .position = position,
                              .global_step = step};
    pl_error_t err = {0};
    is_int(OPS->open(self, &run, &err), PL_OK, "opened %s", err.text);
    return self;
}

static void logger_log(void *self, uint64_t step, const char *metrics)
{
    const pl_record_t record = {1, step, 7, metrics};
    pl_error_t err = {0};
    is_int(OPS->log(self, &record, &err), PL_OK, "logged %s", err.text);
    is_int(OPS->flush(self, &err), PL_OK, "flushed %s", err.text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *name[8];

/* The event files there are, oldest first. */
static int names_read(void)
{
    int count = 0;
    DIR *dir = opendir(tap_folder());
    for (const struct dirent *entry; count < 8 && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20))
            continue;
        free(name[count]);
        name[count] = malloc(4200);
        snprintf(name[count++], 4200, "%s/%s", tap_folder(), entry->d_name);
    }
    closedir(dir);
    qsort(name, (size_t)count, sizeof *name, by_name);
    return count;
}

/* How many records of a file hold a text. */
static int records_with(const char *path, const char *text)
{
    size_t size, at = 0;
    int count = 0;
    uint8_t *data = file_get(path, &size);
    while (data && at + 12 <= size) {
        size_t length = data[at] | (size_t)data[at + 1] << 8;
        count += memmem(data + at + 12, length, text, strlen(text)) != NULL;
        at += 16 + length;
    }
    is_int(at, size, "whole records");
    free(data);
    return count;
}

static void a_run_has_its_hyperparameters_and_metrics(void)
{
    void *logger = logger_open("", 0);
    logger_log(logger, 1, "{\"train_loss\": 0.5, \"lists\": [1], \"bad\": null}");
    OPS->close(logger, "ok");
    free(logger);
    is_int(names_read(), 1, "one file");
    is_int(records_with(name[0], "hyperparameters/text_summary"), 1, "the run once");
    is_int(records_with(name[0], "    {\n      \"a\": 1\n"), 1, "as a block of code");
    is_int(records_with(name[0], "train_loss"), 1, "a metric");
    is_int(records_with(name[0], "_hparams_/session_start_info"), 1, "the run's options");
    is_int(records_with(name[0], "_hparams_/session_end_info"), 1, "and its end");
    is_int(records_with(name[0], "lists"), 0, "what is no number is left out");
    is_int(records_with(name[0], "bad"), 1, "what is not finite is there");
    is_int(records_with(name[0], "epoch"), 1, "with the epoch");
    remove(name[0]);
}

static void histograms_are_written_on_request(void)
{
    const float data[] = {1, 2, 3};
    const pl_result_tensor_t tensor = {"fc.weight", PL_SHAPE(3), data};
    const pl_record_t record = {1, 5, 7, "{}"};
    for (int wanted = 0; wanted < 2; wanted++) {
        char *logger = logger_open("", 0);
        *(bool *)(logger + OPS->options[0].offset) = wanted;
        is_int(OPS->tensors(logger, &record, &tensor, 1, NULL), PL_OK, "tensors taken");
        is_int(OPS->flush(logger, NULL), PL_OK, "flushed");
        OPS->close(logger, "ok");
        free(logger);
        names_read();
        is_int(records_with(name[0], "fc.weight"), wanted,
               wanted ? "written" : "left out");
        remove(name[0]);
    }
}

static void a_resumed_run_has_a_file_of_its_own(void)
{
    void *logger = logger_open("", 0);
    logger_log(logger, 1, "{\"first\": 0.5}");
    char *position = OPS->position(logger);
    logger_log(logger, 2, "{\"second\": 0.5}");
    OPS->close(logger, "");
    free(logger);
    for (int again = 0; again < 2; again++) {
        logger = logger_open(position, 1);
        logger_log(logger, 2, "{\"third\": 0.5}");
        OPS->close(logger, "");
        free(logger);
        is_int(names_read(), 2, "two files, also when the same checkpoint is used again");
        is_int(records_with(name[0], "first"), 1,
               "what came before the checkpoint stays");
        is_int(records_with(name[0], "second"), 0, "what came after it is gone");
        is_int(records_with(name[1], "third"), 1, "the new one has what follows");
        is_int(records_with(name[1], "\x10\x02\x3a\x02\x08\x01"), 1,
               "and calls back what was shown from step 2 on");
    }
    pl_text_free(position);
}

int main(void)
{
    scarce_init();
    run(records_equal_tensorboard);
    run(a_lack_of_memory_is_an_error);
    run(a_run_has_its_hyperparameters_and_metrics);
    run(histograms_are_written_on_request);
    run(a_resumed_run_has_a_file_of_its_own);
    return tap_done();
}
