/* paceline.h - the public interface: every program and every extension includes it
 *
 * The file reads from the top. A program that trains needs the first half: errors,
 * memory and logs, components and run files, the engine and its trainers, inference
 * without an engine. The second half is for components that you write: graphs and
 * modules, operators, precisions, optimizers and schedules, data sets, callbacks,
 * loggers. Each of them is a table of functions that begins with PL_COMPONENT.
 * pl_init(), pl_register() or a plug-in registers it. Strategies, accelerators,
 * launchers and collectives also need strategies/replica/replica.h,
 * accelerators/accelerator.h, actors/worker.h and strategies/collectives/collective.h.
 *
 * These rules hold for all functions. A function that can fail returns PL_OK or a
 * negative PL_E… and its last parameter is a pl_error_t, which may be NULL. Constructors
 * return the object or NULL. On failure outputs are unchanged. `_new/_free` and
 * `_ref/_unref` pair up; freeing NULL is allowed. NULL for a required argument is
 * PL_EINVAL; a function that returns no code then does nothing. Only the graph of a step
 * must not be NULL. A `T *` argument is borrowed for the call. Unless its comment says
 * otherwise, a function may be called on any thread, by one thread at a time per object.
 * A forked process whose parent has or had an engine cannot create one unless it calls
 * exec first.
 *
 * [Brackets] hold a shape, a unit, or the meaning of NULL or 0.
 *
 * The library installs no signal handler, never exits, prints nothing and changes no
 * global state of the program. */
#ifndef PACELINE_H
#define PACELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

#if defined(__GNUC__)
#define PL_API __attribute__((visibility("default")))
#define PL_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define PL_API
#define PL_PRINTF(text, first)
#endif

/* ---- Errors ------------------------------------------------------------------------ */

/* Error codes: X(name, number, meaning). */
#define PL_ERRORS(X) \
    X(PL_EINVAL, -1, "a value that is not allowed") \
    X(PL_ENOMEM, -2, "out of memory") \
    X(PL_EIO, -3, "a file or device could not be read or written") \
    X(PL_EFORMAT, -4, "a file or message has the wrong format") \
    X(PL_ENOTFOUND, -5, "no such name, file or component") \
    X(PL_EEXIST, -6, "it exists already") \
    X(PL_ESTATE, -7, "not possible in this state") \
    X(PL_EHIERARCHY, -8, "a call to the same or a higher level") \
    X(PL_EPROTOCOL, -9, "a message that breaks the protocol") \
    X(PL_ETIMEOUT, -10, "a time limit has passed") \
    X(PL_ECANCELLED, -11, "cancelled by the caller") \
    X(PL_EBUSY, -12, "too many at once, or in use") \
    X(PL_EPEER, -13, "the peer failed or is gone") \
    X(PL_ESTUCK, -14, "an actor does not answer and cannot be killed") \
    X(PL_ENAN, -15, "a loss or gradient is not finite") \
    X(PL_EUNSUPPORTED, -16, "this build, device or component cannot do it") \
    X(PL_EUSER, -17, "a user function failed") \
    X(PL_EBUG, -18, "a bug in Paceline") \
    X(PL_EDIED, -19, "the process of a rank ended unexpectedly")

typedef enum pl_code {
    PL_OK = 0,
#define PL_X(name, number, text) name = number,
    PL_ERRORS(PL_X)
#undef PL_X
} pl_code_t;

#define PL_ERROR_TEXT 512
#define PL_ERROR_WHERE 96

typedef struct pl_error {
    int code;                                /* PL_OK or PL_E… */
    char where[PL_ERROR_WHERE];              /* "rank 0 accelerator.cpu"; "" if unknown */
    char text[PL_ERROR_TEXT];                /* what is wrong and what to do; one line */
} pl_error_t;

/* Writes code and text (printf) into *err, unless err is NULL. Returns code. */
PL_API int pl_fail(pl_error_t *err, int code, const char *format, ...) PL_PRINTF(3, 4);

/* The name of an error code: "PL_EINVAL"; "PL_OK" for 0; "PL_E?" for an unknown number.
 * Static. */
PL_API const char *pl_code_name(int code);

/* The meaning of an error code: its sentence in PL_ERRORS. Static. */
PL_API const char *pl_code_text(int code);

/* ---- Memory and logs --------------------------------------------------------------- */

/* Replaces the functions by which Paceline allocates memory. Call it before any other
 * function, on one thread. The functions must be thread-safe.  [NULL: those of the C
 * library] */
PL_API void pl_memory_hooks(void *(*allocate)(size_t bytes),
                            void *(*resize)(void *memory, size_t bytes),
                            void (*release)(void *memory));

/* Severity of a log line. */
typedef enum pl_log_level {
    PL_LOG_ERROR,
    PL_LOG_WARNING,
    PL_LOG_INFO,
    PL_LOG_DEBUG
} pl_log_level_t;

/* One log line. `actor` is "loop.epoch" or ""; text contains no newline. Called on the
 * thread that logs: return soon. */
typedef void (*pl_log_hook_t)(pl_log_level_t level, int rank, const char *actor,
                              const char *text, void *user);

/* Sets the hook that receives log lines [no output] up to `level`. The hook is
 * process-wide: set it before you call any other function. When the call returns, no
 * thread is in the previous hook; so a hook must not call it. */
PL_API void pl_log_hook(pl_log_hook_t hook, pl_log_level_t level, void *user);

/* ---- Components and their options -------------------------------------------------- */

/* The value of an option that is a list of numbers. */
typedef struct pl_ints {
    int count;
    int64_t value[16];
} pl_ints_t;

typedef struct pl_reals {
    int count;
    double value[64];
} pl_reals_t;

/* Texts by name: {"weight": "w.npy"} in a run file. */
typedef struct pl_texts {
    int count;
    const char *name[8], *text[8];
} pl_texts_t;

/* An amount: a share or a count. 1.0 and 0.1 are shares, 100 is a count. */
typedef struct pl_amount {
    double value;
    bool is_share;
    bool is_time;                         /* value is in s; only for PL_OPTION_INTERVAL */
} pl_amount_t;

/* A range of counts: 4, or "2:4" in a run file.  A list of device numbers, [0, 2], is the
 * number of its entries. */
typedef struct pl_span {
    int64_t min, max;
} pl_span_t;

/* Another component by name, with its options: "shm" or {"name": "shm", "slots": 4} in a
 * run file. */
typedef struct pl_choice {
    const char *name;             /* "auto": the user of the option chooses; NULL: none */
    const char *options;          /* a JSON object: "{\"slots\":4}", "{}" */
} pl_choice_t;

/* A component in use: the table of its role, its struct, and the owner of the struct's
 * texts. */
typedef struct pl_instance {
    const void *ops;                                        /* pl_module_ops_t … */
    void *self;
    struct pl_binding *binding;
} pl_instance_t;

/* Components of which another one consists, such as a schedule of schedules. */
#define PL_INSTANCES 8
typedef struct pl_instances {
    int count;
    pl_instance_t value[PL_INSTANCES];
} pl_instances_t;

/* The type of an option. */
typedef enum pl_option_type {
    PL_OPTION_END,
    PL_OPTION_INT,            /* int64_t */
    PL_OPTION_FLOAT,          /* double */
    PL_OPTION_BOOL,           /* bool */
    PL_OPTION_TEXT,           /* const char *, never NULL; owned by the binding */
    PL_OPTION_INTS,           /* pl_ints_t */
    PL_OPTION_REALS,          /* pl_reals_t */
    PL_OPTION_TEXTS,          /* pl_texts_t; owned by the binding */
    PL_OPTION_AMOUNT,         /* pl_amount_t */
    PL_OPTION_COMPONENT,      /* pl_choice_t; its texts are owned by the binding */
    PL_OPTION_GROUPS,         /* const char *, a JSON list of objects. Each has "match",
                                 name patterns separated by spaces, and options of the
                                 component that hold for matching names. Owned by the
                                 binding */
    PL_OPTION_INTERVAL,       /* pl_amount_t, or a time: "00:00:15:00" */
    PL_OPTION_COMPONENTS,     /* pl_instances_t, from one component or a list of them;
                                 owned by the binding */
    PL_OPTION_SPAN,           /* pl_span_t */
    PL_OPTION_WORD,           /* an enum: the place of the word in range, from 0 */
    PL_OPTION_JSON,           /* const char *, any JSON, which the component reads itself;
                                 owned by the binding */
} pl_option_type_t;

/* Name patterns, wherever an option takes them: '*' matches any text, dots included; '?'
 * matches one character; "[ab]" and "[a-c]" match one of those characters. The pattern
 * must match the whole name. */

/* One option of a component. Run files, --set, help, manual pages and completion share
 * this description. */
typedef struct pl_option {
    const char *name;                                       /* "hidden" */
    pl_option_type_t type;
    size_t offset;            /* of the field in the component's struct */
    const char *fallback;     /* default, as JSON: "128",
                                 "[128]", "\"relu\"". NULL:
                                 the option is required.
                                 "\"auto\"": the value comes
                                 from the data info of the
                                 same name, unless range
                                 lists auto as a word; an
                                 integer whose range has 0 is
                                 0 without it. Component:
                                 "auto" or none ("null").
                                 Float: "null" is NaN, no
                                 value. Integer: "false" if
                                 true may stand for 1 */
    const char *range;        /* numbers: "1..", "0..1", "(0..1]"; text: "relu|gelu|tanh";
                                 word: the same, in the order of the enum;
                                 component: its role  [any value] */
    const char *help;         /* one clause, with the unit */
} pl_option_t;

#define PL_FIELD_(type, field, kind, fallback, range, help) \
    { \
#field, kind, offsetof(type, field), fallback, range, help \
    }
#define PL_INT(type, field, fallback, range, help) \
    PL_FIELD_(type, field, PL_OPTION_INT, fallback, range, help)
#define PL_FLOAT(type, field, fallback, range, help) \
    PL_FIELD_(type, field, PL_OPTION_FLOAT, fallback, range, help)
#define PL_BOOL(type, field, fallback, help) \
    PL_FIELD_(type, field, PL_OPTION_BOOL, fallback, NULL, help)
#define PL_TEXT(type, field, fallback, range, help) \
    PL_FIELD_(type, field, PL_OPTION_TEXT, fallback, range, help)
#define PL_WORD(type, field, fallback, words, help) \
    PL_FIELD_(type, field, PL_OPTION_WORD, fallback, words, help)
#define PL_INTS(type, field, fallback, range, help) \
    PL_FIELD_(type, field, PL_OPTION_INTS, fallback, range, help)
#define PL_REALS(type, field, fallback, range, help) \
    PL_FIELD_(type, field, PL_OPTION_REALS, fallback, range, help)
#define PL_TEXTS(type, field, fallback, help) \
    PL_FIELD_(type, field, PL_OPTION_TEXTS, fallback, NULL, help)
#define PL_AMOUNT(type, field, fallback, help) \
    PL_FIELD_(type, field, PL_OPTION_AMOUNT, fallback, NULL, help)
#define PL_SPAN(type, field, fallback, range, help) \
    PL_FIELD_(type, field, PL_OPTION_SPAN, fallback, range, help)
#define PL_CHOICE(type, field, fallback, role, help) \
    PL_FIELD_(type, field, PL_OPTION_COMPONENT, fallback, role, help)
#define PL_PARTS(type, field, role, help) \
    PL_FIELD_(type, field, PL_OPTION_COMPONENTS, NULL, role, help)
#define PL_GROUPS(type, field, help) \
    PL_FIELD_(type, field, PL_OPTION_GROUPS, "[]", NULL, help)
#define PL_JSON(type, field, help) \
    PL_FIELD_(type, field, PL_OPTION_JSON, NULL, NULL, help)
#define PL_OPTIONS_END \
    { \
        NULL, PL_OPTION_END, 0, NULL, NULL, NULL \
    }

/* The first fields of every table of functions. The registry, the run file and `paceline
 * list` use them. */
#define PL_COMPONENT \
    const char *name; /* in run files; unique in its role */ \
    const char *help; /* one clause  [""] */ \
    size_t size;      /* of the component's struct: zeroed, then its options are set */ \
    const pl_option_t *options; /* [none] */ \
    /* Checks that the options work together, before anything starts, on any thread. \
     * NULL: they do; otherwise the name of the option to change, or the place in its \
     * JSON ("layers.3"), with the reason in err.  Not called while an option is left to \
     * the data  [they do] */ \
    const char *(*check)(const void *self, pl_error_t *err)

typedef struct pl_component {
    PL_COMPONENT;
} pl_component_t;

/* One entry of the table that pl_init() takes or a plug-in exports. */
typedef struct pl_registration {
    const char *role;       /* "module", "dataset", "optimizer", "scheduler", "averaging",
                               "sampler", "metric", "callback", "logger", "operator",
                               "precision",
                               "accelerator", "strategy", "collective", "launcher" */
    const void *table;      /* pl_module_ops_t …; static */
} pl_registration_t;

#define PL_REGISTRATIONS_END \
    { \
        NULL, NULL \
    }

/* The function that a plug-in (FILE.so) exports: it has this type and this name and
 * returns a static table. */
#define PL_PLUGIN_SYMBOL "paceline_plugin"
typedef const pl_registration_t *(*pl_plugin_t)(void);
PL_API const pl_registration_t *paceline_plugin(void);      /* defined by a plug-in, with
                                                               PL_PLUGIN() */

/* Defines that function. Last line of the file: PL_PLUGIN({"module", &mlp_module}). */
#define PL_PLUGIN(...) \
    const pl_registration_t *paceline_plugin(void) \
    { \
        static const pl_registration_t table[] = {__VA_ARGS__, PL_REGISTRATIONS_END}; \
        return table; \
    }

/* Registers components by name in this process: all of them or, after an error, none
 * [NULL: none]. The tables are borrowed forever. PL_EEXIST: another table has the same
 * role and name. PL_EINVAL: the role is unknown, or the default or the range of an option
 * is wrong. Any thread. */
PL_API int pl_register(const pl_registration_t *registrations, pl_error_t *err);

/* Loads FILE.so and registers what it exports. A file without '/' is searched for in the
 * folders of PACELINE_PLUGIN_PATH (a:b:c), then in the folder where Paceline's own
 * plug-ins are installed. The same file may be loaded twice. Any thread. */
PL_API int pl_plugin_load(const char *file, pl_error_t *err);

/* The component with this role and name, or NULL with PL_ENOTFOUND, which names the
 * nearest one. A component that is not registered is searched for in the plug-in folders:
 * module "mlp" in mlp.so. The table stays valid as long as the program runs. Any
 * thread. */
PL_API const void *pl_component_find(const char *role, const char *name, pl_error_t *err);

/* The k-th component of a role, ordered by name, or NULL. Includes components in the
 * plug-in folders. For listings. It stays valid. Any thread. */
PL_API const pl_component_t *pl_component_at(const char *role, int k);

/* The k-th role, or NULL after the last. */
PL_API const char *pl_role_at(int k);

/* Receives one fact about this machine, such as "GPU 0" and "NVIDIA H100, …"; without a
 * name: a warning. */
typedef void (*pl_fact_t)(void *user, const char *name, const char *text);

/* Reports what an accelerator finds on this machine: devices, drivers, libraries, and
 * what to install. May take a second. PL_ENOTFOUND: there is no such accelerator;
 * PL_EINVAL: an argument is NULL. Any thread. */
PL_API int pl_accelerator_report(const char *accelerator, pl_fact_t tell, void *user,
                                 pl_error_t *err);
/* Reports what a collective finds on this machine, as pl_accelerator_report() does. */
PL_API int pl_collective_report(const char *collective, pl_fact_t tell, void *user,
                                pl_error_t *err);

/* ---- Run files and options --------------------------------------------------------- */

/* A run: the contents of a run file and the options that were set on top of it. Keys are
 * paths: "module.hidden", "trainer.devices", "callbacks.0.monitor". Errors state
 * the file, line, column, the key and the nearest known name. */
typedef struct pl_options pl_options_t;

/* An empty run file: every option has its default. */
PL_API pl_options_t *pl_options_new(pl_error_t *err);

/* Reads a run file, or its text, which errors call `name`. The format is JSON that may
 * have comments and a comma after the last element. The file may be a pipe; "-" is
 * standard input. These functions check the keys and values that no component defines.
 * pl_options_check() checks those of components, because it loads the plug-ins. */
PL_API pl_options_t *pl_options_load(const char *path, pl_error_t *err);
PL_API pl_options_t *pl_options_parse(const char *text, const char *name,
                                      pl_error_t *err);

/* An independent copy. */
PL_API pl_options_t *pl_options_clone(const pl_options_t *o, pl_error_t *err);
PL_API void pl_options_free(pl_options_t *o);

/* Sets a key, as --set KEY=VALUE does. The value is JSON if it parses as JSON, else a
 * text. An option of type text always takes it as text, without JSON's quotes. Setting an
 * option of a component keeps its name: "ddp" becomes {"name": "ddp", …}. Setting the
 * element after the last one extends a list. */
PL_API int pl_options_set(pl_options_t *o, const char *key, const char *value,
                          pl_error_t *err);

/* The value of a key or its default: texts without quotes, other types as JSON. NULL: no
 * such value, or out of memory. Free it with pl_text_free(). */
PL_API char *pl_options_get(const pl_options_t *o, const char *key);

/* Loads the plug-ins that the run names and checks every key and value against the tables
 * of the components. */
PL_API int pl_options_check(const pl_options_t *o, pl_error_t *err);

/* For programs that show all mistakes of a run file at once. pl_options_read() reads a
 * file without a check of its keys and values, also in pl_options_set().
 * pl_options_check_all() makes all checks and calls on_mistake for each mistake, at most
 * 20, in the order of the file. -> the code of the first mistake, also in err. */
PL_API pl_options_t *pl_options_read(const char *path, pl_error_t *err);
typedef void (*pl_on_mistake_t)(void *user, const pl_error_t *mistake);
PL_API int pl_options_check_all(const pl_options_t *o, pl_on_mistake_t on_mistake,
                                void *user, pl_error_t *err);

