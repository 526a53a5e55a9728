/* records.c - metrics on their way from the logger connector to the loggers */
#include "actors/connectors/records.h"

#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"

static void logged_release(pl_object_t *object)
{
    pl_object_unref(((pl_logged_t *)object)->weights);
    pl_free(object);
}

pl_logged_t *pl_logged_new(const pl_record_t *record, pl_error_t *err)
{
    size_t size = strlen(record->metrics);
    pl_logged_t *logged = pl_alloc(sizeof *logged + size + 1);
    if (!logged) {
        pl_no_memory(err);
        return NULL;
    }
    pl_object_init(&logged->object, logged_release);
    memcpy(logged->metrics, record->metrics, size);
    logged->record = *record;
    logged->record.metrics = logged->metrics;
    logged->size = size;
    return logged;
}

static void records_release(pl_object_t *object)
{
    pl_records_t *records = (pl_records_t *)object;
    for (int k = 0; k < records->count; k++)
        pl_object_unref(records->logged[k]);
    pl_free(records->logged);
    pl_free(records);
}

pl_records_t *pl_records_new(pl_error_t *err)
{
    pl_records_t *records = pl_alloc(sizeof *records);
    if (records)
        pl_object_init(&records->object, records_release);
    else
        pl_no_memory(err);
    return records;
}

int pl_records_add(pl_records_t *records, pl_logged_t *logged, pl_error_t *err)
{
    if (PL_GROW(records->logged, records->count, records->capacity) != PL_OK)
        return pl_no_memory(err);
    records->logged[records->count++] = pl_object_ref(logged);
    records->size += logged->size;
    return PL_OK;
}

static void log_component_release(pl_object_t *object)
{
    pl_log_component_t *component = (pl_log_component_t *)object;
    pl_instance_release(&component->component);
    pl_free(component->run_dir);
    pl_free(component->run);
    pl_free(component);
}

pl_log_component_t *pl_log_component_new(pl_instance_t *component, const char *run_dir,
                                         const char *run, pl_error_t *err)
{
    pl_log_component_t *made = pl_alloc(sizeof *made);
    if (made) {
        pl_object_init(&made->object, log_component_release);
        made->component = *component;
        made->run_dir = pl_strdup(run_dir);
        made->run = pl_strdup(run);
    } else {
        pl_instance_release(component);
    }
    *component = (pl_instance_t){0};
    if (made && made->run_dir && made->run)
        return made;
    pl_object_unref(made);
    pl_no_memory(err);
    return NULL;
}
