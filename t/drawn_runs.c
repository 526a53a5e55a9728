/* drawn_runs.c - runs, samples and loops as chance has them */
#include "drawn_runs.h"

#include <stdio.h>
#include <string.h>

#include "drawn.h"
#include "rig.h"
#include "tap.h"

static char run_dir[300], weights[340];

const char *drawn_checkpoint(void)
{
    const char *const paths[] = {run_dir, weights, "runs", "runs/none", NULL};
    return DRAWN(paths);
}

pl_options_t *drawn_options(void)
{
    static const char *const trainer[] = {
        "\"max_steps\": 3",
        "\"max_epochs\": 100000",
        "\"max_epochs\": 100000, \"callbacks\": 1",
        "\"max_epochs\": 3, \"devices\": 2, \"strategy\": \"ddp\"",
        "\"max_epochs\": 100000, \"step_timeout\": 1",
        "\"max_steps\": 5, \"accelerator\": {\"name\": \"fake\", \"script\": \"replay 3 "
        "of "
        "forward_backward fails\"}",
        "\"max_epochs\": 100000, \"accelerator\": {\"name\": \"fake\", \"script\": "
        "\"replay of forward_backward takes 1 ms\"}",
        "\"max_steps\": 4, \"default_root_dir\": \"/dev/null/runs\"",
        "\"max_steps\": 2, \"devices\": 2000000000",
    };
    static const char *const rest[] = {
        "\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, \"optimizer\": \"sgd\", "
        "\"data\": {\"name\": \"memory\", \"source\": \"fuzz\", \"batch_size\": 4, "
        "\"val_split\": 0.2}",
        "\"module\": \"mlp\", \"optimizer\": \"adamw\", \"data\": {\"name\": \"memory\", "
        "\"source\": \"gone\"}",
        "\"module\": \"none\"",
        "\"callbacks\": [\"model_summary\"]",
    };
    char text[1024];
    const bool good = !drawn_one_in(4);
    const int which = drawn_below(sizeof trainer / sizeof *trainer);
    snprintf(text, sizeof text, "{%s, \"trainer\": {%s%s}}",
             rest[good ? 0 : drawn_below(4)],
             strstr(trainer[which], "accelerator") ? "" : "\"accelerator\": \"fake\", ",
             trainer[which]);
    return drawn_one_in(16) ? NULL : pl_options_parse(text, "fuzz", NULL);
}

/* As many as a loop takes at once, and more. */
static const float x[256][RIG_FEATURES];
static const int64_t y[256];
static const pl_field_t fields[] = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                    {"y", PL_I64, {0, {0}}}};

const pl_arrays_t *drawn_samples(pl_arrays_t *samples)
{
    *samples = (pl_arrays_t){.samples = 4,
                             .field_count = 2,
                             .field = {fields[0], fields[1]},
                             .data = {x, y}};
    switch (drawn_below(12)) {
    case 0: return NULL;
    case 1: samples->samples = drawn_one_in(2) ? 0 : drawn_int64() | INT64_MIN; break;
    case 2: samples->samples = 4 + (drawn_int64() & INT64_MAX) / 2 + 5; break;
    case 3: samples->field_count = drawn_one_in(2) ? -1 : 0; break;
    case 4: samples->field_count = PL_FIELDS + 1 + (drawn_int() & INT32_MAX) / 2; break;
    case 5: samples->field[0].dtype = (pl_dtype_t)drawn_int(); break;
    case 6: samples->field[0].shape.rank = drawn_int(); break;
    case 7: samples->field[1].shape = pl_shape(1, drawn_int()); break;
    case 8: samples->data[drawn_below(2)] = NULL; break;
    case 9: memset(samples->field[0].name, 'q', sizeof samples->field[0].name); break;
    default: break;
    }
    return samples;
}

const pl_loop_spec_t *drawn_spec(pl_loop_spec_t *spec, pl_field_t field[2])
{
    memcpy(field, fields, sizeof fields);
    *spec = (pl_loop_spec_t){.field_count = 2,
                             .field = field,
                             .targets = 1,
                             .data_info = "{\"classes\": 3}",
                             .enable_checkpointing = drawn_one_in(2)};
    switch (drawn_below(14)) {
    case 0: return NULL;
    case 1: spec->field = NULL; break;
    case 2:
        spec->field_count = drawn_one_in(2) ? -drawn_below(3) : drawn_int() | 16;
        break;
    case 3: spec->targets = drawn_int(); break;
    case 4: spec->data_info = drawn_text(); break;
    case 5: spec->resume = drawn_checkpoint(); break;
    case 6: spec->depth = drawn_int(); break;
    case 7: field[0].shape.rank = drawn_int(); break;
    case 8: field[0].shape.dim[0] = drawn_int64(); break;
    case 9: field[0].dtype = (pl_dtype_t)drawn_int(); break;
    case 10: memset(field[1].name, 'q', sizeof field[1].name); break;
    default: break;
    }
    return spec;
}

void drawn_runs_begin(void)
{
    const pl_arrays_t arrays = {.samples = 8,
                                .field_count = 2,
                                .field = {fields[0], fields[1]},
                                .data = {x, y},
                                .data_info = "{\"classes\": 3}"};
    ok(pl_memory_arrays("fuzz", &arrays, NULL) == PL_OK, "there are samples");
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1", .data = "\"val_split\": 0.2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run");
    snprintf(run_dir, sizeof run_dir, "%s", result->run_dir);
    snprintf(weights, sizeof weights, "%s/model.safetensors", result->run_dir);
    rig_free(&rig);
}
