/* stages.c - what the stages of a run are called */
#include "base/stages.h"

const pl_stage_names_t pl_stages[] = {
    [PL_TRAIN] = {"train", "train_", "training"},
    [PL_VALIDATE] = {"validate", "val_", "validation"},
    [PL_TEST] = {"test", "test_", "test"},
    [PL_PREDICT] = {"predict", "predict_", "prediction"},
};
