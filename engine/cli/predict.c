/* predict.c - paceline predict: classes for data, or text that goes on from a prompt */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/npy.h"
#include "cli/progress.h"
#include "cli/session.h"

typedef struct predict {
    cli_session_t session;
    cli_progress_t progress;
    FILE *output;           /* stdout or --output; NULL: an array is written at the end */
    bool prompted;                                   /* the prompt stands there already */
} predict_t;

static const cli_predict_t *arguments_of(const predict_t *predict)
{
    return predict->session.arguments;
}

static bool wants_array(const cli_predict_t *arguments)
{
    size_t length = arguments->output ? strlen(arguments->output) : 0;
    return length > 4 && !strcmp(arguments->output + length - 4, ".npy");
}

/* ---- text ---- */

static void write_text(predict_t *predict, const char *text)
{
    if (predict->output == stdout) {
        cli_print("%s", text);
        cli_flush();
    } else {
        fputs(text, predict->output);
    }
}

static void text_came(predict_t *predict, const pl_progress_t *now)
{
    json_t *text = json_loads(now->metrics, JSON_DECODE_ANY, NULL);
    if (!predict->prompted)
        write_text(predict, arguments_of(predict)->prompt);
    predict->prompted = true;
    if (json_is_string(text))
        write_text(predict, json_string_value(text));
    json_decref(text);
}

/* ---- classes ---- */

/* The last axis of an output, which holds the scores of classes, and how often it
 * stands in a sample. */
typedef struct scores {
    const float *data;
    int64_t samples, each, classes;
} scores_t;

