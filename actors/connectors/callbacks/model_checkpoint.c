/* model_checkpoint.c - decides when a checkpoint is saved, its name, and which older ones
 * are removed
 *
 * Except for the time interval, decisions depend on steps and metrics alone, so a resumed
 * run keeps the same checkpoints as an uninterrupted run. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "actors/connectors/callbacks/callbacks.h"
#include "base/option.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/log.h"

enum { NAME = sizeof((pl_callback_request_t *)0)->save };

/* A checkpoint that is kept. */
typedef struct kept_checkpoint {
    char name[NAME];
    double score;                                           /* smaller is better */
} kept_checkpoint_t;

typedef struct model_checkpoint {
    const char *monitor, *filename;
    pl_mode_t mode;
    int64_t save_top_k, every_n_train_steps, every_n_epochs;
    double train_time_interval;                             /* s */
    bool save_last, save_on_train_epoch_end, restore_best, verbose;

    kept_checkpoint_t *kept;                                /* best first */
    int count, capacity;
    uint64_t saved_step;                                    /* of the newest checkpoint */
    bool validated, warned;
    int64_t saved_at;                                       /* pl_now() */
} model_checkpoint_t;

static const pl_option_t model_checkpoint_options[] = {
    PL_TEXT(model_checkpoint_t, monitor, "\"\"", NULL,
            "metric that ranks the checkpoints; empty: the newest are the best"),
    PL_WORD(model_checkpoint_t, mode, "\"min\"", PL_MIN_OR_MAX,
            "whether a lower or a higher value is better"),
    PL_INT(model_checkpoint_t, save_top_k, "1", "-1..",
           "number of best checkpoints to keep; -1: all, 0: none"),
    PL_INT(model_checkpoint_t, every_n_train_steps, "0", "0..",
           "optimizer steps between two checkpoints; 0: never"),
    PL_INT(model_checkpoint_t, every_n_epochs, "1", "0..",
           "epochs between two checkpoints; 0: never; not used with steps or an "
           "interval"),
    PL_FLOAT(model_checkpoint_t, train_time_interval, "0", "0..",
             "seconds between two checkpoints; 0: never"),
    PL_BOOL(model_checkpoint_t, save_last, "false",
            "also keep the newest checkpoint, as \"last\""),
    PL_TEXT(model_checkpoint_t, filename, "\"{epoch}-{step}\"", NULL,
            "name of a checkpoint: {epoch}, {step} and {METRIC} become NAME=VALUE, "
            "{METRIC:.2f} rounds; \"start\" and \"stopped\" are reserved"),
    PL_BOOL(model_checkpoint_t, save_on_train_epoch_end, "false",
            "save after epochs instead of validations; always so if no val_ metric is "
            "monitored"),
    PL_BOOL(model_checkpoint_t, restore_best, "false",
            "at the end of the run the weights and metrics are those of the best "
            "checkpoint, in the result and in model.safetensors"),
    PL_BOOL(model_checkpoint_t, verbose, "true",
            "a log line for each checkpoint; false: one line at the end of the run"),
    PL_OPTIONS_END,
};

static int64_t model_checkpoint_every(const void *self)
{
    const model_checkpoint_t *m = self;
    return m->train_time_interval > 0 ? 1 : m->every_n_train_steps;
}

/* Fields are such as "{val_loss}" and "{val_loss:.2f}". */
static int filename_check(const model_checkpoint_t *m, pl_error_t *err)
{
    bool within = false, has_slash = false;
    for (const char *c = m->filename; *c; c++) {
        within = *c == '{' || (within && *c != '}');
        /* In the name of a metric a '/' becomes a '_'. */
        has_slash = has_slash || (*c == '/' && !within) || *c == '\n';
    }
    if (has_slash || !*m->filename || *m->filename == '.')
        return pl_fail(err, PL_EINVAL,
                       "the name has a '/', or starts with '.': use the name of one "
                       "directory");
    if (strlen(m->filename) > NAME / 2)
        return pl_fail(err, PL_EINVAL, "the name is longer than %d bytes", NAME / 2);
    if (!strcmp(m->filename, "stopped") || !strcmp(m->filename, "start")
        || (m->save_last && !strcmp(m->filename, "last")))
        return pl_fail(err, PL_EINVAL,
                       "\"%s\" is reserved: the engine itself gives \"start\", "
                       "\"stopped\" and, with save_last, \"last\"",
                       m->filename);
    for (const char *at = m->filename; (at = strchr(at, '{'));) {
        char behind = '\0';
        const size_t length = strcspn(at, "}"), name = strcspn(at, ":}") - 1;
        if (!at[length])
            return pl_fail(err, PL_EINVAL, "a '}' is missing after \"%.40s\"", at);
        int digits = -1, read = 0;
        if (at[name + 1] == ':')
            sscanf(at + name + 1, ":.%2d%c}%n", &digits, &behind, &read);
        if (name == 0 || name > 63
            || (at[name + 1] == ':'
                && (behind != 'f' || digits < 0
                    || name + 1 + (size_t)read != length + 1)))
            return pl_fail(err, PL_EINVAL,
                           "\"%.*s\" is not possible in a name: use {epoch}, {step}, "
                           "{METRIC} or {METRIC:.2f}",
                           (int)(length < 80 ? length + 1 : 80), at);
        at += length;
    }
    return PL_OK;
}

