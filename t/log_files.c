/* log_files.c - tests of the files of loggers: connectors/loggers/{jsonl,csv}.c, and how
 * they resume from a checkpoint */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/connectors/loggers/loggers.h"
#include "files.h"
#include "tap.h"

static char run_dir[PATH_MAX - 64];

static void new_run_dir(const char *name)
{
    snprintf(run_dir, sizeof run_dir, "%s/%s", tap_folder(), name);
    mkdir(run_dir, 0777);
}

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    return path;
}

/* The text of a file of the run, or "": until the next call. */
static const char *text_of(const char *name)
{
    static uint8_t *text;
    size_t size;
    free(text);
    text = file_get(path_of(name), &size);
    return text ? (const char *)text : "";
}

static int warnings;
static char warning[PL_ERROR_TEXT + 100];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    snprintf(warning, sizeof warning, "%s", text);
    warnings++;
}

/* A logger by itself, as its recorder uses it. */
static void *alone_from(const pl_logger_ops_t *ops, const pl_log_run_t *from)
{
    void *self = calloc(1, ops->size);
    pl_log_run_t run = *from;
    pl_error_t err = {0};
    run.run_dir = run_dir;
    run.run = "{}";
    is_int(ops->open(self, &run, &err), PL_OK, "opened %s", err.text);
    return self;
}

static void *alone(const pl_logger_ops_t *ops, const char *position)
{
    return alone_from(ops, &(pl_log_run_t){.position = position});
}

static void alone_log(const pl_logger_ops_t *ops, void *self, uint64_t step,
                      const char *metrics)
{
    const pl_record_t record = {1, step, 0, metrics};
    pl_error_t err = {0};
    is_int(ops->log(self, &record, &err), PL_OK, "logged %s", err.text);
}

static void alone_close(const pl_logger_ops_t *ops, void *self)
{
    pl_error_t err = {0};
    is_int(ops->flush(self, &err), PL_OK, "flushed %s", err.text);
    ops->close(self, "ok");
    free(self);
}

/* A logger that was closed behind its checkpoint's position, and one that resumes
 * there. */
static void *alone_again(const pl_logger_ops_t *ops, void *self, uint64_t step,
                         const char *metrics)
{
    ops->flush(self, NULL);
    char *position = ops->position(self);
    alone_log(ops, self, step, metrics);
    alone_close(ops, self);
    self = alone(ops, position);
    pl_text_free(position);
    return self;
}

/* ---- what they hold ---- */

static void a_table_has_a_column_for_each_name(void)
{
    new_run_dir("table");
    void *csv = alone(&pl_csv_logger, "");
    alone_log(&pl_csv_logger, csv, 50, "{\"train_loss\": 0.5, \"grad_norm\": 2}");
    pl_csv_logger.flush(csv, NULL);
    is_text(text_of("metrics.csv"), "epoch,step,train_loss,grad_norm\n1,50,0.5,2\n",
            "epoch and step come first");
    alone_log(&pl_csv_logger, csv, 60, "{\"val_loss\": 0.25}");
    alone_log(&pl_csv_logger, csv, 70, "{\"grad_norm\": null, \"train_loss\": 1e-9}");
    pl_csv_logger.flush(csv, NULL);
    is_text(text_of("metrics.csv"),
            "epoch,step,train_loss,grad_norm,val_loss\n1,50,0.5,2,\n1,60,,,0.25\n"
            "1,70,1e-9,nan,\n",
            "a new name is a new column, with empty cells before");
    alone_log(&pl_csv_logger, csv, 80, "{\"a \\\"b\\\", c\": 1, \"d\\ne\": 2}");
    alone_log(&pl_csv_logger, csv, 90, "{\"a \\\"b\\\", c\": 3}");
    alone_close(&pl_csv_logger, csv);
    like(text_of("metrics.csv"),
         "^epoch,step,train_loss,grad_norm,val_loss,"
         "\"a \"\"b\"\", c\",d e\n",
         "odd names are quoted");
    like(text_of("metrics.csv"), "\n1,80,,,,1,2\n1,90,,,,3,\n$", "and found again");
}

static void a_table_resumes_from_a_checkpoint(void)
{
    new_run_dir("table_again");
    void *csv = alone(&pl_csv_logger, "");
    alone_log(&pl_csv_logger, csv, 1, "{\"a\": 1}");
    alone_log(&pl_csv_logger, csv, 2, "{\"b,\": 2}");
    csv = alone_again(&pl_csv_logger, csv, 3, "{\"a\": 3}");
    alone_log(&pl_csv_logger, csv, 3, "{\"b,\": 33, \"c\": 4}");
    alone_close(&pl_csv_logger, csv);
    is_text(text_of("metrics.csv"),
            "epoch,step,a,\"b,\",c\n1,1,1,,\n1,2,,2,\n1,3,,33,4\n",
            "rows after it are cut off, names found again");
}

static void lines_resume_from_a_checkpoint(void)
{
    new_run_dir("lines_again");
    void *lines = alone(&pl_jsonl_logger, "");
    alone_log(&pl_jsonl_logger, lines, 1, "{}");
    lines = alone_again(&pl_jsonl_logger, lines, 2, "{}");
    alone_log(&pl_jsonl_logger, lines, 7, "{}");
    alone_close(&pl_jsonl_logger, lines);
    like(text_of("metrics.jsonl"),
         "^.\"global_step\":1,[^\n]*\n.\"global_step\":7,[^\n]*\n$",
         "lines after it are cut off, and others follow");
}

/* Five records were logged, three of them before the checkpoint, which knows the place
 * behind the first, or behind none. */
