/* train_predict.c - predictions with the newest weights of a run, on a separate thread
 *
 * A prediction makes a run in training save its weights, in place of the previous save;
 * several predictions share one save.  Then the loop hands the predictions to the thread
 * under a lock.  The thread loads the newest weights, computes, and writes a byte into a
 * pipe that the loop watches; only the loop sends replies.  A closed connection shows
 * that its client has left. */
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <paceline.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train_service.h"

enum {
    NUMBERS_MAX = 1 << 22,                     /* per question */
    OPEN_MAX = 16,                             /* questions */
    TIMEOUT = 2                                /* s: after that, older weights are used */
};
static const double FRESH = 1,                              /* s: age of new weights */
    SAVES_MAX = 0.1;                                        /* share of a run's time */

typedef struct question {
    struct question *next;
    struct evhttp_request *request;              /* NULL: no client waits */
    bool is_in_vain;                             /* the client has left; for the thread */
    predictor_t *predictor;
    run_t *run;                                             /* the loop's */
    char *run_dir;
    pl_arrays_t samples;                                    /* of "x" */
    float *x;
    json_t *answer;                                         /* the answer */
    pl_error_t error;
} question_t;

typedef struct questions {
    question_t *first, **last;
} questions_t;

struct predictor {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    questions_t waiting, answered;
    questions_t early;                              /* the loop's: they wait for a save */
    int open;                                       /* the loop's: questions */
    bool ends;
    int pipe[2];
    struct event *readable;
    pl_loaded_model_t *model;                   /* the thread's */
    char *path;                                 /* the file of model */
    json_int_t step;                            /* optimizer steps done */
    struct stat loaded;                         /* state of the file when it was loaded */
};

static void put(questions_t *list, question_t *q)
{
    q->next = NULL;
    *list->last = q;
    list->last = &q->next;
}

static question_t *take(questions_t *list)
{
    question_t *q = list->first;
    if (q && !(list->first = q->next))
        list->last = &list->first;
    return q;
}

static void question_free(question_t *q)
{
    json_decref(q->answer);
    free(q->run_dir);
    free(q->x);
    free(q);
}

/* ---- the thread ---- */

/* A later save under the same name is another file. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino
           && a->st_ctim.tv_sec == b->st_ctim.tv_sec
           && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* The step of the weights at a path, a checkpoint or a file. */
static json_int_t step_of(const char *path)
{
    char file[PATH_MAX];
    struct stat status;
    const bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    snprintf(file, sizeof file, "%s%s", path, is_folder ? "/model.safetensors" : "");
    char *text = pl_weights_describe(file, NULL);
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    const char *step = json_string_value(
        json_object_get(json_object_get(object, "metadata"), "global_step"));
    const json_int_t number = step ? strtoll(step, NULL, 10) : 0;
    json_decref(object);
    pl_text_free(text);
    return number;
}

/* A run in training saves and removes checkpoints: if the newest one is removed before it
 * is loaded, the search is repeated. */
static int newest_load(predictor_t *p, const char *run_dir, pl_error_t *err)
{
    for (int tries = 0; tries < 3; tries++) {
        *err = (pl_error_t){0};
        char *text = pl_run_describe(run_dir, err);
        if (!text && err->code == PL_ENOTFOUND)
            pl_fail(err, PL_ENOTFOUND,
                    "the run has saved no weights yet: a run in training saves them for "
                    "a prediction after its first step, unless it has "
                    "\"enable_checkpointing\": false");
        json_t *object = text ? json_loads(text, 0, NULL) : NULL;
        const char *path = json_string_value(json_object_get(object, "newest"));
        pl_loaded_model_t *model = NULL;
        struct stat now = {0};
        const bool there = path && stat(path, &now) == 0 && is_same(&now, &p->loaded);
        const json_int_t step = path && !there ? step_of(path) : 0;
        if (path && !there && (model = pl_model_load(path, 1, err))) {
            pl_model_unload(p->model);
            free(p->path);
            p->model = model;
            p->path = strdup(path);
            p->step = step;
            p->loaded = now;
        }
        json_decref(object);
        pl_text_free(text);
        if (there || model)
            return PL_OK;
    }
    return err->code;
}

