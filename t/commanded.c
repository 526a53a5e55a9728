/* commanded.c - a program for t/commanded.t that sends its fit commands, one after the
 * other
 *
 *     commanded COMMAND,COMMAND… [KEY=VALUE]…
 *
 * such as pause, continue,save,lr=0.25,scale=2,stop; "resume=CHECKPOINT" instead resumes
 * from there.  Each is given when the one before has been answered, the first after the
 * third step; each answer is a line.  A process that is not to speak for all gives its
 * first command at once, and says what comes of that.  A step takes a millisecond. */
#include <event2/event.h>
#include <paceline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char run[] =
    "{\"module\": {\"name\": \"mlp\", \"hidden\": [4], \"classes\": 2},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1}, \"callbacks\": [\"brake\"],"
    " \"data\": {\"name\": \"points\", \"batch_size\": 4},"
    " \"trainer\": {\"max_steps\": 60, \"devices\": 2, \"strategy\": \"ddp\","
    " \"log_every_n_steps\": 1, \"enable_progress_bar\": false,"
    " \"accelerator\": {\"name\": \"cpu\", \"threads\": 1}}}";

typedef struct program {
    struct event_base *base;
    char *commands, *next;                                  /* strtok_r() */
    bool has_begun;
    int status;
} program_t;

/* ---- parts ---- */

static int brake_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)event, (void)request, (void)err;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return PL_OK;
}

static const pl_callback_ops_t brake = {.name = "brake",
                                        .size = 1,
                                        .points = PL_AT(TRAIN_BATCH_END),
                                        .on = brake_on};

typedef struct points {
    int64_t samples;
} points_t;

static const pl_option_t points_options[] = {
    PL_INT(points_t, samples, "48", "1..", "points"),
    PL_OPTIONS_END,
};

static int points_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                       pl_error_t *err)
{
    (void)request;
    *info = (pl_data_info_t){.samples = ((const points_t *)self)->samples,
                             .field_count = 2,
                             .field = {{"x", PL_F32, PL_SHAPE(2)}, {"y", PL_I64, {0}}},
                             .data_info = pl_text("{\"classes\": 2}")};
    return info->data_info ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
}

static int points_read(const void *self, const pl_read_request_t *request,
                       void *const field[], pl_error_t *err)
{
    (void)err;
    float(*x)[2] = field[0];
    int64_t *y = field[1];
    for (int k = 0; k < request->count; k++) {
        y[k] = request->index[k] % 2;
        x[k][y[k]] = (float)request->index[k] / (float)((const points_t *)self)->samples;
        x[k][!y[k]] = 0;
    }
    return PL_OK;
}

static const pl_dataset_ops_t points = {.name = "points",
                                        .size = sizeof(points_t),
                                        .options = points_options,
                                        .open = points_open,
                                        .read = points_read};

static const pl_registration_t components[] = {{"callback", &brake},
                                               {"dataset", &points},
                                               PL_REGISTRATIONS_END};

/* ---- commands ---- */

static void command_give(pl_trainer_t *trainer, program_t *program);

static void on_command(pl_trainer_t *trainer, const pl_command_result_t *result,
                       void *user)
{
    printf("%d %s %s %llu%s%s\n", pl_rank(), result->command,
           result->error.code == PL_OK ? "ok" : result->error.text,
           (unsigned long long)result->global_step, *result->checkpoint ? " " : "",
           result->checkpoint);
    fflush(stdout);
    if (pl_rank() == 0)
        command_give(trainer, user);
}

static int command_send(pl_trainer_t *trainer, const char *word, program_t *program,
                        pl_error_t *err)
{
    if (!strcmp(word, "pause"))
        return pl_trainer_pause(trainer, on_command, program, err);
    if (!strcmp(word, "continue"))
        return pl_trainer_continue(trainer, on_command, program, err);
    if (!strcmp(word, "save"))
        return pl_trainer_save(trainer, on_command, program, err);
    if (!strncmp(word, "lr=", 3))
        return pl_trainer_set_lr(trainer, atof(word + 3), NULL, on_command, program, err);
    if (!strncmp(word, "scale=", 6))
        return pl_trainer_scale_lr(trainer, atof(word + 6), NULL, on_command, program,
                                   err);
    return pl_trainer_stop(trainer, "by command", err);
}

static void command_give(pl_trainer_t *trainer, program_t *program)
{
    pl_error_t err = {0};
    const char *word = strtok_r(program->commands, ",", &program->next);
    program->commands = NULL;
    if (word && command_send(trainer, word, program, &err) != PL_OK)
        printf("%d %s refused: %s\n", pl_rank(), word, err.text);
}

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    program_t *program = user;
    if (program->has_begun || progress->global_step < 3)
        return;
    program->has_begun = true;
    command_give(trainer, program);
}

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    program_t *program = user;
    (void)trainer;
    program->status = result->error.code != PL_OK;
    printf("%d done %s %llu\n", pl_rank(), result->status,
           (unsigned long long)result->global_step);
    fflush(stdout);
    if (program->status)
        fprintf(stderr, "commanded: %s\n", result->error.text);
    event_base_loopbreak(program->base);
}

static int program_begin(pl_trainer_t *trainer, program_t *program, pl_error_t *err)
{
    if (!strncmp(program->commands, "resume=", 7))
        return pl_trainer_resume(trainer, program->commands + 7, on_done, program, err);
    if (pl_rank() == 0)
        pl_trainer_on_progress(trainer, on_progress, program);
    int code = pl_trainer_fit(trainer, on_done, program, err);
    if (code == PL_OK && pl_rank() > 0)
        command_give(trainer, program);
    return code;
}

/* ---- the program ---- */

static int option_set(pl_options_t *options, char *word, pl_error_t *err)
{
    char *value = strchr(word, '=');
    *value++ = '\0';
    return pl_options_set(options, word, value, err);
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    int code = pl_init(&argc, &argv, components, &err);
    program_t program = {.base = event_base_new(), .commands = argv[1], .status = 2};
    pl_engine_t *engine = code == PL_OK ? pl_engine_new(program.base, &err) : NULL;
    pl_options_t *options = engine ? pl_options_parse(run, "run", &err) : NULL;
    for (int k = 2; options && k < argc && code == PL_OK; k++)
        code = option_set(options, argv[k], &err);
    pl_trainer_t *trainer = options && code == PL_OK
                                ? pl_trainer_new(engine, options, &err)
                                : NULL;
    if (trainer && program_begin(trainer, &program, &err) == PL_OK)
        event_base_dispatch(program.base);
    if (err.code != PL_OK)
        fprintf(stderr, "commanded: %s\n", err.text);
    pl_options_free(options);
    pl_engine_free(engine);
    event_base_free(program.base);
    return program.status;
}
