/* device_stats_monitor.c - logs the processor time and memory of the process, and the
 * state of the rank's device
 *
 * The first come from the kernel's files in /proc, the state from the accelerator.
 * Unknown values are not logged. */
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
    int64_t since;                       /* the newest measurement, ns */
    double computed;                     /* processor time of the process until then, s */
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

/* The number behind a word of a file, from kB to MB; NaN: none. */
static double megabytes_of(const char *path, const char *word)
{
    char line[256];
    double found = NAN;
    unsigned long long kilobytes;
    FILE *file = fopen(path, "re");
    while (file && isnan(found) && fgets(line, sizeof line, file))
        if (!strncmp(line, word, strlen(word))
            && sscanf(line + strlen(word), ": %llu kB", &kilobytes) == 1)
            found = (double)kilobytes / 1024;
    if (file)
        fclose(file);
    return found;
}

/* "cpu_percent" is the use of processors since the measurement before; 100 is one
 * processor. */
static int device_stats_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                           pl_callback_request_t *request, pl_error_t *err)
{
    static const double mb = 1 << 20;
    static const char status[] = "/proc/self/status", memory[] = "/proc/meminfo";
    static const pl_device_stats_t unknown = {NAN, NAN, NAN, NAN, NAN};
    const pl_device_stats_t *device = event->device ? event->device : &unknown;
    device_stats_t *d = self;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    const int64_t now = pl_now();
    const double computed = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
                            + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec)
                                  * 1e-6,
                 seconds = (double)(now - d->since) * 1e-9,
                 percent = seconds > 0 ? 100 * (computed - d->computed) / seconds : 0;
    d->since = now;
    d->computed = computed;
    if (point == PL_HOOK_FIT_START)
        return PL_OK;                                       /* the clock starts */
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"cpu_percent", percent},
        {"memory_rss_mb", megabytes_of(status, "VmRSS")},
        {"memory_peak_mb", megabytes_of(status, "VmHWM")},
        {"memory_available_mb", megabytes_of(memory, "MemAvailable")},
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
