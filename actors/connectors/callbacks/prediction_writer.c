/* prediction_writer.c - writes predictions to NumPy files, one for each output
 *
 * It writes after each batch, and written predictions are not kept for the result, so
 * they need not fit into memory; or it writes all at the end.  The rank waits for the
 * disk; the device already has the next batches. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/error.h"

typedef enum write_interval { WRITE_BATCH, WRITE_EPOCH } write_interval_t;

typedef struct prediction_writer {
    const char *output_dir;
    write_interval_t write_interval;
} prediction_writer_t;

static const pl_option_t prediction_writer_options[] = {
    PL_TEXT(prediction_writer_t, output_dir, "\"predictions\"", NULL,
            "directory of the files; created if it is missing"),
    PL_WORD(prediction_writer_t, write_interval, "\"batch\"", "batch|epoch",
            "a file for each batch, or one of all at the end"),
    PL_OPTIONS_END,
};

static int prediction_writer_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                                pl_callback_request_t *request, pl_error_t *err)
{
    const prediction_writer_t *w = self;
    bool batches = w->write_interval == WRITE_BATCH,
         of_batch = point == PL_HOOK_PREDICT_BATCH_END;
    int code = PL_OK;
    if (point == PL_HOOK_PREDICT_START)
        return mkdir(w->output_dir, 0777) == 0 || errno == EEXIST
                   ? PL_OK
                   : pl_fail(err, PL_EIO, "cannot create the directory %s: %s",
                             w->output_dir, strerror(errno));
    if (batches != of_batch)
        return PL_OK;
    /* "predictions/logits.r0.b000012.npy", at the end "predictions/logits.r0.npy" */
    char batch[24] = "";
    if (of_batch)
        snprintf(batch, sizeof batch, ".b%06u", event->batch - 1);
    for (int k = 0; k < event->output_count && code == PL_OK; k++) {
        const pl_result_tensor_t *output = &event->output[k];
        char *path = pl_text("%s/%s.r%d%s.npy", w->output_dir, output->name, event->rank,
                             batch);
        code = path ? pl_npy_write(path, PL_F32, &output->shape, output->data, err)
                    : pl_no_memory(err);
        pl_text_free(path);
    }
    request->skip = of_batch;
    return code;
}

const pl_callback_ops_t pl_prediction_writer_callback = {
    .name = "prediction_writer",
    .help = "writes predictions to NumPy files",
    .size = sizeof(prediction_writer_t),
    .options = prediction_writer_options,
    .points = PL_AT(PREDICT_START) | PL_AT(PREDICT_BATCH_END) | PL_AT(PREDICT_END),
    .on = prediction_writer_on,
};
