/* answers.c - what a module put out, as people, programs or NumPy read it
 *
 * The last axis of an output holds the scores of classes: the likeliest is the answer.
 * Tokens of a language model are written as the text that they stand for. */
#include "cli/answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/npy.h"
#include "cli/weights.h"

/* The last axis of an output, which holds the scores of classes, and how often it
 * stands in a sample. */
typedef struct scores {
    const float *data;
    int64_t samples, per_sample, classes;
} scores_t;

static scores_t scores_of(const pl_result_tensor_t *output)
{
    const pl_shape_t *shape = &output->shape;
    scores_t scores = {.data = output->data,
                       .samples = shape->dim[0],
                       .per_sample = 1,
                       .classes = 1};
    for (int axis = 1; axis < shape->rank - 1; axis++)
        scores.per_sample *= shape->dim[axis];
    if (shape->rank > 1)
        scores.classes = shape->dim[shape->rank - 1];
    return scores;
}

static int64_t likeliest(const float *score, int64_t classes)
{
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (score[k] > score[best])
            best = k;
    return best;
}

static void write_numbers(FILE *file, const scores_t *s)
{
    const float *score = s->data;
    for (int64_t sample = 0; sample < s->samples && !ferror(file); sample++)
        for (int64_t k = 0; k < s->per_sample; k++, score += s->classes) {
            char end = k + 1 < s->per_sample ? ' ' : '\n';
            if (s->classes > 1)
                fprintf(file, "%lld%c", (long long)likeliest(score, s->classes), end);
            else
                fprintf(file, "%.9g%c", *score, end);
        }
}

/* Where each character of a vocabulary begins, and where the last ends: [classes + 1];
 * NULL when it has another number of them. */
static const char **characters_of(const char *vocabulary, int64_t classes)
{
    const char **begin = calloc((size_t)classes + 1, sizeof *begin);
    int64_t count = 0;
    for (const char *c = vocabulary; begin && *c; c++)
        if (((unsigned char)*c & 0xC0) != 0x80 && count++ < classes)
            begin[count - 1] = c;
    if (begin && count == classes) {
        begin[classes] = vocabulary + strlen(vocabulary);
        return begin;
    }
    free(begin);
    return NULL;
}

/* A sample stays on its line. */
static void write_character(FILE *file, const char *character, size_t length)
{
    if (*character == '\n')
        fputs("\\n", file);
    else if (*character == '\\')
        fputs("\\\\", file);
    else
        fwrite(character, 1, length, file);
}

/* What a language model takes for the next character at each place of a sample; `begin`
 * NULL: tokens are bytes. */
static void write_characters(FILE *file, const scores_t *s, const char *const *begin)
{
    const float *score = s->data;
    for (int64_t sample = 0; sample < s->samples && !ferror(file); sample++) {
        for (int64_t k = 0; k < s->per_sample; k++, score += s->classes) {
            int64_t token = likeliest(score, s->classes);
            char byte = (char)token;
            if (begin)
                write_character(file, begin[token],
                                (size_t)(begin[token + 1] - begin[token]));
            else
                write_character(file, &byte, 1);
        }
        fputc('\n', file);
    }
}

void cli_answers_write(FILE *file, const pl_result_tensor_t *output,
                       const char *checkpoint)
{
    const scores_t scores = scores_of(output), *s = &scores;
    json_t *data_info = s->per_sample > 1 ? cli_weights_data_info(checkpoint) : NULL;
    const char *vocabulary = json_string_value(json_object_get(data_info, "vocabulary"));
    bool bytes = vocabulary && !*vocabulary && s->classes == 256;
    const char **begin = vocabulary && *vocabulary ? characters_of(vocabulary, s->classes)
                                                   : NULL;
    if (begin || bytes)
        write_characters(file, s, begin);
    else
        write_numbers(file, s);
    free(begin);
    json_decref(data_info);
}

static json_t *numbers(const float *value, int64_t count)
{
    json_t *list = json_array();
    for (int64_t k = 0; k < count; k++)
        json_array_append_new(list,
                              isfinite(value[k]) ? json_real(value[k]) : json_null());
    return list;
}

json_t *cli_answer_json(const pl_result_t *result, int64_t sample)
{
    json_t *json = json_pack("{s:s, s:I}", "event", "prediction", "sample",
                             (json_int_t)sample);
    scores_t first = scores_of(&result->output[0]);
    if (first.classes > 1 && first.per_sample == 1)
        json_object_set_new(json, "class",
                            json_integer(likeliest(first.data + sample * first.classes,
                                                   first.classes)));
    for (int k = 0; k < result->output_count; k++) {
        scores_t s = scores_of(&result->output[k]);
        int64_t size = s.per_sample * s.classes;
        if (sample < s.samples)
            json_object_set_new(json, result->output[k].name,
                                numbers(s.data + sample * size, size));
    }
    return json;
}

int cli_answers_npy(const char *path, const pl_result_tensor_t *output, pl_error_t *err)
{
    scores_t s = scores_of(output);
    int64_t count = s.samples * s.per_sample;
    pl_shape_t shape = output->shape;
    if (s.classes == 1)
        return cli_npy_write(path, PL_F32, shape, s.data, err);
    int64_t *classes = malloc((size_t)count * sizeof *classes + 1);
    if (!classes)
        return pl_fail(err, PL_ENOMEM, "out of memory: %lld classes", (long long)count);
    for (int64_t k = 0; k < count; k++)
        classes[k] = likeliest(s.data + k * s.classes, s.classes);
    shape.rank--;
    int code = cli_npy_write(path, PL_I64, shape, classes, err);
    free(classes);
    return code;
}