static const char *model_checkpoint_check(const void *self, pl_error_t *err)
{
    const model_checkpoint_t *m = self;
    if (m->every_n_train_steps && m->train_time_interval > 0) {
        pl_fail(err, PL_EINVAL,
                "give \"every_n_train_steps\" or \"train_time_interval\", not both");
        return "every_n_train_steps";
    }
    if (!*m->monitor && m->save_top_k > 1) {
        pl_fail(err, PL_EINVAL,
                "%lld needs a metric as \"monitor\" that ranks the checkpoints; -1 "
                "keeps all",
                (long long)m->save_top_k);
        return "save_top_k";
    }
    if (m->restore_best && (!*m->monitor || !m->save_top_k)) {
        pl_fail(err, PL_EINVAL,
                "true needs a metric as \"monitor\", and a \"save_top_k\" that is not 0");
        return "restore_best";
    }
    return filename_check(m, err) == PL_OK ? NULL : "filename";
}

static int model_checkpoint_start(void *self, pl_error_t *err)
{
    (void)err;
    model_checkpoint_t *m = self;
    m->saved_at = pl_now();
    return PL_OK;
}

/* ---- when ---- */

static bool waits_for_validation(const model_checkpoint_t *m)
{
    return !m->save_on_train_epoch_end && !strncmp(m->monitor, "val_", 4);
}

static bool is_time(const model_checkpoint_t *m, pl_hook_t point,
                    const pl_hook_event_t *event)
{
    if (point == PL_HOOK_TRAIN_CUT)
        return m->every_n_epochs || m->every_n_train_steps || m->train_time_interval > 0;
    if (m->train_time_interval > 0)
        return point == PL_HOOK_TRAIN_BATCH_END
               && (double)(pl_now() - m->saved_at) / 1e9 >= m->train_time_interval;
    if (m->every_n_train_steps)
        return point == PL_HOOK_TRAIN_BATCH_END;
    const pl_hook_t due = waits_for_validation(m) ? PL_HOOK_VALIDATION_END
                                                  : PL_HOOK_TRAIN_EPOCH_END;
    return point == due && m->every_n_epochs
           && !(event->extra && point == PL_HOOK_TRAIN_EPOCH_END)
           && (event->epoch + UINT64_C(1)) % (uint64_t)m->every_n_epochs == 0;
}

/* ---- the name ---- */

static void name_add(char name[NAME], const char *format, ...) PL_PRINTF(2, 3);

static void name_add(char name[NAME], const char *format, ...)
{
    size_t at = strlen(name);
    va_list args;
    va_start(args, format);
    vsnprintf(name + at, NAME - at, format, args);
    va_end(args);
}

/* Fields become "epoch=3", or "val_loss=0.25" with the digits of the field. */
static int name_make(const model_checkpoint_t *m, const pl_hook_event_t *event,
                     char name[NAME], pl_error_t *err)
{
    int code = PL_OK;
    name[0] = '\0';
    for (const char *at = m->filename; *at && code == PL_OK;) {
        const size_t plain = strcspn(at, "{");
        name_add(name, "%.*s", (int)plain, at);
        at += plain;
        if (!*at)
            break;
        char key[64];
        double value;
        int digits = -1;
        const char *end = strchr(at, '}'), *colon = memchr(at, ':', (size_t)(end - at));
        snprintf(key, sizeof key, "%.*s", (int)((colon ? colon : end) - at) - 1, at + 1);
        if (colon)
            sscanf(colon, ":.%2df", &digits);
        if (!strcmp(key, "epoch"))
            name_add(name, "epoch=%u", event->epoch);
        else if (!strcmp(key, "step"))
            name_add(name, "step=%llu", (unsigned long long)event->global_step);
        else if ((code = pl_metric_find(event, key, &value, err)) == PL_OK)
            name_add(name, digits >= 0 ? "%s=%.*f" : "%s=%.*g", key,
                     digits >= 0 ? digits : 6, value);
        at = end + 1;
    }
    for (char *c = name; *c; c++)                          /* from the name of a metric */
        if (*c == '/' || *c == '\n')
            *c = '_';
    return code;
}

