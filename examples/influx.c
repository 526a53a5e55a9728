/* influx.c - a user-defined logger: metrics as lines for InfluxDB
 *
 *   "loggers": [{"name": "influx", "measurement": "training"}]
 *
 * Each record becomes a line of RUN_DIR/metrics.lp, in the line protocol that InfluxDB,
 * VictoriaMetrics and Telegraf read: MEASUREMENT,run=DIR METRIC=VALUE,… NANOSECONDS.  A
 * logger has its own thread and may wait for a disk.  When a run resumes, the file is
 * truncated to its length at the checkpoint. */
#include <ctype.h>
#include <jansson.h>
#include <paceline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct influx {
    const char *measurement;                                /* option */
    FILE *file;
    char *run;                                              /* of pl_text() */
} influx_t;

static const pl_option_t influx_options[] = {
    PL_TEXT(influx_t, measurement, "\"training\"", NULL,
            "measurement name, at the start of each line"),
    PL_OPTIONS_END,
};

/* Escapes the characters that end a name; a final backslash would escape the next one. */
static void name_write(FILE *file, const char *name, const char *ends)
{
    for (; *name; name++) {
        if (strchr(ends, *name))
            putc('\\', file);
        putc(iscntrl((unsigned char)*name) || *name == '\\' ? '_' : *name, file);
    }
}

static int influx_open(void *self, const pl_log_run_t *run, pl_error_t *err)
{
    influx_t *influx = self;
    char *path = pl_text("%s/metrics.lp", run->run_dir);
    const long position = atol(run->position);              /* 0 in a new run */
    if (path && !(influx->file = fopen(path, position ? "r+" : "w")))
        pl_fail(err, PL_EIO, "%s cannot be written: %m", path);
    pl_text_free(path);
    if (!influx->file)
        return path ? PL_EIO : pl_fail(err, PL_ENOMEM, "out of memory");
    if (ftruncate(fileno(influx->file), position) != 0
        || fseek(influx->file, position, SEEK_SET) != 0)
        return pl_fail(err, PL_EIO, "metrics.lp cannot be truncated: %m");
    influx->run = pl_text("%s", run->run_dir);
    return influx->run ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
}

static int influx_log(void *self, const pl_record_t *record, pl_error_t *err)
{
    const influx_t *influx = self;
    json_t *metrics = json_loads(record->metrics, 0, NULL);
    const char *name, *between = "";
    json_t *value;
    name_write(influx->file, influx->measurement, ", ");
    fputs(",run=", influx->file);
    name_write(influx->file, influx->run, ", =");
    putc(' ', influx->file);
    json_object_foreach(metrics, name, value) {
        if (!json_is_number(value))
            continue;
        fputs(between, influx->file);
        name_write(influx->file, name, ", =");
        fprintf(influx->file, "=%.17g", json_number_value(value));
        between = ",";
    }
    fprintf(influx->file, "%sstep=%llui %.0f\n", between,
            (unsigned long long)record->global_step, record->time * 1e9);
    json_decref(metrics);
    return ferror(influx->file) ? pl_fail(err, PL_EIO, "metrics.lp: %m") : PL_OK;
}

static int influx_flush(void *self, pl_error_t *err)
{
    return fflush(((influx_t *)self)->file) ? pl_fail(err, PL_EIO, "metrics.lp: %m")
                                            : PL_OK;
}

static int influx_sync(void *self, pl_error_t *err)
{
    return fsync(fileno(((influx_t *)self)->file))
               ? pl_fail(err, PL_EIO, "metrics.lp: %m")
               : PL_OK;
}

static char *influx_position(const void *self)
{
    return pl_text("%ld", ftell(((const influx_t *)self)->file));
}

static void influx_close(void *self, const char *status)
{
    influx_t *influx = self;
    (void)status;
    fclose(influx->file);
    pl_text_free(influx->run);
}

static const pl_logger_ops_t influx = {
    .name = "influx",
    .help = "lines for InfluxDB in metrics.lp",
    .size = sizeof(influx_t),
    .options = influx_options,
    .open = influx_open,
    .log = influx_log,
    .flush = influx_flush,
    .sync = influx_sync,
    .position = influx_position,
    .close = influx_close,
};

PL_PLUGIN({"logger", &influx})
