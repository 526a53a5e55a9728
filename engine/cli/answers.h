/* answers.h - what a module put out, as people, programs or NumPy read it */
#ifndef CLI_ANSWERS_H
#define CLI_ANSWERS_H

#include <jansson.h>
#include <paceline.h>
#include <stdio.h>

/* A line for each sample: its class, its value, or its text where the weights at
 * `checkpoint` know a vocabulary. */
void cli_answers_write(FILE *file, const pl_result_tensor_t *output,
                       const char *checkpoint);

/* {"event": "prediction", "sample": 0, "class": 9, "logits": […]}: all that the module
 * put out. */
json_t *cli_answer_json(const pl_result_t *result, int64_t sample);

/* Classes [samples, …] as int64, values as float32. */
int cli_answers_npy(const char *path, const pl_result_tensor_t *output, pl_error_t *err);

#endif