/* The options of a section that all of its components share: "trainer", "data", "module",
 * "optimizer", "averaging"; "data.sources", for "data" with several sources;
 * "optimizer.groups", for each group. NULL for other names. For help. Static. */
PL_API const pl_option_t *pl_options_of(const char *section);

/* The complete run file with every default. Checks it first. Free it with
 * pl_text_free(). */
PL_API char *pl_options_print(const pl_options_t *o, pl_error_t *err);

/* The graph of a training step that a run describes, as JSON, with the shapes that follow
 * from its data: {"": {"fields": [{"name", "dtype", "shape"}], "tensors": [{"name",
 * "dtype", "shape", "elements", "trained"}], "operators": [{"operator", "layer",
 * "inputs", "dtype", "shape"}], "results": [{"name", "kind", "value"}]}}; of a module
 * with several objectives a graph for each, by name. Inputs are fields, tensors, numbers
 * and "%3", the result of operator 3. Opens the training data, which may take long, and
 * trains nothing. Free it with pl_text_free(). */
PL_API char *pl_run_graph(const pl_options_t *o, pl_error_t *err);

/* A layer or a loss of the module "layers", or an operator of graphs, for help. */
typedef struct pl_form {
    char name[32];
    char form[128];                   /* "conv channels kernel [stride=1]", "add(x, y)" */
    const char *help;
} pl_form_t;

/* The k-th of them, in the order of the documentation; false after the last. Operators
 * are those of forward. */
PL_API bool pl_layer_at(int k, pl_form_t *form);
PL_API bool pl_loss_at(int k, pl_form_t *form);
PL_API bool pl_operator_at(int k, pl_form_t *form);

/* ---- Tensors ----------------------------------------------------------------------- */

/* Maximum number of axes of a tensor. */
#define PL_DIMS 6
/* Maximum number of axes of space, behind batch and channels: [B, C, D, H, W]. */
#define PL_SPACE 3

/* The element type of a tensor. Data has one of the first five; the half precisions are
 * for weights and inside graphs. */
typedef enum pl_dtype {
    PL_F32,
    PL_F64,
    PL_I32,
    PL_I64,
    PL_U8,
    PL_BF16,
    PL_F16,
} pl_dtype_t;

typedef struct pl_shape {
    int rank;                                               /* 0: a scalar */
    int64_t dim[PL_DIMS];
} pl_shape_t;

/* ---- Engine and trainer ------------------------------------------------------------ */

/* An engine hosts trainers; a trainer makes one run after the other. */
struct event_base;
typedef struct pl_engine pl_engine_t;
typedef struct pl_trainer pl_trainer_t;

/* Initializes the library: call it first in main(). Registers Paceline's own components
 * and those of the program [NULL: none]. It takes the arguments because a launcher may
 * start this program again as a rank; in that process the call does the rank's work and
 * never returns. Errors: as of pl_register(). */
PL_API int pl_init(int *argc, char ***argv, const pl_registration_t *registrations,
                   pl_error_t *err);

/* Creates an engine: a thread that hosts trainers. With a base, notifications (on_done,
 * on_progress, on_closed) come from the thread that runs the base, and never from inside
 * the call that started the work. With base NULL they come from pl_engine_dispatch();
 * call it when pl_engine_fd() is readable, or let pl_engine_run_until() do so. An engine
 * and its trainers are used on that one thread. A process may have several engines. */
PL_API pl_engine_t *pl_engine_new(struct event_base *base, pl_error_t *err);
/* The descriptor that is readable while notifications wait: the same for the life of the
 * engine, level-triggered, owned by the engine. */
PL_API int pl_engine_fd(const pl_engine_t *engine);
/* Delivers the notifications that wait at the time of the call, and returns. For later
 * ones the descriptor becomes readable again. Not from a notification. */
PL_API void pl_engine_dispatch(pl_engine_t *engine);
/* For a program without an event loop: delivers notifications, and waits for more, until
 * *done is true [until no call of the program is under way]. The program sets *done in
 * one of its notifications, such as on_done. A call is under way until its notification
 * has come: a run, a command, the opening or closing of a loop or a request to it, the
 * closing of the engine. A loop that is open is not under way.
 *
 * PL_ESTATE: the engine has an event base, whose loop delivers the notifications; the
 * caller is a notification; or no call is under way that could set *done.
 * PL_ECANCELLED: a notification closed the engine. */
PL_API int pl_engine_run_until(pl_engine_t *engine, const bool *done, pl_error_t *err);

/* Publishes every message of the engine's actors, and of ranks in other processes, at
 * ipc://FILE or tcp://127.0.0.1:PORT, where "*" is any free port. Runs under way are
 * visible from then on. Other addresses are refused. FILE exists as long as the engine.
 * PL_EINVAL: the path exists and is not a socket. PL_EBUSY: another process listens
 * there. Both leave the path unchanged. PL_ESTATE: the engine publishes already, or it is
 * closing. */
PL_API int pl_engine_monitor(pl_engine_t *engine, const char *endpoint, pl_error_t *err);
/* The endpoint of the stream, with the port in place of "*"; "" without one. Owned by the
 * engine. */
PL_API const char *pl_engine_monitor_endpoint(const pl_engine_t *engine);

/* Accepts commands to the engine's runs at ipc://FILE, which only this user can open, or
 * tcp://127.0.0.1:PORT, which every user of this machine can open. Commands are JSON
 * requests from ZeroMQ clients of any language, and each is answered (doc/embedding.md).
 * The endpoint stays open until the engine is closed. Errors: as of
 * pl_engine_monitor(). */
PL_API int pl_engine_control(pl_engine_t *engine, const char *endpoint, pl_error_t *err);
/* The endpoint of commands, with the port in place of "*"; "" without one. Owned by the
 * engine, until it is closed. */
PL_API const char *pl_engine_control_endpoint(const pl_engine_t *engine);

/* Serves a page that shows the engine's runs live, metrics for Prometheus at /metrics,
 * and /healthz and /readyz. The HTTP server has its own thread (doc/monitoring.md).
 * address: "[HOST:]PORT" on this machine only: HOST is 127.0.0.1 [the default], localhost
 * or [::1]; port 0: any free port. PL_EINVAL: another address. PL_EBUSY: the port is in
 * use. PL_ESTATE: the engine has a page already. PACELINE_DASHBOARD_TOKEN_FILE names a
 * file with a permanent token. */
PL_API int pl_engine_dashboard(pl_engine_t *engine, const char *address, pl_error_t *err);
/* The address of the page: "http://127.0.0.1:8080/?token=…". The token grants viewing and
 * commands. "" without a page. Owned by the engine. */
PL_API const char *pl_engine_dashboard_url(const pl_engine_t *engine);

/* Writes a journal: every message, from now on until the engine is freed;
 * pl_journal_open() reads it. An existing journal at path is renamed to path.old. The run
 * never waits for the disk: messages that a slow disk cannot take are missing, and the
 * file says so. A full disk ends the file, and the log says so. Several journals may be
 * written at several paths. PL_EINVAL: the existing file is not a journal. PL_EBUSY:
 * another run writes it. PL_EIO. PL_ESTATE: the engine is closing. */
PL_API int pl_engine_journal(pl_engine_t *engine, const char *path, pl_error_t *err);

/* Writes a trace: every message, from now on until the engine is freed, for Perfetto and
 * chrome://tracing. It has a track for each actor, arrows along calls, and the timing
 * breakdown of each rank's steps. An existing trace at path is renamed to path.old. Slow
 * disks and errors: as of pl_engine_journal(). */
PL_API int pl_engine_trace(pl_engine_t *engine, const char *path, pl_error_t *err);

/* Ends all runs and then the engine. The on_done of each run comes first, with
 * PL_ECANCELLED; on_closed [no notification] comes last. Returns at once. May be called
 * from a notification. */
PL_API void pl_engine_close(pl_engine_t *engine,
                            void (*on_closed)(pl_engine_t *engine, void *user),
                            void *user);
/* Frees an engine and its trainers. An engine whose on_closed has not come yet is closed
 * first, without notifications, and the call waits for that. Not from a notification
 * other than on_closed. */
PL_API void pl_engine_free(pl_engine_t *engine);

/* The ranks of one node. They run the same program; PACELINE_RANK, PACELINE_WORLD_SIZE
 * and similar variables give each its rank, and launcher "external" reads them. All work
 * happens on the thread that runs base, which must outlive the launch. */
typedef struct pl_launch pl_launch_t;

typedef struct pl_launch_spec {
    int nodes, node_rank;        /* maximum number of nodes; index of this node, from 0 */
    int nodes_min;               /* minimum number of nodes: the job continues with fewer
                                    when others are lost for good, and admits nodes that
                                    join  [nodes] */
    int devices;                 /* ranks on each node */
    const char *endpoint;        /* "HOST:PORT" of node 0; rank 0 listens there  [one
                                    node: any free port on it] */
    const char *job_key;         /* file with the job's key, the same on all nodes;
                                    created if missing  [not encrypted, one machine] */
    int max_restarts;            /* maximum number of restarts of all ranks within 10
                                    minutes after one dies, from the newest checkpoint;
                                    the value of node 0 counts */
    double join_timeout;         /* s, time limit for the minimum number of nodes to join
                                    [60] */
    double last_call_timeout;    /* s, further wait for more than the minimum to join
                                    [10] */
    const char *const *argv;     /* program and arguments, ended by NULL; searched for
                                    along PATH */
    /* A line of a rank's standard error; rank -1: a line about all ranks. */
    void (*on_line)(void *user, int rank, const char *line);
    /* Called once, when all ranks have ended. status is the exit status of the first rank
     * that failed, as in a shell. error names that rank and the cause; PL_OK if none
     * failed. The status is 75, of a rank that lost another, only if no rank failed by
     * itself. error is NULL after pl_launch_signal(). */
    void (*on_end)(void *user, int status, const pl_error_t *error);
    void *user;
} pl_launch_spec_t;

/* Starts the ranks of this node when all nodes are there. All ranks are restarted when
 * one is killed by a signal, exits with status 75, or a node is lost; the others are
 * killed first. When a rank fails otherwise, or for the last time, the others get
 * SIGTERM, and SIGKILL 5 s later. The texts of spec must stay valid. NULL: PL_EINVAL,
 * PL_ENOMEM, PL_EIO, or PL_EBUSY: another program listens at the endpoint. on_end
 * reports later errors. */
PL_API pl_launch_t *pl_launch_start(struct event_base *base, const pl_launch_spec_t *spec,
                                    pl_error_t *err);
/* Sends a signal to the ranks of this node, which are to end: those that still live 30 s
 * later are killed, on node 0 those of all nodes. The second call kills them at once, and
 * the status is 130. */
PL_API void pl_launch_signal(pl_launch_t *node, int number);
/* Ends the ranks that still live, by SIGKILL. Does not call on_end. */
PL_API void pl_launch_free(pl_launch_t *node);

/* The index of this process among those that run this program for one run: its rank; with
 * launcher "script" 1 + rank. Print and write results in process 0 only. */
PL_API int pl_rank(void);

/* How a run ended. All pointers are valid until the notification returns. */
typedef struct pl_result_tensor {
    const char *name;
    pl_shape_t shape;
    const float *data;                                      /* [shape] */
} pl_result_tensor_t;

typedef struct pl_result {
    const char *status;          /* "ok", "stopped" (by pl_trainer_stop() or a callback),
                                    "failed" */
    const char *reason;          /* why a fit was "stopped", and by which component; or
                                    why a resumed fit that is "ok" trained nothing; "" */
    pl_error_t error;            /* if "failed" */
    uint64_t global_step;        /* optimizer steps done */
    uint32_t epoch;              /* epochs done */
    double seconds;              /* time of the loop, without pauses, since the ranks were
                                    last started */
    const char *metrics;         /* JSON object: the newest value of each metric */
    const char *run_dir;         /* "" if there is none */
    const char *text;            /* after a prompt; of files: {"files": [path, …]}; of a
                                    series: {"times": [time, …]}, or "rows"; "" */
    int weight_count;
    const pl_result_tensor_t *weight;              /* after a fit: the module's tensors */
    int output_count;
    const pl_result_tensor_t *output;  /* after predicting: [samples, …] each, in the
                                          order of the data */
    const char *best_checkpoint;       /* of a fit whose model_checkpoint has a
                                          monitor: the path; "" */
    const char *callbacks;             /* JSON array: name and state() of each callback
                                          of a fit, on rank 0: "[]" */
    bool begun;                        /* a batch has been processed. A failure before
                                          that is a wrong request or a missing resource */
} pl_result_t;

/* The value of a metric of a result; false if there is none. */
PL_API bool pl_result_metric(const pl_result_t *result, const char *name, double *value);

/* Keeps the tensors of a result beyond its notification, without a copy: the arrays
 * `weight` and `output` and all they point to. From the notification only, once. NULL:
 * PL_ENOMEM; PL_EINVAL. Any thread drops them, also after the engine is freed. */
typedef struct pl_kept_tensors pl_kept_tensors_t;
PL_API pl_kept_tensors_t *pl_result_keep(const pl_result_t *result, pl_error_t *err);
PL_API void pl_result_drop(pl_kept_tensors_t *kept);

/* Progress of a run: at most ten reports a second, and one at the end of each validation
 * and epoch. If the program does not read them for long, the queue keeps the newest 256
 * of each trainer, in order, and every piece of text. */
typedef struct pl_progress {
    const char *event;                     /* "train", "validate", "validated", "epoch",
                                              "rollback", "test", "predict", "text",
                                              "trial" (doc/messages.md) */
    uint64_t global_step, total_steps;     /* optimizer steps; total 0: unknown */
    uint32_t epoch;                        /* from 0 */
    uint32_t batch, batches;               /* batches done and total of the epoch or
                                              evaluation; batches 0: unknown */
    const char *metrics;                   /* JSON object of the newest metrics. Those of
                                              training steps, such as train_loss, are
                                              means since the previous report. "ranks" has
                                              the timing breakdown of the steps of several
                                              ranks (doc/distributed.md). For event
                                              "text": a JSON string */
} pl_progress_t;

/* Receives the result of a run, once; receives progress. */
typedef void (*pl_on_done_t)(pl_trainer_t *trainer, const pl_result_t *result,
                             void *user);
typedef void (*pl_on_progress_t)(pl_trainer_t *trainer, const pl_progress_t *progress,
                                 void *user);

/* Creates a trainer for a run. Copies and checks options. */
PL_API pl_trainer_t *pl_trainer_new(pl_engine_t *engine, const pl_options_t *options,
                                    pl_error_t *err);
/* Stops the trainer's run, without further notifications, and frees the trainer. May be
 * called from its own notification. */
PL_API void pl_trainer_free(pl_trainer_t *trainer);

/* Sets the function that receives progress, from the next run on [no progress]. */
PL_API void pl_trainer_on_progress(pl_trainer_t *trainer, pl_on_progress_t on_progress,
                                   void *user);

/* Trains. Returns at once; on_done [no notification] comes exactly once. PL_ESTATE: the
 * trainer is running. A run with a missing component, components that do not work
 * together or a name that is taken is refused here, before anything starts. */
PL_API int pl_trainer_fit(pl_trainer_t *trainer, pl_on_done_t on_done, void *user,
                          pl_error_t *err);

/* Evaluates the validation data, or the test data, once, with the weights of a
 * .safetensors file or a run directory. The result has the metrics: "val_loss",
 * "test_loss". Loggers write them to a new directory, default_root_dir/test/0001 and so
 * on; without loggers there is none. Returns at once, as pl_trainer_fit() does. */
PL_API int pl_trainer_validate(pl_trainer_t *trainer, const char *checkpoint,
                               pl_on_done_t on_done, void *user, pl_error_t *err);
PL_API int pl_trainer_test(pl_trainer_t *trainer, const char *checkpoint,
                           pl_on_done_t on_done, void *user, pl_error_t *err);

/* Resumes a run that was interrupted or stopped, in its directory, with the result of an
 * uninterrupted run. `from` is a checkpoint, or a run directory, whose newest valid
 * checkpoint is used [the newest run in trainer.default_root_dir that has a checkpoint;
 * without any, training starts from the beginning]. Options that change arithmetic or
 * order must be unchanged: PL_EINVAL names those that are not. */
PL_API int pl_trainer_resume(pl_trainer_t *trainer, const char *from,
                             pl_on_done_t on_done, void *user, pl_error_t *err);

/* Input of a prediction. */
typedef struct pl_prediction {
    const char *checkpoint;            /* a .safetensors file or a run directory */
    const char *prompt;                /* text to continue  [NULL: predict the data] */
    int64_t tokens;                    /* to generate after the prompt */
    double temperature;                /* of sampling; 0: always the most likely token */
    int64_t top_k;                     /* sample among the k most likely tokens; 0: all */
    bool no_cache;                     /* compute the whole text again for each token;
                                          otherwise causal attention keeps keys and values
                                          of earlier tokens, if that gives what the module
                                          gives for the whole text */
} pl_prediction_t;

/* Computes the module's outputs for all samples of the prediction data, or the text after
 * the prompt. Returns at once, as pl_trainer_fit() does. */
PL_API int pl_trainer_predict(pl_trainer_t *trainer, const pl_prediction_t *what,
                              pl_on_done_t on_done, void *user, pl_error_t *err);

/* How to search for a learning rate or a batch size. A learning rate: optimizer steps at
 * exponentially growing rates. A batch size: some steps at each of growing sizes, until
 * memory or data end. */
typedef struct pl_tuning {
    double min_lr, max_lr;           /* first and last rate  [1e-8, 1] */
    int64_t num_training;            /* number of steps  [100] */
    double early_stop_threshold;     /* the search ends when the smoothed loss exceeds the
                                        lowest by this factor; 0: never */
    const char *batch_size;          /* searches for a batch size: "power" doubles it
                                        until it fails, "binsearch" then halves the gap
                                        [NULL: a learning rate] */
    int64_t steps_per_trial;         /* number of timings of each size; a timing takes one
                                        step, or as many as last 40 ms  [5] */
    int64_t init_val;                /* first batch size  [2] */
    int64_t max_trials;              /* maximum number of sizes  [25] */
    int64_t max_memory;              /* bytes by which the process may grow, or what it
                                        holds of a device's own memory  [nine tenths of
                                        the machine's free memory; of a device's, all] */
} pl_tuning_t;

