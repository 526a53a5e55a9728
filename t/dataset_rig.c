/* dataset_rig.c - a data set with its options, opened, and what it read */
#include "dataset_rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "files.h"
#include "tap.h"

static rig_t open_requested(const pl_dataset_ops_t *ops, pl_data_request_t request,
                            const char *options)
{
    rig_t rig = {.ops = ops,
                 .stage = request.stage,
                 .self = calloc(1, ops->size),
                 .given = json_loads(options, 0, NULL)};
    int used = 0;
    for (const pl_option_t *o = ops->options; o->type != PL_OPTION_END; o++) {
        json_t *value = json_object_get(rig.given, o->name);
        used += value != NULL;
        if (!value && o->fallback) {
            value = json_loads(o->fallback, JSON_DECODE_ANY, NULL);
            json_object_set_new(rig.given, o->name, value);
            used++;
        }
        if (value && o->type == PL_OPTION_JSON) {        /* a component gets it as text */
            char *text = json_dumps(value, JSON_ENCODE_ANY);
            value = json_string(text);
            free(text);
            json_object_set_new(rig.given, o->name, value);
            *(const char **)((char *)rig.self + o->offset) = json_string_value(value);
            continue;
        }
        pl_option_t any = *o;
        if (o->type != PL_OPTION_WORD)
            any.range = NULL;                          /* also what no run file may say */
        if (value
            && pl_option_read(&any, value, (char *)rig.self + o->offset, NULL) != PL_OK)
            abort();
    }
    if (used != (int)json_object_size(rig.given))
        abort();                            /* a test names an option that is not there */
    request.seed = 42;
    rig.code = ops->open(rig.self, &request, &rig.info, &rig.err);
    return rig;
}

rig_t rig_open_share(const pl_dataset_ops_t *ops, pl_stage_t stage, double from,
                     double to, const char *options)
{
    const pl_data_request_t request = {.stage = stage, .from = from, .to = to};
    return open_requested(ops, request, options);
}

rig_t rig_open_told(const pl_dataset_ops_t *ops, pl_stage_t stage, const char *data_info,
                    const char *options)
{
    return open_requested(
        ops, (pl_data_request_t){.stage = stage, .to = 1, .data_info = data_info},
        options);
}

rig_t rig_open_split(const pl_dataset_ops_t *ops, double val_split, bool stratify,
                     const char *options)
{
    return open_requested(ops,
                          (pl_data_request_t){.stage = PL_TRAIN,
                                              .to = 1 - val_split,
                                              .val_split = val_split,
                                              .stratify = stratify},
                          options);
}

rig_t rig_open(const pl_dataset_ops_t *ops, pl_stage_t stage, const char *format, ...)
{
    char options[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(options, sizeof options, format, args);
    va_end(args);
    return rig_open_share(ops, stage, 0, 1, options);
}

int rig_read_epoch(rig_t *rig, uint64_t epoch, int count, const int64_t *index)
{
    bool varies = false;
    for (int k = 0; k < rig->info.field_count; k++)
        varies |= rig->info.field[k].shape.dim[0] == PL_VARIES;
    rig->length = 1;
    for (int i = 0; i < count && varies && index[i] < rig->info.samples; i++) {
        const int64_t length = rig->ops->length(rig->self, index[i]);
        rig->length = length > rig->length ? length : rig->length;
    }
    for (int k = 0; k < rig->info.field_count; k++) {
        const pl_field_t *field = &rig->info.field[k];
        size_t elements = (size_t)count;
        for (int i = 0; i < field->shape.rank; i++)
            elements *= (size_t)(field->shape.dim[i] == PL_VARIES ? rig->length
                                                                  : field->shape.dim[i]);
        free(rig->field[k]);
        rig->field[k] = malloc(elements * 8);
        for (size_t i = 0; i < elements && field->dtype == PL_I64; i++)
            ((int64_t *)rig->field[k])[i] = (int64_t)rig->info.padding[k];
    }
    pl_read_request_t request = {.index = index,
                                 .count = count,
                                 .length = rig->length,
                                 .seed = 42,
                                 .epoch = epoch,
                                 .stage = rig->stage};
    return rig->ops->read(rig->self, &request, rig->field, &rig->err);
}

int rig_read(rig_t *rig, int count, const int64_t *index)
{
    return rig_read_epoch(rig, 0, count, index);
}

void rig_close(rig_t *rig)
{
    for (int k = 0; k < PL_FIELDS; k++)
        free(rig->field[k]);
    rig->ops->close(rig->self);
    pl_text_free(rig->info.data_info);
    json_decref(rig->given);
    free(rig->self);
}

bool has_field(const rig_t *rig, int k, const char *name, pl_dtype_t dtype,
               const char *shape)
{
    char text[128] = "";
    for (int i = 0; i < rig->info.field[k].shape.rank; i++)
        sprintf(text + strlen(text), "%s%d", i ? "," : "",
                (int)rig->info.field[k].shape.dim[i]);
    return k < rig->info.field_count && !strcmp(rig->info.field[k].name, name)
           && rig->info.field[k].dtype == dtype && !strcmp(text, shape);
}

void refused(rig_t rig, int code, const char *pattern, const char *what)
{
    is_int(rig.code, code, "%s", what);
    like(rig.err.text, pattern, "the text says what and where");
    rig_close(&rig);
}

static const pl_dataset_ops_t *tried;
static char tried_options[4400];

static int open_and_close(pl_error_t *err)
{
    rig_t rig = rig_open_share(tried, PL_TRAIN, 0, 1, tried_options);
    int code = rig.code;
    *err = rig.err;
    rig_close(&rig);
    return code;
}

void opens_without_memory(const pl_dataset_ops_t *ops, const char *option,
                          const char *value)
{
    tried = ops;
    snprintf(tried_options, sizeof tried_options, "{\"%s\": \"%s\"}", option, value);
    survives_lack_of_memory(open_and_close);
}
