/* nvml.c - a replacement of NVML, libnvidia-ml.so.1: the numbers of the cards of the
 * replacement of the driver
 *
 * STAND_IN has: "no_nvml" (it cannot be started), "no_power" (the card does not measure
 * it), "hot=90" (degrees).  Each function but the first fails before nvmlInit_v2(). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "t/stand_in/cuda.h"

#define NVML(member, symbol, parameters) API cu_result_t symbol parameters;
#include "accelerators/cuda/names.def"

struct nvmlDevice_st {
    int number;
};

enum { UNINITIALIZED = 1, MIB = 1 << 20 };

static struct nvmlDevice_st card[DEVICES];
static int (*fact)(const char *word, int without, int *more);

/* The driver is open before, as with the real library. */
cu_result_t nvmlInit_v2(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = driver ? dlsym(driver, "stand_in_fact") : NULL;
    memcpy(&fact, &found, sizeof fact);
    if (fact && fact("no_nvml", 0, NULL))
        fact = NULL;
    return fact ? NVML_OK : NVML_NO_DRIVER;
}

cu_result_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *found)
{
    char text[48];
    if (!fact)
        return UNINITIALIZED;
    for (int k = 0; k < DEVICES; k++) {
        const unsigned b = 0x40 + (unsigned)k;
        const unsigned two = b << 8 | b, four = two << 16 | two;
        snprintf(text, sizeof text, "GPU-%08x-%04x-%04x-%04x-%08x%04x", four, two, two,
                 two, four, two);
        card[k].number = k;
        *found = &card[k];
        if (strcmp(uuid, text) == 0)
            return NVML_OK;
    }
    return NVML_NO_CARD;
}

cu_result_t nvmlDeviceGetMemoryInfo(nvmlDevice_t of, nvmlMemory_t *memory)
{
    if (!fact)
        return UNINITIALIZED;
    memory->total = 512ull * MIB;
    memory->used = (100ull + (unsigned)of->number) * MIB;
    memory->free = memory->total - memory->used;
    return NVML_OK;
}

cu_result_t nvmlDeviceGetUtilizationRates(nvmlDevice_t of, nvmlUtilization_t *percent)
{
    if (!fact)
        return UNINITIALIZED;
    percent->gpu = 87 + (unsigned)of->number;
    percent->memory = 40;
    return NVML_OK;
}

cu_result_t nvmlDeviceGetPowerUsage(nvmlDevice_t of, unsigned *milliwatts)
{
    if (!fact)
        return UNINITIALIZED;
    *milliwatts = 312500 + 1000 * (unsigned)of->number;
    return fact("no_power", 0, NULL) ? NVML_NO_SUPPORT : NVML_OK;
}

cu_result_t nvmlDeviceGetTemperature(nvmlDevice_t of, cu_choice_t sensor,
                                     unsigned *degrees)
{
    if (!fact)
        return UNINITIALIZED;
    *degrees = (unsigned)fact("hot", 61, NULL) + (unsigned)of->number;
    return sensor == NVML_SENSOR_GPU ? NVML_OK : NVML_NO_SUPPORT;
}
