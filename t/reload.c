/* reload.c - tests of reload_dataloaders_every_n_epochs: data sets that are opened again
 * during the run */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

/* ---- A table that grows while it is trained on ---- */

static char table[4200];

static void rows_add(int from, int to, int classes, int columns)
{
    FILE *file = fopen(table, from ? "a" : "w");
    for (int i = from; i < to && file; i++) {
        for (int k = 0; k < columns; k++)
            fprintf(file, "%d,", (i * 7 + k * 3) % 11);
        fprintf(file, "%d\n", i % classes);
    }
    if (file)
        fclose(file);
}

typedef struct adder {
    int64_t epoch, rows, classes, columns, replaced;
} adder_t;

static const pl_option_t adder_options[] = {
    PL_INT(adder_t, epoch, "0", "0..", "at whose end it adds"),
    PL_INT(adder_t, rows, "0", "0..", "how many there are then"),
    PL_INT(adder_t, classes, "3", "1..", "of the new ones"),
    PL_INT(adder_t, columns, "6", "1..", "of the new ones"),
    PL_INT(adder_t, replaced, "0", "0..1", "a new table instead"),
    PL_OPTIONS_END,
};

static int adder_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    const adder_t *a = self;
    (void)point, (void)request, (void)err;
    if (event->epoch == (uint32_t)a->epoch)
        rows_add(a->replaced ? 0 : 24, (int)a->rows, (int)a->classes, (int)a->columns);
    return PL_OK;
}

static const pl_callback_ops_t adder = {.name = "adder",
                                        .size = sizeof(adder_t),
                                        .options = adder_options,
                                        .points = PL_AT(TRAIN_EPOCH_END),
                                        .on = adder_on};

static rig_result_t *fit(const char *trainer, const char *callbacks)
{
    char data[4300];
    rows_add(0, 24, 3, 6);
    snprintf(data, sizeof data,
             "{\"name\": \"csv\", \"path\": \"%s\", \"batch_size\": 8}", table);
    rig_t *rig = rig_new(.dataset = data, .trainer = trainer, .callbacks = callbacks);
    rig_result_t *result = rig ? rig_keep(rig_fit(rig)) : calloc(1, sizeof *result);
    if (!rig)
        ok(false, "the run is taken: %s", rig_error.text);
    rig_free(&rig);
    return result;
}

/* ---- Tests ---- */

static void rows_that_were_added_are_seen(void)
{
    const char *added = "[{\"name\": \"adder\", \"rows\": 35}]";
    rig_result_t *once = fit("\"max_epochs\": 3", added);
    is_int(once->global_step, 9, "a data set is opened once: three batches an epoch");
    rig_result_free(once);
    rig_result_t *again = fit("\"max_epochs\": 3, "
                              "\"reload_dataloaders_every_n_epochs\": 1",
                              added);
    is_text(again->status, "ok", "a reload goes well: %s", again->error.text);
    is_int(again->global_step, 3 + 5 + 5, "and has new ones, and a last one of 3 rows");
    rig_result_free(again);
    again = fit("\"max_epochs\": 4, \"reload_dataloaders_every_n_epochs\": 2", added);
    is_int(again->global_step, 3 + 3 + 5 + 5, "or in each second epoch");
    rig_result_free(again);
}

static void the_same_data_give_the_same_bits(void)
{
    rig_result_t *once = fit("\"max_epochs\": 4", NULL);
    rig_result_t *again = fit("\"max_epochs\": 4, "
                              "\"reload_dataloaders_every_n_epochs\": 1",
                              NULL);
    ok(rig_same_bits(once, again), "the order is the same");
    is_text(again->metrics, once->metrics, "and all metrics");
    rig_result_free(once);
    rig_result_free(again);
}

static void other_data_are_refused(void)
{
    const char *trainer = "\"max_epochs\": 3, \"reload_dataloaders_every_n_epochs\": 1";
    rig_result_t *result = fit(trainer, "[{\"name\": \"adder\", \"rows\": 24, "
                                        "\"columns\": 5, \"replaced\": 1}]");
    is_text(result->status, "failed", "rows of another width");
    like(result->error.text, "reloading the data after 1 epoch: .*", "%s",
         result->error.text);
    rig_result_free(result);
    result = fit(trainer, "[{\"name\": \"adder\", \"rows\": 35, \"classes\": 4}]");
    is_text(result->status, "failed", "or one class more");
    like(result->error.text, "reloading the data after 1 epoch: .*the data changed", "%s",
         result->error.text);
    rig_result_free(result);
    result = fit(trainer, "[{\"name\": \"adder\", \"rows\": 0, \"replaced\": 1}]");
    is_text(result->status, "failed", "or none at all");
    rig_result_free(result);
}

int main(void)
{
    const pl_registration_t components[] = {{"callback", &adder}, PL_REGISTRATIONS_END};
    rig_init(components);
    snprintf(table, sizeof table, "%s/table.csv", tap_folder());
    run(rows_that_were_added_are_seen);
    run(the_same_data_give_the_same_bits);
    run(other_data_are_refused);
    return tap_done();
}