/* JSON has no numbers that are not finite. */
static json_t *number_of(float value)
{
    json_t *number = json_real((double)value);
    return number ? number : json_null();
}

static json_t *rows_of(const pl_result_tensor_t *output)
{
    json_t *rows = json_array();
    const int64_t count = output->shape.rank ? output->shape.dim[0] : 0;
    int64_t per_sample = 1;
    for (int k = 1; k < output->shape.rank; k++)
        per_sample *= output->shape.dim[k];
    for (int64_t i = 0; i < count; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < per_sample; k++)
            json_array_append_new(row, number_of(output->data[i * per_sample + k]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static void compute(predictor_t *p, question_t *q)
{
    pl_answers_t answers;
    if (newest_load(p, q->run_dir, &q->error) != PL_OK
        || pl_model_run(p->model, &q->samples, &answers, &q->error) != PL_OK)
        return;
    q->answer = json_pack("{s:s, s:I}", "weights", p->path, "global_step", p->step);
    for (int k = 0; k < answers.count; k++)
        json_object_set_new(q->answer, answers.output[k].name,
                            rows_of(&answers.output[k]));
}

static void *predictor_run(void *user)
{
    predictor_t *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        question_t *q = take(&p->waiting);
        if (!q) {
            pthread_cond_wait(&p->asked, &p->lock);
            continue;
        }
        const bool is_in_vain = q->is_in_vain;
        pthread_mutex_unlock(&p->lock);
        if (!is_in_vain)
            compute(p, q);
        pthread_mutex_lock(&p->lock);
        put(&p->answered, q);
        if (write(p->pipe[1], "", 1) < 0)
            continue;                            /* the pipe is full, so it is readable */
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the loop ---- */

static void client_left(struct evhttp_connection *connection, void *user)
{
    question_t *q = user;
    (void)connection;
    service_forget(q->request);
    q->request = NULL;
    pthread_mutex_lock(&q->predictor->lock);
    q->is_in_vain = true;
    pthread_mutex_unlock(&q->predictor->lock);
}

static void answer(question_t *q)
{
    struct evhttp_request *request = q->request;
    if (request) {
        service_release(request);
        if (q->answer)
            service_reply(request, 200, json_incref(q->answer));
        else
            service_error(request, q->error.code == PL_ENOTFOUND ? 409 : 400,
                          q->error.text);
    }
    q->predictor->open--;
    question_free(q);
}

static void on_answers(evutil_socket_t fd, short what, void *user)
{
    predictor_t *p = user;
    char bytes[64];
    (void)what;
    if (read(fd, bytes, sizeof bytes) < 0)
        return;
    pthread_mutex_lock(&p->lock);
    questions_t all = p->answered;
    p->answered = (questions_t){NULL, &p->answered.first};
    pthread_mutex_unlock(&p->lock);
    for (question_t *q = all.first, *next; q; q = next) {
        next = q->next;
        answer(q);
    }
}

/* Shape and numbers of nested lists, as far as they are read. */
typedef struct nested {
    pl_shape_t shape;
    float *number;
    int64_t count;
} nested_t;

/* false: the lists differ in length. */
static bool flatten(const json_t *list, int axis, nested_t *n)
{
    const size_t count = json_array_size(list);
    pl_shape_t *shape = &n->shape;
    if (axis == PL_DIMS || !count || (axis == shape->rank && n->count))
        return false;
    if (axis == shape->rank)
        shape->dim[shape->rank++] = (int64_t)count;
    if (shape->dim[axis] != (int64_t)count)
        return false;
    for (size_t k = 0; k < count; k++) {
        const json_t *value = json_array_get(list, k);
        if (json_is_array(value)) {
            if (!flatten(value, axis + 1, n))
                return false;
        } else if (!json_is_number(value) || axis + 1 != shape->rank
                   || n->count == NUMBERS_MAX) {
            return false;
        } else {
            n->number[n->count++] = (float)json_number_value(value);
        }
    }
    return true;
}

static bool samples_read(question_t *q, const json_t *list)
{
    nested_t n = {.number = q->x = malloc(NUMBERS_MAX * sizeof *q->x)};
    if (!q->x || !flatten(list, 0, &n) || n.shape.rank < 2)
        return false;
    q->samples = (pl_arrays_t){.samples = n.shape.dim[0],
                               .field_count = 1,
                               .field = {{.name = "x", .dtype = PL_F32}},
                               .data = {q->x}};
    q->samples.field[0].shape.rank = n.shape.rank - 1;
    memcpy(q->samples.field[0].shape.dim, n.shape.dim + 1,
           (size_t)(n.shape.rank - 1) * sizeof *n.shape.dim);
    return true;
}

/* ---- new weights ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void hand_over(predictor_t *p, question_t *q)
{
    pthread_mutex_lock(&p->lock);
    put(&p->waiting, q);
    pthread_cond_signal(&p->asked);
    pthread_mutex_unlock(&p->lock);
}

static void hand_over_all(const run_t *run)
{
    predictor_t *p = run->service->predictor;
    questions_t all = p->early;
    p->early = (questions_t){NULL, &p->early.first};
    for (question_t *q = all.first, *next; q; q = next) {
        next = q->next;
        if (q->run == run)
            hand_over(p, q);
        else
            put(&p->early, q);
    }
}

void predictor_saved(run_t *run)
{
    if (run->is_saving) {
        run->saved_at = now();
        run->save_took = run->saved_at - run->saving_since;
    }
    run->is_saving = false;
    hand_over_all(run);
}

static void on_saved(pl_trainer_t *trainer, const pl_command_result_t *result, void *user)
{
    (void)trainer, (void)result;           /* if the save fails, older weights are used */
    predictor_saved(user);
}

static void on_timeout(evutil_socket_t fd, short what, void *user)
{
    const run_t *run = user;
    (void)fd, (void)what;
    if (run->is_saving && now() - run->saving_since > 0.9 * TIMEOUT)
        hand_over_all(run);
}

/* Requests a save if the run has newer weights; true: a save is pending. */
static bool is_saved_soon(run_t *run)
{
    const struct timeval timeout = {TIMEOUT, 0};
    if (run->is_saving)
        return now() - run->saving_since < TIMEOUT;
    const double since = now() - run->saved_at;
    if (!run->trainer || (run->saved_at && since < FRESH + run->save_took / SAVES_MAX)
        || event_base_once(run->service->base, -1, EV_TIMEOUT, on_timeout, run, &timeout)
               != 0)
        return false;
    run->saving_since = now();
    run->is_saving = pl_trainer_save_as(run->trainer, "newest", on_saved, run, NULL)
                     == PL_OK;
    return run->is_saving;
}

void predictor_ask(predictor_t *p, struct evhttp_request *request, run_t *run,
                   const json_t *asked)
{
    if (p->open == OPEN_MAX) {
        service_error(request, 503, "too many predictions wait: try again later");
        return;
    }
    question_t *q = calloc(1, sizeof *q);
    if (!q || !(q->run_dir = strdup(run->run_dir))
        || !samples_read(q, json_object_get(asked, "x"))) {
        service_error(request, 400,
                      "\"x\" is to be a list of samples, lists of numbers that are all "
                      "alike");
        if (q)
            question_free(q);
        return;
    }
    q->predictor = p;
    q->run = run;
    q->request = request;
    p->open++;
    service_hold(request, client_left, q);
    if (is_saved_soon(run))
        put(&p->early, q);
    else
        hand_over(p, q);
}

predictor_t *predictor_new(struct event_base *base)
{
    predictor_t *p = calloc(1, sizeof *p);
    if (!p || pipe2(p->pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->asked, NULL);
    p->waiting.last = &p->waiting.first;
    p->answered.last = &p->answered.first;
    p->early.last = &p->early.first;
    p->readable = event_new(base, p->pipe[0], EV_READ | EV_PERSIST, on_answers, p);
    event_add(p->readable, NULL);
    return pthread_create(&p->thread, NULL, predictor_run, p) == 0 ? p : NULL;
}

void predictor_free(predictor_t *p)
{
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_signal(&p->asked);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    for (question_t *q;
         (q = take(&p->waiting)) || (q = take(&p->answered)) || (q = take(&p->early));)
        question_free(q);
    event_free(p->readable);
    close(p->pipe[0]);
    close(p->pipe[1]);
    pl_model_unload(p->model);
    free(p->path);
    free(p);
}