static void a_checkpoint_that_did_not_wait_keeps_what_was_behind_its_place(void)
{
    static const pl_logger_ops_t *const ops[] = {&pl_jsonl_logger, &pl_csv_logger};
    static const char *const names[] = {"metrics.jsonl", "metrics.csv"};
    for (int k = 0; k < 4; k++) {
        char name[32], whole[1000], *position = NULL;
        const int which = k % 2, known = k / 2;
        snprintf(name, sizeof name, "behind%d", k);
        new_run_dir(name);
        void *to = alone(ops[which], "");
        for (int step = 1; step <= 3; step++) {
            if (known && step == 2) {
                ops[which]->flush(to, NULL);
                position = ops[which]->position(to);
            }
            alone_log(ops[which], to, (uint64_t)step, "{\"a\": 1}");
        }
        ops[which]->flush(to, NULL);
        snprintf(whole, sizeof whole, "%s", text_of(names[which]));
        alone_log(ops[which], to, 3, "{\"a\": 2}");
        alone_log(ops[which], to, 4, "{\"a\": 3}");
        alone_close(ops[which], to);
        to = alone_from(ops[which], &(pl_log_run_t){.position = known ? position : "",
                                                    .has_position = true,
                                                    .behind = known ? 2 : 3});
        alone_close(ops[which], to);
        is_text(text_of(names[which]), whole, "what was before it, and nothing else");
        pl_text_free(position);
    }
}

/* A file of two lines, cut in the second since the position was reported. */
static void resumes_without(const pl_logger_ops_t *ops, const char *file, int lines)
{
    int count = 0;
    void *to = alone(ops, "");
    alone_log(ops, to, 1, "{\"a\": 1}");
    alone_log(ops, to, 2, "{\"a\": 2}");
    ops->flush(to, NULL);
    char *position = ops->position(to);
    alone_close(ops, to);
    const off_t size = (off_t)strlen(text_of(file)) - 2;
    truncate(path_of(file), size);
    warnings = 0;
    to = alone(ops, position);
    is_int(warnings, 1, "it is reported");
    like(warning, file, "by name");
    alone_log(ops, to, 3, "{\"a\": 3}");
    alone_close(ops, to);
    const char *text = text_of(file);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        count++;
    is_int(count, lines, "whole lines are left, and others follow: %s", text);
    pl_text_free(position);
}

static void lines_that_a_file_has_lost_are_reported(void)
{
    new_run_dir("torn");
    resumes_without(&pl_jsonl_logger, "metrics.jsonl", 2);
    resumes_without(&pl_csv_logger, "metrics.csv", 3);
}

/* A file with other lines since the position was reported, as long and as many. */
static void resumes_beside(const pl_logger_ops_t *ops, const char *file, const char *line)
{
    char aside[64];
    snprintf(aside, sizeof aside, "%s.1", file);
    void *to = alone(ops, "");
    alone_log(ops, to, 1, "{\"a\": 1}");
    ops->flush(to, NULL);
    char *position = ops->position(to);
    alone_log(ops, to, 2, "{\"a\": 2, \"b\": 2}");
    alone_close(ops, to);
    warnings = 0;
    to = alone(ops, position);
    is_int(warnings, 0, "with its own lines it continues in %s", file);
    alone_close(ops, to);
    char *other = pl_text("%s", text_of(file));
    strpbrk(strrchr(other, 'a'), "1")[0] = '7';
    FILE *out = fopen(path_of(file), "w");
    fputs(other, out);
    fclose(out);
    to = alone(ops, position);
    is_int(warnings, 1, "another file is reported");
    like(warning, file, "by name");
    alone_log(ops, to, 3, "{\"a\": 3}");
    alone_close(ops, to);
    is_text(text_of(aside), other, "it is kept as it is under another name");
    like(text_of(file), line, "and a new one is begun");
    pl_text_free(other), pl_text_free(position);
}

static void a_file_that_was_replaced_is_not_cut(void)
{
    new_run_dir("replaced");
    resumes_beside(&pl_jsonl_logger, "metrics.jsonl", "^.\"global_step\":3,[^\n]*\n$");
    resumes_beside(&pl_csv_logger, "metrics.csv", "^epoch,step,a\n1,3,3\n$");
}

static void a_table_on_a_full_disk_stays_whole(void)
{
    new_run_dir("table_full");
    void *csv = alone(&pl_csv_logger, "");
    pl_error_t err = {0};
    alone_log(&pl_csv_logger, csv, 1, "{\"a\": 1}");
    pl_csv_logger.flush(csv, NULL);
    struct rlimit no_limit;
    getrlimit(RLIMIT_FSIZE, &no_limit);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){25, no_limit.rlim_max});
    alone_log(&pl_csv_logger, csv, 2, "{\"a\": 2, \"something longer\": 3}");
    is_int(pl_csv_logger.flush(csv, &err), PL_EIO, "a full disk is an error");
    is_text(text_of("metrics.csv"), "epoch,step,a\n1,1,1\n", "the old table stays");
    setrlimit(RLIMIT_FSIZE, &no_limit);
    alone_log(&pl_csv_logger, csv, 3, "{\"a\": 3}");
    alone_close(&pl_csv_logger, csv);
    is_text(text_of("metrics.csv"), "epoch,step,a,something longer\n1,1,1,\n1,3,3,\n",
            "and continues later");
    is_int(files_in(run_dir), 1, "nothing else is left");
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    run(a_checkpoint_that_did_not_wait_keeps_what_was_behind_its_place);
    run(a_table_has_a_column_for_each_name);
    run(a_table_resumes_from_a_checkpoint);
    run(lines_resume_from_a_checkpoint);
    run(lines_that_a_file_has_lost_are_reported);
    run(a_file_that_was_replaced_is_not_cut);
    run(a_table_on_a_full_disk_stays_whole);
    return tap_done();
}
