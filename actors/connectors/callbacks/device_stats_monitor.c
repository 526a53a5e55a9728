/* device_stats_monitor.c - logs what the process takes of the machine, processors and
 * memory, and what the rank's device does
 *
 * The former comes from the kernel's files in /proc, the latter from the accelerator.
 * What is unknown is not logged. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/clock.h"

typedef struct device_stats {
    int64_t every_n_steps;
    int64_t since;                             /* the newest look, ns */
    double computed;                           /* processor time of the process then, s */
} device_stats_t;

static const pl_option_t device_stats_options[] = {
    PL_INT(device_stats_t, every_n_steps, "50", "1..",
           "optimizer steps between two measurements"),
    PL_OPTIONS_END,
};

static int64_t device_stats_every(const void *self)
{
    return ((const device_stats_t *)self)->every_n_steps;
}

static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
           + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* 100 is one processor; since the look before. */
static double processor_percent(device_stats_t *d)
{
    int64_t now = pl_now();
    double computed = processor_seconds(), seconds = (double)(now - d->since) * 1e-9;
    double percent = seconds > 0 ? 100 * (computed - d->computed) / seconds : 0;
    d->since = now;
    d->computed = computed;
    return percent;
}

/* The number behind a word of a file, in kB; -1: none. */
static double kilobytes_of(const char *path, const char *word)
{
    char line[256];
    double found = -1;
    unsigned long long kilobytes;
    FILE *file = fopen(path, "re");
    while (file && found < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, word, strlen(word))
            && sscanf(line + strlen(word), ": %llu kB", &kilobytes) == 1)
            found = (double)kilobytes;
    if (file)
        fclose(file);
    return found;
}

static int megabytes_log(pl_callback_request_t *request, const char *name,
                         double kilobytes, pl_error_t *err)
{
    return kilobytes < 0 ? PL_OK : pl_callback_log(request, name, kilobytes / 1024, err);
}

static int device_log(const pl_device_stats_t *device, pl_callback_request_t *request,
                      pl_error_t *err)
{
    static const double mb = 1 << 20;
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"device_utilization_percent", 100 * device->utilization},
        {"device_memory_used_mb", device->memory_used / mb},
        {"device_memory_free_mb", (device->memory_total - device->memory_used) / mb},
        {"device_power_watts", device->power},
        {"device_temperature_celsius", device->temperature},
    };
    int code = PL_OK;
    for (size_t k = 0; k < sizeof all / sizeof *all && code == PL_OK; k++)
        if (!isnan(all[k].value))
            code = pl_callback_log(request, all[k].name, all[k].value, err);
    return code;
}

static int device_stats_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                           pl_callback_request_t *request, pl_error_t *err)
{
    static const char status[] = "/proc/self/status", memory[] = "/proc/meminfo";
    device_stats_t *d = self;
    double percent = processor_percent(d);
    if (point == PL_HOOK_FIT_START)
        return PL_OK;                                       /* the clock starts */
    int code = pl_callback_log(request, "cpu_percent", percent, err);
    if (code == PL_OK)
        code = megabytes_log(request, "memory_rss_mb", kilobytes_of(status, "VmRSS"),
                             err);
    if (code == PL_OK)
        code = megabytes_log(request, "memory_peak_mb", kilobytes_of(status, "VmHWM"),
                             err);
    if (code == PL_OK)
        code = megabytes_log(request, "memory_available_mb",
                             kilobytes_of(memory, "MemAvailable"), err);
    if (code == PL_OK && event->device)
        code = device_log(event->device, request, err);
    return code;
}

const pl_callback_ops_t pl_device_stats_monitor_callback = {
    .name = "device_stats_monitor",
    .help = "logs processor use, memory, and what is known of the device: utilization, "
            "memory, power, temperature",
    .size = sizeof(device_stats_t),
    .options = device_stats_options,
    .points = PL_AT(FIT_START) | PL_AT(TRAIN_BATCH_END),
    .requests = PL_LOOKS_ON,
    .every_n_steps = device_stats_every,
    .on = device_stats_on,
};