/* Trains a separate module and suggests a value.
 *
 * Learning rate: metric "lr" of the result is the rate at which the loss fell most
 * steeply. The text is {"trials": [{"lr": …, "loss": …}, …]}.
 *
 * Batch size: "batch_size" is the largest that fits. "suggested_batch_size" is the
 * smallest whose samples per second are within a tenth of the maximum, among the sizes
 * that leave at least 50 steps per epoch (doc/formats.md). "quickest_batch_size" is the
 * smallest whose samples per second do not differ significantly from the maximum, by the
 * median and the spread of the timings, a tenth at most. The text is {"trials":
 * [{"batch_size": …, "fits": true, "samples_per_second": …, "memory": bytes}, …]}.
 *
 * Writes no files and changes none. optimizer.lr and the schedule have no effect. */
PL_API int pl_trainer_tune(pl_trainer_t *trainer, const pl_tuning_t *what,
                           pl_on_done_t on_done, void *user, pl_error_t *err);

/* The purpose of a graph, a batch or a run. */
typedef enum pl_stage { PL_TRAIN, PL_VALIDATE, PL_TEST, PL_PREDICT } pl_stage_t;

/* Compiles the plans of a stage and trains nothing, so that later runs find their kernels
 * in the accelerator's cache. PL_TRAIN: those of a fit, with its validation. The text of
 * the result is {"cache": folder, "plans": […]}; doc/messages.md describes the plans
 * (describe_plans). Writes no other files. PL_EUNSUPPORTED: the accelerator keeps no
 * compiled kernels. PL_EIO: the cache cannot be written to. */
PL_API int pl_trainer_compile(pl_trainer_t *trainer, pl_stage_t stage,
                              pl_on_done_t on_done, void *user, pl_error_t *err);

/* Ends the run at its next step boundary. The result then has status "stopped" and the
 * reason, which is copied ["the program asked for it"]. PL_ESTATE: no run. */
PL_API int pl_trainer_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err);

/* The result of a command to a fit. All pointers are valid until the notification
 * returns. */
typedef struct pl_command_result {
    const char *command;         /* "pause", "continue", "save", "set_lr" */
    pl_error_t error;            /* PL_OK: done; PL_ESTATE: the run has ended, is ending,
                                    or keeps no checkpoints; PL_EIO: not saved; PL_EINVAL:
                                    no such optimizer; PL_EBUSY: 16 commands wait already,
                                    nothing was done */
    uint64_t global_step;        /* optimizer steps done when it took effect */
    const char *checkpoint;      /* of "save": its directory; else "" */
} pl_command_result_t;

typedef void (*pl_on_command_t)(pl_trainer_t *trainer, const pl_command_result_t *result,
                                void *user);

/* Commands to a fit under way. Each takes effect between two optimizer steps, after the
 * same step on all ranks. on_command [no notification] answers it once, also if the run
 * ends first. The run's commands.jsonl records it. A command that comes before the first
 * step waits for that step. PL_ESTATE: no fit is under way.
 *
 * A paused run computes nothing until pl_trainer_continue() or pl_trainer_stop().
 * trainer.max_time and the result's seconds do not count this time. A repeated pause or
 * continue is answered like the first. */
PL_API int pl_trainer_pause(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                            pl_error_t *err);
PL_API int pl_trainer_continue(pl_trainer_t *trainer, pl_on_command_t on_command,
                               void *user, pl_error_t *err);
/* Makes a checkpoint, "asked-step=N". A run resumes from it as from any other, and it is
 * never removed. The answer comes when it is durable; training continues before that. */
PL_API int pl_trainer_save(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                           pl_error_t *err);
/* Makes a checkpoint, "asked-NAME", and replaces the one that this run saved by that
 * name: for programs that repeatedly need the newest weights. name: 1 to 64 ASCII
 * letters, digits and "_-."; copied [NULL: as pl_trainer_save()]. */
PL_API int pl_trainer_save_as(pl_trainer_t *trainer, const char *name,
                              pl_on_command_t on_command, void *user, pl_error_t *err);
/* Sets the learning rate, 0.., from the next step on, of parameters that no group
 * matches. Groups and the schedule keep their ratio to it. While the schedule gives 0,
 * the command waits. optimizer: the objective whose rate it is [all]. Checkpoints keep
 * it. */
PL_API int pl_trainer_set_lr(pl_trainer_t *trainer, double lr, const char *optimizer,
                             pl_on_command_t on_command, void *user, pl_error_t *err);
/* Sets a factor, 0.., on the schedule's learning rate, in place of any earlier rate or
 * factor; 1: the schedule's rate. */
PL_API int pl_trainer_scale_lr(pl_trainer_t *trainer, double factor,
                               const char *optimizer, pl_on_command_t on_command,
                               void *user, pl_error_t *err);

/* The manifest of a checkpoint directory, JSON (doc/checkpoints.md). With `verify`, every
 * block of its files is read and compared with its checksum. Errors name file and bytes.
 * Free it with pl_text_free(). Any thread; it may take long. */
PL_API char *pl_checkpoint_describe(const char *path, bool verify, pl_error_t *err);

/* The weights that a run directory stands for when it is given as a checkpoint: {"path":
 * "runs/0001/checkpoints/epoch=3-step=40", "which": "best", "monitor": "val_loss",
 * "newest": "runs/0001/model.safetensors"}. "which" is "best" if a model_checkpoint has a
 * monitor; the first such callback decides. Otherwise it is "newest", a checkpoint, or
 * "final", the file written at the end of the run: the one with more steps. The key
 * "newest" always has the path of that one. PL_ENOTFOUND: there are no weights. Free it
 * with pl_text_free(). Any thread. */
PL_API char *pl_run_describe(const char *run_dir, pl_error_t *err);

/* Replaces "latest" in a path, such as "runs/latest", by the name of the newest run,
 * which that file holds. For programs that open files in a run directory;
 * pl_trainer_resume() and all functions that read weights do this themselves. NULL: out
 * of memory. Free it with pl_text_free(). */
PL_API char *pl_run_path(const char *path);

/* The contents of a .safetensors file, without its data: {"tensors": {"fc1.weight":
 * {"dtype": "F32", "shape": [128, 784], "offset": 696, "bytes": 401408}, …}, "metadata":
 * {"module": "…", …}}. Offsets count from the start of the file. The whole header is
 * checked, as when weights are loaded; errors name file and byte. Free it with
 * pl_text_free(). Any thread. */
PL_API char *pl_weights_describe(const char *path, pl_error_t *err);

/* Writes data [shape] as an array of NumPy (.npy, version 1): float32, float64, int32,
 * int64 or uint8. At `path` is then the old file or the whole new one. PL_EINVAL,
 * PL_ENOTFOUND (no such directory), PL_EIO. Any thread. */
PL_API int pl_npy_write(const char *path, pl_dtype_t dtype, const pl_shape_t *shape,
                        const void *data, pl_error_t *err);

/* ---- Manual loops ------------------------------------------------------------------ */

/* A manual loop, for a program whose batches come from elsewhere: a stream of events, or
 * an environment in which it acts. The program decides what happens next: it sends a
 * batch to train on, or one to evaluate or predict with the current weights. Module,
 * optimizer, schedule and trainer options are those of a run. There are no epochs, no
 * validation, no limits and no callbacks.
 *
 * All calls return at once. For each call that returns PL_OK, one notification of the
 * engine comes, on the program's thread. Batches are processed and reported in the order
 * in which they were sent, whatever their kind. The same batches in the same order give
 * the same bits as a run. */
typedef struct pl_loop pl_loop_t;

struct pl_field;
struct pl_arrays;

typedef struct pl_loop_spec {
    int field_count;                  /* of a sample, as pl_input() names them: */
    const struct pl_field *field;     /* [field_count], copied; none varies in length */
    int targets;                      /* the last `targets` fields are for losses only:
                                         predicting does not need them */
    const char *data_info;            /* as in pl_data_info_t, but copied  [none] */
    bool enable_checkpointing;        /* creates a run directory, as a fit does, for
                                         checkpoints, metrics and final weights  [nothing
                                         is written] */
    const char *resume;               /* resumes from a checkpoint: of a loop, or of a fit
                                         with the same options  [starts from the
                                         beginning] */
    int depth;                        /* maximum number of batches and saves under way, 1
                                         to 60  [8] */
} pl_loop_spec_t;

/* The result of one call. All pointers are valid until the notification returns. */
typedef struct pl_loop_result {
    pl_error_t error;         /* code PL_OK: success, and the other fields are valid */
    uint64_t global_step;     /* optimizer steps done at that time */
    const char *skipped;      /* what was not finite in a step that trainer.nan_policy
                                 "skip" skipped. The step changed nothing, and it counts.
                                 Otherwise "" */
    double loss;              /* mean over the batch; NaN: the module has no single loss
                                 of that name */
    double grad_norm;         /* before clipping; NaN: no optimizer step */
    const char *metrics;      /* JSON object of all metrics, named as in a run:
                                 "train_acc", "val_loss", "lr-adamw" */
    int output_count;         /* of a prediction: [samples, …] each; of pl_loop_close():
                                 the module's tensors; of pl_loop_gradients(): these */
    const pl_result_tensor_t *output;
    const char *run_dir;                                    /* "" if there is none */
    const void *data;         /* of an exchange with other ranks: the numbers, of the type
                                 that was sent; NULL: of other calls */
    int64_t data_count;                                     /* elements */
} pl_loop_result_t;

typedef void (*pl_on_loop_t)(pl_loop_t *loop, const pl_loop_result_t *result, void *user);

/* The value of a metric of a loop's result; false if there is none. */
PL_API bool pl_loop_metric(const pl_loop_result_t *result, const char *name,
                           double *value);

/* Opens a loop. on_ready [no notification] reports that batches can be sent, or an error.
 * options are those of a run; they are copied and checked. "data.batch_size" is the
 * maximum number of samples in a batch and scales the step; the other options under
 * "data" are for a fit that resumes from this loop. NULL: PL_EINVAL, PL_ESTATE,
 * PL_ENOMEM.
 *
 * The loop's rank is a thread of this process, by launcher "inline". With "external" each
 * process that paceline launch or a scheduler has started has a rank. Each opens the loop
 * with the same fields, sends its own batches, and makes the same calls in the same
 * order. A step sums the gradients of all ranks. Metrics of training and evaluating are
 * those of all; a prediction is the rank's own and waits for no other. The result of
 * pl_loop_close() is rank 0's, on all ranks, when all have closed the loop. */
PL_API pl_loop_t *pl_loop_open(pl_engine_t *engine, const pl_options_t *options,
                               const pl_loop_spec_t *spec, pl_on_loop_t on_ready,
                               void *user, pl_error_t *err);

/* Trains on samples; evaluates them (metrics as of a validation); predicts. The samples
 * are copied before the call returns. A new number of samples is compiled first, which
 * takes a moment. With trainer.accumulate_grad_batches an optimizer step follows every so
 * many batches. With the strategy "elastic" a batch has the samples of this rank's
 * micro-shards, of data.batch_size each, and with several ranks may have none.
 *
 * PL_EINVAL: a field is missing, or has another type or shape. PL_EBUSY: `depth` calls
 * are under way. PL_ESTATE: the loop is not open yet, or no longer.
 *
 * If a step fails, for example because its loss is not finite, its result has the error:
 * weights, state, optimizer and global_step are as before it. Later batches are processed
 * normally. A failure of the whole loop, such as a stuck device, is the error of all
 * calls under way; later calls return PL_ESTATE. */
PL_API int pl_loop_train(pl_loop_t *loop, const struct pl_arrays *samples,
                         pl_on_loop_t on_step, void *user, pl_error_t *err);
PL_API int pl_loop_evaluate(pl_loop_t *loop, const struct pl_arrays *samples,
                            pl_on_loop_t on_measured, void *user, pl_error_t *err);
PL_API int pl_loop_predict(pl_loop_t *loop, const struct pl_arrays *samples,
                           pl_on_loop_t on_predicted, void *user, pl_error_t *err);

/* Steps that the program takes itself: gradients of one objective of the module, of one
 * batch or several, and then a step of that objective's optimizer, as fabric.backward()
 * and optimizer.step() of Lightning do. `objective` [the module's only one] is its name.
 *
 * pl_loop_backward() computes gradients and changes no parameter. Gradients of several
 * calls add up until the step: it takes the mean over their samples, of all ranks. Its
 * result has the metrics of these batches, on this rank; the result of pl_loop_step()
 * those of all ranks, with norm and rate. Between both calls the program may read and
 * replace the gradients. Objectives are independent: each has gradients of its own. If
 * each is stepped once a batch, in the module's order, the bits are those of
 * pl_loop_train(). With several ranks all make the same calls.
 *
 * pl_loop_gradients() gives the gradients as `output` of its result: of each parameter
 * that the objective trains, of the mean over the samples of this rank, before they are
 * clipped. pl_loop_set_gradients() replaces those of `count` parameters by name [count 0:
 * none]; data [shape] is copied before the call returns.
 *
 * PL_EINVAL: there is no such objective, parameter or shape, or a batch is wrong as for
 * pl_loop_train(). PL_ESTATE, as the result: no gradients wait for a step; or, of
 * pl_loop_train(), some do. A step that fails changes nothing and drops the gradients. */
PL_API int pl_loop_backward(pl_loop_t *loop, const char *objective,
                            const struct pl_arrays *samples, pl_on_loop_t on_computed,
                            void *user, pl_error_t *err);
PL_API int pl_loop_step(pl_loop_t *loop, const char *objective, pl_on_loop_t on_step,
                        void *user, pl_error_t *err);
PL_API int pl_loop_gradients(pl_loop_t *loop, const char *objective, pl_on_loop_t on_read,
                             void *user, pl_error_t *err);
PL_API int pl_loop_set_gradients(pl_loop_t *loop, const char *objective,
                                 const pl_result_tensor_t *gradients, int count,
                                 pl_on_loop_t on_set, void *user, pl_error_t *err);

/* Makes a checkpoint of the state after all batches sent before:
 * RUN_DIR/checkpoints/NAME. on_saved comes when it is durable; batches continue in the
 * meantime. pl_model_load(), a fit with the same options and pl_loop_open() accept it.
 * PL_ESTATE: the loop was opened without `enable_checkpointing`. */
PL_API int pl_loop_save(pl_loop_t *loop, const char *name, pl_on_loop_t on_saved,
                        void *user, pl_error_t *err);

/* How pl_loop_all_reduce() makes one number of those of all ranks. */
typedef enum pl_loop_reduction {
    PL_LOOP_SUM,              /* whole numbers wrap around */
    PL_LOOP_MEAN,             /* not of whole numbers */
    PL_LOOP_MAX,              /* NaN if one is NaN */
    PL_LOOP_MIN,
} pl_loop_reduction_t;

/* Exchange numbers with the programs of the other ranks, which make the same call with
 * the same type and count: it is over when all have made it. Other pending work is done
 * before. `data` [count] is copied before the call returns; on_done has the numbers as
 * `data` of its result. With one rank they are what was sent. At most 2^28 bytes, of a
 * type that data may have. PL_EINVAL, PL_ESTATE, PL_EBUSY and failures as of
 * pl_loop_train().
 *
 * all_gather: [ranks, count], the numbers of all ranks in their order. all_reduce:
 * [count], element by element, in an order of additions that depends on the number of
 * ranks alone. broadcast: [count], those of rank `root`; on other ranks `data` is not
 * read and may be NULL. barrier: none; all ranks have come here. */
PL_API int pl_loop_all_gather(pl_loop_t *loop, pl_dtype_t dtype, const void *data,
                              int64_t count, pl_on_loop_t on_done, void *user,
                              pl_error_t *err);
PL_API int pl_loop_all_reduce(pl_loop_t *loop, pl_loop_reduction_t reduction,
                              pl_dtype_t dtype, const void *data, int64_t count,
                              pl_on_loop_t on_done, void *user, pl_error_t *err);
PL_API int pl_loop_broadcast(pl_loop_t *loop, int root, pl_dtype_t dtype,
                             const void *data, int64_t count, pl_on_loop_t on_done,
                             void *user, pl_error_t *err);
PL_API int pl_loop_barrier(pl_loop_t *loop, pl_on_loop_t on_done, void *user,
                           pl_error_t *err);

/* Sets a factor on the learning rate of the options and the schedule, for batches sent
 * from now on. */
PL_API int pl_loop_scale_lr(pl_loop_t *loop, double factor, pl_error_t *err);

/* Ends a loop when all sent batches are done. on_closed [no notification] comes last and
 * has the weights, unless the loop had failed; after it the loop is invalid. May be
 * called from a notification. Closing or freeing an engine ends its loops; do not close
 * those. */
PL_API void pl_loop_close(pl_loop_t *loop, pl_on_loop_t on_closed, void *user);

/* ---- Journals --------------------------------------------------------------------- */

/* A journal that pl_engine_journal() wrote (doc/formats.md). One thread. */
typedef struct pl_journal pl_journal_t;

/* Opens a journal for reading, at its beginning. NULL: PL_ENOTFOUND; PL_EIO; PL_EFORMAT:
 * the file is not a journal, or has another version. */
PL_API pl_journal_t *pl_journal_open(const char *path, pl_error_t *err);
PL_API void pl_journal_close(pl_journal_t *journal);

/* The next line of the stream (doc/messages.md). Where messages are missing, {"gap":
 * messages, "rank": rank}; null: unknown, because the process died. Where the file is
 * damaged, {"damaged": bytes, "at": offset}; reading continues after that. The line is
 * valid until the next call. NULL: the end, with err->code PL_OK, or PL_EFORMAT if the
 * file is cut off or damaged. */
PL_API const char *pl_journal_next(pl_journal_t *journal, pl_error_t *err);
/* The time of that line: seconds of the stream. */
PL_API double pl_journal_seconds(const pl_journal_t *journal);
/* Publishes that line in an engine's stream. PL_EBUSY: no viewer is connected. */
PL_API int pl_journal_show(pl_journal_t *journal, pl_engine_t *engine, pl_error_t *err);