/* ---- which are kept ---- */

static bool is_kept(const model_checkpoint_t *m, const char *name)
{
    for (int k = 0; k < m->count; k++)
        if (!strcmp(m->kept[k].name, name))
            return true;
    return false;
}

/* Adds a checkpoint to the best ones and drops the worst.  Makes its name: if a kept
 * checkpoint has the name, it becomes NAME-v1 or the next; "" if the checkpoint is not
 * good enough.  Without a metric the newest is the best. */
static int best_add(model_checkpoint_t *m, const pl_hook_event_t *event, char name[NAME],
                    pl_callback_request_t *request, pl_error_t *err)
{
    double value, score = -(double)event->global_step;
    if (*m->monitor) {
        if (pl_metric_find(event, m->monitor, &value, err) != PL_OK)
            return err->code;
        score = isnan(value) ? INFINITY : m->mode == PL_MODE_MIN ? value : -value;
    }
    int code = name_make(m, event, name, err);
    if (code != PL_OK)
        return code;
    int at = 0;
    while (at < m->count && m->kept[at].score <= score)
        at++;
    if (m->save_top_k >= 0 && at >= m->save_top_k) {
        *name = '\0';
        return PL_OK;
    }
    if (PL_GROW(m->kept, m->count, m->capacity) != PL_OK)
        return pl_no_memory(err);
    while (m->save_top_k >= 0 && m->count >= m->save_top_k) {
        const size_t used = strlen(request->drop);
        snprintf(request->drop + used, sizeof request->drop - used, "%s%s",
                 used ? "\n" : "", m->kept[--m->count].name);
    }
    const size_t length = strnlen(name, NAME - sizeof "-v1000000");
    for (int version = 1; is_kept(m, name); version++)
        snprintf(name + length, NAME - length, "-v%d", version);
    memmove(&m->kept[at + 1], &m->kept[at], (size_t)(m->count - at) * sizeof *m->kept);
    m->kept[at] = (kept_checkpoint_t){.score = score};
    snprintf(m->kept[at].name, NAME, "%s", name);
    m->count++;
    return PL_OK;
}

/* The first validation has all metrics of validations: a metric that is missing then will
 * be missing when the first checkpoint is due. */
static int names_check(const model_checkpoint_t *m, const pl_hook_event_t *event,
                       pl_error_t *err)
{
    char name[64];
    double value;
    int code = strncmp(m->monitor, "val_", 4)
                   ? PL_OK
                   : pl_metric_find(event, m->monitor, &value, err);
    for (const char *at = m->filename; code == PL_OK && (at = strstr(at, "{val_"));) {
        at++;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ":}"), at);
        code = pl_metric_find(event, name, &value, err);
    }
    return code;
}

