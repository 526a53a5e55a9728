/* sample_components.h - parts with options of every type, that do nothing: what run
 * files of tests name */
#ifndef T_SAMPLE_COMPONENTS_H
#define T_SAMPLE_COMPONENTS_H

#include "paceline.h"

typedef struct sample_mlp {
    pl_ints_t hidden, shape;
    const char *activation, *vocabulary;
    int64_t classes;
    double dropout;
} sample_mlp_t;

typedef struct sample_idx {
    const char *path;
} sample_idx_t;

typedef struct sample_ddp {
    int64_t bucket_mb;
    bool replace_sampler;
    pl_choice_t collective, spare;
    pl_amount_t share;
} sample_ddp_t;

typedef struct sample_number {
    int64_t number;
} sample_number_t;

extern const pl_registration_t sample_components[];

/* The run of that text, called "run.json"; NULL is diagnosed. */
pl_options_t *sample_run(const char *text);

/* The path of a new file with those bytes in tap_folder(), until the next call. */
const char *sample_file(const char *name, const char *bytes, size_t length);

#endif