static scores_t scores_of(const pl_result_tensor_t *output)
{
    const pl_shape_t *shape = &output->shape;
    scores_t scores = {.data = output->data,
                       .samples = shape->dim[0],
                       .each = 1,
                       .classes = 1};
    for (int axis = 1; axis < shape->rank - 1; axis++)
        scores.each *= shape->dim[axis];
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

static void write_answers(FILE *file, const scores_t *s)
{
    const float *score = s->data;
    for (int64_t sample = 0; sample < s->samples && !ferror(file); sample++)
        for (int64_t k = 0; k < s->each; k++, score += s->classes) {
            char end = k + 1 < s->each ? ' ' : '\n';
            if (s->classes > 1)
                fprintf(file, "%lld%c", (long long)likeliest(score, s->classes), end);
            else
                fprintf(file, "%.9g%c", *score, end);
        }
}

static json_t *numbers(const float *value, int64_t count)
{
    json_t *list = json_array();
    for (int64_t k = 0; k < count; k++)
        json_array_append_new(list, json_real(value[k]));
    return list;
}

/* {"event": "prediction", "sample": 0, "class": 9, "logits": […]}: all that the module
 * put out. */
static json_t *answer_json(const pl_result_t *result, int64_t sample)
{
    json_t *json = json_pack("{s:s, s:I}", "event", "prediction", "sample",
                             (json_int_t)sample);
    scores_t first = scores_of(&result->output[0]);
    if (first.classes > 1 && first.each == 1)
        json_object_set_new(json, "class",
                            json_integer(likeliest(first.data + sample * first.classes,
                                                   first.classes)));
    for (int k = 0; k < result->output_count; k++) {
        scores_t s = scores_of(&result->output[k]);
        int64_t size = s.each * s.classes;
        if (sample < s.samples)
            json_object_set_new(json, result->output[k].name,
                                numbers(s.data + sample * size, size));
    }
    return json;
}

static int write_array(const char *path, const pl_result_tensor_t *output,
                       pl_error_t *err)
{
    scores_t s = scores_of(output);
    int64_t count = s.samples * s.each;
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

static int write_classes(predict_t *predict, const pl_result_t *result, pl_error_t *err)
{
    if (result->output_count == 0)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "the module put out nothing to predict: it needs pl_output()");
    const pl_result_tensor_t *output = &result->output[0];
    if (wants_array(arguments_of(predict)))
        return write_array(arguments_of(predict)->output, output, err);
    scores_t scores = scores_of(output);
    if (!predict->session.json || predict->output != stdout)
        write_answers(predict->output, &scores);
    else
        for (int64_t sample = 0; sample < scores.samples && !cli_output_gone(); sample++)
            cli_print_json(answer_json(result, sample));
    return PL_OK;
}

/* ---- the run ---- */

static int predict_start(cli_session_t *session, pl_on_done_t on_done, pl_error_t *err)
{
    const cli_predict_t *arguments = session->arguments;
    const pl_prediction_t what = {.checkpoint = arguments->checkpoint,
                                  .prompt = arguments->prompt,
                                  .tokens = arguments->tokens,
                                  .temperature = arguments->temperature,
                                  .top_k = arguments->top_k};
    return pl_trainer_predict(session->trainer, &what, on_done, session, err);
}

static void predict_progress(cli_session_t *session, const pl_progress_t *now)
{
    predict_t *predict = (predict_t *)session;
    if (session->json)
        cli_print_json(cli_progress_json(now));
    else if (!strcmp(now->event, "text"))
        text_came(predict, now);
    else
        cli_progress_show(&predict->progress, now);
}

static int predict_done(cli_session_t *session, const pl_result_t *result)
{
    predict_t *predict = (predict_t *)session;
    pl_error_t err = {0};
    if (!arguments_of(predict)->prompt && write_classes(predict, result, &err) != PL_OK) {
        cli_failure(&err, session->json);
        return CLI_FAILED;
    }
    if (session->json)
        cli_print_json(cli_result_json(result));
    else if (predict->prompted)
        write_text(predict, "\n");
    return CLI_DONE;
}

/* Opened before anything runs: a wrong name should not cost the work. */
static int output_open(predict_t *predict, pl_error_t *err)
{
    const cli_predict_t *arguments = arguments_of(predict);
    predict->output = stdout;
    if (!arguments->output || wants_array(arguments))
        return PL_OK;
    predict->output = fopen(arguments->output, "we");
    return predict->output ? PL_OK
                           : pl_fail(err, PL_EIO, "cannot write %s: %s",
                                     arguments->output, strerror(errno));
}

static int output_close(predict_t *predict, int status)
{
    if (!predict->output || predict->output == stdout)
        return status;
    bool failed = fflush(predict->output) != 0 || ferror(predict->output);
    int why = errno;
    if (fclose(predict->output) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    if (!failed)
        return status;
    cli_error("cannot write %s: %s", arguments_of(predict)->output, strerror(why));
    return CLI_FAILED;
}

static int check(const cli_predict_t *arguments, pl_error_t *err)
{
    if (!arguments->checkpoint)
        return pl_fail(
            err, PL_EINVAL,
            "predict needs --checkpoint: a run directory or a .safetensors file");
    if (arguments->prompt && wants_array(arguments))
        return pl_fail(
            err, PL_EINVAL,
            "text is no array: give --output a name that does not end in .npy");
    return PL_OK;
}

int cli_predict(const cli_predict_t *arguments)
{
    static const cli_work_t work = {predict_start, predict_progress, predict_done};
    pl_error_t err = {0};
    cli_run_t run = {.file = arguments->run,
                     .set = arguments->set,
                     .plugins = arguments->plugin};
    predict_t predict = {
        .session = {.work = &work, .arguments = arguments, .json = arguments->json}};
    if (check(arguments, &err) == PL_OK)
        predict.session.options = cli_run_load(&run, &err);
    if (!predict.session.options || output_open(&predict, &err) != PL_OK) {
        cli_failure(&err, arguments->json);
        pl_options_free(predict.session.options);
        return CLI_WRONG;
    }
    cli_progress_begin(&predict.progress, predict.session.options);
    return output_close(&predict, cli_session_run(&predict.session, arguments->monitor));
}