static int model_checkpoint_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                               pl_callback_request_t *request, pl_error_t *err)
{
    model_checkpoint_t *m = self;
    char name[NAME] = "";
    pl_error_t why = {0};
    if (point == PL_HOOK_FIT_START && !event->validates && waits_for_validation(m))
        return pl_fail(err, PL_EINVAL,
                       "\"%s\" is a metric of validations, but the run has none: set "
                       "data.val_split, or set \"monitor\" to a metric of training, such "
                       "as \"train_loss\"",
                       m->monitor);
    if (point == PL_HOOK_FIT_START)
        return PL_OK;
    /* A run that was stopped has a checkpoint of its own. */
    if (point == PL_HOOK_FIT_END && !event->extra && !m->saved_step && event->global_step
        && (m->save_top_k || m->save_last))
        pl_log_line(PL_LOG_WARNING, event->rank, "model_checkpoint",
                    "the run ended before a checkpoint was due: none is kept%s%s%s",
                    *m->monitor ? " by \"" : "", m->monitor, *m->monitor ? "\"" : "");
    if (point == PL_HOOK_VALIDATION_END && !m->validated && m->save_top_k
        && names_check(m, event, err) != PL_OK)
        return err->code;
    m->validated |= point == PL_HOOK_VALIDATION_END;
    if (!is_time(m, point, event)
        || (event->global_step == m->saved_step && m->saved_step))
        return PL_OK;
    /* An epoch that is cut short has no metric. */
    const bool has_metric = point != PL_HOOK_TRAIN_CUT || !*m->monitor;
    if (m->save_top_k && has_metric && best_add(m, event, name, request, &why) != PL_OK) {
        /* A missing metric may come with the first validation; later it hardly will. */
        if (why.code != PL_ENOTFOUND || m->validated || !event->validates)
            return pl_fail(err, why.code, "%s", why.text);
        if (!m->warned)
            pl_log_line(PL_LOG_WARNING, event->rank, "model_checkpoint",
                        "%s; before the first validation no checkpoint is kept",
                        why.text);
        m->warned = true;
        *name = '\0';
    }
    snprintf(request->save, sizeof request->save, "%.*s%s%s", NAME - (int)sizeof "\nlast",
             name, *name && m->save_last ? "\n" : "", m->save_last ? "last" : "");
    if (*request->save)
        m->saved_step = event->global_step;
    m->saved_at = pl_now();
    return PL_OK;
}

/* ---- state ---- */

static char *model_checkpoint_state(const void *self, pl_error_t *err)
{
    const model_checkpoint_t *m = self;
    json_t *kept = json_array();
    for (int k = 0; k < m->count; k++) {
        /* JSON has no infinite numbers. */
        const double score = m->kept[k].score;
        json_t *value = isfinite(score) ? json_real(score)
                                        : json_string(score < 0 ? "-inf" : "inf");
        kept = pl_json_append(kept, json_pack("{s:s, s:o}", "name", m->kept[k].name,
                                              "score", value));
    }
    json_t *state = json_pack("{s:I, s:s, s:o}", "step", (json_int_t)m->saved_step,
                              "monitor", m->monitor, "kept", kept);
    if (m->restore_best)
        state = pl_json_with(state, "restore_best", json_true());
    return pl_state_write(state, err);
}

static int model_checkpoint_restore(void *self, const char *state, pl_error_t *err)
{
    model_checkpoint_t *m = self;
    json_t *object = pl_state_read(state, err), *entry;
    size_t at;
    if (!object)
        return err->code;
    m->saved_step = (uint64_t)json_integer_value(json_object_get(object, "step"));
    json_array_foreach(json_object_get(object, "kept"), at, entry) {
        const json_t *score = json_object_get(entry, "score");
        const char *name = json_string_value(json_object_get(entry, "name")),
                   *text = json_string_value(score);
        if (PL_GROW(m->kept, m->count, m->capacity) != PL_OK) {
            json_decref(object);
            return pl_no_memory(err);
        }
        m->kept[m->count] =
            (kept_checkpoint_t){.score = json_is_number(score)  ? json_number_value(score)
                                         : text && *text == '-' ? -INFINITY
                                                                : INFINITY};
        snprintf(m->kept[m->count++].name, NAME, "%s", name ? name : "");
    }
    json_decref(object);
    return PL_OK;
}

static void model_checkpoint_stop(void *self)
{
    model_checkpoint_t *m = self;
    pl_free(m->kept);
    m->kept = NULL;
    m->count = m->capacity = 0;
}

const pl_callback_ops_t pl_model_checkpoint_callback = {
    .name = "model_checkpoint",
    .help = "keeps checkpoints: the best, the newest, every few steps or epochs",
    .size = sizeof(model_checkpoint_t),
    .options = model_checkpoint_options,
    .check = model_checkpoint_check,
    .points = PL_AT(FIT_START) | PL_AT(FIT_END) | PL_AT(TRAIN_BATCH_END)
              | PL_AT(VALIDATION_END) | PL_AT(TRAIN_CUT) | PL_AT(TRAIN_EPOCH_END),
    .requests = PL_MAY_SAVE,
    .every_n_steps = model_checkpoint_every,
    .start = model_checkpoint_start,
    .on = model_checkpoint_on,
    .stop = model_checkpoint_stop,
    .state = model_checkpoint_state,
    .restore = model_checkpoint_restore,
};
