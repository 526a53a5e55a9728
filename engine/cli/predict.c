/* predict.c - paceline predict: classes, labels or values of data, or the continuation of
 * a prompt
 *
 * The last axis of an output holds the scores of classes; the class with the highest
 * score is the answer. The output "labels" has a probability of each label, and several
 * of them may be on. Tokens of a language model are written as their text. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/session.h"
#include "cli/weights.h"

typedef struct predict_command {
    cli_session_t session;
    FILE *output;                   /* stdout or --output; NULL: an array is written at
                                       the end */
    bool created, begun;            /* of --output: whether by us; whether answers came */
    bool prompted;                  /* the prompt is written */
} predict_command_t;

static const cli_predict_t *arguments_of(const predict_command_t *predict)
{
    return predict->session.arguments;
}

static bool output_ends(const cli_predict_t *arguments, const char *end)
{
    const size_t length = arguments->output ? strlen(arguments->output) : 0,
                 size = strlen(end);
    return length > size && !strcmp(arguments->output + length - size, end);
}

static bool wants_array(const cli_predict_t *arguments)
{
    return output_ends(arguments, ".npy");
}

/* ---- the file of --output ---- */

/* Called before anything runs: a wrong name should not cost the work. An old file stays
 * until the first answer replaces it. */
static int output_open(predict_command_t *predict, pl_error_t *err)
{
    const cli_predict_t *arguments = arguments_of(predict);
    predict->output = pl_rank() == 0 ? stdout : fopen("/dev/null", "ae");
    if (!predict->output)
        return pl_fail(err, PL_EIO, "/dev/null: %s", strerror(errno));
    if (pl_rank() > 0 || !arguments->output)
        return PL_OK;
    if (wants_array(arguments)) {
        const char *path = arguments->output, *last = strrchr(path, '/');
        char *folder = pl_text("%.*s", last ? (int)(last - path + 1) : 0, path);
        const bool is_writable = folder
                                 && access(*folder ? folder : ".", W_OK | X_OK) == 0;
        pl_text_free(folder);
        if (is_writable || access(path, W_OK) == 0)
            return PL_OK;
        return pl_fail(err, PL_EIO, "cannot write %s: %s", path, strerror(errno));
    }
    predict->created = access(arguments->output, F_OK) != 0;
    predict->output = fopen(arguments->output, "ae");
    return predict->output ? PL_OK
                           : pl_fail(err, PL_EIO, "cannot write %s: %s",
                                     arguments->output, strerror(errno));
}

/* The path leads to the standard output, such as /dev/stdout: it is not ours to empty or
 * to remove, and with >> it has the lines of others. */
static bool is_standard_output(const predict_command_t *predict)
{
    struct stat output, standard;
    return fstat(fileno(predict->output), &output) == 0
           && fstat(STDOUT_FILENO, &standard) == 0 && output.st_dev == standard.st_dev
           && output.st_ino == standard.st_ino;
}

/* Called before each answer; empties the file before the first. */
static void output_begin(predict_command_t *predict)
{
    if (predict->output == stdout || predict->begun)
        return;
    predict->begun = true;
    if (!is_standard_output(predict) && ftruncate(fileno(predict->output), 0) != 0)
        clearerr(predict->output);                          /* a pipe or device */
}

