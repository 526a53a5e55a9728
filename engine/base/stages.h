/* stages.h - what the stages of a run are called */
#ifndef PL_BASE_STAGES_H
#define PL_BASE_STAGES_H

#include "paceline.h"

typedef struct pl_stage_names {
    const char *verb;                           /* "validate": of events and plans */
    const char *prefix;                         /* "val_": of its metrics */
    const char *data;                           /* "validation": the data that it takes */
} pl_stage_names_t;

/* [pl_stage_t] */
extern const pl_stage_names_t pl_stages[];

#endif
