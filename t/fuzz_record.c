/* fuzz_record.c - records of graphs of any bytes: they give a graph, or are refused with
 * a sentence */
#include <stdint.h>

#include "base/json_text.h"
#include "fuzz_must.h"
#include "tensor/graph.h"
#include "tensor/model.h"
#include "tensor/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the check refuses gives no graph. */
static void must_apply(const json_t *record, pl_stage_t stage)
{
    static const pl_field_t fields[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_I64, {0}}};
    pl_error_t err = {0};
    const bool is_right = pl_record_apply(NULL, record, stage, &err) == PL_OK;
    if (!is_right)
        must_be_a_sentence(&err);
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, stage, fields, 2, 4, NULL);
    must(model && g);
    if (pl_record_apply(g, record, stage, &err) != PL_OK)
        must_be_a_sentence(&err);
    else
        must(is_right || stage == PL_PREDICT);             /* which may leave calls out */
    if (pl_graph_check(g, &err) == PL_OK && stage == PL_TRAIN
        && pl_graph_gradients(g, 4, false, &err) != PL_OK)
        must_be_a_sentence(&err);
    pl_graph_free(g);
    pl_model_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_error_t err = {0};
    json_t *record = pl_json_value((const char *)data, size, &err);
    if (!record) {
        must_be_a_sentence(&err);
        return 0;
    }
    for (pl_stage_t stage = PL_TRAIN; stage <= PL_PREDICT; stage++)
        must_apply(record, stage);
    json_decref(record);
    return 0;
}