/* Explains the newest run of a journal, JSON (doc/tracing.md): how and why it ended, what
 * each rank was doing then, which rank waited for which, where the time was spent. Free
 * it with pl_text_free(). It may take long. */
PL_API char *pl_journal_explain(const char *path, pl_error_t *err);
/* Explains one of several runs, which are counted from 1 in the order of their start; 0:
 * the newest. PL_EINVAL: there are fewer runs. */
PL_API char *pl_journal_explain_run(const char *path, uint64_t run, pl_error_t *err);

/* ---- Inference without an engine --------------------------------------------------- */

/* A trained module, ready for inference on samples in memory, without engine and actors.
 * One thread at a time; a process may have several. */
typedef struct pl_loaded_model pl_loaded_model_t;

/* Loads a module and its weights from a checkpoint: a .safetensors file that Paceline
 * wrote, a checkpoint or a run directory. The checkpoint names the module; pl_init() or a
 * plug-in must have registered it. threads: number of compute threads [1]. NULL:
 * PL_ENOTFOUND, PL_EFORMAT, PL_EIO, PL_ENOMEM. */
PL_API pl_loaded_model_t *pl_model_load(const char *checkpoint, int threads,
                                        pl_error_t *err);
PL_API void pl_model_unload(pl_loaded_model_t *model);

/* The outputs for each sample, in the order of the module's pl_output() calls. Valid
 * until the next run or unload. */
typedef struct pl_answers {
    int count;
    const pl_result_tensor_t *output;                   /* [samples, …] each, float32 */
} pl_answers_t;

/* Computes the outputs for samples in memory. The fields are the module's inputs; fields
 * that only losses need may be omitted. Pass "x" as it is in the files of the training
 * data. The transformation that the data info describes is applied here ("standardize":
 * mean and deviation of each csv column, or the scaling of idx pixels from 0 to 255).
 * Other data sets have no such info: apply their transformation first, for example
 * tokenize text with the vocabulary of "text". Bytes and doubles are converted to
 * float32. The first run with a new number of samples compiles: sizes up to 64 share the
 * plans of powers of two, larger ones are processed in pieces. PL_EINVAL: an input is
 * missing or has another shape. */
PL_API int pl_model_run(pl_loaded_model_t *model, const struct pl_arrays *samples,
                        pl_answers_t *answers, pl_error_t *err);

/* ---- Graphs ------------------------------------------------------------------------ */

/* A graph that a module's step describes. The first error sticks: later calls do nothing
 * and return an invalid node, and the function that requested the graph returns the
 * error. One thread. */
typedef struct pl_graph pl_graph_t;

/* A value of a graph, by number; may be copied. It belongs to the graph that created
 * it. */
typedef struct pl_node {
    int32_t id;
} pl_node_t;

/* Initialization of a parameter: a pure function of (seed, path, element). */
typedef struct pl_init_rule {
    enum { PL_INIT_ZEROS, PL_INIT_CONSTANT, PL_INIT_NORMAL, PL_INIT_UNIFORM } kind;
    double a;      /* the constant; the standard deviation; the bound of uniform(-a, a) */
} pl_init_rule_t;

/* How ranks synchronize a state tensor. */
typedef enum pl_agree { PL_AGREE_RANK0, PL_AGREE_MEAN, PL_AGREE_NONE } pl_agree_t;

/* Initial values: zeros; one constant; a normal distribution around 0; a uniform
 * distribution in (-bound, bound). */
PL_API pl_init_rule_t pl_zeros(void);
PL_API pl_init_rule_t pl_constant(double value);
PL_API pl_init_rule_t pl_normal(double deviation);
PL_API pl_init_rule_t pl_uniform(double bound);

/* Fails the graph: for modules whose options are impossible. A code that is not in
 * PL_ERRORS becomes PL_EUSER. Returns an invalid node. */
PL_API pl_node_t pl_graph_fail(pl_graph_t *g, int code, const char *format, ...)
    PL_PRINTF(3, 4);

/* Prefixes the names of later parameters with "h.3.", until the matching
 * pl_scope_end(). */
PL_API void pl_scope(pl_graph_t *g, const char *format, ...) PL_PRINTF(2, 3);
PL_API void pl_scope_end(pl_graph_t *g);

/* Activation checkpointing: a training step computes the operations until the matching
 * pl_checkpoint_end() a second time, when backward comes to them, and keeps only what
 * operations outside read. Results are the same bits; random operators repeat their
 * numbers; effects such as running statistics happen once. A pair inside another one is
 * part of it. Errors: PL_ESTATE for one without the other. Source: Chen et al., "Training
 * deep nets with sublinear memory cost", 2016. */
PL_API void pl_checkpoint(pl_graph_t *g);
PL_API void pl_checkpoint_end(pl_graph_t *g);

/* The shape of a node; rank 0 after an error. */
PL_API pl_shape_t pl_shape_of(pl_graph_t *g, pl_node_t x);
/* Its number format; PL_F32 after an error. A graph describes half precisions and float64
 * as PL_F32. */
PL_API pl_dtype_t pl_dtype_of(pl_graph_t *g, pl_node_t x);
PL_API int64_t pl_dim(pl_graph_t *g, pl_node_t x, int axis);  /* negative axes count
                                                                 from the end */
PL_API pl_shape_t pl_shape(int rank, ...);                  /* int arguments:
                                                               pl_shape(3, 2, 3, 4);
                                                               PL_SHAPE() takes
                                                               int64_t */
#ifdef __cplusplus
#define PL_SHAPE(...) \
    (pl_shape_t{(int)std::initializer_list<int64_t>{__VA_ARGS__}.size(), {__VA_ARGS__}})
#else
#define PL_SHAPE(...) \
    ((pl_shape_t){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                  {__VA_ARGS__}})
#endif

/* A field of the batch, by its name in the data set: [batch, …]. */
PL_API pl_node_t pl_input(pl_graph_t *g, const char *name);
/* Whether the batch has this field (predicting may have no labels). */
PL_API bool pl_has_input(pl_graph_t *g, const char *name);
/* A trained parameter, float32. The same path twice is the same storage (tied weights)
 * and needs the same shape. */
PL_API pl_node_t pl_param(pl_graph_t *g, const char *name, pl_shape_t shape,
                          pl_init_rule_t init);
/* State that is not trained, such as running statistics; float32. */
PL_API pl_node_t pl_state(pl_graph_t *g, const char *name, pl_shape_t shape,
                          pl_init_rule_t init, pl_agree_t agree);
/* A constant scalar, float32. */
PL_API pl_node_t pl_scalar(pl_graph_t *g, double value);
/* The positions 0, 1, … n-1, int32 [n]. */
PL_API pl_node_t pl_range(pl_graph_t *g, int64_t n);
/* A constant tensor with the elements of an array in memory, which are copied. data
 * [shape]: of dtype PL_F32, PL_F64, PL_I32, PL_I64 or PL_U8. int32 and int64 stay; other
 * types become float32. */
PL_API pl_node_t pl_tensor(pl_graph_t *g, pl_dtype_t dtype, pl_shape_t shape,
                           const void *data);
/* The same from a file, which is read now: an array of NumPy (.npy, name NULL), or a
 * tensor of a .safetensors file [name NULL: its only one]. The elements are part of the
 * graph's hash. */
PL_API pl_node_t pl_tensor_file(pl_graph_t *g, const char *path, const char *name);
/* from, from + step, from + 2 step, …: float32 [n]. */
PL_API pl_node_t pl_arange(pl_graph_t *g, double from, double step, int64_t n);

/* Declares an output, for each sample when predicting: [batch, ...] float32, or int32,
 * which the result has as float32. */
PL_API void pl_output(pl_graph_t *g, const char *name, pl_node_t x);
/* How sums become the value of a metric. Sums are added over batches and ranks, and the
 * value is computed from them at the end, so it is never a mean of means. X(NAME,
 * definition) */
#define PL_METRICS(X) \
    X(MEAN, "sum / weight") \
    X(ROOT, "square root of sum / weight") \
    X(EXP, "e to the power of sum / weight") \
    X(BITS, "sum / (weight ln 2)") \
    X(R2, "1 - sum of (x - y)^2 / sum of (y - mean y)^2") \
    X(CONFUSION, "number of samples of class i that were predicted as class j") \
    X(ACCURACY, "share of correct predictions") \
    X(PRECISION, "share of the predictions of a class that are correct") \
    X(RECALL, "share of the samples of a class that were predicted as it") \
    X(F1, "harmonic mean of precision and recall") \
    X(AUROC, "area under the curve of true against false positives") \
    X(AVERAGE_PRECISION, "precision at each recall, weighted by the recall gained") \
    X(SPECIFICITY, "share of samples of other classes not predicted as it") \
    X(JACCARD, "share of samples of a class or predicted as it that are both") \
    X(MCC, "Matthews' correlation of classes and predictions") \
    X(KAPPA, "Cohen's kappa: agreement beyond chance") \
    X(EXPLAINED_VARIANCE, "1 - variance of y - x / variance of y") \
    X(FBETA, "precision and recall, which has beta^2 times the weight") \
    X(HAMMING, "share of predictions, or of labels, that are wrong") \
    X(PEARSON, "linear correlation of x and y") \
    X(CONCORDANCE, "Lin's concordance: 1 if x equals y") \
    X(CALIBRATION, "mean difference of confidence and share of hits, by bin") \
    X(ROC, "curve of true against false positives") \
    X(PR_CURVE, "curve of precision against recall") \
    X(CUSTOM, "of states added, compared or gathered: pl_custom_metric()")

typedef enum pl_metric_kind {
#define PL_X(name, help) PL_METRIC_##name,
    PL_METRICS(PL_X)
#undef PL_X
        PL_METRIC_KINDS
} pl_metric_kind_t;

/* How the values of the classes are averaged. PL_MACRO: their mean, without classes that
 * have neither samples nor predictions. PL_MICRO: from the counts of all classes.
 * PL_WEIGHTED: their mean, weighted by the number of samples of each. PL_PER_CLASS: no
 * average: "f1_0", "f1_1", … */
typedef enum pl_average { PL_MACRO, PL_MICRO, PL_WEIGHTED, PL_PER_CLASS } pl_average_t;

/* A metric as sums. For PL_METRIC_MEAN, ROOT, EXP and BITS: the sum over samples or
 * tokens and their weight, two scalars. For the other kinds: sum is [...] and weight is
 * the same node; of PL_METRIC_FBETA it is the constant beta. */
typedef struct pl_metric {
    pl_node_t sum;
    pl_node_t weight;
    pl_metric_kind_t kind;
    pl_average_t average;
} pl_metric_t;

/* Losses and metrics of a step. A loss is a pair of a sum and a weight; its value is the
 * mean. */
typedef pl_metric_t pl_loss_t;
PL_API pl_loss_t pl_pair(pl_node_t sum, pl_node_t weight);
/* a + factor b: in each batch, the mean of a and factor times the mean of b, with the
 * weight of a. a and b may be one loss. */
PL_API pl_loss_t pl_add_losses(pl_graph_t *g, pl_loss_t a, pl_loss_t b, double factor);
/* Declares the loss: training minimizes it, and it is the metric "loss". Required once in
 * a training step; in other stages where the metric is needed. */
PL_API void pl_loss(pl_graph_t *g, pl_loss_t loss);
typedef enum pl_log_when { PL_ON_EPOCH = 1, PL_ON_STEP = 2 } pl_log_when_t;
/* Logs a metric. Its sums are added over batches and ranks; the stage prefixes its name
 * (val_acc). In training, a metric that is logged at steps, such as the loss, is in each
 * line the mean since the previous line ("train_loss"). The last line of an epoch also
 * has the mean of the epoch ("train_loss_epoch"). */
PL_API void pl_log(pl_graph_t *g, const char *name, pl_metric_t metric,
                   pl_log_when_t when);

/* Operators. Shapes: B batch, T tokens, C channels or classes; "..." stands for any
 * leading axes. Values are float32 unless stated otherwise. Inputs with incompatible
 * shapes or types fail the graph with PL_EINVAL, which names both and the operator's
 * path. Element-wise operators return the shape of their input; several inputs are
 * broadcast as in NumPy, and x, y, z, f and h are their arguments. Comparisons give
 * float32, 1 or 0. Negative axes count from the end. */

