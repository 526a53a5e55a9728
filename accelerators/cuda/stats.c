/* stats.c - what a card does, by NVML: memory, utilization, power and temperature
 *
 * NVML has its own numbers of cards, which CUDA_VISIBLE_DEVICES does not change, so the
 * card is found by its uuid.  Where NVML or one of its functions is missing, as
 * utilization is for a part of a card (MIG), that value is unknown. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cuda/cuda.h"
#include "base/log.h"

enum { UUID_TEXT = 48 };

/* "GPU-40404040-4040-4040-4040-404040404040" */
static void uuid_write(const CUuuid *uuid, const char *prefix, char text[UUID_TEXT])
{
    size_t at = (size_t)snprintf(text, UUID_TEXT, "%s", prefix);
    for (int k = 0; k < 16; k++)
        at += (size_t)snprintf(text + at, UUID_TEXT - at, "%s%02x",
                               k == 0 || (k >= 4 && k <= 10 && k % 2 == 0) ? "-" : "",
                               (unsigned char)uuid->bytes[k]);
}

/* A whole card, or a part of one. */
static bool card_find(cuda_t *cuda, const cuda_nvml_t *call)
{
    static const char *const prefixes[] = {"GPU", "MIG"};
    char uuid[UUID_TEXT];
    for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
        uuid_write(&cuda->card.uuid, prefixes[k], uuid);
        if (call->card(uuid, &cuda->stats.card) == NVML_OK)
            return true;
    }
    return false;
}

static void monitor_open(cuda_t *cuda)
{
    pl_error_t err = {0};
    const cuda_monitor_t *monitor = cuda_monitor_open(&err);
    cuda->stats.is_tried = true;
    if (monitor && card_find(cuda, &monitor->call))
        cuda->stats.monitor = monitor;
    else
        pl_log_line(PL_LOG_DEBUG, cuda->card.number, "accelerator.cuda",
                    "utilization, power and temperature of cuda:%d are unknown: %s",
                    cuda->card.number,
                    monitor ? "NVML does not find the card" : err.text);
}

static void monitor_read(const cuda_stats_t *s, pl_device_stats_t *stats)
{
    const cuda_nvml_t *call = &s->monitor->call;
    nvmlMemory_t memory;
    nvmlUtilization_t percent;
    unsigned milliwatts, degrees;
    if (call->memory(s->card, &memory) == NVML_OK) {
        stats->memory_used = (double)memory.used;
        stats->memory_total = (double)memory.total;
    }
    if (call->utilization(s->card, &percent) == NVML_OK)
        stats->utilization = percent.gpu / 100.0;
    if (call->power(s->card, &milliwatts) == NVML_OK)
        stats->power = milliwatts / 1000.0;
    if (call->temperature(s->card, NVML_SENSOR_GPU, &degrees) == NVML_OK)
        stats->temperature = degrees;
}

void cuda_stats(void *self, pl_device_stats_t *stats)
{
    cuda_t *cuda = self;
    size_t left = 0, all = 0;
    if (!cuda->stats.is_tried)
        monitor_open(cuda);
    if (cuda->stats.monitor)
        monitor_read(&cuda->stats, stats);
    if (!isnan(stats->memory_used) || cuda_enter(cuda, NULL) != PL_OK
        || cuda->call->memory_info(&left, &all) != CU_OK)
        return;
    stats->memory_used = (double)(all - left);
    stats->memory_total = (double)all;
}