/* Removes an incomplete file, and an empty one that was created here. */
static int output_close(predict_command_t *predict, int status)
{
    const char *path = arguments_of(predict)->output;
    struct stat kind;
    if (!predict->output || predict->output == stdout)
        return status;
    const bool is_regular = fstat(fileno(predict->output), &kind) == 0
                            && S_ISREG(kind.st_mode) && !is_standard_output(predict);
    bool failed = fflush(predict->output) != 0 || ferror(predict->output);
    int why = errno;
    if (fclose(predict->output) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    if (is_regular && (failed || (predict->created && !predict->begun)))
        unlink(path);
    if (!failed)
        return status;
    cli_error("cannot write %s: %s", path, strerror(why));
    return CLI_FAILED;
}

/* ---- the continuation of a prompt ---- */

static void write_text(predict_command_t *predict, const char *text)
{
    if (predict->output == stdout) {
        cli_print("%s", text);
        cli_flush();
    } else {
        output_begin(predict);
        fputs(text, predict->output);
    }
}

static void predict_progress(cli_session_t *session, const pl_progress_t *now)
{
    predict_command_t *predict = (predict_command_t *)session;
    if (session->json || strcmp(now->event, "text")) {
        cli_session_progress(session, now);
        return;
    }
    json_t *text = json_loads(now->metrics, JSON_DECODE_ANY, NULL);
    if (!predict->prompted)
        write_text(predict, arguments_of(predict)->prompt);
    predict->prompted = true;
    if (json_is_string(text))
        write_text(predict, json_string_value(text));
    json_decref(text);
}

/* ---- answers for data ---- */

/* An output [samples, per_sample, classes]; classes is its last axis. An output that is
 * called "value" has numbers, and "labels" probabilities: there is one class. */
typedef struct scores {
    const float *data;
    int64_t samples, per_sample, classes;
    bool are_labels;
} scores_t;

static scores_t scores_of(const pl_result_tensor_t *output)
{
    const pl_shape_t *shape = &output->shape;
    scores_t scores = {.data = output->data,
                       .samples = shape->dim[0],
                       .per_sample = 1,
                       .classes = 1,
                       .are_labels = !strcmp(output->name, "labels")};
    const bool is_value = !strcmp(output->name, "value") || scores.are_labels;
    for (int axis = 1; axis < shape->rank - !is_value; axis++)
        scores.per_sample *= shape->dim[axis];
    if (shape->rank > 1 && !is_value)
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

/* The name of a class, in the list of the training data; NULL: it has a number alone. */
static const char *class_name(const json_t *names, int64_t class)
{
    return json_string_value(json_array_get(names, (size_t) class));
}

/* The file of a sample in a list  [NULL: the data does not consist of files]. */
static const char *file_of(const json_t *files, int64_t sample)
{
    return json_string_value(json_array_get(files, (size_t)sample));
}

/* What tells samples apart beside their numbers: their files, or in a series the times
 * or the rows that are predicted. */
typedef struct sample_names {
    const char *column;                                     /* "file"  [none] */
    const json_t *list;                                     /* of each sample  [none] */
} sample_names_t;

static sample_names_t names_of(const json_t *text)
{
    static const char *const keys[][2] = {{"files", "file"},
                                          {"times", "time"},
                                          {"rows", "row"}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *list = json_object_get(text, keys[k][0]);
        if (json_array_size(list))
            return (sample_names_t){keys[k][1], list};
    }
    return (sample_names_t){0};
}

static bool is_on(float probability)
{
    return probability > 0.5F;
}

/* The names of the labels, which are the columns of the target; NULL: they have numbers
 * alone. */
static const json_t *label_names(const json_t *data_info, const scores_t *s)
{
    const json_t *names = json_object_get(json_object_get(data_info, "columns"), "y");
    return (int64_t)json_array_size(names) == s->per_sample ? names : NULL;
}

/* A name that may have line ends and tabs, in a line. */
static void put_name(FILE *file, const char *name)
{
    for (; *name; name++)
        if (strchr("\n\r\t", *name))
            fprintf(file, "\\%c", *name == '\n' ? 'n' : *name == '\r' ? 'r' : 't');
        else
            fputc(*name, file);
}

/* The file of a sample  [none] at the beginning of its line. */
static void file_begin(FILE *file, const json_t *files, int64_t sample)
{
    const char *name = file_of(files, sample);
    if (!name)
        return;
    put_name(file, name);
    fputc('\t', file);
}

/* The labels that are on, one line a sample; of a single one, whether it is. */
static void write_labels(FILE *file, const scores_t *s, const json_t *names,
                         const json_t *files)
{
    const float *probability = s->data;
    for (int64_t sample = 0; sample < s->samples && !ferror(file); sample++) {
        const char *before = "";
        file_begin(file, files, sample);
        for (int64_t k = 0; k < s->per_sample; k++, probability++) {
            const char *name = class_name(names, k);
            if (s->per_sample == 1)
                fprintf(file, "%d", is_on(*probability));
            if (s->per_sample == 1 || !is_on(*probability))
                continue;
            fputs(before, file);
            if (name)
                put_name(file, name);
            else
                fprintf(file, "%lld", (long long)k);
            before = ",";
        }
        fputc('\n', file);
    }
}

/* The classes, by their names [numbers], or the values of an output with one class; one
 * line a sample, which begins with its file [none]. */
static void write_numbers(FILE *file, const scores_t *s, const json_t *names,
                          const json_t *files)
{
    const float *score = s->data;
    for (int64_t sample = 0; sample < s->samples && !ferror(file); sample++) {
        file_begin(file, files, sample);
        for (int64_t k = 0; k < s->per_sample; k++, score += s->classes) {
            const int64_t class = likeliest(score, s->classes);
            const char *name = s->classes > 1 ? class_name(names, class) : NULL;
            if (name)
                put_name(file, name);
            else if (s->classes > 1)
                fprintf(file, "%lld", (long long)class);
            else
                fprintf(file, "%.9g", *score);
            fputc(k + 1 < s->per_sample ? ' ' : '\n', file);
        }
    }
}

/* The start of each character of a vocabulary, and the end of the last: [classes + 1];
 * NULL: it does not have that many. */
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

/* The likeliest next character at each place of a sample; one line a sample, so line
 * feeds are escaped. `begin` is from characters_of()  [tokens are bytes] */
static void write_characters(FILE *file, const scores_t *s, const char *const *begin)
{
    const float *score = s->data;
    for (int64_t sample = 0; sample < s->samples && !ferror(file); sample++) {
        for (int64_t k = 0; k < s->per_sample; k++, score += s->classes) {
            const int64_t token = likeliest(score, s->classes);
            const char byte = (char)token, *character = begin ? begin[token] : &byte;
            const size_t length = begin ? (size_t)(begin[token + 1] - begin[token]) : 1;
            if (*character == '\n')
                fputs("\\n", file);
            else if (*character == '\\')
                fputs("\\\\", file);
            else
                fwrite(character, 1, length, file);
        }
        fputc('\n', file);
    }
}

/* Writes characters if the data info of the weights has a vocabulary, else labels or
 * numbers. */
static void write_lines(FILE *file, const pl_result_tensor_t *output,
                        const json_t *data_info, const json_t *files)
{
    const scores_t scores = scores_of(output), *s = &scores;
    const char *vocabulary =
        s->per_sample > 1 ? json_string_value(json_object_get(data_info, "vocabulary"))
                          : NULL;
    bool bytes = vocabulary && !*vocabulary && s->classes == 256;
    const char **begin = vocabulary && *vocabulary ? characters_of(vocabulary, s->classes)
                                                   : NULL;
    if (s->are_labels)
        write_labels(file, s, label_names(data_info, s), files);
    else if (begin || bytes)
        write_characters(file, s, begin);
    else
        write_numbers(file, s, json_object_get(data_info, "class_names"), files);
    free(begin);
}

/* The output that a sample is for: the one that the loss compares with the target, by the
 * name that modules give it; or else the first. */
static const pl_result_tensor_t *answer_of(const pl_result_t *result)
{
    for (int k = 0; k < result->output_count; k++)
        if (!strcmp(result->output[k].name, "logits")
            || !strcmp(result->output[k].name, "labels")
            || !strcmp(result->output[k].name, "value"))
            return &result->output[k];
    return &result->output[0];
}

/* {"sample": 0, "class": 9, "logits": […]}, with all outputs;
 * {…, "labels": [0, 2], "probabilities": […]} with labels. */
static json_t *answer_json(const pl_result_t *result, int64_t sample,
                           const json_t *data_info, sample_names_t samples)
{
    const json_t *names = json_object_get(data_info, "class_names");
    json_t *json = json_pack("{s:I}", "sample", (json_int_t)sample);
    if (samples.column)
        json_object_set_new(json, samples.column,
                            json_string(file_of(samples.list, sample)));
    scores_t first = scores_of(answer_of(result));
    if (first.classes > 1 && first.per_sample == 1) {
        const int64_t class = likeliest(first.data + sample * first.classes,
                                        first.classes);
        const char *name = class_name(names, class);
        json_object_set_new(json, "class", json_integer(class));
        if (name)
            json_object_set_new(json, "class_name", json_string(name));
    }
    for (int64_t k = 0; first.are_labels && k < first.per_sample; k++) {
        const char *name = class_name(label_names(data_info, &first), k);
        if (k == 0)
            json_object_set_new(json, "labels", json_array());
        if (is_on(first.data[sample * first.per_sample + k]))
            json_array_append_new(json_object_get(json, "labels"),
                                  name ? json_string(name) : json_integer(k));
    }
    for (int k = 0; k < result->output_count; k++) {
        scores_t s = scores_of(&result->output[k]);
        const int64_t size = s.per_sample * s.classes;
        const float *value = s.data + sample * size;
        if (sample >= s.samples)
            continue;
        json_t *list = json_array();
        for (int64_t i = 0; i < size; i++)
            json_array_append_new(list,
                                  isfinite(value[i]) ? json_real(value[i]) : json_null());
        json_object_set_new(json, s.are_labels ? "probabilities" : result->output[k].name,
                            list);
    }
    return json;
}

/* A field of CSV, behind a comma; in quotes where that is needed. */
static void write_field(FILE *file, const char *text)
{
    const bool is_plain = !text[strcspn(text, ",\"\r\n")];
    fputs(is_plain ? "," : ",\"", file);
    for (; *text; text++)
        fprintf(file, *text == '"' ? "\"\"" : "%c", *text);
    fputs(is_plain ? "" : "\"", file);
}

/* A table with a header: the class of each sample and, where the scores are logits, its
 * probability by softmax; the probability of each label; or values. */
static void write_table(FILE *file, const pl_result_tensor_t *output,
                        const json_t *data_info, sample_names_t samples)
{
    const scores_t s = scores_of(output);
    const bool has_logits = !strcmp(output->name, "logits") && s.classes > 1;
    const json_t *names = s.are_labels ? label_names(data_info, &s)
                                       : json_object_get(data_info, "class_names");
    const char *what = s.are_labels ? "label" : s.classes > 1 ? "class" : "value";
    const float *score = s.data;
    fprintf(file, samples.column ? "sample,%s" : "sample", samples.column);
    for (int64_t k = 0; k < s.per_sample; k++) {
        char number[24] = "", column[40];
        if (s.per_sample > 1)
            snprintf(number, sizeof number, "_%lld", (long long)k);
        snprintf(column, sizeof column, "%s%s", what, number);
        write_field(file,
                    s.are_labels && class_name(names, k) ? class_name(names, k) : column);
        if (has_logits)
            fprintf(file, ",probability%s", number);
    }
    for (int64_t sample = 0; sample < s.samples && !ferror(file); sample++) {
        fprintf(file, "\n%lld", (long long)sample);
        if (file_of(samples.list, sample))
            write_field(file, file_of(samples.list, sample));
        for (int64_t k = 0; k < s.per_sample; k++, score += s.classes) {
            const int64_t best = likeliest(score, s.classes);
            const char *name = s.classes > 1 ? class_name(names, best) : NULL;
            double sum = 0;
            if (name)
                write_field(file, name);
            else if (s.classes > 1)
                fprintf(file, ",%lld", (long long)best);
            else
                fprintf(file, ",%.9g", *score);
            for (int64_t i = 0; has_logits && i < s.classes; i++)
                sum += exp((double)score[i] - score[best]);
            if (has_logits)
                fprintf(file, ",%.6g", 1 / sum);
        }
    }
    fputc('\n', file);
}

/* An object of each sample: a line of `file`, or an event on standard output  [NULL]. */
static void write_objects(FILE *file, const pl_result_t *result, const json_t *data_info,
                          sample_names_t samples)
{
    const int64_t count = answer_of(result)->shape.dim[0];
    for (int64_t k = 0; k < count && !(file ? ferror(file) : cli_output_gone()); k++) {
        json_t *answer = answer_json(result, k, data_info, samples);
        if (!file) {
            json_t *event = json_pack("{s:s}", "event", "prediction");
            json_object_update_new(event, answer);
            cli_print_json(event);
            continue;
        }
        if (!answer || !cli_write_json(file, answer))
            cli_error("out of memory: the prediction of sample %lld is missing",
                      (long long)k);
        fputc('\n', file);
        json_decref(answer);
    }
}

/* Classes [samples, …] as int64, labels as 1 or 0 of each, or values as float32. */
static int write_array(const char *path, const pl_result_tensor_t *output,
                       pl_error_t *err)
{
    scores_t s = scores_of(output);
    int64_t count = s.samples * s.per_sample;
    pl_shape_t shape = output->shape;
    if (s.classes == 1 && !s.are_labels)
        return pl_npy_write(path, PL_F32, &shape, s.data, err);
    int64_t *classes = malloc((size_t)count * sizeof *classes + 1);
    if (!classes)
        return pl_fail(err, PL_ENOMEM, "out of memory: %lld classes", (long long)count);
    for (int64_t k = 0; k < count; k++)
        classes[k] = s.are_labels ? is_on(s.data[k])
                                  : likeliest(s.data + k * s.classes, s.classes);
    shape.rank -= !s.are_labels;
    int code = pl_npy_write(path, PL_I64, &shape, classes, err);
    free(classes);
    return code;
}

static int write_answers(predict_command_t *predict, const pl_result_t *result,
                         pl_error_t *err)
{
    if (result->output_count == 0) {
        cli_note("nothing to print: a callback, such as prediction_writer, has taken the "
                 "predictions");
        return PL_OK;
    }
    if (pl_rank() > 0)                                      /* rank 0 writes them */
        return PL_OK;
    const pl_result_tensor_t *output = answer_of(result);
    if (wants_array(arguments_of(predict)))
        return write_array(arguments_of(predict)->output, output, err);
    output_begin(predict);
    json_t *text = json_loads(result->text, 0, NULL);
    const sample_names_t names = names_of(text);
    const cli_predict_t *arguments = arguments_of(predict);
    json_t *data_info = cli_weights_data_info(arguments->checkpoint);
    if (output_ends(arguments, ".csv"))
        write_table(predict->output, output, data_info, names);
    else if (output_ends(arguments, ".jsonl") || output_ends(arguments, ".ndjson"))
        write_objects(predict->output, result, data_info, names);
    else if (predict->session.json && predict->output == stdout)
        write_objects(NULL, result, data_info, names);
    else
        write_lines(predict->output, output, data_info, json_object_get(text, "files"));
    json_decref(data_info);
    json_decref(text);
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
                                  .top_k = arguments->top_k,
                                  .no_cache = arguments->no_cache};
    return pl_trainer_predict(session->trainer, &what, on_done, session, err);
}

static int predict_done(cli_session_t *session, const pl_result_t *result)
{
    predict_command_t *predict = (predict_command_t *)session;
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

int cli_predict(const cli_predict_t *arguments)
{
    static const cli_work_t work = {.start = predict_start,
                                    .progress = predict_progress,
                                    .done = predict_done};
    pl_error_t err = {0};
    const cli_run_t run = CLI_RUN_OF(arguments);
    predict_command_t predict = {
        .session = {.work = &work, .arguments = arguments, .json = arguments->json}};
    int code;
    if (!arguments->checkpoint)
        code =
            pl_fail(&err, PL_EINVAL,
                    "predict needs --checkpoint: a run directory or a .safetensors file");
    else if (arguments->prompt && wants_array(arguments))
        code = pl_fail(&err, PL_EINVAL,
                       "a text cannot be written as a NumPy array: give --output a name "
                       "that does not end in .npy");
    else
        code = cli_weights_check(arguments->checkpoint, &err);
    if (code == PL_OK)
        predict.session.options = cli_run_load(&run, &err);
    if (predict.session.options)
        code = cli_weights_module(predict.session.options, arguments->checkpoint, &err);
    if (!predict.session.options || code != PL_OK
        || output_open(&predict, &err) != PL_OK) {
        cli_failure(&err, arguments->json);
        pl_options_free(predict.session.options);
        return CLI_WRONG;
    }
    cli_progress_begin(&predict.session.progress, predict.session.options);
    const int status = cli_session_run(&predict.session, &run.telemetry);
    return output_close(&predict, status);
}
