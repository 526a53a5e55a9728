/* stats.c - measurements of a card by NVML: memory, utilization, power and temperature
 *
 * NVML has its own numbers of cards, which CUDA_VISIBLE_DEVICES does not change, so the
 * card is found by its uuid.  If NVML or one of its functions is missing, such as the
 * utilization of a part of a card (MIG), that value is unknown. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cuda/cuda.h"
#include "base/log.h"

enum { UUID_TEXT = 48 };

void cuda_stats(void *self, pl_device_stats_t *stats)
{
    cuda_t *cuda = self;
    const cuda_stats_t *s = &cuda->stats;
    nvmlMemory_t memory;
    nvmlUtilization_t percent;
    unsigned milliwatts, degrees;
    size_t left = 0, all = 0;
    if (!s->is_tried) {
        /* A card, or a part of one: "GPU-40404040-4040-4040-4040-404040404040". */
        static const char *const prefixes[] = {"GPU", "MIG"};
        pl_error_t err = {0};
        const cuda_monitor_t *monitor = cuda_monitor_open(&err);
        cuda->stats.is_tried = true;
        for (int p = 0; p < 2 && monitor && !cuda->stats.monitor; p++) {
            char uuid[UUID_TEXT];
            size_t at = (size_t)snprintf(uuid, UUID_TEXT, "%s", prefixes[p]);
            for (int k = 0; k < 16; k++)
                at += (size_t)snprintf(uuid + at, UUID_TEXT - at, "%s%02x",
                                       k == 0 || (k >= 4 && k <= 10 && k % 2 == 0) ? "-"
                                                                                   : "",
                                       (unsigned char)cuda->card.uuid.bytes[k]);
            if (monitor->call.card(uuid, &cuda->stats.card) == NVML_OK)
                cuda->stats.monitor = monitor;
        }
        if (!cuda->stats.monitor)
            pl_log_line(PL_LOG_DEBUG, cuda->card.number, "accelerator.cuda",
                        "utilization, power and temperature of cuda:%d are unknown: %s",
                        cuda->card.number,
                        monitor ? "NVML does not find the card" : err.text);
    }
    const cuda_nvml_t *call = s->monitor ? &s->monitor->call : NULL;
    if (call && call->memory(s->card, &memory) == NVML_OK) {
        stats->memory_used = (double)memory.used;
        stats->memory_total = (double)memory.total;
    }
    if (call && call->utilization(s->card, &percent) == NVML_OK)
        stats->utilization = percent.gpu / 100.0;
    if (call && call->power(s->card, &milliwatts) == NVML_OK)
        stats->power = milliwatts / 1000.0;
    if (call && call->temperature(s->card, NVML_SENSOR_GPU, &degrees) == NVML_OK)
        stats->temperature = degrees;
    if (!isnan(stats->memory_used) || cuda_enter(cuda, NULL) != PL_OK
        || cuda->call->memory_info(&left, &all) != CU_OK)
        return;
    stats->memory_used = (double)(all - left);
    stats->memory_total = (double)all;
}
