/* predict.c - paceline predict: classes for data, or text that goes on from a prompt */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/npy.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/weights.h"

enum { BESIDE = PATH_MAX + 300 };                   /* bytes: a folder and a name in it */

typedef struct predict {
    cli_session_t session;
    cli_progress_t progress;
    FILE *output;           /* stdout or --output; NULL: an array is written at the end */
    bool created, begun;                      /* of --output: the file by us; to be written */
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

/* ---- where answers go ---- */

/* Opened before anything runs: a wrong name should not cost the work.  What is there
 * stays until there is something to take its place. */
static int output_open(predict_t *predict, pl_error_t *err)
{
    const cli_predict_t *arguments = arguments_of(predict);
    predict->output = stdout;
    if (!arguments->output || wants_array(arguments))
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

static void write_numbers(FILE *file, const scores_t *s)
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
        for (int64_t k = 0; k < s->each; k++, score += s->classes) {
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

/* Tokens as the text that they stand for, where the weights know a vocabulary. */
static void write_answers(const predict_t *predict, const scores_t *s)
{
    json_t *facts = s->each > 1 ? cli_weights_facts(arguments_of(predict)->checkpoint)
                                : NULL;
    const char *vocabulary = json_string_value(json_object_get(facts, "vocabulary"));
    bool bytes = vocabulary && !*vocabulary && s->classes == 256;
    const char **begin = vocabulary && *vocabulary ? characters_of(vocabulary, s->classes)
                                                   : NULL;
    if (begin || bytes)
        write_characters(predict->output, s, begin);
    else
        write_numbers(predict->output, s);
    free(begin);
    json_decref(facts);
}

static json_t *numbers(const float *value, int64_t count)
{
    json_t *list = json_array();
    for (int64_t k = 0; k < count; k++)
        json_array_append_new(list, isfinite(value[k]) ? json_real(value[k])
                                                       : json_null());
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
    output_begin(predict);
    if (!predict->session.json || predict->output != stdout)
        write_answers(predict, &scores);
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
        cli_print_json(cli_result_json(session, result));
    else if (predict->prompted)
        write_text(predict, "\n");
    return CLI_DONE;
}

static bool has_weights(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" CLI_WEIGHTS, folder);
    return access(path, F_OK) == 0;
}

/* Whether the folder's weights were written after *newest, which they then set. */
static bool is_newer(const char *folder, struct timespec *newest)
{
    char path[BESIDE + 32];
    struct stat status;
    snprintf(path, sizeof path, "%s/" CLI_WEIGHTS, folder);
    if (stat(path, &status) != 0)
        return false;
    struct timespec time = status.st_mtim;
    bool newer = time.tv_sec > newest->tv_sec
                 || (time.tv_sec == newest->tv_sec && time.tv_nsec > newest->tv_nsec);
    if (newer)
        *newest = time;
    return newer;
}

/* Of the folders that lie where `folder` does, the one whose weights were written last;
 * "" when there is none. */
static void newest_beside(const char *folder, char newest[BESIDE])
{
    char root[PATH_MAX], path[BESIDE];
    struct timespec time = {0};
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    while (length > 0 && folder[length - 1] != '/')
        length--;
    snprintf(root, sizeof root, "%.*s", (int)length, folder);
    newest[0] = '\0';
    DIR *entries = opendir(*root ? root : ".");
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(path, sizeof path, "%s%s", root, entry->d_name);
        if (entry->d_name[0] != '.' && is_newer(path, &time))
            strcpy(newest, path);
    }
    if (entries)
        closedir(entries);
}

/* A run that was aborted left a directory without weights, and runs/latest points to it. */
static int check_checkpoint(const char *checkpoint, pl_error_t *err)
{
    struct stat status;
    char newest[BESIDE];
    if (stat(checkpoint, &status) != 0 || !S_ISDIR(status.st_mode)
        || has_weights(checkpoint))
        return PL_OK;
    newest_beside(checkpoint, newest);
    return pl_fail(err, PL_ENOTFOUND,
                   "%s: there are no weights (" CLI_WEIGHTS ") in this directory%s%s",
                   checkpoint, *newest ? "; the newest run with weights is " : "",
                   newest);
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
    return check_checkpoint(arguments->checkpoint, err);
}

int cli_predict(const cli_predict_t *arguments)
{
    static const cli_work_t work = {
        .start = predict_start, .progress = predict_progress, .done = predict_done};
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