/* -x. */
PL_API pl_node_t pl_neg(pl_graph_t *g, pl_node_t x);
/* x f. */
PL_API pl_node_t pl_scale(pl_graph_t *g, pl_node_t x, double f);
/* e^x. */
PL_API pl_node_t pl_exp(pl_graph_t *g, pl_node_t x);
/* Natural logarithm of x (pl_log() logs a metric). */
PL_API pl_node_t pl_log_of(pl_graph_t *g, pl_node_t x);
/* Square root of x. */
PL_API pl_node_t pl_sqrt(pl_graph_t *g, pl_node_t x);
/* -1, 0 or 1; no gradient. */
PL_API pl_node_t pl_sign(pl_graph_t *g, pl_node_t x);
/* max(x, 0); the gradient at 0 is 0. */
PL_API pl_node_t pl_relu(pl_graph_t *g, pl_node_t x);
/* x Phi(x), by erf. */
PL_API pl_node_t pl_gelu(pl_graph_t *g, pl_node_t x);
/* gelu by tanh(sqrt(2/pi) (x + 0.044715 x^3)). */
PL_API pl_node_t pl_gelu_tanh(pl_graph_t *g, pl_node_t x);
/* 1 / (1 + e^-x). */
PL_API pl_node_t pl_sigmoid(pl_graph_t *g, pl_node_t x);
/* Hyperbolic tangent of x. */
PL_API pl_node_t pl_tanh(pl_graph_t *g, pl_node_t x);
/* Absolute value of x. */
PL_API pl_node_t pl_abs(pl_graph_t *g, pl_node_t x);
/* x^2. */
PL_API pl_node_t pl_square(pl_graph_t *g, pl_node_t x);
/* 1 / x. */
PL_API pl_node_t pl_reciprocal(pl_graph_t *g, pl_node_t x);
/* 1 / square root of x. */
PL_API pl_node_t pl_rsqrt(pl_graph_t *g, pl_node_t x);
/* Largest whole number that is not above x; no gradient. */
PL_API pl_node_t pl_floor(pl_graph_t *g, pl_node_t x);
/* Smallest whole number that is not below x; no gradient. */
PL_API pl_node_t pl_ceil(pl_graph_t *g, pl_node_t x);
/* Nearest whole number, ties to even; no gradient. */
PL_API pl_node_t pl_round(pl_graph_t *g, pl_node_t x);
/* Sine of x. */
PL_API pl_node_t pl_sin(pl_graph_t *g, pl_node_t x);
/* Cosine of x. */
PL_API pl_node_t pl_cos(pl_graph_t *g, pl_node_t x);
/* Error function of x. */
PL_API pl_node_t pl_erf(pl_graph_t *g, pl_node_t x);
/* ln(1 + x), accurate near 0. */
PL_API pl_node_t pl_log1p(pl_graph_t *g, pl_node_t x);
/* e^x - 1, accurate near 0. */
PL_API pl_node_t pl_expm1(pl_graph_t *g, pl_node_t x);
/* ln(1 + e^x). */
PL_API pl_node_t pl_softplus(pl_graph_t *g, pl_node_t x);
/* x / (1 + e^-x). */
PL_API pl_node_t pl_silu(pl_graph_t *g, pl_node_t x);
/* x tanh(softplus(x)). */
PL_API pl_node_t pl_mish(pl_graph_t *g, pl_node_t x);
/* x / 6 + 1 / 2, between 0 and 1. */
PL_API pl_node_t pl_hardsigmoid(pl_graph_t *g, pl_node_t x);
/* x hardsigmoid(x). */
PL_API pl_node_t pl_hardswish(pl_graph_t *g, pl_node_t x);
/* x where x > 0, else x f. */
PL_API pl_node_t pl_leaky_relu(pl_graph_t *g, pl_node_t x, double f);
/* x where x > 0, else f (e^x - 1). */
PL_API pl_node_t pl_elu(pl_graph_t *g, pl_node_t x, double f);
/* x, not below f and not above h; the gradient is 0 outside. */
PL_API pl_node_t pl_clamp(pl_graph_t *g, pl_node_t x, double f, double h);
/* 1 where x is 0, else 0. */
PL_API pl_node_t pl_logical_not(pl_graph_t *g, pl_node_t x);
/* x, of which no gradient is computed. */
PL_API pl_node_t pl_detach(pl_graph_t *g, pl_node_t x);
/* x + y. */
PL_API pl_node_t pl_add(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* x - y. */
PL_API pl_node_t pl_sub(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* x y. */
PL_API pl_node_t pl_mul(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* x / y. */
PL_API pl_node_t pl_div(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* The smaller of x and y; NaN if one of them is; the gradient is halved between equal
 * ones. */
PL_API pl_node_t pl_minimum(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* The larger of x and y; NaN if one of them is; the gradient is halved between equal
 * ones. */
PL_API pl_node_t pl_maximum(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* x^y; NaN where x < 0 and y is not whole. */
PL_API pl_node_t pl_pow(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where x = y, else 0. */
PL_API pl_node_t pl_equal(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where x and y differ, else 0. */
PL_API pl_node_t pl_not_equal(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where x < y, else 0. */
PL_API pl_node_t pl_less(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where x <= y, else 0. */
PL_API pl_node_t pl_less_equal(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where x > y, else 0. */
PL_API pl_node_t pl_greater(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where x >= y, else 0. */
PL_API pl_node_t pl_greater_equal(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where neither is 0, else 0. */
PL_API pl_node_t pl_logical_and(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* 1 where one is not 0, else 0. */
PL_API pl_node_t pl_logical_or(pl_graph_t *g, pl_node_t x, pl_node_t y);
/* y where x is not 0, else z; x has no gradient. */
PL_API pl_node_t pl_where(pl_graph_t *g, pl_node_t x, pl_node_t y, pl_node_t z);
/* x as float32, int32, int64 or uint8, as in PyTorch. Floating-point numbers are rounded
 * toward 0; NaN becomes 0, and what exceeds the type its nearest number. Whole numbers
 * become the nearest float32; a narrower type keeps their low bits. PL_BF16 and PL_F16
 * round to numbers of that format, which stay float32: the format of a run is
 * trainer.precision. Only casts between floating-point types have a gradient.
 *
 * Comparisons, logical operators and pl_where() cast by themselves. Whole numbers are
 * compared exactly with each other and with constants that are whole; a whole number and
 * a float32, and what pl_where() chooses from, are compared and chosen as float32. A
 * float64 field of the data is float32 in a graph. */
PL_API pl_node_t pl_cast(pl_graph_t *g, pl_node_t x, pl_dtype_t dtype);
/* 1 where x is not 0, else 0: uint8, as fields of booleans have it. */
PL_API pl_node_t pl_bool(pl_graph_t *g, pl_node_t x);
/* Reductions over `axes` (axis_count of them; 0: all axes). keep: the axes remain with
 * size 1. */
PL_API pl_node_t pl_sum(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count,
                        bool keep);
PL_API pl_node_t pl_mean(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count,
                         bool keep);
/* The variance, divided by the number of elements less `correction`: 1, as in PyTorch, or
 * 0. */
PL_API pl_node_t pl_var(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count,
                        int64_t correction, bool keep);
/* ln of the sum of e^x along an axis, and x minus that: no e^x exceeds float32. */
PL_API pl_node_t pl_logsumexp(pl_graph_t *g, pl_node_t x, int axis, bool keep);
PL_API pl_node_t pl_log_softmax(pl_graph_t *g, pl_node_t x, int axis);
/* The maximum along an axis. The gradient goes to the first maximum. */
PL_API pl_node_t pl_max(pl_graph_t *g, pl_node_t x, int axis, bool keep);
/* The minimum, likewise. */
PL_API pl_node_t pl_min(pl_graph_t *g, pl_node_t x, int axis, bool keep);
/* The index of the first maximum, or minimum, along an axis: int32, without that axis. */
PL_API pl_node_t pl_argmax(pl_graph_t *g, pl_node_t x, int axis);
PL_API pl_node_t pl_argmin(pl_graph_t *g, pl_node_t x, int axis);
/* The elements in rising, or descending, order along an axis, and where they were
 * [indices NULL], int32. Equal ones stay in their order, and NaN is the largest. */
PL_API pl_node_t pl_sort(pl_graph_t *g, pl_node_t x, int axis, bool descending,
                         pl_node_t *indices);
/* The largest k along an axis, the largest first, and where they were  [indices NULL]. */
PL_API pl_node_t pl_top_k(pl_graph_t *g, pl_node_t x, int64_t k, int axis,
                          pl_node_t *indices);
/* The sum of the elements up to each one along an axis. */
PL_API pl_node_t pl_cumsum(pl_graph_t *g, pl_node_t x, int axis);
/* Elements at indices, which are int32, int64 or uint8. An index outside the axis ends
 * the step with PL_EINVAL, which names the operator, the index and the size of the axis.
 * Gradients are added in the order of positions: they have the same bits on every run.
 *
 * gather: x and indices have as many axes; the result has the shape of the indices, and
 * its element at (i, j, k) along axis 1 is x at (i, indices(i, j, k), k), as in
 * torch.gather. */
PL_API pl_node_t pl_gather(pl_graph_t *g, pl_node_t x, int axis, pl_node_t indices);
/* take: the slices of x at the indices, whose axes replace `axis`: x [a, b, c] by indices
 * [m, n] along axis 1 is [a, m, n, c], as in numpy.take. Along axis 0 it is an
 * embedding. */
PL_API pl_node_t pl_take(pl_graph_t *g, pl_node_t x, int axis, pl_node_t indices);
/* x with values added at indices, which have one shape: the inverse of gather, as
 * torch.scatter_add. */
PL_API pl_node_t pl_scatter_add(pl_graph_t *g, pl_node_t x, int axis, pl_node_t indices,
                                pl_node_t values);
/* 1 at each index, else 0: indices [...] -> float32 [..., classes]. */
PL_API pl_node_t pl_one_hot(pl_graph_t *g, pl_node_t indices, int64_t classes);
/* Random numbers in all stages: uniform in [0, 1), or normal with mean 0 and deviation 1;
 * float32. They are functions of the run's seed, the step, the micro-batch, the node's
 * place in its scope, and the element: not of threads, devices or ranks. */
PL_API pl_node_t pl_rand(pl_graph_t *g, pl_shape_t shape);
PL_API pl_node_t pl_randn(pl_graph_t *g, pl_shape_t shape);
/* The same elements in another shape. One size may be -1: it is inferred. */
PL_API pl_node_t pl_reshape(pl_graph_t *g, pl_node_t x, pl_shape_t shape);
/* Merges all axes from from_axis on: [a, b, c] from 1 is [a, b c]. */
PL_API pl_node_t pl_flatten(pl_graph_t *g, pl_node_t x, int from_axis);
/* Permutes axes: axis i of the result is axis order[i] of x; order [rank of x]. */
PL_API pl_node_t pl_permute(pl_graph_t *g, pl_node_t x, const int *order);
/* Elements [from, to) along an axis. */
PL_API pl_node_t pl_slice(pl_graph_t *g, pl_node_t x, int axis, int64_t from, int64_t to);
/* Every step-th element along an axis: from, from + step, … before `to`. A step below 0
 * goes backwards and ends behind `to`, which is -1 for a slice down to the first element.
 */
PL_API pl_node_t pl_slice_step(pl_graph_t *g, pl_node_t x, int axis, int64_t from,
                               int64_t to, int64_t step);
/* Cuts x along an axis into `count` parts of the given sizes, which add up to the axis.
 * sizes [count]; parts [count] receives them. -> PL_OK or the code of the graph's error,
 * with which all parts are invalid nodes. */
PL_API int pl_split(pl_graph_t *g, pl_node_t x, int axis, const int64_t *sizes, int count,
                    pl_node_t *parts);
/* Concatenates any number of tensors along an axis; all other axes must be equal. */
PL_API pl_node_t pl_concat(pl_graph_t *g, const pl_node_t *x, int count, int axis);
/* Joins tensors of one shape along a new axis: `axis` of the result. */
PL_API pl_node_t pl_stack(pl_graph_t *g, const pl_node_t *x, int count, int axis);
/* Reverses the order along `axes` (axis_count of them; 0: all axes). */
PL_API pl_node_t pl_flip(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count);
/* Element i along an axis moves to i + shift, and those that leave one end enter at the
 * other, as in torch.roll. */
PL_API pl_node_t pl_roll(pl_graph_t *g, pl_node_t x, int axis, int64_t shift);
/* x several times along each axis, as numpy.tile and torch.Tensor.repeat; times [rank of
 * x]. */
PL_API pl_node_t pl_repeat(pl_graph_t *g, pl_node_t x, const int64_t *times);
/* x with `value` around it: before [rank of x] and after [rank of x] elements along each
 * axis. */
PL_API pl_node_t pl_pad(pl_graph_t *g, pl_node_t x, const int64_t *before,
                        const int64_t *after, double value);
/* The same with x mirrored at its first and last element, which are not repeated: fewer
 * elements than x has along the axis. */
PL_API pl_node_t pl_pad_reflect(pl_graph_t *g, pl_node_t x, const int64_t *before,
                                const int64_t *after);
/* The lower and the upper triangle of the last two axes [..., R, C], with zeros
 * elsewhere. Both have the elements (i, i + diagonal); 0: the main diagonal. */
PL_API pl_node_t pl_tril(pl_graph_t *g, pl_node_t x, int64_t diagonal);
PL_API pl_node_t pl_triu(pl_graph_t *g, pl_node_t x, int64_t diagonal);
/* The last `count` axes in other sizes [count]: the nearest element, or, if linear, the
 * weighted mean of the nearest two along each of these axes (bilinear for images). As
 * torch.nn.functional.interpolate with align_corners=False. */
PL_API pl_node_t pl_interpolate(pl_graph_t *g, pl_node_t x, const int64_t *sizes,
                                int count, bool linear);
/* [B, C r^2, H, W] -> [B, C, H r, W r], as torch.nn.PixelShuffle, and its inverse. */
PL_API pl_node_t pl_pixel_shuffle(pl_graph_t *g, pl_node_t x, int64_t r);
PL_API pl_node_t pl_pixel_unshuffle(pl_graph_t *g, pl_node_t x, int64_t r);
/* Einstein summation of two tensors: "bij,bjk->bik" names the axes of a, of b and of the
 * result by letters, and what the result does not name is summed. Without "->", the
 * result has the letters that occur once, in alphabetical order. A size of 1 matches any
 * size, as in torch.einsum; a letter occurs once in each tensor. */
PL_API pl_node_t pl_einsum(pl_graph_t *g, const char *equation, pl_node_t a, pl_node_t b);
/* Ranks within a step: each has a part of the batch. Forward and backward wait there
 * until all ranks have come, in training and when evaluating; so all ranks must describe
 * the same. With one rank the functions return x and cost nothing. The strategies ddp and
 * zero1 support them. The others fail with PL_EUNSUPPORTED, and so does a batch that one
 * rank evaluates alone.
 *
 * The rank that describes the graph, from 0; the number of ranks. */
PL_API int pl_graph_rank(pl_graph_t *g);
PL_API int pl_graph_world_size(pl_graph_t *g);
/* The rows of all ranks: x [rows, ...] float32 -> [world_size * most, ...], in the order
 * of ranks. `most` is the number of rows of x with a full batch: rows, or more if this
 * batch is a smaller last one. Zeros fill the place of missing rows; a gathered column of
 * ones shows which rows are real. Row i of this rank is pl_graph_rank() * most + i. The
 * gradient is this rank's rows of the sum of the gradients over ranks, as in
 * torch.distributed.nn.functional. */
PL_API pl_node_t pl_all_gather(pl_graph_t *g, pl_node_t x);
/* PL_LOOP_SUM or PL_LOOP_MEAN over ranks of x, float32, of a shape that does not depend
 * on the batch. A rank without samples adds zeros, and the mean divides by the number of
 * ranks. The gradient is the same of the ranks' gradients. */
PL_API pl_node_t pl_all_reduce(pl_graph_t *g, pl_node_t x, pl_loop_reduction_t reduction);
/* Matrix product. a [..., M, K] (or [..., K, M] if transpose_a), b [..., K, N] (or [...,
 * N, K] if transpose_b); leading axes broadcast. */
PL_API pl_node_t pl_matmul(pl_graph_t *g, pl_node_t a, pl_node_t b, bool transpose_a,
                           bool transpose_b);
/* Fully connected layer: x [..., K] -> [..., units]. Parameters: NAME.weight [units, K]
 * and, unless no_bias, NAME.bias [units]. Both start uniform(-1/sqrt(K), 1/sqrt(K)), as
 * in torch.nn.Linear. */
PL_API pl_node_t pl_linear(pl_graph_t *g, const char *name, pl_node_t x, int64_t units);
typedef struct pl_linear_options {
    bool no_bias;
    const pl_init_rule_t *weight;                           /* [uniform] */
    const pl_init_rule_t *bias;                             /* [uniform] */
} pl_linear_options_t;
PL_API pl_node_t pl_linear_with(pl_graph_t *g, const char *name, pl_node_t x,
                                int64_t units, const pl_linear_options_t *options);
/* Windows over the axes of space, in their order. An axis without a number (0) has the
 * number of the axis before it. So a kernel {3} is a square for x [B, C, H, W]. */
typedef struct pl_windows {
    int64_t kernel[PL_SPACE];
    int64_t stride[PL_SPACE];                               /* [1; of pools: kernel] */
    int64_t padding[PL_SPACE];                              /* at both ends; PL_UNPADDED:
                                                               none  [none] */
    int64_t dilation[PL_SPACE];    /* from one element of a window to the next  [1] */
} pl_windows_t;
enum { PL_UNPADDED = -1 };
/* Convolution over one to three axes of space: x [B, C, ...] -> [B, channels, ...].
 * Parameters: NAME.weight [channels, C / groups, kernel...] and, unless no_bias,
 * NAME.bias [channels]. Both start uniform(-1/sqrt(n), 1/sqrt(n)) for the n elements of a
 * filter. It is a cross-correlation, as in torch.nn.Conv1d, Conv2d and Conv3d. */
typedef struct pl_convolution_options {
    pl_windows_t windows;
    bool same;         /* pads so that the result has the size of x divided by the stride,
                          rounded up; an odd element goes behind; no padding then */
    int64_t groups;    /* each reads C / groups channels; C: depthwise  [1] */
    bool no_bias;
} pl_convolution_options_t;
PL_API pl_node_t pl_conv(pl_graph_t *g, const char *name, pl_node_t x, int64_t channels,
                         const pl_convolution_options_t *options);
/* Transposed convolution, the gradient of a convolution with respect to its input: x
 * [B, C, ...] -> [B, channels, ...], and along each axis (n - 1) stride - 2 padding +
 * dilation (kernel - 1) + output_padding + 1 elements of n. Parameters: NAME.weight
 * [C, channels / groups, kernel...] and, unless no_bias, NAME.bias [channels], as in
 * torch.nn.ConvTranspose2d. */
typedef struct pl_conv_transpose_options {
    pl_windows_t windows;
    int64_t output_padding[PL_SPACE];  /* elements more at the end, fewer than the
                                          stride; PL_UNPADDED: none  [none] */
    int64_t groups;                                         /* [1] */
    bool no_bias;
} pl_conv_transpose_options_t;
PL_API pl_node_t pl_conv_transpose(pl_graph_t *g, const char *name, pl_node_t x,
                                   int64_t channels,
                                   const pl_conv_transpose_options_t *options);
/* A convolution with one number for all of H and W of x [B, C, H, W]. */
typedef struct pl_conv_options {
    int64_t kernel, stride, padding;                        /* stride  [1] */
    bool no_bias;
} pl_conv_options_t;
PL_API pl_node_t pl_conv2d(pl_graph_t *g, const char *name, pl_node_t x, int64_t channels,
                           const pl_conv_options_t *options);
/* The largest element, or the mean, of each window over one to three axes of space: x
 * [B, C, ...] -> [B, C, ...], as torch.nn.MaxPool2d and AvgPool2d. Padding is at most
 * half the kernel; it is never the largest. The mean takes no dilation. */
typedef struct pl_pool_options {
    pl_windows_t windows;
    bool ceil_mode;            /* a last window that begins within x may reach beyond the
                                  padding; the mean does not count what is there */
    bool exclude_padding;      /* the mean is over elements of x alone  [padding counts as
                                  zeros] */
} pl_pool_options_t;
PL_API pl_node_t pl_max_pool(pl_graph_t *g, pl_node_t x,
                             const pl_pool_options_t *options);
PL_API pl_node_t pl_avg_pool(pl_graph_t *g, pl_node_t x,
                             const pl_pool_options_t *options);
/* The largest, or the mean, of windows that divide x into `size` along its axes of space:
 * an axis without a number takes the number before it; {1} is one window over all of x.
 * Window i of n elements has those from i n / size, rounded down, to (i + 1) n / size,
 * rounded up, as in torch.nn.AdaptiveMaxPool2d. */
PL_API pl_node_t pl_adaptive_max_pool(pl_graph_t *g, pl_node_t x,
                                      const int64_t size[PL_SPACE]);
PL_API pl_node_t pl_adaptive_avg_pool(pl_graph_t *g, pl_node_t x,
                                      const int64_t size[PL_SPACE]);
/* The largest, or the mean, over all axes of space: x [B, C, ...] -> [B, C]. */
PL_API pl_node_t pl_global_max_pool(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_global_avg_pool(pl_graph_t *g, pl_node_t x);
/* Maximum of each window of kernel x kernel: x [B, C, H, W] -> [B, C, H', W']. stride
 * [kernel: windows do not overlap]. */
PL_API pl_node_t pl_max_pool2d(pl_graph_t *g, pl_node_t x, int64_t kernel, int64_t stride,
                               int64_t padding);
/* Batch normalization over batch and space of [B, C, ...]. Parameters NAME.weight,
 * NAME.bias [C]; state NAME.running_mean, NAME.running_var [C]. Training uses batch
 * statistics, of all ranks with trainer.sync_batchnorm; other stages use the running
 * ones. */
PL_API pl_node_t pl_batch_norm(pl_graph_t *g, const char *name, pl_node_t x,
                               double momentum, double epsilon);
/* Layer normalization over the last axis. NAME.weight and NAME.bias [C] start at 1 and
 * 0. */
PL_API pl_node_t pl_layer_norm(pl_graph_t *g, const char *name, pl_node_t x,
                               double epsilon);
typedef struct pl_norm_options {
    double epsilon;               /* [1e-5; of pl_rms_norm() 2^-23] */
    int axes;                     /* last axes that are normalized together, of
                                     pl_layer_norm_with() and pl_rms_norm()  [1] */
    bool no_bias;
    bool no_weight;               /* no parameters at all */
} pl_norm_options_t;
/* Layer normalization over the last axes, whose shape NAME.weight and NAME.bias have.
 * options [NULL: all defaults]. As torch.nn.LayerNorm. */
PL_API pl_node_t pl_layer_norm_with(pl_graph_t *g, const char *name, pl_node_t x,
                                    const pl_norm_options_t *options);
/* x / sqrt(mean of x^2 + epsilon) times NAME.weight, over the last axes; never a bias. As
 * torch.nn.RMSNorm. */
PL_API pl_node_t pl_rms_norm(pl_graph_t *g, const char *name, pl_node_t x,
                             const pl_norm_options_t *options);
/* Normalization of x [B, C, ...] for each sample over C / groups channels and all of
 * space. NAME.weight and NAME.bias [C]. As torch.nn.GroupNorm. */
PL_API pl_node_t pl_group_norm(pl_graph_t *g, const char *name, pl_node_t x,
                               int64_t groups, const pl_norm_options_t *options);
/* The same over each channel of a sample. As torch.nn.InstanceNorm with affine; without
 * it: no_weight. */
PL_API pl_node_t pl_instance_norm(pl_graph_t *g, const char *name, pl_node_t x,
                                  const pl_norm_options_t *options);
/* Embedding: indices int32 or int64 [...] -> [..., width]; NAME.weight [rows, width]. */
PL_API pl_node_t pl_embedding(pl_graph_t *g, const char *name, pl_node_t indices,
                              int64_t rows, int64_t width, pl_init_rule_t init);
/* Softmax, e^x / sum of e^x, over the last axis. */
PL_API pl_node_t pl_softmax(pl_graph_t *g, pl_node_t x);
/* Dropout. Training: zero with probability p, otherwise scaled by 1/(1-p). Other stages:
 * the identity. */
PL_API pl_node_t pl_dropout(pl_graph_t *g, pl_node_t x, double p);
/* Scaled dot-product attention, softmax(q k^T scale + bias) v: q [B, heads, T, d], k and
 * v [B, heads, S, d] -> [B, heads, T, d]. k and v may have fewer heads, of which the
 * first serves the first queries, and so on (grouped queries). */
typedef struct pl_attention_options {
    bool causal;               /* query i attends to keys 0 to i, also where T is not S,
                                  as in PyTorch; so padding after a sample is ignored */
    double dropout;            /* of the attention weights, in training */
    const pl_node_t *mask;     /* float32, 0: no attention. [B, S]: keys that all queries
                                  ignore; of other than two axes: broadcast to [B, heads,
                                  T, S]. A query without any key gives 0 and has no
                                  gradient  [all keys] */
    double scale;              /* of the scores  [1 / sqrt(d)] */
    const pl_node_t *bias;     /* float32, broadcast to [B, heads, T, S], added to the
                                  scaled scores. If it depends on parameters, causal and
                                  window have to be parts of the mask  [none] */
    int64_t window;            /* keys less than so many positions from the query
                                  [all] */
    bool rotary;               /* turns queries and keys first, as pl_rotary() does. The
                                  first key has position 0 */
    double rotary_base;        /* [10000] */
    int64_t rotary_first;      /* position of the first query */
    bool rotary_interleaved;   /* pairs are 2 i and 2 i + 1  [i and i + d/2] */
} pl_attention_options_t;
PL_API pl_node_t pl_attention(pl_graph_t *g, pl_node_t q, pl_node_t k, pl_node_t v,
                              const pl_attention_options_t *options);
/* Rotary position embedding of x [..., T, d], of up to four axes and an even d: pairs of
 * numbers are turned by angles that grow with the position. */
typedef struct pl_rotary_options {
    double base;               /* [10000] */
    int64_t first;             /* position of the first token */
    bool interleaved;          /* pairs are 2 i and 2 i + 1, as in RoFormer
                                  [i and i + d/2, as in Llama] */
} pl_rotary_options_t;
PL_API pl_node_t pl_rotary(pl_graph_t *g, pl_node_t x,
                           const pl_rotary_options_t *options);
/* Recurrent layers: x [B, T, in] -> h after each step [B, T, hidden], or [B, T, 2 hidden]
 * of both directions. Layer k has the parameters of torch.nn.LSTM, or GRU, under its
 * names and in its order of gates: NAME.weight_ih_lk [4 hidden, in], or 3 hidden of a
 * GRU, weight_hh_lk [4 hidden, hidden], bias_ih_lk and bias_hh_lk [4 hidden]; those of
 * the other direction end in _reverse. options [NULL: all defaults]. h_n, c_n: the states
 * behind the last step [layers * directions, B, hidden]  [not asked for]. */
typedef struct pl_recurrent_options {
    int layers;                /* each reads the result of the one before  [1] */
    bool bidirectional;        /* also from the last step to the first */
    bool no_bias;
    double dropout;            /* of the result of each layer but the last, in training */
    const pl_node_t *lengths;  /* int32 or int64 [B]: steps of each row, 0 to T. Behind
                                  them the result is 0. A row ends at its last step, or
                                  begins there backwards  [all have T] */
    const pl_node_t *h0, *c0;  /* the states before the first step, as h_n and c_n have
                                  them  [zeros] */
} pl_recurrent_options_t;
/* Hochreiter and Schmidhuber, "Long short-term memory", 1997, with forget gates. */
PL_API pl_node_t pl_lstm(pl_graph_t *g, const char *name, pl_node_t x, int64_t hidden,
                         const pl_recurrent_options_t *options, pl_node_t *h_n,
                         pl_node_t *c_n);
/* Cho et al., "Learning phrase representations", 2014, with the reset gate behind the
 * product, as in cuDNN. There is no c0. */
PL_API pl_node_t pl_gru(pl_graph_t *g, const char *name, pl_node_t x, int64_t hidden,
                        const pl_recurrent_options_t *options, pl_node_t *h_n);
/* The numbers as a constant, float32 [count]. */
PL_API pl_node_t pl_vector(pl_graph_t *g, const double *values, int count);
/* Cross entropy: logits [..., C], targets int32 or int64 [...]. Targets equal to
 * ignore_index (if has_ignore) are skipped. Each row is weighted by the weight of its
 * class times its own: (sum of w loss, sum of w), as torch.nn.CrossEntropyLoss. Weights
 * have no gradient. */
typedef struct pl_cross_entropy_options {
    bool has_ignore;
    int64_t ignore_index;
    const pl_node_t *class_weights;                         /* float32 [C]  [all 1] */
    const pl_node_t *weights;                               /* float32 [...]  [all 1] */
    double label_smoothing;     /* from 0 up to 1: share of a target that is spread evenly
                                   over all classes (Szegedy et al., 2015)  [0] */
} pl_cross_entropy_options_t;
PL_API pl_loss_t pl_cross_entropy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                  const pl_cross_entropy_options_t *options);
/* The same of logarithms of probabilities in place of logits, such as those of
 * pl_log_softmax(): -x[target], as torch.nn.NLLLoss. */
PL_API pl_loss_t pl_nll(pl_graph_t *g, pl_node_t log_probabilities, pl_node_t targets,
                        const pl_cross_entropy_options_t *options);
/* Mean squared error: the sum of squares over all elements, and their count. */
PL_API pl_loss_t pl_mse(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Mean squared error with a weight [B] for each sample. */
PL_API pl_loss_t pl_weighted_mse(pl_graph_t *g, pl_node_t x, pl_node_t target,
                                 pl_node_t weights);
/* Mean absolute error. */
PL_API pl_loss_t pl_l1(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Huber's loss of d = x - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta /
 * 2). Divided by delta it is PyTorch's smooth_l1_loss. */
PL_API pl_loss_t pl_huber(pl_graph_t *g, pl_node_t x, pl_node_t target, double delta);
/* Binary cross entropy of logits x and targets from 0 to 1 of the same shape, over all
 * elements: for two classes [B], and for several labels of a sample [B, labels]. */
typedef struct pl_bce_options {
    const pl_node_t *positive_weights;       /* factor of the loss of targets 1; broadcast
                                                to x  [1] */
    const pl_node_t *weights;                /* of each element; broadcast to x  [1]. The
                                                mean is by their sum, where PyTorch's is
                                                by the number of elements */
} pl_bce_options_t;
PL_API pl_loss_t pl_bce_with_logits(pl_graph_t *g, pl_node_t x, pl_node_t target,
                                    const pl_bce_options_t *options);
/* Cross entropy with a probability of each class: logits and targets [..., C]; the mean
 * over rows. */
PL_API pl_loss_t pl_soft_cross_entropy(pl_graph_t *g, pl_node_t logits, pl_node_t target);
/* Kullback-Leibler divergence of log probabilities [..., C] from the target's
 * probabilities; the mean over rows, PyTorch's kl_div(reduction="batchmean"). */
PL_API pl_loss_t pl_kl(pl_graph_t *g, pl_node_t log_probabilities, pl_node_t target);
/* Connectionist temporal classification: PyTorch's ctc_loss, with the batch first. Log
 * probabilities [B, T, C], as pl_log_softmax() makes them; targets [B, S], classes other
 * than the blank, behind whose ends anything may stand; input_lengths, 0 to T, and
 * target_lengths, 0 to S, [B]; all whole numbers. The mean over samples of each loss
 * divided by the length of its target, of at least 1. A target that its steps cannot give
 * has an infinite loss and no gradient. Source: Graves et al., 2006. */
typedef struct pl_ctc_options {
    int64_t blank;                           /* the class that stands for no label  [0] */
    bool sum;                                /* the loss is the sum of losses  [mean] */
    bool zero_infinity;                      /* infinite losses are 0 */
} pl_ctc_options_t;
PL_API pl_loss_t pl_ctc(pl_graph_t *g, pl_node_t log_probabilities, pl_node_t targets,
                        pl_node_t input_lengths, pl_node_t target_lengths,
                        const pl_ctc_options_t *options);
/* Cosine of the angle of a and b along an axis, which goes. */
PL_API pl_node_t pl_cosine_similarity(pl_graph_t *g, pl_node_t a, pl_node_t b, int axis);
/* 1 - cosine of rows a and b [..., C] where target [...] is 1; max(0, cosine - margin)
 * where it is -1. */
PL_API pl_loss_t pl_cosine_embedding(pl_graph_t *g, pl_node_t a, pl_node_t b,
                                     pl_node_t target, double margin);
/* max(0, |anchor - positive| - |anchor - negative| + margin) of rows [..., C]. */
PL_API pl_loss_t pl_triplet(pl_graph_t *g, pl_node_t anchor, pl_node_t positive,
                            pl_node_t negative, double margin);

/* InfoNCE of pairs of rows a[i], b[i] [rows, C], as in CLIP (Radford et al., arXiv
 * 2103.00020). Logits are cosines of rows / temperature, a scalar node such as
 * pl_scalar(g, 0.07) or a parameter. The loss is the mean of two cross entropies: each a
 * against the b of all rows, and each b against the a of all rows. With several ranks
 * these are the rows of all ranks, by pl_all_gather(): loss and gradients are those of
 * one rank with the whole batch. */
PL_API pl_loss_t pl_info_nce(pl_graph_t *g, pl_node_t a, pl_node_t b,
                             pl_node_t temperature);

/* Metrics for pl_log(). Those of classes take logits [..., C] and targets [...] int32 or
 * int64; the prediction is the class with the first largest logit. Those that count each
 * class also take labels: targets of the shape of the logits, [...] for one label or
 * [..., labels], which are 1 or 0 and of any type; a label is predicted where its logit
 * is above 0. Averages are then over labels, and those of accuracy and Hamming count each
 * label. Definitions are those of scikit-learn and torchmetrics. */
typedef struct pl_classes_options {
    bool has_ignore;
    int64_t ignore_index;                                   /* targets to skip */
    pl_average_t average;                                   /* [PL_MACRO] */
} pl_classes_options_t;
/* Share of correct predictions, or of correct labels; uses only has_ignore and
 * ignore_index of the options. */
PL_API pl_metric_t pl_accuracy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                               const pl_cross_entropy_options_t *options);
/* Top-k accuracy: correct if fewer than k logits precede the target's. */
PL_API pl_metric_t pl_accuracy_top(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                   int64_t k, const pl_cross_entropy_options_t *options);
/* Metrics that count each class, for at most 256 classes. */
PL_API pl_metric_t pl_accuracy_of_classes(pl_graph_t *g, pl_node_t logits,
                                          pl_node_t targets,
                                          const pl_classes_options_t *options);
PL_API pl_metric_t pl_precision(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                const pl_classes_options_t *options);
PL_API pl_metric_t pl_recall(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                             const pl_classes_options_t *options);
PL_API pl_metric_t pl_f1(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                         const pl_classes_options_t *options);
/* F1 with beta^2 times the weight for recall; beta is above 0. */
PL_API pl_metric_t pl_fbeta(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                            double beta, const pl_classes_options_t *options);
PL_API pl_metric_t pl_hamming(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                              const pl_classes_options_t *options);
PL_API pl_metric_t pl_specificity(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                  const pl_classes_options_t *options);
PL_API pl_metric_t pl_jaccard(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                              const pl_classes_options_t *options);
/* Of all classes together; average is not used. 0 if there is no second class. */
PL_API pl_metric_t pl_mcc(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                          const pl_classes_options_t *options);
PL_API pl_metric_t pl_cohen_kappa(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                  const pl_classes_options_t *options);
/* Confusion matrix: a list of C lists, for each true class how often each class was
 * predicted; of several labels a list of a matrix [2, 2] each. average is not used. */
PL_API pl_metric_t pl_confusion_matrix(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                       const pl_classes_options_t *options);
/* Area under the ROC curve, and average precision. scores from 0 to 1: [..., C] for C
 * classes, each against all others, or [..., 1] for class 1 against class 0; with targets
 * of the shape of the scores, of each label. They are
 * counted in `bins` bins (2 to 4096; 0: 200), like torchmetrics with `thresholds`, so
 * they are exact for multiples of 1 / (bins - 1).
 *
 * For other scores the error of the AUROC is at most half the share of pairs, one sample
 * of the class and one other, that share a bin: about 1 / (2 bins) for evenly spread
 * scores. The error of the average precision is at most a sum over bins: the recall
 * gained in the bin times the bin's share of all samples at or above it. */
PL_API pl_metric_t pl_auroc(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                            int64_t bins, const pl_classes_options_t *options);
PL_API pl_metric_t pl_average_precision(pl_graph_t *g, pl_node_t scores,
                                        pl_node_t targets, int64_t bins,
                                        const pl_classes_options_t *options);
/* The curves themselves, with the same scores: {"curve": "roc" or "pr", "x", "y": what
 * the axes are, "points": a list for each class}, or one list with PL_MICRO and of two
 * classes. A point is [x, y, lowest score of the positive ones]; at most 32 classes. */
PL_API pl_metric_t pl_roc(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                          int64_t bins, const pl_classes_options_t *options);
PL_API pl_metric_t pl_pr_curve(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                               int64_t bins, const pl_classes_options_t *options);
/* Expected calibration error: probabilities [..., C], or [..., 1] or [...] of class 1,
 * and targets [...]. Predictions are counted by their confidence in bins of one width (2
 * to 4096; 0: 15); average is not used. Guo et al., "On calibration of modern neural
 * networks", 2017. */
PL_API pl_metric_t pl_calibration_error(pl_graph_t *g, pl_node_t scores,
                                        pl_node_t targets, int64_t bins,
                                        const pl_classes_options_t *options);
/* Regression metrics of x and target, of any equal shapes, over all elements.  The r2 of
 * targets that are all equal is 1 if x equals them, else 0; of one element it has no
 * value. */
PL_API pl_metric_t pl_rmse(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_mae(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_r2(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* As r2, but a constant difference does not count. */
PL_API pl_metric_t pl_explained_variance(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Pearson's correlation, and Lin's concordance correlation; no value if x or target are
 * all equal. They are computed from differences x - target, so digits are lost where one
 * is thousands of times as large as the other. */
PL_API pl_metric_t pl_pearson(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_concordance(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Means of |x - target| / |target|, of 2 |x - target| / (|x| + |target|) (a denominator
 * is at least 1.17e-6), and of (log(1 + x) - log(1 + target))^2. As torchmetrics'. */
PL_API pl_metric_t pl_mape(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_smape(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_msle(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Perplexity of a loss in nats per token, such as pl_cross_entropy(). */
PL_API pl_metric_t pl_perplexity(pl_loss_t loss);
/* Bits per byte of such a loss, for tokens of bytes_per_token bytes on average. */
PL_API pl_metric_t pl_bits_per_byte(pl_graph_t *g, pl_loss_t loss,
                                    double bytes_per_token);

/* Metrics of your own, and those that need all samples in one place.  A metric is states,
 * which a graph computes for a batch, and a function of their combined values. */

/* How a state combines over batches and ranks: sums add up, of maxima and minima each
 * element is the largest or smallest, and rows are gathered: all of them, in no certain
 * order. */
typedef enum pl_combine {
    PL_COMBINE_SUM,
    PL_COMBINE_MAX,
    PL_COMBINE_MIN,
    PL_COMBINE_GATHER
} pl_combine_t;

/* Maximum number of states of a metric, and of gathered numbers of a state: a pass over
 * more samples fails, and its error names the metric. */
#define PL_METRIC_STATES 4
#define PL_GATHERED_MAX (1 << 23)

/* A state for this batch. Its elements become float32. A sum, maximum or minimum has one
 * shape in all batches. A value to gather has rows along its first axis, the axis of the
 * samples. Rows of tokens whose length varies get zeros behind them. */
typedef struct pl_metric_state {
    pl_node_t value;
    pl_combine_t combine;
} pl_metric_state_t;

/* A state at the end of a pass, of all batches and ranks. The states of a metric that are
 * gathered have their rows in the same order. */
typedef struct pl_gathered {
    const double *value;                         /* [count / columns, columns] */
    size_t count;                                /* 0: there was no sample */
    size_t columns;                              /* of a row; 1 for numbers */
} pl_gathered_t;

/* A metric; a component of role "metric". */
typedef struct pl_metric_ops {
    PL_COMPONENT;
    /* The value, from states [states] in the order of the graph; NaN: none. Called at the
     * end of a pass in each rank, on the thread of its loops. parameter: of the graph. */
    int (*result)(const pl_gathered_t *state, int states, double parameter, double *value,
                  pl_error_t *err);
} pl_metric_ops_t;

/* The metric of that name, with 1 to 4 states [count]. One whose states are not all sums
 * has a value in validation and test; training does not log it, because an epoch has no
 * bound on its samples. */
PL_API pl_metric_t pl_custom_metric(pl_graph_t *g, const char *name, double parameter,
                                    const pl_metric_state_t *states, int count);
/* Spearman's rank correlation of x and target, over all elements. */
PL_API pl_metric_t pl_spearman(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Retrieval: scores [B], relevance [B] (0: not relevant; ndcg: any gain) and the number
 * of the query [B] to which each document belongs. The mean over queries, of which the
 * first k documents count; 0: all. A query without relevant documents counts as 0. Share
 * of the first k that are relevant; share of the relevant that are among them; 1 / place
 * of the first relevant; average precision; normalized discounted cumulative gain. */
PL_API pl_metric_t pl_retrieval_precision(pl_graph_t *g, pl_node_t scores,
                                          pl_node_t relevance, pl_node_t queries,
                                          int64_t k);
PL_API pl_metric_t pl_retrieval_recall(pl_graph_t *g, pl_node_t scores,
                                       pl_node_t relevance, pl_node_t queries, int64_t k);
PL_API pl_metric_t pl_retrieval_mrr(pl_graph_t *g, pl_node_t scores, pl_node_t relevance,
                                    pl_node_t queries, int64_t k);
PL_API pl_metric_t pl_retrieval_map(pl_graph_t *g, pl_node_t scores, pl_node_t relevance,
                                    pl_node_t queries, int64_t k);
PL_API pl_metric_t pl_retrieval_ndcg(pl_graph_t *g, pl_node_t scores, pl_node_t relevance,
                                     pl_node_t queries, int64_t k);
/* Text: predicted tokens [B, T] and a reference [B, S], whole numbers up to 2^24; those
 * that equal padding are no tokens. BLEU of the corpus with up to 4 tokens in a row; the
 * mean F1 of common tokens, of common pairs of neighbours, and of the longest common
 * subsequences; edits for each token of the references. */
PL_API pl_metric_t pl_bleu(pl_graph_t *g, pl_node_t predicted, pl_node_t reference,
                           int64_t padding);
PL_API pl_metric_t pl_rouge_1(pl_graph_t *g, pl_node_t predicted, pl_node_t reference,
                              int64_t padding);
PL_API pl_metric_t pl_rouge_2(pl_graph_t *g, pl_node_t predicted, pl_node_t reference,
                              int64_t padding);
PL_API pl_metric_t pl_rouge_l(pl_graph_t *g, pl_node_t predicted, pl_node_t reference,
                              int64_t padding);
PL_API pl_metric_t pl_word_error_rate(pl_graph_t *g, pl_node_t predicted,
                                      pl_node_t reference, int64_t padding);

/* What a module predicts: a class, several labels of a sample, or values. */
typedef enum pl_task { PL_TASK_CLASS, PL_TASK_LABELS, PL_TASK_VALUE } pl_task_t;
/* Logs metrics by name, for an option of a module. names: a JSON list of names, each with
 * a number and a kind of average where it takes them: ["acc", "f1 weighted", "fbeta 2"].
 * x: logits, or values; target as the metrics take it; average of the options is not
 * used. An unknown name fails the graph with the list of all names. */
PL_API void pl_log_metrics(pl_graph_t *g, const char *names, pl_task_t task, pl_node_t x,
                           pl_node_t target, const pl_classes_options_t *options);
/* Whether names is such a list, for any task: for check() of a module. PL_EINVAL. */
PL_API int pl_metrics_check(const char *names, pl_error_t *err);

/* ---- Modules ----------------------------------------------------------------------- */

/* The tensor of a module that corresponds to a tensor in a file of another program. */
typedef struct pl_imported_tensor {
    char name[64];                                /* name in the module */
    bool transposed;                              /* the file has the matrix transposed */
} pl_imported_tensor_t;

/* Maximum number of objectives of a module. */
#define PL_OBJECTIVES 8

/* An objective of a module that is trained in several ways, like generator and
 * discriminator of a GAN. Each objective has its own loss, parameters and optimizer. */
typedef struct pl_module_objective {
    const char *name;        /* "generator": its key in "optimizer" and "scheduler",
                                and the prefix of its metrics */
    const char *parameters;  /* name patterns, separated by spaces, of the parameters
                                that it trains; each parameter belongs to one objective */
    /* Describes the objective, like step() below: its loss must depend on those
     * parameters. */
    void (*describe)(pl_graph_t *g, const void *self);
    /* The objective is trained at every n-th optimizer step of the run, 1..  [1] */
    int64_t (*every_n_steps)(const void *self);
} pl_module_objective_t;

#define PL_OBJECTIVES_END \
    { \
        NULL, NULL, NULL, NULL \
    }

/* A module: the model to train. Its graph defines parameters, losses and outputs. */
typedef struct pl_module_ops {
    PL_COMPONENT;
    /* Describes one step for a stage and the current shapes. self is the module's struct
     * with its options. Called in the rank, once for each (stage, shapes), never per
     * batch. Must be a pure function of its arguments. */
    void (*step)(pl_graph_t *g, const void *self, pl_stage_t stage);
    /* Maps the tensor `theirs` of a file that Paceline did not write to a tensor of the
     * module; false: the tensor is not used. Called in the rank  [all have the module's
     * own names] */
    bool (*import_tensor)(const void *self, const char *theirs,
                          pl_imported_tensor_t *ours);
    /* The objectives, in place of step(), ended by PL_OBJECTIVES_END. Every batch trains
     * them in this order  [step() trains all parameters] */
    const pl_module_objective_t *objectives;
} pl_module_ops_t;

/* ---- Recorded graphs --------------------------------------------------------------- */

/* A recorder, for programs in other languages that describe a module: it checks call by
 * call what they record, and knows shapes. The calls, as a JSON list, are the option
 * "calls" of the module "graph", which describes the same graph as the module in C. So
 * no such program runs while a model trains, and any other program can train it.
 *
 * A call is ["linear", {"name": "fc1", "x": 0, "units": 128}, "net.py:3"]: a function of
 * the section "Graphs" without "pl_", its arguments by their names there, and its place
 * in the program for errors [none]. Members of a struct of options are arguments too, and
 * may be missing. A node, loss or metric is the number of the call that made it, from 0.
 * Enums are words: "macro", "on_epoch|on_step"; shapes and lists are lists; an
 * initialization is {"normal": [0.02]}. One thread. */
typedef struct pl_recorder pl_recorder_t;

/* A recorder for a stage and fields of samples, as pl_input() names them. NULL:
 * PL_EINVAL, PL_ENOMEM. */
PL_API pl_recorder_t *pl_recorder_new(const struct pl_field *fields, int field_count,
                                      pl_stage_t stage, pl_error_t *err);
PL_API void pl_recorder_free(pl_recorder_t *recorder);
/* Makes the next call. -> {"value": 3} with, of a node, "kind": "node", "shape": [-1,
 * 128] and "dtype": "float32", and of a loss or metric, "kind": "metric". A size of -1
 * depends on the number of samples in the batch. NULL: the error names the place and the
 * function; after it all calls fail. Free it with pl_text_free(). */
PL_API char *pl_recorder_call(pl_recorder_t *recorder, const char *call, pl_error_t *err);
/* After the last call: whether every scope has ended. -> PL_OK, or the first error. */
PL_API int pl_recorder_check(const pl_recorder_t *recorder, pl_error_t *err);

/* ---- User operators ---------------------------------------------------------------- */

/* Maximum number of inputs of an operator, and maximum size of the values that a node
 * stores for it. */
#define PL_OPERATOR_INPUTS 8
#define PL_OPERATOR_SELF 64                                 /* bytes */

/* The precision in which an operator computes. */
typedef enum pl_precision_class {
    PL_PRECISION_promote,                          /* the precision of its widest input */
    PL_PRECISION_float32,                          /* always float32 */
    PL_PRECISION_low,                              /* may be half precision */
} pl_precision_class_t;

/* One application of an operator in a graph. */
typedef struct pl_use {
    const void *self;                                       /* as passed to pl_apply() */
    pl_node_t input[PL_OPERATOR_INPUTS];
    pl_node_t output;
} pl_use_t;

/* Arguments of a kernel: tensors in the accelerator's memory, row-major and contiguous;
 * float32 on "cpu". The output shares no memory with the inputs. */
typedef struct pl_kernel_call {
    const void *self;
    const void *input[PL_OPERATOR_INPUTS];
    pl_shape_t input_shape[PL_OPERATOR_INPUTS];
    void *output;
    pl_shape_t output_shape;
} pl_kernel_call_t;

typedef struct pl_kernel {
    const char *accelerator;        /* "cpu"; "reference": float64, for precision 64-true;
                                       "gpu": a text for all GPUs */
    /* Writes rows [from, to) of the output. Several threads call it at once with
     * different rows. The values of a row must not depend on the division into calls, so
     * that the same run gives the same bits  [a text] */
    void (*run)(const pl_kernel_call_t *call, int64_t from, int64_t to);
    /* For "gpu": the body of a function in C that computes row `row` of the output;
     * doc/modules.md lists what it may use. A GPU for which an operator has no text runs
     * the kernel for "cpu" on the host  [a function] */
    const char *text;
} pl_kernel_t;

#define PL_KERNELS_END \
    { \
        NULL, NULL, NULL \
    }

/* A user operator: its shape, its gradient and its kernels. */
typedef struct pl_operator_ops {
    PL_COMPONENT;       /* size: plain values, at most PL_OPERATOR_SELF bytes; no options,
                           because pl_apply() passes the values */
    int inputs;         /* 1 to PL_OPERATOR_INPUTS; inputs and output are float32 */
    int row_axes;       /* number of last axes of the output that form one row for the
                           kernels; 0: each element is a row */
    pl_precision_class_t precision;
    /* Checks the inputs and sets the output's shape, which is initialized with the shape
     * of the first input  [all shapes are equal] */
    int (*shape)(const void *self, const pl_shape_t input[], pl_shape_t *output,
                 pl_error_t *err);
    /* Describes dx[k] = d(loss)/d(input k) from dy = d(loss)/d(output). Each dx[k] has
     * the shape of its input; one that is not set is zero  [no gradient] */
    void (*gradient)(pl_graph_t *g, const pl_use_t *use, pl_node_t dy, pl_node_t dx[]);
    const pl_kernel_t *kernels;    /* one for each accelerator, ended by PL_KERNELS_END */
} pl_operator_ops_t;

/* Applies the operator registered under a name to `count` inputs. Its values are copied
 * from self [all zero]. */
PL_API pl_node_t pl_apply(pl_graph_t *g, const char *name, const pl_node_t *inputs,
                          int count, const void *self);

/* For shape rules: the shape to which a and b broadcast, as in NumPy; false if they do
 * not. */
PL_API bool pl_broadcast_shapes(pl_shape_t a, pl_shape_t b, pl_shape_t *out);

/* ---- Precisions -------------------------------------------------------------------- */

/* The number formats in which a run computes and keeps its weights: all PL_F32, PL_F64,
 * PL_BF16 or PL_F16. */
typedef struct pl_precision_ops {
    PL_COMPONENT;
    pl_dtype_t low;          /* operators of class low */
    pl_dtype_t wide;         /* operators of class float32, gradients, state, optimizer */
    pl_dtype_t params;       /* parameters between steps */
    bool scales;             /* the component's struct begins with a pl_loss_scaling_t */
} pl_precision_ops_t;

/* Dynamic loss scaling, as torch.cuda.amp.GradScaler. The loss is multiplied by a factor
 * before backward, so that small gradients survive; gradients are divided by it before
 * use. A step with gradients that are not finite is skipped and lowers the factor;
 * growth_interval good steps in a row raise it. */
typedef struct pl_loss_scaling {
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;        /* good steps in a row */
    double min_scale;               /* a step that is not finite with this factor fails */
} pl_loss_scaling_t;

/* ---- Optimizers and schedules ------------------------------------------------------ */

/* Maximum number of slots of an optimizer, and of scalars for each step. */
#define PL_SLOTS 4
#define PL_SCALARS 3

/* Nodes for an optimizer's update of one range of parameters: [n] or scalars. */
typedef struct pl_update {
    pl_node_t param;                  /* [n]; for a tensor that is updated alone: its
                                         shape, which then replaces [n] below */
    pl_node_t grad;                   /* [n] of the mean loss, clipped */
    pl_node_t slot[PL_SLOTS];         /* [n] state of the optimizer, zero at the start */
    pl_node_t lr;                     /* [] */
    pl_node_t scalar[PL_SCALARS];     /* [] written by scalars() for this step */
    pl_node_t momentum, rest;         /* [] momentum of this step and 1 - momentum, if the
                                         schedule sets it: for pl_times_momentum() */
    bool cycles;                      /* the schedule sets the momentum */
    bool decays;                      /* a schedule sets the weight decay */
    pl_node_t decay;                  /* [] this step's, if so: for pl_times_decay() */
} pl_update_t;

/* An optimizer: how gradients change parameters. */
typedef struct pl_optimizer_ops {
    PL_COMPONENT;                         /* the first option must be "lr", a float */
    int (*slots)(const void *self);       /* number of slots of update(), 0 to PL_SLOTS */
    /* Describes the update of any range with element-wise operators and pl_assign().
     * Called once for each range of a plan. An option "weight_decay" is 0 in self where
     * no decay applies. */
    void (*update)(pl_graph_t *g, const void *self, const pl_update_t *u);
    /* Values that change with the step, which counts from 1, such as bias corrections
     * [none] */
    void (*scalars)(const void *self, uint64_t step, double scalar[PL_SCALARS]);
    /* Whether update() needs a tensor of this shape alone, in its shape, with any
     * operators  [no: ranges span many tensors] */
    bool (*alone)(const void *self, pl_shape_t shape);
    /* Name of the float option that a schedule's momentum replaces; update() then applies
     * it with pl_times_momentum()  [none] */
    const char *momentum;
    /* Name of the float option that a schedule of the weight decay multiplies; update()
     * then applies it with pl_times_decay()  [none] */
    const char *weight_decay;
} pl_optimizer_ops_t;

/* For updates: x times this step's momentum, and x times 1 - momentum. `option` is the
 * value in self: a constant of the plan, unless the schedule gives a value for each
 * step. */
PL_API pl_node_t pl_times_momentum(pl_graph_t *g, const pl_update_t *u, pl_node_t x,
                                   double option);
PL_API pl_node_t pl_times_rest(pl_graph_t *g, const pl_update_t *u, pl_node_t x,
                               double option);

/* For updates: x times this step's weight decay. `option` is the value in self; where it
 * is 0 nothing decays at any step. */
PL_API pl_node_t pl_times_decay(pl_graph_t *g, const pl_update_t *u, pl_node_t x,
                                double option);

/* Assigns value to target (a parameter or slot) when the plan is replayed. */
PL_API void pl_assign(pl_graph_t *g, pl_node_t target, pl_node_t value);

/* The position of an optimizer step in a run. */
typedef struct pl_moment {
    uint64_t step, total_steps;           /* steps before this one; steps of the run, 0:
                                             unknown */
    uint64_t epoch, total_epochs;         /* epochs before this one; epochs of the run, 0:
                                             unknown */
    uint64_t epoch_steps;                 /* optimizer steps of a whole epoch */
    bool epoch_ends;                      /* this step is the last of its epoch */
} pl_moment_t;

/* A schedule of the learning rate over a run, or of the momentum or the weight decay. */
typedef struct pl_scheduler_ops {
    PL_COMPONENT;
    /* Factor on the optimizer's lr, momentum or weight decay. Pure, apart from what
     * observe() stored in self. */
    double (*factor)(const void *self, const pl_moment_t *when);
    /* Called after a validation or, without validation data, after an epoch, with the
     * newest metrics: a JSON object by name  [not used] */
    int (*observe)(void *self, const char *metrics, pl_error_t *err);
    /* The metric that observe() requires. A run that cannot have it is refused before it
     * starts  [none] */
    const char *(*monitor)(const void *self);
    /* The state of observe(), for checkpoints: JSON from pl_text(); and its restoration
     * [both NULL: no state] */
    char *(*save)(const void *self, pl_error_t *err);
    int (*restore)(void *self, const char *saved, pl_error_t *err);
    /* The optimizer's momentum, or Adam's beta1, in place of its option. Pure. It returns
     * NaN either at all steps or at none; NaN: the option applies  [the option
     * applies] */
    double (*momentum)(const void *self, const pl_moment_t *when);
} pl_scheduler_ops_t;

/* An average of the weights over optimizer steps. */
typedef struct pl_averaging_ops {
    PL_COMPONENT;
    /* The share of the weights after this step in the average: 1 restarts the average, 0
     * leaves it unchanged. Pure. */
    double (*share)(const void *self, const pl_moment_t *when);
    /* The progress of the learning rate, 0 to 1, from the schedule's rate at *start,
     * which the function sets, to *lr. Pure  [the rate of the schedule] */
    double (*anneal)(const void *self, const pl_moment_t *when, pl_moment_t *start,
                     double *lr);
} pl_averaging_ops_t;

/* ---- Data -------------------------------------------------------------------------- */

/* Maximum number of fields of a sample. */
#define PL_FIELDS 8

/* One field of a sample. */
typedef struct pl_field {
    char name[32];                                 /* "x", "y": the name for pl_input() */
    pl_dtype_t dtype;
    pl_shape_t shape;                          /* of one sample, without the batch axis */
} pl_field_t;

/* Size of the first axis of a field whose length varies by sample. */
#define PL_VARIES (-1)

/* Data info: the description of a data set after it is opened. */
typedef struct pl_data_info {
    int64_t samples;
    int field_count;
    pl_field_t field[PL_FIELDS];
    bool ordered;                /* splits must be contiguous (text); the data set
                                    itself made them from the request's share */
    bool same_samples;           /* a test reads the same samples as training; the log
                                    says so if one source serves both */
    char *data_info;             /* JSON object: {"classes": 10, "vocabulary": "…"}. It
                                    sets module options left "auto" and is stored with
                                    the weights. "standardize": [[mean, factor], …] is x
                                    = (value - mean) * factor for each number of "x", or
                                    for all; pl_model_run() applies it too. From
                                    pl_text(); the caller frees it  [NULL] */
    double padding[PL_FIELDS];   /* padding value after shorter samples, of fields that
                                    vary */
    const int64_t *group;        /* [samples] of training data: the run keeps samples with
                                    the same number together, in training or in
                                    validation. The data set's, until close()  [NULL] */
} pl_data_info_t;

/* A request to open a data set. */
typedef struct pl_data_request {
    pl_stage_t stage;       /* train and validate read the training data; test and predict
                               the test data, if there is a separate one */
    double from, to;        /* share of the data, of ordered data sets: [from, to) */
    uint64_t seed;
    const char *data_info;    /* of the training data: for validation data, and for
                                 weights that were trained on it; borrowed for the call
                                 [NULL: unknown] */
    double val_split;         /* share that the run keeps for validation, of training data
                                 that is not ordered  [0: none] */
    bool stratify;            /* keep the class proportions of "y" */
    uint32_t rank;            /* rank that reads; rank 0 logs what concerns all */
    int64_t folds, fold;      /* the share is part `fold`, from 0, of so many equal ones
                                 [0: any] */
} pl_data_request_t;

/* What a sampler draws from: the training samples of a run, without those that
 * data.val_split keeps for validation. */
typedef struct pl_sampler_data {
    int64_t samples;                /* numbered from 0 */
    const int64_t *number;          /* [samples], their numbers in the data set, of which
                                       `total` are there  [NULL: the same] */
    int64_t total;
    const int64_t *classes;         /* [samples], the field "y", if it is one whole number
                                       for each sample  [NULL] */
    uint64_t seed;
    const int64_t *length;          /* [samples], where samples vary in length  [NULL] */
    int64_t batch_size;             /* of all ranks together: a batch has so many places
                                       that follow each other */
} pl_sampler_data_t;

/* A sampler (data.sampler): the samples of an epoch and their order. Strategies split
 * them among ranks. All ranks have the same one, and a run that resumes draws the same
 * samples. */
typedef struct pl_sampler_ops {
    PL_COMPONENT;
    /* `data` stays until close(); *count, the samples of an epoch, is data->samples, and
     * may be changed. */
    int (*open)(void *self, const pl_sampler_data_t *data, int64_t *count,
                pl_error_t *err);
    /* The sample at a place of an epoch, for place in [0, *count): a number in [0,
     * samples). Pure: places may be asked for in any order, and again. */
    int64_t (*at)(const void *self, uint64_t epoch, int64_t place);
    void (*close)(void *self);                              /* [nothing to free] */
} pl_sampler_ops_t;

/* The samples of a batch. */
typedef struct pl_read_request {
    const int64_t *index;                              /* [count], each in [0, samples) */
    int count;
    uint64_t seed, epoch;       /* random augmentation is a pure function of these and the
                                   index */
    pl_stage_t stage;
    int64_t length;       /* of the first axis of fields that vary: the stride of samples;
                             elements that read() does not write are padding already */
} pl_read_request_t;

/* A data set: a source of samples. */
typedef struct pl_dataset_ops {
    PL_COMPONENT;
    /* Opens and checks the files and sets *info. Data thread. */
    int (*open)(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                pl_error_t *err);
    /* Writes request->count samples: field[k] is [count, …] of the k-th field,
     * contiguous. Several data threads call it at once; it must not change self. */
    int (*read)(const void *self, const pl_read_request_t *request, void *const field[],
                pl_error_t *err);
    void (*close)(void *self);       /* data thread; also after a failed open  [nothing to
                                        do] */
    /* Length of a sample in its fields that vary, 1..; called once for each, after
     * open(). A batch has samples of similar length, padded to the longest. Its
     * additional field "mask", float32 [length], is 1 where the sample has data.  [No
     * field varies] */
    int64_t (*length)(const void *self, int64_t index);
} pl_dataset_ops_t;

/* Data in the memory of the program: a source with a name in this process. The run file
 * refers to it as {"name": "memory", "source": NAME}. With a launcher that starts
 * processes, each process must register it. */
typedef struct pl_memory_data {
    int64_t samples;
    int field_count;
    pl_field_t field[PL_FIELDS];
    const char *data_info;                  /* as in pl_data_info_t, but copied  [none] */
    /* Like read() of pl_dataset_ops_t: several data threads call it at once. */
    int (*read)(void *user, const pl_read_request_t *request, void *const field[],
                pl_error_t *err);
    void *user;                                         /* for read; must stay valid while
                                                           the source is in use */
    int64_t (*length)(void *user, int64_t index);       /* as in pl_dataset_ops_t */
    double padding[PL_FIELDS];                          /* as in pl_data_info_t */
} pl_memory_data_t;

/* Registers a source under a name, for data opened from now on; replaces an existing
 * source. *data and all it points to are copied, except what user points to. data NULL
 * removes the name. Sources in use stay until they are closed. Any thread. */
PL_API int pl_memory_data(const char *name, const pl_memory_data_t *data,
                          pl_error_t *err);

/* Data as one array for each field. */
typedef struct pl_arrays {
    int64_t samples;
    int field_count;
    pl_field_t field[PL_FIELDS];
    const void *data[PL_FIELDS];        /* [samples, shape of the field]; must stay valid
                                           while in use */
    const char *data_info;              /* as in pl_data_info_t, but copied  [none] */
    const int64_t *offset;              /* [samples + 1]: in fields that vary, sample i is
                                           [offset[i], offset[i + 1]) of their first axis
                                           [none varies] */
    double padding[PL_FIELDS];          /* as in pl_data_info_t */
} pl_arrays_t;

/* Registers arrays under a name, as pl_memory_data() does. */
PL_API int pl_memory_arrays(const char *name, const pl_arrays_t *arrays, pl_error_t *err);

/* Reads samples from arrays: user is a const pl_arrays_t *. For your own
 * pl_memory_data_t. */
PL_API int pl_arrays_read(void *user, const pl_read_request_t *request,
                          void *const field[], pl_error_t *err);

/* Proposes a run for a file or folder. target: column of a table to predict, by name or
 * number  [found]. -> JSON: {"run": the content of a run file, "reasons": [{"key":
 * "data.missing", "text": "…"}, …]}, to be freed by pl_text_free(). NULL: PL_ENOTFOUND,
 * PL_EFORMAT, PL_EINVAL, PL_EIO, PL_ENOMEM. Any thread. */
PL_API char *pl_data_propose(const char *path, const char *target, pl_error_t *err);

/* ---- Callbacks --------------------------------------------------------------------- */

/* Requests that a callback can make. X(NAME, "its name in texts") */
#define PL_CALLBACK_REQUESTS(X) \
    X(STOP, "stop") \
    X(SKIP, "skip") \
    X(RATE, "lr_factor") \
    X(ACCUMULATE, "accumulate") \
    X(LOG, "metrics") \
    X(SAVE, "save") \
    X(FREEZE, "freeze or unfreeze")

enum {
#define PL_X(name, text) PL_REQUEST_BIT_##name,
    PL_CALLBACK_REQUESTS(PL_X)
#undef PL_X
#define PL_X(name, text) PL_MAY_##name = 1 << PL_REQUEST_BIT_##name,
        PL_CALLBACK_REQUESTS(PL_X)
#undef PL_X
};

/* The hooks of a run, at which callbacks are called, in the order of a run. X(NAME,
 * "name", permitted requests, "when") */
#define PL_HOOKS(X) \
    X(FIT_START, "on_fit_start", PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE, \
      "before the first epoch; a resumed run keeps the rate and " \
      "what is frozen") \
    X(TRAIN_EPOCH_START, "on_train_epoch_start", \
      PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_ACCUMULATE, \
      "before the first batch of an epoch") \
    X(TRAIN_BATCH_END, "on_train_batch_end", \
      PL_MAY_STOP | PL_MAY_SKIP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_LOG \
          | PL_MAY_SAVE, \
      "after an optimizer step; skip: the rest of the epoch's batches") \
    X(VALIDATION_START, "on_validation_start", \
      PL_MAY_STOP | PL_MAY_SKIP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_LOG, \
      "before a validation; skip: the validation") \
    X(VALIDATION_END, "on_validation_end", \
      PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_LOG | PL_MAY_SAVE, \
      "after a validation") \
    X(TRAIN_CUT, "on_train_cut", PL_MAY_SAVE, \
      "when a limit or a callback ends the run inside an epoch") \
    X(TRAIN_EPOCH_END, "on_train_epoch_end", \
      PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_LOG | PL_MAY_SAVE, \
      "after the last batch of an epoch") \
    X(FIT_END, "on_fit_end", 0, "after the last epoch") \
    X(TEST_START, "on_test_start", PL_MAY_STOP, "before a test") \
    X(TEST_END, "on_test_end", PL_MAY_LOG, "after a test") \
    X(PREDICT_START, "on_predict_start", PL_MAY_STOP, "before predicting data") \
    X(PREDICT_BATCH_END, "on_predict_batch_end", PL_MAY_STOP | PL_MAY_SKIP, \
      "after a batch is predicted; skip: its outputs are not kept for " \
      "the result") \
    X(PREDICT_END, "on_predict_end", 0, "after the last batch is predicted") \
    X(EXCEPTION, "on_exception", PL_MAY_SAVE, "when a fit fails, before it ends")

typedef enum pl_hook {
#define PL_X(name, text, may, when) PL_HOOK_##name,
    PL_HOOKS(PL_X)
#undef PL_X
        PL_HOOK_COUNT
} pl_hook_t;

/* A set of hooks: PL_AT(FIT_START) | PL_AT(VALIDATION_END). */
#define PL_AT(name) (1u << PL_HOOK_##name)

/* Flags of a callback's `requests`, besides PL_MAY_…. This one: measure the peak of the
 * device. */
#define PL_NEEDS_PEAK (1u << 31)
/* Flag: the callback observes at TRAIN_BATCH_END, and the run does not wait for it there.
 * It can request only metrics and a stop, which takes effect a few steps later. */
#define PL_LOOKS_ON (1u << 30)
/* Flag: the callback stops by time. A resumed run ignores its earlier request to stop;
 * the callback requests it again. */
#define PL_BY_CLOCK (1u << 29)

/* What a device does, measured once a second; NaN: unknown. */
typedef struct pl_device_stats {
    double memory_used, memory_total;         /* bytes, of all processes */
    double utilization;                       /* share of the time in which it computed, 0
                                                 to 1 */
    double power;                             /* W */
    double temperature;                       /* degrees Celsius */
} pl_device_stats_t;

/* The arguments of a callback at a hook. */
typedef struct pl_hook_event {
    int rank;
    uint32_t epoch;                  /* from 0 */
    uint64_t global_step;            /* optimizer steps done */
    uint64_t total_steps;            /* of the run; 0: unknown */
    uint32_t batch, batches;         /* batches done and total of this epoch; 0
                                        before and after an epoch */
    uint64_t samples;                /* trained on by this rank since the run began */
    bool extra;                      /* at VALIDATION_END: the additional validation
                                        at the end of a run, which a longer run does
                                        not have; at TRAIN_EPOCH_END: an epoch not
                                        trained to its end; at FIT_END: a stopped run
                                        that has a checkpoint to resume from */
    const char *model;               /* JSON object that describes the model:
                                        "layers", "parameters", "frozen"
                                        (parameters), "state" (elements),
                                        "train_flops", "tokens" (per sample); with
                                        pl_checkpoint() "step_bytes" and
                                        "step_bytes_kept", for a training step's
                                        values with and without it */
    double device_flops;             /* peak FLOP/s of the device, measured with
                                        matrix products; 0: see PL_NEEDS_PEAK */
    bool validates;                  /* the run has validations */
    const char *metrics;             /* JSON object of the newest metrics by name */
    const char *error;               /* at EXCEPTION: the complete error; otherwise
                                        "" */
    int output_count;                /* length of output at PREDICT_BATCH_END and
                                        PREDICT_END; otherwise 0 */
    const pl_result_tensor_t *output;  /* outputs of the batch at PREDICT_BATCH_END, of
                                          all batches at PREDICT_END; [samples, …] each */
    const pl_device_stats_t *device;  /* newest measurement of this rank's device  [NULL:
                                         it measures nothing, or not yet] */
} pl_hook_event_t;

/* The newest value of a metric, such as "val_acc". Returns whether it is known; *value is
 * unchanged if not. */
PL_API bool pl_hook_metric(const pl_hook_event_t *event, const char *name, double *value);

/* The requests of a callback at a hook; initialized without any request. */
typedef struct pl_callback_request {
    bool stop;                              /* end the run here */
    bool skip;                              /* skip what the hook names */
    double lr_factor;                       /* factor on the learning rate from the next
                                               step on, 0..; 1: unchanged; factors of
                                               several callbacks multiply */
    int64_t accumulate;                     /* batches per optimizer step from this epoch
                                               on; 0: unchanged; the last callback's
                                               value counts */
    char freeze[256];                       /* name patterns, separated by spaces, of
                                               parameters to freeze from the next step on
                                               [""] */
    char unfreeze[256];                     /* name patterns of parameters to train
                                               again; they override freeze  [""] */
    char reason[160];                       /* reason of the stop, for the result  [""] */
    char save[256];                         /* names of a checkpoint to make between two
                                               steps, one a line  [""] */
    char drop[512];                         /* names of older checkpoints to remove when
                                               the new one is durable, one a line  [""] */
    struct pl_callback_metrics *metrics;    /* set by pl_callback_log() */
} pl_callback_request_t;

/* Requests that a metric is logged, under its own name. A value that is not finite
 * becomes null. From on() only. */
PL_API int pl_callback_log(pl_callback_request_t *request, const char *name, double value,
                           pl_error_t *err);

/* A callback: it is called at hooks of a run and can make requests there. All its
 * functions run on the rank's thread, where the rest of the rank waits: return soon.
 * PL_HOOKS lists the permitted requests of each hook; any other fails the run. */
typedef struct pl_callback_ops {
    PL_COMPONENT;
    unsigned points;        /* hooks at which on() is called */
    unsigned requests;      /* what the run prepares. PL_MAY_ACCUMULATE: required to
                               request it. PL_MAY_SAVE: the first save then delays the run
                               no longer than later ones. PL_NEEDS_PEAK: device_flops is
                               measured. PL_LOOKS_ON, PL_BY_CLOCK  [nothing] */
    /* Optimizer steps between two calls at TRAIN_BATCH_END; 0: no calls there  [1] */
    int64_t (*every_n_steps)(const void *self);
    int (*start)(void *self, pl_error_t *err);        /* before the run does anything else
                                                         [nothing to do] */
    /* Called at the hooks. An error fails the run with PL_EUSER. */
    int (*on)(void *self, pl_hook_t point, const pl_hook_event_t *event,
              pl_callback_request_t *request, pl_error_t *err);
    void (*stop)(void *self);        /* at the end; also after a failed start  [nothing to
                                        do] */
    /* State for checkpoints, from pl_text(); and its restoration, after start() of a
     * resumed run [both NULL: no state]. Errors as of on(). */
    char *(*state)(const void *self, pl_error_t *err);
    int (*restore)(void *self, const char *state, pl_error_t *err);
} pl_callback_ops_t;

/* ---- Loggers ----------------------------------------------------------------------- */

/* Metrics at one point of a run. */
typedef struct pl_record {
    uint32_t epoch;                               /* from 0 */
    uint64_t global_step;                         /* optimizer steps done */
    double time;                                  /* s since 1970 */
    const char *metrics;                          /* JSON object of the metrics by name */
} pl_record_t;

/* The run that a logger logs; borrowed for the call. */
typedef struct pl_log_run {
    const char *run_dir;
    const char *run;                   /* the effective run file, JSON: hyperparameters */
    /* Of a resumed run: the position() in its checkpoint. Records logged after it must be
     * removed. "": a new run. */
    const char *position;
    uint64_t global_step;     /* of a resumed run: steps done at its checkpoint; else 0 */
    /* The checkpoint of the resumed run has a position of this logger, which may be ""
     * because the checkpoint did not wait for it. Keep `behind` records after the
     * position. */
    bool has_position;
    uint64_t behind;
} pl_log_run_t;

/* A logger: a destination of the metrics of a run. All its functions run on the logger's
 * own thread, which may wait for a disk or a server. An error loses metrics, never the
 * run, and is reported; a failed open() is repeated with the next metrics. Metrics that
 * come faster than the logger takes them are dropped and counted. */
typedef struct pl_logger_ops {
    PL_COMPONENT;
    /* Before the first record  [nothing to do] */
    int (*open)(void *self, const pl_log_run_t *run, pl_error_t *err);
    int (*log)(void *self, const pl_record_t *record, pl_error_t *err);
    /* The module's tensors, when a run copies them to the host anyway: for a checkpoint,
     * or at the end. record->metrics is "{}"  [tensors are not needed] */
    int (*tensors)(void *self, const pl_record_t *record,
                   const pl_result_tensor_t *tensor, int count, pl_error_t *err);
    /* After every few records: makes sure that they are at their destination. An error
     * means that all records since the last flush are lost  [nothing to do] */
    int (*flush)(void *self, pl_error_t *err);
    /* Before position(), for a checkpoint: makes the flushed records survive a power
     * failure. After an error the checkpoint has an older position  [they survive] */
    int (*sync)(void *self, pl_error_t *err);
    /* After a flush: the position, from pl_text(). NULL: out of memory  [""] */
    char *(*position)(const void *self);
    /* After a successful open(). status is as in pl_result_t, or "" if the run was
     * interrupted  [nothing to do] */
    void (*close)(void *self, const char *status);
    /* Any thread: the run has ended and no longer waits. Calls under way must return soon
     * [the run waits for them] */
    void (*interrupt)(void *self);
} pl_logger_ops_t;

/* ---- Texts ------------------------------------------------------------------------- */

/* A copy of text (printf) in Paceline's memory, or NULL. pl_text_free() frees it. */
PL_API char *pl_text(const char *format, ...) PL_PRINTF(1, 2);
PL_API void pl_text_free(char *text);

/* The name of the list, which ends with NULL, that a misspelled word probably means, or
 * NULL: for `did you mean …?`. */
PL_API const char *pl_nearest(const char *word, const char *const names[]);

/* The key of a run file that a word means: "optimizer.lr" for "lr" and for
 * "learning_rate"; NULL: none. Free it with pl_text_free(). */
PL_API char *pl_options_key(const char *word);

/* What to do instead of an option of another engine that has no counterpart, such as
 * "gpus"; NULL: unknown. Free it with pl_text_free(). */
PL_API char *pl_options_hint(const char *word);

#ifdef __cplusplus
}
#endif

#endif                                                      /* PACELINE_H */
