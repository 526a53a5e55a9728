/* predict.c - paceline predict: classes for data, or text that goes on from a prompt */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/answers.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/weights.h"

typedef struct predict {
    cli_session_t session;
    cli_progress_t progress;
    FILE *output;                   /* stdout or --output; NULL: an array is written at
                                       the end */
    bool created, begun;            /* of --output: whether by us; whether answers came */
    bool prompted;                  /* the prompt stands there already */
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

/* ---- where answers go ---- */

/* Opened before anything runs: a wrong name should not cost the work.  What is there
 * stays until there is something to take its place. */
static int output_open(predict_t *predict, pl_error_t *err)
{
    const cli_predict_t *arguments = arguments_of(predict);
    predict->output = pl_rank() == 0 ? stdout : fopen("/dev/null", "ae");
    if (!predict->output)
        return pl_fail(err, PL_EIO, "/dev/null: %s", strerror(errno));
    if (pl_rank() > 0 || !arguments->output || wants_array(arguments))
        return PL_OK;
    predict->created = access(arguments->output, F_OK) != 0;
    predict->output = fopen(arguments->output, "ae");
    return predict->output ? PL_OK
                           : pl_fail(err, PL_EIO, "cannot write %s: %s",
                                     arguments->output, strerror(errno));
}

/* Before the first answer. */
static void output_begin(predict_t *predict)
{
    if (predict->output == stdout || predict->begun)
        return;
    predict->begun = true;
    if (ftruncate(fileno(predict->output), 0) != 0)
        clearerr(predict->output);                          /* a pipe or device */
}

static bool is_regular(FILE *file)
{
    struct stat status;
    return fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode);
}

/* Leaves no half of a file, nor an empty one that was not there before. */
static int output_close(predict_t *predict, int status)
{
    const char *path = arguments_of(predict)->output;
    if (!predict->output || predict->output == stdout)
        return status;
    bool regular = is_regular(predict->output),
         failed = fflush(predict->output) != 0 || ferror(predict->output);
    int why = errno;
    if (fclose(predict->output) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    if (regular && (failed || (predict->created && !predict->begun)))
        unlink(path);
    if (!failed)
        return status;
    cli_error("cannot write %s: %s", path, strerror(why));
    return CLI_FAILED;
}

/* ---- text ---- */

static void write_text(predict_t *predict, const char *text)
{
    if (predict->output == stdout) {
        cli_print("%s", text);
        cli_flush();
    } else {
        output_begin(predict);
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

/* ---- answers ---- */

static int write_answers(predict_t *predict, const pl_result_t *result, pl_error_t *err)
{
    if (result->output_count == 0) {
        cli_note("nothing to print: a callback, such as prediction_writer, has taken the "
                 "predictions");
        return PL_OK;
    }
    if (pl_rank() > 0)                                      /* another process does */
        return PL_OK;
    const pl_result_tensor_t *output = &result->output[0];
    if (wants_array(arguments_of(predict)))
        return cli_answers_npy(arguments_of(predict)->output, output, err);
    output_begin(predict);
    if (!predict->session.json || predict->output != stdout)
        cli_answers_write(predict->output, output, arguments_of(predict)->checkpoint);
    else
        for (int64_t k = 0; k < output->shape.dim[0] && !cli_output_gone(); k++)
            cli_print_json(cli_answer_json(result, k));
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
    if (!arguments_of(predict)->prompt && write_answers(predict, result, &err) != PL_OK) {
        cli_failure(&err, session->json);
        return CLI_FAILED;
    }
    if (session->json)
        cli_print_json(cli_result_json(session, result));
    else if (predict->prompted)
        write_text(predict, "\n");
    return CLI_DONE;
}

static int check(const cli_predict_t *arguments, pl_error_t *err)
{
    if (!arguments->checkpoint)
        return pl_fail(
            err, PL_EINVAL,
            "predict needs --checkpoint: a run directory or a .safetensors file");
    if (arguments->prompt && wants_array(arguments))
        return pl_fail(err, PL_EINVAL,
                       "a text cannot be written as a NumPy array: give --output a name "
                       "that does not end in .npy");
    return cli_weights_check(arguments->checkpoint, err);
}

int cli_predict(const cli_predict_t *arguments)
{
    static const cli_work_t work = {.start = predict_start,
                                    .progress = predict_progress,
                                    .done = predict_done};
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
    const int status = cli_session_run(&predict.session, CLI_TELEMETRY(arguments));
    return output_close(&predict, status);
}
