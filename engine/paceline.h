/* paceline.h - the door: everything a program or an extension includes
 *
 * Read from the top.  A program that trains needs the first half: errors, memory and
 * logs, parts and run files, the engine and its trainers, answers without one.  The
 * second half is for parts of one's own: graphs and modules, operators, precisions,
 * optimizers and schedules, data sets, callbacks, loggers; each is a table of functions
 * with PL_PART at its head, made known by pl_init(), pl_register() or a plug-in.
 * Strategies, accelerators, launchers and collectives need strategies/replica.h,
 * accelerators/accelerator.h, actors/worker.h and strategies/collectives/collective.h as
 * well.
 *
 * Rules that hold everywhere.  What can fail returns PL_OK or a negative PL_E… and takes
 * a pl_error_t as its last parameter (may be NULL); constructors return the object or
 * NULL; on failure outputs are untouched.  `_new/_free`, `_ref/_unref` pair up; freeing
 * NULL is fine.  NULL for what a call cannot do without is PL_EINVAL, and nothing to be
 * done where no code is returned; the graph of a step alone has to be there.  A `T *`
 * argument is borrowed for the call.  Unless a comment says otherwise a function may be
 * called from any thread, one thread at a time per object.  A process that is forked from
 * one that has or had an engine makes none, unless it calls exec first.
 * In [brackets] stands a shape or a unit, or what NULL or 0 means.
 * The library installs no signal handler, never exits, prints nothing and changes no
 * global state of the host. */
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

/* What may go wrong: X(name, number, what it means). */
#define PL_ERRORS(X) \
    X(PL_EINVAL, -1, "a value that is not allowed") \
    X(PL_ENOMEM, -2, "out of memory") \
    X(PL_EIO, -3, "a file or device could not be read or written") \
    X(PL_EFORMAT, -4, "a file or message is not what it should be") \
    X(PL_ENOTFOUND, -5, "no such name, file or part") \
    X(PL_EEXIST, -6, "there already") \
    X(PL_ESTATE, -7, "not possible in this state") \
    X(PL_EHIERARCHY, -8, "a call to the same or a higher level") \
    X(PL_EPROTOCOL, -9, "a message that breaks the protocol") \
    X(PL_ETIMEOUT, -10, "a limit of time has passed") \
    X(PL_ECANCELLED, -11, "cancelled by the caller") \
    X(PL_EBUSY, -12, "too much at once") \
    X(PL_EPEER, -13, "the other side failed or is gone") \
    X(PL_ESTUCK, -14, "an actor does not answer and cannot be killed") \
    X(PL_ENAN, -15, "a loss or gradient is not finite") \
    X(PL_EUNSUPPORTED, -16, "this build, device or part cannot do it") \
    X(PL_EUSER, -17, "a function of the user's failed") \
    X(PL_EBUG, -18, "a mistake in Paceline itself") \
    X(PL_EDIED, -19, "the process of a rank has ended before its time")

typedef enum pl_code {
    PL_OK = 0,
#define PL_X(name, number, text) name = number,
    PL_ERRORS(PL_X)
#undef PL_X
} pl_code_t;

#define PL_ERROR_TEXT 512
#define PL_ERROR_WHERE 96

typedef struct pl_error {
    int code;                              /* PL_OK or PL_E… */
    char where[PL_ERROR_WHERE];            /* "rank 0 accelerator.cpu"; "" when unknown */
    char text[PL_ERROR_TEXT];              /* what is wrong and what to do; one line */
} pl_error_t;

/* Writes code and text (printf) into *err, unless err is NULL; returns code. */
PL_API int pl_fail(pl_error_t *err, int code, const char *format, ...) PL_PRINTF(3, 4);

/* The name of a code: "PL_EINVAL"; "PL_OK" for 0; "PL_E?" for an unknown number.
 * Static. */
PL_API const char *pl_code_name(int code);

/* What a code means: the sentence of PL_ERRORS.  Static. */
PL_API const char *pl_code_text(int code);

/* ---- Memory and logs --------------------------------------------------------------- */

/* Functions that allocate for Paceline from now on; call before anything else, from one
 * thread. NULL stands for the C library's.  They must be thread-safe. */
PL_API void pl_memory_hooks(void *(*allocate)(size_t bytes),
                            void *(*resize)(void *memory, size_t bytes),
                            void (*release)(void *memory));

/* How much a log line matters. */
typedef enum pl_log_level {
    PL_LOG_ERROR,
    PL_LOG_WARNING,
    PL_LOG_INFO,
    PL_LOG_DEBUG
} pl_log_level_t;

/* One log line: `actor` is "loop.epoch" or ""; text has no newline.  Called on the thread
 * that logs: return soon. */
typedef void (*pl_log_hook_t)(pl_log_level_t level, int rank, const char *actor,
                              const char *text, void *user);

/* Where log lines go [nowhere], up to `level`.  Process-wide: call it before anything
 * else.  The hook before is in no thread any more when it returns; so not from a hook. */
PL_API void pl_log_hook(pl_log_hook_t hook, pl_log_level_t level, void *user);

/* ---- Parts and their options ------------------------------------------------------- */

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

/* All of something, a share of it, or a count: 1.0 and 0.1 are shares, 100 is a count. */
typedef struct pl_amount {
    double value;
    bool is_share;
    bool is_time;                                  /* value in s: of PL_OPTION_INTERVAL */
} pl_amount_t;

/* How many there may be: 4, or "2:4" in a run file. */
typedef struct pl_span {
    int64_t least, most;
} pl_span_t;

/* Another part by name, with options of its own: "shm" or {"name": "shm", "slots": 4} in
 * a run file. */
typedef struct pl_choice {
    const char *name;                     /* "auto" when it is left to whoever asks; NULL:
                                             none */
    const char *options;                  /* a JSON object: "{\"slots\":4}", "{}" */
} pl_choice_t;

/* What the value of an option is. */
typedef enum pl_option_type {
    PL_OPTION_END,
    PL_OPTION_INT,                    /* int64_t */
    PL_OPTION_FLOAT,                  /* double */
    PL_OPTION_BOOL,                   /* bool */
    PL_OPTION_TEXT,                   /* const char *, never NULL; owned by the binding */
    PL_OPTION_INTS,                   /* pl_ints_t */
    PL_OPTION_REALS,                  /* pl_reals_t */
    PL_OPTION_TEXTS,                  /* pl_texts_t; owned by the binding */
    PL_OPTION_AMOUNT,                 /* pl_amount_t */
    PL_OPTION_PART,                   /* pl_choice_t, its texts owned by the binding */
    PL_OPTION_GROUPS,                 /* const char *, a JSON list of objects: "match",
                                         patterns with spaces between, and options of the
                                         part that hold for what fits; owned by the
                                         binding */
    PL_OPTION_INTERVAL,               /* pl_amount_t; a time as well: "00:00:15:00" */
    PL_OPTION_PARTS,                  /* one or a list of them: data sources alone */
    PL_OPTION_SPAN,                   /* pl_span_t */
} pl_option_type_t;

/* Patterns of names, wherever there are some: '*' stands for any text, dots included, '?'
 * for one character, "[ab]" or "[a-c]" for one of those; the whole name has to fit. */

/* One option of a part: the one description that run files, --set, help, manual page and
 * completion share. */
typedef struct pl_option {
    const char *name;                                       /* "hidden" */
    pl_option_type_t type;
    size_t offset;                     /* of the field in the part's struct */
    const char *fallback;              /* the default, as JSON: "128", "[128]",
                                          "\"relu\""; "\"auto\"": taken from what the data
                                          knows under the same name, unless auto is in the
                                          range as a word of its own; NULL: must be given;
                                          a part: "auto" or none ("null"); a float: "null"
                                          for none, NaN; an integer: "false" when true may
                                          stand for 1 */
    const char *range;                 /* numbers: "1..", "0..1", "(0..1]"; text:
                                          "relu|gelu|tanh"; part: its role; [anything] */
    const char *help;                  /* one clause, with the unit */
} pl_option_t;

#define PL_FIELD_(part, field, kind, fallback, range, help) \
    { \
#field, kind, offsetof(part, field), fallback, range, help \
    }
#define PL_INT(part, field, fallback, range, help) \
    PL_FIELD_(part, field, PL_OPTION_INT, fallback, range, help)
#define PL_FLOAT(part, field, fallback, range, help) \
    PL_FIELD_(part, field, PL_OPTION_FLOAT, fallback, range, help)
#define PL_BOOL(part, field, fallback, help) \
    PL_FIELD_(part, field, PL_OPTION_BOOL, fallback, NULL, help)
#define PL_TEXT(part, field, fallback, range, help) \
    PL_FIELD_(part, field, PL_OPTION_TEXT, fallback, range, help)
#define PL_INTS(part, field, fallback, range, help) \
    PL_FIELD_(part, field, PL_OPTION_INTS, fallback, range, help)
#define PL_REALS(part, field, fallback, range, help) \
    PL_FIELD_(part, field, PL_OPTION_REALS, fallback, range, help)
#define PL_TEXTS(part, field, fallback, help) \
    PL_FIELD_(part, field, PL_OPTION_TEXTS, fallback, NULL, help)
#define PL_AMOUNT(part, field, fallback, help) \
    PL_FIELD_(part, field, PL_OPTION_AMOUNT, fallback, NULL, help)
#define PL_SPAN(part, field, fallback, range, help) \
    PL_FIELD_(part, field, PL_OPTION_SPAN, fallback, range, help)
#define PL_CHOICE(part, field, fallback, role, help) \
    PL_FIELD_(part, field, PL_OPTION_PART, fallback, role, help)
#define PL_GROUPS(part, field, help) \
    PL_FIELD_(part, field, PL_OPTION_GROUPS, "[]", NULL, help)
#define PL_OPTIONS_END \
    { \
        NULL, PL_OPTION_END, 0, NULL, NULL, NULL \
    }

/* Every table of functions starts with these: what the registry, the run file and
 * `paceline list` need to know. */
#define PL_PART \
    const char *name; /* in run files; unique in its role */ \
    const char *help; /* one clause  [""] */ \
    size_t size; /* of the part's own struct; it starts zeroed, options filled in */ \
    const pl_option_t *options; /* [none] */ \
    /* Whether they go together, asked before anything starts, on any thread: the name \
     * of the one to be changed, and err says why; else NULL.  Not asked while one is \
     * left to the data  [they do] */ \
    const char *(*check)(const void *self, pl_error_t *err)

typedef struct pl_part {
    PL_PART;
} pl_part_t;

/* A part in use: the table of its role, its struct, and what keeps the struct's texts. */
typedef struct pl_instance {
    const void *ops;                                        /* pl_module_ops_t … */
    void *self;
    struct pl_binding *binding;
} pl_instance_t;

/* One entry of the table given to pl_init() or exported by a plug-in. */
typedef struct pl_registration {
    const char *role;                    /* "module", "dataset", "optimizer", "scheduler",
                                            "averaging", "callback", "logger", "operator",
                                            "precision", "accelerator", "strategy",
                                            "collective", "launcher" */
    const void *table;                   /* pl_module_ops_t … ; static */
} pl_registration_t;

#define PL_REGISTRATIONS_END \
    { \
        NULL, NULL \
    }

/* A plug-in (FILE.so) exports one function of this type and this name; it returns a
 * static table. */
#define PL_PLUGIN_SYMBOL "paceline_plugin"
typedef const pl_registration_t *(*pl_plugin_t)(void);
PL_API const pl_registration_t *paceline_plugin(void);  /* a plug-in's, for PL_PLUGIN() */

/* Writes that function: PL_PLUGIN({"module", &mlp_module}) as the last line of the
 * file. */
#define PL_PLUGIN(...) \
    const pl_registration_t *paceline_plugin(void) \
    { \
        static const pl_registration_t parts[] = {__VA_ARGS__, PL_REGISTRATIONS_END}; \
        return parts; \
    }

/* Makes parts known by name, in this process: all of them or, after an error, none [NULL:
 * there are none].  The tables are borrowed for ever.  PL_EEXIST: a role and name that is
 * there already with another table; PL_EINVAL: an unknown role, or an option whose
 * default or range is wrong.  Any thread. */
PL_API int pl_register(const pl_registration_t *registrations, pl_error_t *err);

/* Loads FILE.so and registers what it exports.  A file without '/' is looked for in the
 * folders of PACELINE_PLUGIN_PATH (a:b:c) and then where Paceline's own are installed.
 * Loading the same file twice is fine. Any thread. */
PL_API int pl_plugin_load(const char *file, pl_error_t *err);

/* The part of that role and name, or NULL with PL_ENOTFOUND naming the nearest.  One that
 * nobody registered is looked for in the plug-in folders: a module "mlp" in mlp.so.  It
 * stays as long as the program runs.  Any thread. */
PL_API const void *pl_part_find(const char *role, const char *name, pl_error_t *err);

/* The k-th part of a role in order of name, those in the plug-in folders too, or NULL:
 * for listing.  It stays.  Any thread. */
PL_API const pl_part_t *pl_part_at(const char *role, int k);

/* The k-th role, or NULL behind the last. */
PL_API const char *pl_role_at(int k);

/* ---- Run files and options --------------------------------------------------------- */

/* A run: what a run file says, and what was set on top of it.  Keys are paths:
 * "module.hidden", "trainer.devices", "callbacks.0.monitor".  Errors say
 * file:line:column, the key and the nearest known name. */
typedef struct pl_options pl_options_t;

/* A run that says nothing: all defaults. */
PL_API pl_options_t *pl_options_new(pl_error_t *err);

/* A run file, or its text (`name` is what errors call it): JSON that may have comments
 * and a comma behind the last element.  The file may be a pipe, "-" is standard input.
 * Keys and values that need no
 * part to be judged are checked here; those of parts by pl_options_check(), because
 * plug-ins are loaded only then. */
PL_API pl_options_t *pl_options_load(const char *path, pl_error_t *err);
PL_API pl_options_t *pl_options_parse(const char *text, const char *name,
                                      pl_error_t *err);

/* A copy that nothing done to the first one changes. */
PL_API pl_options_t *pl_options_clone(const pl_options_t *o, pl_error_t *err);
PL_API void pl_options_free(pl_options_t *o);

/* Sets a key, as --set KEY=VALUE does: the value is JSON when it reads as JSON, else a
 * text; an option of type text takes it as text in any case, without JSON's quotes.  Setting an option of a part keeps its name ("ddp" becomes {"name": "ddp", …}); a
 * list grows by setting the element behind its last. */
PL_API int pl_options_set(pl_options_t *o, const char *key, const char *value,
                          pl_error_t *err);

/* The value of a key or its default: a text bare, everything else as JSON; NULL: nothing
 * there, or out of memory. pl_text_free() frees it. */
PL_API char *pl_options_get(const pl_options_t *o, const char *key);

/* Loads the plug-ins the run names and checks every key and value against the tables of
 * the parts. */
PL_API int pl_options_check(const pl_options_t *o, pl_error_t *err);

/* The options of "trainer", "data", "module", "optimizer" and "averaging" themselves, of
 * whatever part; those of "data.sources", of "data" with sources apart; those of each of
 * "optimizer.groups".  NULL for all else.  For help.  Static. */
PL_API const pl_option_t *pl_options_of(const char *section);

/* The whole run with every default, as a run file; pl_text_free() frees it.  Checks it
 * first. */
PL_API char *pl_options_print(const pl_options_t *o, pl_error_t *err);

/* ---- Tensors ----------------------------------------------------------------------- */

/* As many axes as a tensor may have. */
#define PL_DIMS 5

/* What a tensor's elements are.  Data are of the first five; the halves are for weights
 * and inside graphs. */
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

/* An engine, which trainers live on, and a trainer, which makes one run after the
 * other. */
struct event_base;
typedef struct pl_engine pl_engine_t;
typedef struct pl_trainer pl_trainer_t;

/* The first line of main(): registers Paceline's own parts and the program's [NULL:
 * none].  Takes the arguments because a launcher may start this program again as a rank,
 * which then does its work in here and never returns.  Errors are those of
 * pl_register(). */
PL_API int pl_init(int *argc, char ***argv, const pl_registration_t *registrations,
                   pl_error_t *err);

/* An engine: a thread that trainers live on.  Notifications (on_done, on_progress,
 * on_closed) come from base, on the thread that runs it and never from inside the call
 * that started the work; with base NULL they come from pl_engine_dispatch(), to be called
 * when pl_engine_fd() is readable.  An engine and its trainers are used from that one
 * thread; many engines may be there at once. */
PL_API pl_engine_t *pl_engine_new(struct event_base *base, pl_error_t *err);
/* One descriptor for life, level-triggered; belongs to the engine. */
PL_API int pl_engine_fd(const pl_engine_t *engine);
/* Tells what waits when it is called, and returns; for what comes meanwhile the
 * descriptor is readable again.  Not from a notification. */
PL_API void pl_engine_dispatch(pl_engine_t *engine);

/* Publishes every message of the engine's actors, and those of ranks in other processes,
 * at ipc://FILE or tcp://127.0.0.1:PORT, where "*" is any port; runs that are under way
 * are seen from then on.  Nothing else may be listened on.  FILE is made for as long as
 * the engine lives; PL_EINVAL when something lies there that is no socket, PL_EBUSY when
 * another process listens there: both stay as they are.  PL_ESTATE: it is published
 * already, or the engine is being closed. */
PL_API int pl_engine_monitor(pl_engine_t *engine, const char *endpoint, pl_error_t *err);
/* Where that is, after "*" was replaced; "" without one.  The engine's. */
PL_API const char *pl_engine_monitor_endpoint(const pl_engine_t *engine);

/* Takes commands to the engine's runs at ipc://FILE, which only this user can open, or
 * tcp://127.0.0.1:PORT, which anybody on this machine can: JSON requests, each answered,
 * of ZeroMQ clients of any language, as doc/embedding.md has them.  Until the engine is
 * closed.  Errors as of pl_engine_monitor(). */
PL_API int pl_engine_control(pl_engine_t *engine, const char *endpoint, pl_error_t *err);
/* Where that is, after "*" was replaced; "" without one.  The engine's, until it is
 * closed. */
PL_API const char *pl_engine_control_endpoint(const pl_engine_t *engine);

/* Serves a page that shows the engine's runs live, figures for Prometheus at /metrics,
 * and /healthz and /readyz, over HTTP on a thread of its own (doc/monitoring.md).
 * address: "[HOST:]PORT", of this machine alone: HOST is 127.0.0.1 [the default],
 * localhost or [::1]; port 0: any.  PL_EINVAL: another address; PL_EBUSY: somebody
 * listens there; PL_ESTATE: there is one already.  PACELINE_DASHBOARD_TOKEN_FILE names a
 * file with a token that stays the same. */
PL_API int pl_engine_dashboard(pl_engine_t *engine, const char *address, pl_error_t *err);
/* "http://127.0.0.1:8080/?token=…": whoever has it may look and command.  "" without
 * one.  The engine's. */
PL_API const char *pl_engine_dashboard_url(const pl_engine_t *engine);

/* Writes every message to a file, from now on until the engine is freed: a journal, for
 * pl_journal_open().  A journal that lies at path is called path.old from then on.  The
 * run never waits for the disk: what a slow one cannot take is missing, and the file says
 * so; a full one ends the file, and the log says so.  Several may be written at several
 * paths.  PL_EINVAL: what lies there is no journal; PL_EBUSY: another run writes it;
 * PL_EIO; PL_ESTATE: the engine is being closed. */
PL_API int pl_engine_journal(pl_engine_t *engine, const char *path, pl_error_t *err);

/* Writes every message to a file, as pl_engine_journal() does and with its errors, as a
 * trace, which Perfetto and chrome://tracing open: a track for each actor, arrows along
 * calls, what the steps of each rank take their time.  One that lies at path is called
 * path.old from then on. */
PL_API int pl_engine_trace(pl_engine_t *engine, const char *path, pl_error_t *err);

/* Ends all runs (their on_done comes first, with PL_ECANCELLED) and then the engine;
 * on_closed [nobody asks] comes last. Returns at once.  May be called from a
 * notification. */
PL_API void pl_engine_close(pl_engine_t *engine,
                            void (*on_closed)(pl_engine_t *engine, void *user),
                            void *user);
/* Frees an engine and its trainers.  One that is not closed, or whose on_closed has not
 * come yet, is closed first, without notifications and waiting for it.  Not from a
 * notification other than on_closed. */
PL_API void pl_engine_free(pl_engine_t *engine);

/* The ranks of one node: the same program several times, each told its place among all by
 * PACELINE_RANK, PACELINE_WORLD_SIZE and so on, as launcher "external" reads them.  All
 * on the thread that runs base, which must live as long as they shall. */
typedef struct pl_launch pl_launch_t;

typedef struct pl_launch_spec {
    int nodes, node_rank;               /* how many there are at most; this one, from 0 */
    int nodes_least;                    /* it goes on with fewer, when some are gone for
                                           good, and takes in those that come  [nodes] */
    int devices;                        /* ranks on each */
    const char *endpoint;               /* "HOST:PORT" of node 0, which rank 0 listens at
                                           [of one node: any place on it] */
    const char *job_key;                /* file with the job's key, the same on all nodes;
                                           made when there is none  [not encrypted, on
                                           one machine] */
    int max_restarts;                   /* that all ranks are started again within 10
                                           minutes when one dies, from the newest
                                           checkpoint; node 0's counts */
    double join_timeout;                /* s, for the least nodes to be there  [60] */
    double last_call_timeout;           /* s, for more than those  [10] */
    const char *const *argv;            /* up to NULL; looked for along PATH */
    /* A line of a rank's standard error; rank -1: of what becomes of them all. */
    void (*on_line)(void *user, int rank, const char *line);
    /* Once, when all have ended: the status of the first that failed, as a shell has it,
     * and which it was and why, PL_OK when none has; 75, of a rank that lost another,
     * only where no other has failed by itself.  NULL: pl_launch_signal() had been
     * called. */
    void (*on_end)(void *user, int status, const pl_error_t *error);
    void *user;
} pl_launch_spec_t;

/* Starts the ranks of this node, as soon as all nodes are there.  When one is killed by a
 * signal, or exits with status 75, or a node is gone, the others are killed and all are
 * started again; when one fails otherwise, or for the last time, the others get SIGTERM,
 * and after half a minute SIGKILL.  The texts of the spec must stay.  NULL: PL_EINVAL,
 * PL_ENOMEM, PL_EIO, PL_EBUSY when another program listens at the endpoint; what goes
 * wrong later is told by on_end. */
PL_API pl_launch_t *pl_launch_start(struct event_base *base, const pl_launch_spec_t *spec,
                                    pl_error_t *err);
/* Sends the ranks of this node a signal. */
PL_API void pl_launch_signal(pl_launch_t *node, int number);
/* Ends those that still live, by SIGKILL; on_end is not called. */
PL_API void pl_launch_free(pl_launch_t *node);

/* Of the processes that run this program for one run the number of this one: its rank,
 * with launcher "script" 1 + rank.  0 is to print, and to write what is done besides. */
PL_API int pl_rank(void);

/* How a run ended.  What it points to lives until the notification returns. */
typedef struct pl_result_tensor {
    const char *name;
    pl_shape_t shape;
    const float *data;                                      /* [shape] */
} pl_result_tensor_t;

typedef struct pl_result {
    const char *status;                  /* "ok", "stopped" (by pl_trainer_stop or a
                                            callback), "failed" */
    const char *reason;                  /* of a fit "stopped": who wanted it; "" */
    pl_error_t error;                    /* of "failed" */
    uint64_t global_step;                /* optimizer steps done */
    uint32_t epoch;                      /* epochs done */
    double seconds;                      /* of the loop, without pauses, since the ranks
                                            were started last */
    const char *metrics;                 /* JSON object: the newest figure of each name */
    const char *run_dir;                 /* "" when there is none */
    const char *text;                    /* written after a prompt; "" */
    int weight_count;
    const pl_result_tensor_t *weight;              /* after a fit: the module's tensors */
    int output_count;
    const pl_result_tensor_t *output;    /* after predicting: [samples, …] each, in the
                                            data's order */
    const char *best_checkpoint;         /* of a fit whose model_checkpoint has a monitor:
                                            its path; "" */
    const char *callbacks;               /* JSON array: of each callback of a fit, on rank
                                            zero, its name and state(): "[]" */
    bool begun;                          /* a batch has been through; what failed before
                                            that was asked for wrongly, or lacked
                                            something */
} pl_result_t;

/* The figure of a name; false when there is none. */
PL_API bool pl_result_metric(const pl_result_t *result, const char *name, double *value);

/* How far a run is; at most ten times a second, and at the end of each validation and
 * epoch.  A program that does not read them for long finds the newest 256 of each
 * trainer, in order, and every piece of text. */
typedef struct pl_progress {
    const char *event;                      /* "train", "validate", "validated", "epoch",
                                               "rollback", "test", "predict", "text": as
                                               in doc/messages.md */
    uint64_t global_step, total_steps;      /* optimizer steps; total 0: unknown */
    uint32_t epoch;                         /* from 0 */
    uint32_t batch, batches;                /* of the epoch or evaluation; batches 0:
                                               unknown */
    const char *metrics;                    /* JSON object of the newest metrics: those of
                                               training steps, such as train_loss, are
                                               means since the report before; and as
                                               "ranks" of what the steps of several take
                                               (doc/distributed.md); "text": a JSON
                                               string */
} pl_progress_t;

/* Who is told how a run ended, once; and how far it is. */
typedef void (*pl_on_done_t)(pl_trainer_t *trainer, const pl_result_t *result,
                             void *user);
typedef void (*pl_on_progress_t)(pl_trainer_t *trainer, const pl_progress_t *progress,
                                 void *user);

/* A trainer for a run; options are copied and checked. */
PL_API pl_trainer_t *pl_trainer_new(pl_engine_t *engine, const pl_options_t *options,
                                    pl_error_t *err);
/* Stops what it runs, without further notifications, and frees it.  May be called from
 * its own notification. */
PL_API void pl_trainer_free(pl_trainer_t *trainer);

/* Who is told from the next run on how far it is [nobody]. */
PL_API void pl_trainer_on_progress(pl_trainer_t *trainer, pl_on_progress_t on_progress,
                                   void *user);

/* Trains; returns at once, on_done [nobody asks] comes exactly once.  PL_ESTATE: it is
 * running already.  A run that lacks a part, whose parts do not go together or whose name
 * is taken is refused here, before anything starts. */
PL_API int pl_trainer_fit(pl_trainer_t *trainer, pl_on_done_t on_done, void *user,
                          pl_error_t *err);

/* One pass over the validation data, or the test data, with the weights of a .safetensors
 * file or a run directory; the result has the figures: "val_loss", "test_loss".  So have
 * the loggers, in a directory of its own, default_root_dir/test/0001 and so on; without
 * loggers there is none.  Returns at once, as pl_trainer_fit() does. */
PL_API int pl_trainer_validate(pl_trainer_t *trainer, const char *checkpoint,
                               pl_on_done_t on_done, void *user, pl_error_t *err);
PL_API int pl_trainer_test(pl_trainer_t *trainer, const char *checkpoint,
                           pl_on_done_t on_done, void *user, pl_error_t *err);

/* Trains on where a run was cut off or stopped, in its directory, as if it had not been:
 * from a checkpoint, from the newest valid one of a run directory, or [from NULL] of the
 * newest run in trainer.default_root_dir that has one; without any it begins afresh.
 * What changes arithmetic or order must be as it was: PL_EINVAL names what is not. */
PL_API int pl_trainer_resume(pl_trainer_t *trainer, const char *from,
                             pl_on_done_t on_done, void *user, pl_error_t *err);

/* What to predict from. */
typedef struct pl_prediction {
    const char *checkpoint;             /* a .safetensors file or a run directory */
    const char *prompt;                 /* text to go on from  [NULL: predict the data] */
    int64_t tokens;                     /* to write after the prompt */
    double temperature;                 /* 0: always the likeliest */
    int64_t top_k;                      /* choose among the k likeliest; 0: all */
} pl_prediction_t;

/* The module's outputs for all samples of the prediction data, or the text after the
 * prompt.  Returns at once, as pl_trainer_fit() does. */
PL_API int pl_trainer_predict(pl_trainer_t *trainer, const pl_prediction_t *what,
                              pl_on_done_t on_done, void *user, pl_error_t *err);

/* How to look for a learning rate: optimizer steps at rates that grow exponentially from
 * one to the next; or for a batch size: some steps with batches of growing size, until
 * memory or the data end. */
typedef struct pl_tuning {
    double min_lr, max_lr;               /* the first and the last  [1e-8, 1] */
    int64_t num_training;                /* steps  [100] */
    double early_stop_threshold;         /* ends when the smoothed loss is so many times
                                            the lowest; 0: never */
    const char *batch_size;              /* a batch size is looked for: "power" doubles it
                                            till it fails, "binsearch" then halves the gap
                                            [NULL: a learning rate is] */
    int64_t steps_per_trial;             /* timings of each size, each of a step or of as
                                            many as take 40 ms  [5] */
    int64_t init_val;                    /* the first size  [2] */
    int64_t max_trials;                  /* sizes  [25] */
    int64_t max_memory;                  /* bytes that the process may grow by  [nine
                                            tenths of what the machine has free] */
} pl_tuning_t;

/* Trains a module of its own and suggests the rate at which the loss fell most steeply,
 * as the figure "lr" of the result; its text is {"trials": [{"lr": …, "loss": …}, …]}.
 * Of a batch size the figures are "batch_size", the largest that fits,
 * "suggested_batch_size", the smallest within a tenth of the most samples a second among
 * those that leave an epoch 50 steps (doc/formats.md), and "quickest_batch_size", the
 * smallest of those whose samples a second cannot be told from the most: by the median of
 * the timings and how far they lie apart, a tenth at most; the text is {"trials": [{"batch_size": …, "fits": true, "samples_per_second": …, "memory":
 * bytes}, …]}.
 * Nothing is written and nothing that is there changes; optimizer.lr and the schedule
 * have no say. */
PL_API int pl_trainer_tune(pl_trainer_t *trainer, const pl_tuning_t *what,
                           pl_on_done_t on_done, void *user, pl_error_t *err);

/* Ends the run at its next step boundary; on_done then says "stopped", and why: the
 * reason is copied  ["the program asked for it"].  PL_ESTATE: nothing runs. */
PL_API int pl_trainer_stop(pl_trainer_t *trainer, const char *reason, pl_error_t *err);

/* What came of a command to a fit.  What it points to lives until the notification
 * returns. */
typedef struct pl_command_result {
    const char *command;                  /* "pause", "continue", "save", "set_lr" */
    pl_error_t error;                     /* PL_OK: it was carried out; PL_ESTATE: the run
                                             had ended, or was ending, or keeps no
                                             checkpoints; PL_EIO: not saved; PL_EINVAL: no
                                             such optimizer; PL_EBUSY: 16 wait already,
                                             nothing was done */
    uint64_t global_step;                 /* optimizer steps done when it took effect */
    const char *checkpoint;               /* of "save": its directory; else "" */
} pl_command_result_t;

typedef void (*pl_on_command_t)(pl_trainer_t *trainer, const pl_command_result_t *result,
                                void *user);

/* Commands to a fit under way.  Each takes effect between two optimizer steps, on all
 * ranks behind the same one, is answered once by on_command [nobody asks], also when the
 * run ends first, and stands in the run's commands.jsonl.  One that comes before the
 * first step waits for it.  PL_ESTATE: nothing trains.
 *
 * A paused run computes nothing until pl_trainer_continue() or pl_trainer_stop(); the time
 * is not of trainer.max_time or of the result's seconds.  Asked for twice either is
 * answered as if it were the first time. */
PL_API int pl_trainer_pause(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                            pl_error_t *err);
PL_API int pl_trainer_continue(pl_trainer_t *trainer, pl_on_command_t on_command,
                               void *user, pl_error_t *err);
/* Makes a checkpoint, "asked-step=N", to go on from like any other; it stays.  Answered
 * when it is durable; the run goes on before. */
PL_API int pl_trainer_save(pl_trainer_t *trainer, pl_on_command_t on_command, void *user,
                           pl_error_t *err);
/* The same as "asked-NAME", in place of what the run has saved by that name before, for
 * who wants the newest weights again and again.  name: 1 to 64 ASCII letters, digits and
 * any of "_-."; copied  [NULL: as pl_trainer_save()]. */
PL_API int pl_trainer_save_as(pl_trainer_t *trainer, const char *name,
                              pl_on_command_t on_command, void *user, pl_error_t *err);
/* The next step is made at that learning rate, 0.., of what no group matches; groups, and
 * the schedule from there on, keep their proportion to it.  While the schedule says 0 it
 * waits.  optimizer: the named step whose it is [all].  Kept in checkpoints. */
PL_API int pl_trainer_set_lr(pl_trainer_t *trainer, double lr, const char *optimizer,
                             pl_on_command_t on_command, void *user, pl_error_t *err);
/* The same as a factor, 0.., on what the schedule says, in place of any rate or factor
 * before; 1: as if no rate had ever been set. */
PL_API int pl_trainer_scale_lr(pl_trainer_t *trainer, double factor,
                               const char *optimizer, pl_on_command_t on_command,
                               void *user, pl_error_t *err);

/* What a checkpoint directory says of itself: its manifest, JSON, as doc/checkpoints.md
 * has it; with `verify` every block of its files is read and held against it.  An error
 * names file and bytes.  pl_text_free() frees it.  Any thread; it may take a while. */
PL_API char *pl_checkpoint_describe(const char *path, bool verify, pl_error_t *err);

/* Which weights a run directory stands for, wherever one is taken as a checkpoint:
 * {"path": "runs/0001/checkpoints/epoch=3-step=40", "which": "best", "monitor":
 * "val_loss", "newest": "runs/0001/model.safetensors"} by the first model_checkpoint that
 * has a monitor; else "newest", a checkpoint, or "final", the file that the run ended
 * with, whichever has more steps: as "newest" it stands there in any case.
 * PL_ENOTFOUND: there are none.  pl_text_free() frees it.  Any thread. */
PL_API char *pl_run_describe(const char *run_dir, pl_error_t *err);

/* A path with "latest" in it, such as "runs/latest": with the name of the newest run,
 * which that file holds, in its place.  pl_trainer_resume() and all that read weights do this
 * by themselves; for programs that open files in a run directory.  NULL: out of memory;
 * pl_text_free() frees it. */
PL_API char *pl_run_path(const char *path);

/* What a .safetensors file holds, without its data: {"tensors": {"fc1.weight": {"dtype":
 * "F32", "shape": [128, 784], "offset": 696, "bytes": 401408}, …}, "metadata": {"module":
 * "…", …}}; offsets count from the file's start.  All of the header is checked, as when
 * weights are loaded: an error names file and byte.  pl_text_free() frees it.  Any
 * thread. */
PL_API char *pl_weights_describe(const char *path, pl_error_t *err);

/* ---- A loop of one's own ----------------------------------------------------------- */

/* A program whose batches come from elsewhere, a stream of events or an environment that
 * it acts in, decides by itself what is done next: it sends a batch to be trained on,
 * another to be measured or predicted with the weights of that moment.  The module, the
 * optimizer, its schedule and the trainer's options are a run's; what a run's loop does
 * is not done: no epochs, no validation, no limits, no callbacks.
 *
 * All calls return at once, and each that returns PL_OK is told of exactly once, from the
 * engine's notifications, on the program's thread.  Batches are done in the order in
 * which they were sent, and told so, whatever their sort.  The same batches in the same
 * order give the bits that a run would. */
typedef struct pl_loop pl_loop_t;

struct pl_field;
struct pl_arrays;

typedef struct pl_loop_spec {
    int field_count;                    /* of a sample, as pl_input() asks for them: */
    const struct pl_field *field;       /* [field_count], copied; none varies in length */
    int targets;                        /* so many of the last fields are there for losses
                                           alone: predicting goes without them */
    const char *facts;                  /* as in pl_data_info_t, but copied  [none] */
    bool keeps;                         /* it has a run directory, as a fit has, with what
                                           it is saved to, its figures and at the end its
                                           weights  [nothing is written] */
    const char *resume;                 /* goes on from a checkpoint, its own or a fit's
                                           of the same options  [begins afresh] */
    int depth;                          /* batches and saves under way at once, 1 to 60
                                           [8] */
} pl_loop_spec_t;

/* What came of one call.  What it points to lives until the notification returns. */
typedef struct pl_loop_result {
    pl_error_t error;                   /* code PL_OK: it went well, and the rest holds */
    uint64_t global_step;               /* optimizer steps done then */
    const char *skipped;                /* of a step that was not finite, with
                                           trainer.nan_policy "skip": what was not.  It
                                           changed nothing, and counts.  Otherwise "" */
    double loss;                        /* mean over the batch; NaN: the module tells none
                                           by that name alone */
    double grad_norm;                   /* before clipping; NaN: no optimizer step */
    const char *metrics;                /* JSON object of all figures, names as in a run:
                                           "train_acc", "val_loss", "lr-adamw" */
    int output_count;                   /* of a prediction: [samples, …] each; of
                                           pl_loop_close(): the module's tensors */
    const pl_result_tensor_t *output;
    const char *run_dir;                                    /* "" when there is none */
} pl_loop_result_t;

typedef void (*pl_on_loop_t)(pl_loop_t *loop, const pl_loop_result_t *result, void *user);

/* The figure of a name; false when there is none. */
PL_API bool pl_loop_metric(const pl_loop_result_t *result, const char *name,
                           double *value);

/* Opens a loop; on_ready [nobody asks] tells when batches can be sent, or why not.
 * options are those of a run, copied and checked: "data.batch_size" is how many samples a
 * batch has at most, and what the size of a step is scaled by; all else under "data" is
 * for a fit that goes on from here.  It has one rank, a thread of this process: launcher
 * "inline", or "external" of one process.  NULL: PL_EINVAL, PL_ESTATE, PL_ENOMEM. */
PL_API pl_loop_t *pl_loop_open(pl_engine_t *engine, const pl_options_t *options,
                               const pl_loop_spec_t *spec, pl_on_loop_t on_ready,
                               void *user, pl_error_t *err);

/* Trains on samples; measures them (figures as of a validation); predicts.  Samples are
 * copied before the call returns.  A number of samples that is new compiles, which takes
 * a moment.  With trainer.accumulate_grad_batches an optimizer step is taken behind each
 * so many.
 * PL_EINVAL: a field is missing, or of another type or shape; PL_EBUSY: as many as
 * `depth` are under way; PL_ESTATE: it is not open yet, or no longer.
 * A step that fails, such as by a loss that is not finite, is told as its error: weights,
 * state and optimizer are as they were before it, and so is global_step; what was sent
 * behind it is done all the same.  What ends the whole loop, a device that is stuck, is
 * told as the error of all that is under way; calls are then refused with PL_ESTATE. */
PL_API int pl_loop_train(pl_loop_t *loop, const struct pl_arrays *samples,
                         pl_on_loop_t on_step, void *user, pl_error_t *err);
PL_API int pl_loop_evaluate(pl_loop_t *loop, const struct pl_arrays *samples,
                            pl_on_loop_t on_measured, void *user, pl_error_t *err);
PL_API int pl_loop_predict(pl_loop_t *loop, const struct pl_arrays *samples,
                           pl_on_loop_t on_predicted, void *user, pl_error_t *err);

/* Makes a checkpoint of all that was sent before, RUN_DIR/checkpoints/NAME: told when it
 * is durable; batches go on meanwhile.  pl_model_load(), a fit with the same options and
 * pl_loop_open() take it.  PL_ESTATE: the loop was opened without `keeps`. */
PL_API int pl_loop_save(pl_loop_t *loop, const char *name, pl_on_loop_t on_saved,
                        void *user, pl_error_t *err);

/* Batches sent from now on train at so many times the rate that the options and the
 * schedule say. */
PL_API int pl_loop_scale_lr(pl_loop_t *loop, double factor, pl_error_t *err);

/* Ends a loop once all that was sent is done.  on_closed [nobody asks] comes last and has
 * the weights, unless the loop had failed; after it the loop is gone.  May be called from
 * a notification.  An engine that is closed or freed ends its loops, which are then not
 * to be closed. */
PL_API void pl_loop_close(pl_loop_t *loop, pl_on_loop_t on_closed, void *user);

/* ---- Calls that wait -------------------------------------------------------------- */

/* For a program without an event loop: twins of the calls above, which return when it is
 * told what came of them; pl_loop_open_wait() a loop that batches can be sent to  [NULL:
 * why not].  They run the engine's notifications meanwhile, their own among
 * them [nobody asks]; what comes of other calls under way is told too.  The code is that
 * of the result's error; PL_OK: it went well, also a run that was stopped.
 * PL_ESTATE: the engine has an event base, whose thread must not wait, or this is a
 * notification.  PL_ECANCELLED: what was waited for was freed or its engine closed by a
 * notification.  On the engine's thread. */
PL_API int pl_trainer_fit_wait(pl_trainer_t *trainer, pl_on_done_t on_done, void *user,
                               pl_error_t *err);
PL_API int pl_trainer_resume_wait(pl_trainer_t *trainer, const char *from,
                                  pl_on_done_t on_done, void *user, pl_error_t *err);
PL_API int pl_trainer_validate_wait(pl_trainer_t *trainer, const char *checkpoint,
                                    pl_on_done_t on_done, void *user, pl_error_t *err);
PL_API int pl_trainer_test_wait(pl_trainer_t *trainer, const char *checkpoint,
                                pl_on_done_t on_done, void *user, pl_error_t *err);
PL_API int pl_trainer_predict_wait(pl_trainer_t *trainer, const pl_prediction_t *what,
                                   pl_on_done_t on_done, void *user, pl_error_t *err);
PL_API int pl_trainer_tune_wait(pl_trainer_t *trainer, const pl_tuning_t *what,
                                pl_on_done_t on_done, void *user, pl_error_t *err);

PL_API int pl_trainer_pause_wait(pl_trainer_t *trainer, pl_on_command_t on_command,
                                 void *user, pl_error_t *err);
PL_API int pl_trainer_continue_wait(pl_trainer_t *trainer, pl_on_command_t on_command,
                                    void *user, pl_error_t *err);
PL_API int pl_trainer_save_wait(pl_trainer_t *trainer, pl_on_command_t on_command,
                                void *user, pl_error_t *err);
PL_API int pl_trainer_save_as_wait(pl_trainer_t *trainer, const char *name,
                                   pl_on_command_t on_command, void *user,
                                   pl_error_t *err);
PL_API int pl_trainer_set_lr_wait(pl_trainer_t *trainer, double lr, const char *optimizer,
                                  pl_on_command_t on_command, void *user,
                                  pl_error_t *err);
PL_API int pl_trainer_scale_lr_wait(pl_trainer_t *trainer, double factor,
                                    const char *optimizer, pl_on_command_t on_command,
                                    void *user, pl_error_t *err);

PL_API pl_loop_t *pl_loop_open_wait(pl_engine_t *engine, const pl_options_t *options,
                                    const pl_loop_spec_t *spec, pl_error_t *err);
PL_API int pl_loop_train_wait(pl_loop_t *loop, const struct pl_arrays *samples,
                              pl_on_loop_t on_step, void *user, pl_error_t *err);
PL_API int pl_loop_evaluate_wait(pl_loop_t *loop, const struct pl_arrays *samples,
                                 pl_on_loop_t on_measured, void *user, pl_error_t *err);
PL_API int pl_loop_predict_wait(pl_loop_t *loop, const struct pl_arrays *samples,
                                pl_on_loop_t on_predicted, void *user, pl_error_t *err);
PL_API int pl_loop_save_wait(pl_loop_t *loop, const char *name, pl_on_loop_t on_saved,
                             void *user, pl_error_t *err);
PL_API int pl_loop_close_wait(pl_loop_t *loop, pl_on_loop_t on_closed, void *user,
                              pl_error_t *err);

/* ---- Journals --------------------------------------------------------------------- */

/* What pl_engine_journal() has written; doc/formats.md has the format.  One thread. */
typedef struct pl_journal pl_journal_t;

/* Opens a journal to be read from its beginning.  NULL: PL_ENOTFOUND, PL_EIO; PL_EFORMAT:
 * it is no journal, or of another version. */
PL_API pl_journal_t *pl_journal_open(const char *path, pl_error_t *err);
PL_API void pl_journal_close(pl_journal_t *journal);

/* The next line of the stream, as doc/messages.md has it; or {"gap": messages, "rank":
 * whose} where some are missing (null: perhaps, as its process died), {"damaged": bytes,
 * "at": offset} where the file is and it goes on behind that; gone with the next call.
 * NULL: the end, with err->code PL_OK, or PL_EFORMAT where the file was cut off or
 * damaged. */
PL_API const char *pl_journal_next(pl_journal_t *journal, pl_error_t *err);
/* When that was: seconds of the stream. */
PL_API double pl_journal_seconds(const pl_journal_t *journal);
/* Shows it in an engine's stream.  PL_EBUSY: nobody watches there. */
PL_API int pl_journal_show(pl_journal_t *journal, pl_engine_t *engine, pl_error_t *err);

/* What a journal says of its run, JSON, as doc/tracing.md has it: how and why it ended,
 * what each rank was doing then, who waited for whom, where the time went.
 * pl_text_free() frees it.  It may take a while. */
PL_API char *pl_journal_explain(const char *path, pl_error_t *err);
/* The same of one of several runs, which are counted from 1 in the order they began in;
 * 0: the newest, as above.  PL_EINVAL: there are not so many. */
PL_API char *pl_journal_explain_run(const char *path, uint64_t run, pl_error_t *err);

/* ---- Answers without a trainer ---------------------------------------------------- */

/* A trained module, ready to answer for samples in memory; no engine, no actor.  Used by
 * one thread at a time; many may be there. */
typedef struct pl_loaded_model pl_loaded_model_t;

/* Loads a module with its weights, of a checkpoint: a .safetensors file of Paceline's, a
 * checkpoint or a run directory; it says which module it is of, which pl_init() or a
 * plug-in must have made known.  threads: that compute  [0: one].  NULL: PL_ENOTFOUND,
 * PL_EFORMAT, PL_EIO, PL_ENOMEM. */
PL_API pl_loaded_model_t *pl_model_load(const char *checkpoint, int threads,
                                        pl_error_t *err);
PL_API void pl_model_unload(pl_loaded_model_t *model);

/* What the module gives for each sample, in the order of its pl_output() calls; lives
 * until the next run or unload. */
typedef struct pl_answers {
    int count;
    const pl_result_tensor_t *output;                   /* [samples, …] each, float32 */
} pl_answers_t;

/* Answers for samples in memory.  Their fields are the module's inputs, those that only
 * losses need may be left out.  "x" is to be as the files of the training data have
 * it: what the data set did to it is done here too, as its facts say ("standardize": the
 * mean and deviation of each column of csv, the scaling of pixels from 0 to 255 of idx).
 * Other data sets have no such fact: what they made of their files has to be made before
 * (tokens of "text", by its vocabulary).  Bytes and doubles become float32.  The first
 * run of a number of samples compiles:
 * powers of two up to 64 share what is compiled, more go in pieces.  PL_EINVAL: an input
 * is missing or has another shape. */
PL_API int pl_model_run(pl_loaded_model_t *model, const struct pl_arrays *samples,
                        pl_answers_t *answers, pl_error_t *err);

/* ---- Graphs ------------------------------------------------------------------------ */

/* What a graph, a batch or a run is for. */
typedef enum pl_stage { PL_TRAIN, PL_VALIDATE, PL_TEST, PL_PREDICT } pl_stage_t;

/* A graph being described by a module's step.  The first error sticks: later calls do
 * nothing and return a node that says so, and whoever asked for the graph gets the
 * error.  One thread. */
typedef struct pl_graph pl_graph_t;

/* A value of a graph, by number: copy it freely.  It belongs to the graph that made
 * it. */
typedef struct pl_node {
    int32_t id;
} pl_node_t;

/* How a parameter starts; a pure function of (seed, path, element). */
typedef struct pl_init_rule {
    enum { PL_INIT_ZEROS, PL_INIT_CONSTANT, PL_INIT_NORMAL, PL_INIT_UNIFORM } kind;
    double a;                                 /* the constant; the deviation; the bound of
                                                 uniform(-a, a) */
} pl_init_rule_t;

/* How ranks agree on a state tensor. */
typedef enum pl_agree { PL_AGREE_RANK0, PL_AGREE_MEAN, PL_AGREE_NONE } pl_agree_t;

/* All 0; all one value; normally distributed around 0; evenly in (-bound, bound). */
PL_API pl_init_rule_t pl_zeros(void);
PL_API pl_init_rule_t pl_constant(double value);
PL_API pl_init_rule_t pl_normal(double deviation);
PL_API pl_init_rule_t pl_uniform(double bound);

/* Fails the graph: for modules that find their options impossible.  A code that is none
 * of PL_ERRORS becomes PL_EUSER.  Returns an invalid node. */
PL_API pl_node_t pl_graph_fail(pl_graph_t *g, int code, const char *format, ...)
    PL_PRINTF(3, 4);

/* Names made after this have "h.3." before them, until the matching end. */
PL_API void pl_scope(pl_graph_t *g, const char *format, ...) PL_PRINTF(2, 3);
PL_API void pl_scope_end(pl_graph_t *g);

/* The shape of a node; rank 0 after an error. */
PL_API pl_shape_t pl_shape_of(pl_graph_t *g, pl_node_t x);
PL_API int64_t pl_dim(pl_graph_t *g, pl_node_t x, int axis);  /* axis from the end when
                                                                 negative */
PL_API pl_shape_t pl_shape(int rank, ...);                  /* ints: pl_shape(3, 2, 3,
                                                               4); PL_SHAPE() takes
                                                               int64_t */
#ifdef __cplusplus
#define PL_SHAPE(...) \
    (pl_shape_t{(int)std::initializer_list<int64_t>{__VA_ARGS__}.size(), {__VA_ARGS__}})
#else
#define PL_SHAPE(...) \
    ((pl_shape_t){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                  {__VA_ARGS__}})
#endif

/* A field of the batch, by the data set's name for it: [batch, …]. */
PL_API pl_node_t pl_input(pl_graph_t *g, const char *name);
/* Whether the batch has such a field (predicting may have no labels). */
PL_API bool pl_has_input(pl_graph_t *g, const char *name);
/* A parameter, trained; float32.  The same path twice is the same storage (tied weights)
 * and needs the same shape. */
PL_API pl_node_t pl_param(pl_graph_t *g, const char *name, pl_shape_t shape,
                          pl_init_rule_t init);
/* State that is not trained, such as running statistics; float32. */
PL_API pl_node_t pl_state(pl_graph_t *g, const char *name, pl_shape_t shape,
                          pl_init_rule_t init, pl_agree_t agree);
/* A constant scalar, float32. */
PL_API pl_node_t pl_scalar(pl_graph_t *g, double value);
/* 0, 1, … n-1 as int32 [n]: positions. */
PL_API pl_node_t pl_range(pl_graph_t *g, int64_t n);

/* What the step is for: a result for each sample when predicting, [batch, ...] float32,
 * or int32, which is told as float32. */
PL_API void pl_output(pl_graph_t *g, const char *name, pl_node_t x);
/* What a metric's sums come to.  They add up over batches and ranks; a value is made of
 * them at the end only, so it is never a mean of means.  X(NAME, what it is) */
#define PL_METRICS(X) \
    X(MEAN, "sum / weight") \
    X(ROOT, "square root of sum / weight") \
    X(EXP, "e to the power of sum / weight") \
    X(BITS, "sum / (weight ln 2)") \
    X(R2, "1 - sum of (x - y)^2 / sum of (y - mean y)^2") \
    X(CONFUSION, "how many of class i were taken for class j") \
    X(ACCURACY, "share that is right") \
    X(PRECISION, "of what was taken for a class, the share that is of it") \
    X(RECALL, "of what is of a class, the share that was taken for it") \
    X(F1, "harmonic mean of precision and recall") \
    X(AUROC, "area below the curve of true against false positives") \
    X(AVERAGE_PRECISION, "precision at each recall, weighted by the recall gained")

typedef enum pl_metric_kind {
#define PL_X(name, help) PL_METRIC_##name,
    PL_METRICS(PL_X)
#undef PL_X
        PL_METRIC_KINDS
} pl_metric_kind_t;

/* How the values of classes become one: their mean, those with neither samples nor
 * predictions left out; of all counts together; their mean by how many samples are of
 * each; not at all: "f1_0", "f1_1", … */
typedef enum pl_average { PL_MACRO, PL_MICRO, PL_WEIGHTED, PL_PER_CLASS } pl_average_t;

/* A figure as sums.  Of a pair: the sum over samples or tokens and their weight, two
 * scalars.  Of any other kind: sum is [...] and weight is the same node. */
typedef struct pl_metric {
    pl_node_t sum;
    pl_node_t weight;
    pl_metric_kind_t kind;
    pl_average_t average;
} pl_metric_t;

/* Losses and figures of a step.  A loss is such a pair, a mean. */
typedef pl_metric_t pl_loss_t;
PL_API pl_loss_t pl_pair(pl_node_t sum, pl_node_t weight);
/* What training makes smaller, and the figure "loss"; once in a step of training, and
 * where it is to be known otherwise. */
PL_API void pl_loss(pl_graph_t *g, pl_loss_t loss);
typedef enum pl_log_when { PL_ON_EPOCH = 1, PL_ON_STEP = 2 } pl_log_when_t;
/* A figure to log: its sums add up over batches and ranks; the stage prefixes the name
 * (val_acc).  In training, what is logged at steps, such as the loss, has in each
 * line the mean since the line before ("train_loss") and, in the last of an epoch, that
 * of the epoch besides ("train_loss_epoch"). */
PL_API void pl_log(pl_graph_t *g, const char *name, pl_metric_t figure,
                   pl_log_when_t when);

/* Operators.  Shapes: B batch, T tokens, C channels or classes; "..." any leading axes.
 * Values are float32 unless said otherwise.  Inputs whose shapes or types do not go
 * together fail the graph with PL_EINVAL, which names both and the operator's path.
 * Element-wise ones give the shape of their input; of two inputs, that which both
 * broadcast to as NumPy has it.  Axes count from the end when negative. */
PL_API pl_node_t pl_add(pl_graph_t *g, pl_node_t a, pl_node_t b);
PL_API pl_node_t pl_sub(pl_graph_t *g, pl_node_t a, pl_node_t b);
PL_API pl_node_t pl_mul(pl_graph_t *g, pl_node_t a, pl_node_t b);
PL_API pl_node_t pl_div(pl_graph_t *g, pl_node_t a, pl_node_t b);
PL_API pl_node_t pl_minimum(pl_graph_t *g, pl_node_t a, pl_node_t b);  /* no gradient */
PL_API pl_node_t pl_neg(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_sign(pl_graph_t *g, pl_node_t x);       /* -1, 0 or 1; no gradient */
PL_API pl_node_t pl_exp(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_log_of(pl_graph_t *g, pl_node_t x);     /* natural logarithm (pl_log
                                                               logs a figure) */
PL_API pl_node_t pl_sqrt(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_relu(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_gelu(pl_graph_t *g, pl_node_t x);       /* by erf */
PL_API pl_node_t pl_gelu_tanh(pl_graph_t *g, pl_node_t x);  /* tanh approximation */
PL_API pl_node_t pl_sigmoid(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_tanh(pl_graph_t *g, pl_node_t x);
PL_API pl_node_t pl_scale(pl_graph_t *g, pl_node_t x, double factor);
/* Reductions over `axes` (axis_count of them; 0: all), kept as size 1 when keep. */
PL_API pl_node_t pl_sum(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count,
                        bool keep);
PL_API pl_node_t pl_mean(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count,
                         bool keep);
/* The largest along an axis; its gradient goes to the first of them. */
PL_API pl_node_t pl_max(pl_graph_t *g, pl_node_t x, int axis, bool keep);
/* Where along the axis the first largest is: int32, without that axis. */
PL_API pl_node_t pl_argmax(pl_graph_t *g, pl_node_t x, int axis);
/* The same elements in another shape; one of its sizes may be -1: what is left. */
PL_API pl_node_t pl_reshape(pl_graph_t *g, pl_node_t x, pl_shape_t shape);
/* All axes from one on as one: [a, b, c] from 1 is [a, b c]. */
PL_API pl_node_t pl_flatten(pl_graph_t *g, pl_node_t x, int from_axis);
/* Axis i is axis order[i] of x: order [rank of x]. */
PL_API pl_node_t pl_permute(pl_graph_t *g, pl_node_t x, const int *order);
/* Elements [from, to) along an axis. */
PL_API pl_node_t pl_slice(pl_graph_t *g, pl_node_t x, int axis, int64_t from, int64_t to);
/* One behind the other along an axis, up to 8; all other axes are alike. */
PL_API pl_node_t pl_concat(pl_graph_t *g, const pl_node_t *x, int count, int axis);
/* Products.  a [..., M, K] (or [..., K, M] when transpose_a), b [..., K, N]; leading axes
 * broadcast. */
PL_API pl_node_t pl_matmul(pl_graph_t *g, pl_node_t a, pl_node_t b, bool transpose_a,
                           bool transpose_b);
/* x [..., K] -> [..., units]; parameters NAME.weight [units, K] and, unless no bias,
 * NAME.bias [units]; both start uniform(-1/sqrt(K), 1/sqrt(K)) as in torch.nn.Linear. */
PL_API pl_node_t pl_linear(pl_graph_t *g, const char *name, pl_node_t x, int64_t units);
typedef struct pl_linear_options {
    bool no_bias;
    const pl_init_rule_t *weight;                           /* [uniform] */
    const pl_init_rule_t *bias;                             /* [uniform] */
} pl_linear_options_t;
PL_API pl_node_t pl_linear_with(pl_graph_t *g, const char *name, pl_node_t x,
                                int64_t units, const pl_linear_options_t *options);
/* x [B, C, H, W] -> [B, channels, H', W']; NAME.weight [channels, C, kernel, kernel],
 * NAME.bias [channels]; cross-correlation as in torch.nn.Conv2d. */
typedef struct pl_conv_options {
    int64_t kernel, stride, padding;                        /* stride 0 means 1 */
    bool no_bias;
} pl_conv_options_t;
PL_API pl_node_t pl_conv2d(pl_graph_t *g, const char *name, pl_node_t x, int64_t channels,
                           const pl_conv_options_t *options);
/* x [B, C, H, W] -> [B, C, H', W'], the largest of each window of kernel x kernel; stride
 * 0 means kernel, so that windows do not overlap. */
PL_API pl_node_t pl_max_pool2d(pl_graph_t *g, pl_node_t x, int64_t kernel, int64_t stride,
                               int64_t padding);
/* Over batch and space of [B, C, ...]; NAME.weight, NAME.bias [C], state
 * NAME.running_mean, NAME.running_var [C]. Batch statistics when training, of all ranks
 * with trainer.sync_batchnorm; running ones otherwise. */
PL_API pl_node_t pl_batch_norm(pl_graph_t *g, const char *name, pl_node_t x,
                               double momentum, double epsilon);
/* Over the last axis; NAME.weight, NAME.bias [C] start at 1 and 0. */
PL_API pl_node_t pl_layer_norm(pl_graph_t *g, const char *name, pl_node_t x,
                               double epsilon);
/* indices int32 or int64 [...] -> [..., width]; NAME.weight [rows, width]. */
PL_API pl_node_t pl_embedding(pl_graph_t *g, const char *name, pl_node_t indices,
                              int64_t rows, int64_t width, pl_init_rule_t init);
/* Shares e^x / sum of e^x over the last axis. */
PL_API pl_node_t pl_softmax(pl_graph_t *g, pl_node_t x);
/* Zero with probability p and scaled by 1/(1-p) when training; the identity otherwise. */
PL_API pl_node_t pl_dropout(pl_graph_t *g, pl_node_t x, double p);
/* q, k, v [B, heads, T, d] -> [B, heads, T, d]; scores scaled by 1/sqrt(d); causal: a
 * token sees itself and earlier. */
typedef struct pl_attention_options {
    bool causal;                            /* padding behind a sample is not seen then */
    double dropout;                         /* of the weights, when training */
    const pl_node_t *mask;                  /* float32 [B, T]: a key at 0 has weight 0 for
                                               all queries; also when causal.  A query
                                               that sees no key gives 0 and has no
                                               gradient  [all are seen] */
} pl_attention_options_t;
PL_API pl_node_t pl_attention(pl_graph_t *g, pl_node_t q, pl_node_t k, pl_node_t v,
                              const pl_attention_options_t *options);
/* 1-d: the numbers as a constant float32 [count]. */
PL_API pl_node_t pl_vector(pl_graph_t *g, const double *values, int count);
/* logits [..., C], targets int32/int64 [...]; targets equal to ignore_index (when
 * has_ignore) count nothing.  A row counts as much as its class's weight times its own:
 * (sum of w loss, sum of w), as torch.nn.CrossEntropyLoss means it.  Weights have no
 * gradient. */
typedef struct pl_cross_entropy_options {
    bool has_ignore;
    int64_t ignore_index;
    const pl_node_t *class_weights;                         /* float32 [C]  [all 1] */
    const pl_node_t *weights;                               /* float32 [...]  [all 1] */
} pl_cross_entropy_options_t;
PL_API pl_loss_t pl_cross_entropy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                  const pl_cross_entropy_options_t *options);
/* sum of squares over all elements, their count */
PL_API pl_loss_t pl_mse(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* The same, each sample counting as much as its weight [B] says. */
PL_API pl_loss_t pl_weighted_mse(pl_graph_t *g, pl_node_t x, pl_node_t target,
                                 pl_node_t weights);

/* Metrics, for pl_log().  Those of classes take logits [..., C] and targets [...] int32
 * or int64; the class with the first largest logit is the one they are taken for. */
typedef struct pl_classes_options {
    bool has_ignore;
    int64_t ignore_index;                                 /* targets that count nothing */
    pl_average_t average;                                 /* [PL_MACRO] */
} pl_classes_options_t;
/* The share that is right; of the options only has_ignore says something here. */
PL_API pl_metric_t pl_accuracy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                               const pl_cross_entropy_options_t *options);
/* Right when fewer than k logits are before the target's. */
PL_API pl_metric_t pl_accuracy_top(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                   int64_t k, const pl_cross_entropy_options_t *options);
/* The others count each class: up to 256 of them. */
PL_API pl_metric_t pl_accuracy_of_classes(pl_graph_t *g, pl_node_t logits,
                                          pl_node_t targets,
                                          const pl_classes_options_t *options);
PL_API pl_metric_t pl_precision(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                const pl_classes_options_t *options);
PL_API pl_metric_t pl_recall(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                             const pl_classes_options_t *options);
PL_API pl_metric_t pl_f1(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                         const pl_classes_options_t *options);
/* A list of C lists; average is not used. */
PL_API pl_metric_t pl_confusion_matrix(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                                       const pl_classes_options_t *options);
/* Scores from 0 to 1, [..., C] for C classes each against all others, or [..., 1] for
 * class 1 against class 0.  Counted in `bins` bins (2 to 4096; 0: 200), as torchmetrics
 * does with `thresholds`, and so exact for scores that are multiples of 1 / (bins - 1).
 * For others the AUROC is off by at most half the share of pairs, one sample of the class
 * and one of the others, that have a bin in common: about 1 / (2 bins) where scores are
 * spread evenly.  The average precision is off by at most the sum over bins of the recall
 * gained there times the bin's share of all samples at or above it. */
PL_API pl_metric_t pl_auroc(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                            int64_t bins, const pl_classes_options_t *options);
PL_API pl_metric_t pl_average_precision(pl_graph_t *g, pl_node_t scores,
                                        pl_node_t targets, int64_t bins,
                                        const pl_classes_options_t *options);
/* Of x and target, both of any one shape, over all elements. */
PL_API pl_metric_t pl_rmse(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_mae(pl_graph_t *g, pl_node_t x, pl_node_t target);
PL_API pl_metric_t pl_r2(pl_graph_t *g, pl_node_t x, pl_node_t target);
/* Of a loss in nats for each token, such as pl_cross_entropy(). */
PL_API pl_metric_t pl_perplexity(pl_loss_t loss);
/* The same, for tokens that stand for so many bytes on average. */
PL_API pl_metric_t pl_bits_per_byte(pl_graph_t *g, pl_loss_t loss,
                                    double bytes_per_token);

/* ---- Modules ----------------------------------------------------------------------- */

/* What a tensor of another program's file is in a module. */
typedef struct pl_adopted {
    char name[64];                              /* the module's name for it */
    bool transposed;                            /* a matrix that lies on its side there */
} pl_adopted_t;

/* As many steps as a module may be trained by. */
#define PL_STEPS 8

/* One step of a module that is trained in several ways, as the two sides of a GAN are.
 * Each has its own loss, parameters and optimizer. */
typedef struct pl_module_step {
    const char *name;               /* "generator": its key in "optimizer" and
                                       "scheduler", and before the names of its figures */
    const char *parameters;         /* it trains: patterns with spaces between; each
                                       parameter belongs to one step */
    /* Describes it, as step() below: a loss that reaches those parameters. */
    void (*describe)(pl_graph_t *g, const void *self);
    /* It is taken at every n-th optimizer step of the run, 1..  [1] */
    int64_t (*every_n_steps)(const void *self);
} pl_module_step_t;

#define PL_STEPS_END \
    { \
        NULL, NULL, NULL, NULL \
    }

/* A module: what is trained.  From its graph come parameters, losses and outputs. */
typedef struct pl_module_ops {
    PL_PART;
    /* Describes one step for a stage and the shapes at hand; self is the part's struct
     * with its options.  Called in the rank, once per (stage, shapes), never per batch.
     * Must be a pure function of its arguments. */
    void (*step)(pl_graph_t *g, const void *self, pl_stage_t stage);
    /* What the tensor `theirs` of a file that Paceline did not write is here; false: it
     * is not wanted.  In the rank.  [all have the module's own names] */
    bool (*adopt)(const void *self, const char *theirs, pl_adopted_t *ours);
    /* For training, instead of step(): up to PL_STEPS_END, each taken on every batch
     * after the one before it has been  [step() trains all parameters] */
    const pl_module_step_t *steps;
} pl_module_ops_t;

/* ---- Operators of one's own -------------------------------------------------------- */

/* As many inputs as an operator may have; as much of its own as a node keeps of it. */
#define PL_OPERATOR_INPUTS 8
#define PL_OPERATOR_SELF 64                                 /* bytes */

/* In what precision an operator may compute. */
typedef enum pl_precision_class {
    PL_PRECISION_promote,                                   /* that of its widest input */
    PL_PRECISION_float32,                                   /* no lower one */
    PL_PRECISION_low,                                       /* half precision as well */
} pl_precision_class_t;

/* One use of an operator in a graph. */
typedef struct pl_use {
    const void *self;                                       /* as given to pl_apply() */
    pl_node_t input[PL_OPERATOR_INPUTS];
    pl_node_t output;
} pl_use_t;

/* What a kernel computes with: tensors in the accelerator's memory, row-major without
 * gaps, of "cpu" float32.  The output shares no memory with the inputs. */
typedef struct pl_kernel_call {
    const void *self;
    const void *input[PL_OPERATOR_INPUTS];
    pl_shape_t input_shape[PL_OPERATOR_INPUTS];
    void *output;
    pl_shape_t output_shape;
} pl_kernel_call_t;

typedef struct pl_kernel {
    const char *accelerator;                /* "cpu"; "reference": float64, for 64-true */
    /* Writes rows [from, to) of the output.  Several threads at once, each with rows of
     * its own; a row must come out the same however they are divided, so that the same
     * run gives the same bits. */
    void (*run)(const pl_kernel_call_t *call, int64_t from, int64_t to);
} pl_kernel_t;

#define PL_KERNELS_END \
    { \
        NULL, NULL \
    }

/* An operator of one's own: its shape, its gradient and what computes it. */
typedef struct pl_operator_ops {
    PL_PART;                           /* size: plain values, up to PL_OPERATOR_SELF
                                          bytes; no options, for pl_apply() gives the
                                          values */
    int inputs;                        /* 1 to PL_OPERATOR_INPUTS; all are float32, as the
                                          output is */
    int row_axes;                      /* how many of the output's last axes are one row
                                          for the kernels; 0: each element is a row */
    pl_precision_class_t precision;
    /* Checks the inputs and fills in the output's shape, which comes as that of the first
     * [all of the same shape] */
    int (*shape)(const void *self, const pl_shape_t input[], pl_shape_t *output,
                 pl_error_t *err);
    /* Describes dx[k] = d(loss)/d(input k) from dy = d(loss)/d(output), each of its
     * input's shape; those that are left alone are zero  [it has no gradient] */
    void (*gradient)(pl_graph_t *g, const pl_use_t *use, pl_node_t dy, pl_node_t dx[]);
    const pl_kernel_t *kernels;       /* one for each accelerator, up to PL_KERNELS_END */
} pl_operator_ops_t;

/* The operator registered under a name, applied to `count` inputs; its values are copied
 * from self [all zero]. */
PL_API pl_node_t pl_apply(pl_graph_t *g, const char *name, const pl_node_t *inputs,
                          int count, const void *self);

/* For shape rules: the shape that a and b broadcast to, as NumPy does; false when they do
 * not. */
PL_API bool pl_broadcast_shapes(pl_shape_t a, pl_shape_t b, pl_shape_t *out);

/* ---- Precisions -------------------------------------------------------------------- */

/* In which number formats a run computes and keeps its weights: all of them PL_F32,
 * PL_F64, PL_BF16 or PL_F16. */
typedef struct pl_precision_ops {
    PL_PART;
    pl_dtype_t low;          /* operators of the class low */
    pl_dtype_t wide;         /* those of the class float32, gradients, state, optimizer */
    pl_dtype_t params;       /* parameters between two steps */
    bool scales;             /* the part's struct begins with a pl_loss_scaling_t */
} pl_precision_ops_t;

/* The loss is multiplied before backward, so that small gradients survive, and gradients
 * are divided before they are used.  A step whose gradients are not finite is skipped and
 * lowers the factor; many good ones in a row raise it.  As torch.cuda.amp.GradScaler. */
typedef struct pl_loss_scaling {
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;             /* good steps in a row */
    double min_scale;                    /* not finite with this factor: the step fails */
} pl_loss_scaling_t;

/* ---- Optimizers and schedules ------------------------------------------------------ */

/* As many numbers as an optimizer may keep for each parameter, and be told of a step. */
#define PL_SLOTS 4
#define PL_SCALARS 3

/* The nodes of one range of parameters, all [n] or scalars; filled in for the optimizer's
 * update. */
typedef struct pl_update {
    pl_node_t param;                /* [n]; of a tensor that is updated alone: its shape,
                                       which all below with [n] then have */
    pl_node_t grad;                 /* [n] of the mean loss, already clipped */
    pl_node_t slot[PL_SLOTS];       /* [n] the optimizer's own state, zero at the start */
    pl_node_t lr;                   /* [] */
    pl_node_t scalar[PL_SCALARS];   /* [] what scalars() wrote for this step */
    pl_node_t momentum, rest;       /* [] of this step, and 1 less it, where the schedule
                                       gives it: for pl_times_momentum() */
    bool cycles;                    /* it does */
} pl_update_t;

/* An optimizer: how gradients change parameters. */
typedef struct pl_optimizer_ops {
    PL_PART;                            /* options must have "lr" as the first, a float */
    int (*slots)(const void *self);     /* how many slots update() uses, 0 to PL_SLOTS */
    /* Describes the update of any range with element-wise operators and pl_assign(); once
     * for each range of a plan.  An option "weight_decay", if there is one, is 0 in self
     * where nothing is to decay. */
    void (*update)(pl_graph_t *g, const void *self, const pl_update_t *u);
    /* What changes with the step, counted from 1: bias corrections and such  [nothing] */
    void (*scalars)(const void *self, uint64_t step, double scalar[PL_SCALARS]);
    /* Whether update() wants a tensor of this shape alone and in its shape, with any
     * operators  [no: ranges of many tensors] */
    bool (*alone)(const void *self, pl_shape_t shape);
    /* The name of the option, a float, whose place a schedule's momentum takes; update()
     * then has it from pl_times_momentum()  [it has none] */
    const char *momentum;
} pl_optimizer_ops_t;

/* For updates: x times this step's momentum, and times 1 less it.  `option` is that of
 * self, a constant of the plan unless the schedule gives another for each step. */
PL_API pl_node_t pl_times_momentum(pl_graph_t *g, const pl_update_t *u, pl_node_t x,
                                   double option);
PL_API pl_node_t pl_times_rest(pl_graph_t *g, const pl_update_t *u, pl_node_t x,
                               double option);

/* target (a parameter or slot) becomes value when the plan is replayed. */
PL_API void pl_assign(pl_graph_t *g, pl_node_t target, pl_node_t value);

/* Where in a run an optimizer step is. */
typedef struct pl_moment {
    uint64_t step, total_steps;        /* steps before it; of the run, 0: unknown */
    uint64_t epoch, total_epochs;      /* epochs before its own; of the run, 0: unknown */
    uint64_t epoch_steps;              /* of a whole epoch */
    bool epoch_ends;                   /* with this step */
} pl_moment_t;

/* A schedule: what becomes of the learning rate over a run. */
typedef struct pl_scheduler_ops {
    PL_PART;
    /* Factor on the optimizer's lr; pure, but for what observe() has kept in self. */
    double (*factor)(const void *self, const pl_moment_t *when);
    /* After a validation or, without validation data, an epoch: the newest figures, a
     * JSON object by name  [it needs none] */
    int (*observe)(void *self, const char *figures, pl_error_t *err);
    /* The figure that observe() cannot do without: a run that will not have it is refused
     * before it starts  [it takes what comes] */
    const char *(*monitor)(const void *self);
    /* What observe() has kept, for checkpoints: JSON from pl_text() or the like, and back
     * [both NULL: nothing] */
    char *(*save)(const void *self, pl_error_t *err);
    int (*restore)(void *self, const char *saved, pl_error_t *err);
    /* The optimizer's momentum, or Adam's beta1, in place of its option; pure; NaN, at
     * any moment or none: the option holds  [the option holds] */
    double (*momentum)(const void *self, const pl_moment_t *when);
} pl_scheduler_ops_t;

/* An average of the weights over optimizer steps. */
typedef struct pl_averaging_ops {
    PL_PART;
    /* How much of it the weights after this step take up: 1 begins anew, 0 leaves the
     * average as it is; pure. */
    double (*share)(const void *self, const pl_moment_t *when);
    /* How far the learning rate has gone from the schedule's at *start, which is filled
     * in, to *lr: 0 to 1; pure  [it is the schedule's] */
    double (*anneal)(const void *self, const pl_moment_t *when, pl_moment_t *start,
                     double *lr);
} pl_averaging_ops_t;

/* ---- Data -------------------------------------------------------------------------- */

/* As many fields as a sample may have. */
#define PL_FIELDS 8

/* One field of a sample. */
typedef struct pl_field {
    char name[32];                                /* "x", "y": what pl_input() asks for */
    pl_dtype_t dtype;
    pl_shape_t shape;                          /* of one sample, without the batch axis */
} pl_field_t;

/* Size of the first axis of a field that is as long as the sample. */
#define PL_VARIES (-1)

/* What a data set says of itself when opened. */
typedef struct pl_data_info {
    int64_t samples;
    int field_count;
    pl_field_t field[PL_FIELDS];
    bool ordered;                    /* splits must be contiguous (text), and were made
                                        by the data set itself from the request's share */
    bool same_samples;               /* a test reads what training does, all of it: then
                                        it is said where one source is for both */
    char *facts;                     /* JSON object: {"classes": 10, "vocabulary": "…"};
                                        fills module options left "auto" and is stored
                                        with the weights; "standardize": [[mean, factor],
                                        …], x = (value - mean) * factor for each number
                                        of "x", or for all, is what pl_model_run() does
                                        as well; from pl_text(), freed by the caller
                                        [NULL] */
    double padding[PL_FIELDS];       /* what stands behind shorter samples in fields that
                                        vary */
} pl_data_info_t;

/* What is asked of a data set. */
typedef struct pl_data_request {
    pl_stage_t stage;                /* train and validate read the training data, test
                                        and predict the test data where there are two */
    double from, to;                 /* share of the data, for ordered sets: [from, to) */
    uint64_t seed;
    const char *facts;                  /* of the training data, as its open() gave them:
                                           for validation data, and with weights that it
                                           was used for; borrowed for the call [NULL:
                                           nothing is known] */
    double val_split;                   /* of training data that is not ordered: share
                                           that the run keeps for validation [0: none] */
    bool stratify;                      /* with the proportions of the classes in "y" */
    uint32_t rank;                      /* that reads; what concerns all is logged by 0 */
} pl_data_request_t;

/* Which samples to read into a batch. */
typedef struct pl_read_request {
    const int64_t *index;                              /* [count], each in [0, samples) */
    int count;
    uint64_t seed, epoch;                /* randomness is a pure function of these and the
                                            index */
    pl_stage_t stage;
    int64_t length;                      /* of the first axis of fields that vary: samples
                                            begin so far apart, and what is not written is
                                            padding already */
} pl_read_request_t;

/* A data set: where samples come from. */
typedef struct pl_dataset_ops {
    PL_PART;
    /* Opens files, checks them, fills *info.  Data thread. */
    int (*open)(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                pl_error_t *err);
    /* Writes request->count samples: field[k] is [count, …] of the k-th field,
     * contiguous.  Several data threads at once; must not change self. */
    int (*read)(const void *self, const pl_read_request_t *request, void *const field[],
                pl_error_t *err);
    void (*close)(void *self);           /* data thread; also after a failed open [nothing
                                            to do] */
    /* How long a sample is in its fields that vary, 1..; once for each, after open().  A
     * batch has samples of nearly one length, all padded to the longest of them, and a
     * field "mask", float32 [length], 1 where there is something.  [No field varies] */
    int64_t (*length)(const void *self, int64_t index);
} pl_dataset_ops_t;

/* Data that the program itself holds: a source known by name in this process, which the
 * run file calls {"name": "memory", "source": NAME}.  Under a launcher that starts
 * processes each of them has to register it. */
typedef struct pl_memory_data {
    int64_t samples;
    int field_count;
    pl_field_t field[PL_FIELDS];
    const char *facts;                      /* as in pl_data_info_t, but copied  [none] */
    /* As read() of pl_dataset_ops_t: several data threads at once. */
    int (*read)(void *user, const pl_read_request_t *request, void *const field[],
                pl_error_t *err);
    void *user;                       /* for read; must stay while the source is in use */
    int64_t (*length)(void *user, int64_t index);  /* as in pl_dataset_ops_t */
    double padding[PL_FIELDS];        /* as in pl_data_info_t */
} pl_memory_data_t;

/* Registers a source under a name, for data opened from now on; it takes the place of one
 * that is there.  *data and what it names is copied, except what user points to; data
 * NULL removes the name.  Sources in use stay until they are closed.  Any thread. */
PL_API int pl_memory_data(const char *name, const pl_memory_data_t *data,
                          pl_error_t *err);

/* The simplest case: one array for each field. */
typedef struct pl_arrays {
    int64_t samples;
    int field_count;
    pl_field_t field[PL_FIELDS];
    const void *data[PL_FIELDS];         /* [samples, shape of the field]; must stay while
                                            in use */
    const char *facts;                   /* as in pl_data_info_t, but copied  [none] */
    const int64_t *offset;               /* [samples + 1]: of fields that vary sample i is
                                            [offset[i], offset[i + 1]) of their first axis
                                            [none varies] */
    double padding[PL_FIELDS];           /* as in pl_data_info_t */
} pl_arrays_t;

/* Registers arrays under a name, as pl_memory_data() does. */
PL_API int pl_memory_arrays(const char *name, const pl_arrays_t *arrays, pl_error_t *err);

/* Reads samples out of arrays: user is a const pl_arrays_t *.  For a pl_memory_data_t of
 * one's own. */
PL_API int pl_arrays_read(void *user, const pl_read_request_t *request,
                          void *const field[], pl_error_t *err);

/* ---- Callbacks --------------------------------------------------------------------- */

/* What a callback may request.  X(NAME, "as it is called") */
#define PL_CALLBACK_REQUESTS(X) \
    X(STOP, "stop") \
    X(SKIP, "skip") \
    X(RATE, "lr_factor") \
    X(ACCUMULATE, "accumulate") \
    X(LOG, "figures") \
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

/* The points of a run at which callbacks are asked, in the order of a run.
 * X(NAME, "name", what may be wished for there, "when") */
#define PL_HOOKS(X) \
    X(FIT_START, "on_fit_start", PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE, \
      "before the first epoch; a run that goes on keeps the rate and " \
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
      "before a validation; skip: it") \
    X(VALIDATION_END, "on_validation_end", \
      PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_LOG | PL_MAY_SAVE, \
      "after a validation") \
    X(TRAIN_CUT, "on_train_cut", PL_MAY_SAVE, \
      "when a limit or a callback ends the run within an epoch") \
    X(TRAIN_EPOCH_END, "on_train_epoch_end", \
      PL_MAY_STOP | PL_MAY_RATE | PL_MAY_FREEZE | PL_MAY_LOG | PL_MAY_SAVE, \
      "after the last batch of an epoch") \
    X(FIT_END, "on_fit_end", 0, "after the last epoch") \
    X(TEST_START, "on_test_start", PL_MAY_STOP, "before a test") \
    X(TEST_END, "on_test_end", PL_MAY_LOG, "after a test") \
    X(PREDICT_START, "on_predict_start", PL_MAY_STOP, "before a prediction of data") \
    X(PREDICT_BATCH_END, "on_predict_batch_end", PL_MAY_STOP | PL_MAY_SKIP, \
      "when a batch is predicted; skip: its outputs are not kept for " \
      "the result") \
    X(PREDICT_END, "on_predict_end", 0, "after the last batch is predicted") \
    X(EXCEPTION, "on_exception", PL_MAY_SAVE, "when a fit fails, before it ends")

typedef enum pl_hook {
#define PL_X(name, text, may, when) PL_HOOK_##name,
    PL_HOOKS(PL_X)
#undef PL_X
        PL_HOOK_COUNT
} pl_hook_t;

/* A set of points: PL_AT(FIT_START) | PL_AT(VALIDATION_END). */
#define PL_AT(name) (1u << PL_HOOK_##name)

/* Besides PL_MAY_… in a callback's table: the device's peak is to be measured. */
#define PL_NEEDS_PEAK (1u << 31)
/* Likewise: at TRAIN_BATCH_END it looks on.  The run does not halt for it; all it may
 * request for there are figures and a stop, which comes a few steps later. */
#define PL_LOOKS_ON (1u << 30)
/* Likewise: it stops by the clock.  A run that goes on from there is not stopped by what
 * was wished before: it wishes again. */
#define PL_BY_CLOCK (1u << 29)

/* What a callback is told. */
typedef struct pl_hook_event {
    int rank;
    uint32_t epoch;                        /* from 0 */
    uint64_t global_step;                  /* optimizer steps done */
    uint64_t total_steps;                  /* of the run; 0: unknown */
    uint32_t batch, batches;               /* done in this epoch, and of it; before and
                                              after an epoch 0 */
    uint64_t samples;                      /* trained on since the run began, this rank */
    bool extra;                            /* at VALIDATION_END: of the validation at the
                                              end of the run, where none was due: a longer
                                              run does not have it; at TRAIN_EPOCH_END: of
                                              an epoch not trained to its end; at FIT_END:
                                              of a run that was stopped and has kept what
                                              it can go on from */
    const char *model;                     /* JSON object of what is trained: "layers",
                                              "parameters", "frozen" of them, "state"
                                              (elements),
                                              "train_flops", "tokens" (of a sample) */
    double device_flops;                   /* that the device does in a second, measured
                                              with products; 0: see PL_NEEDS_PEAK */
    bool validates;                        /* the run has validations */
    const char *metrics;                   /* JSON object of the newest figures by name */
    const char *error;                     /* at EXCEPTION: why it fails, in full; "" */
    int output_count;                      /* of the next: at PREDICT_BATCH_END and
                                              PREDICT_END; else 0 */
    const pl_result_tensor_t *output;      /* of the batch at PREDICT_BATCH_END, of all at
                                              PREDICT_END; [samples, …] each */
} pl_hook_event_t;

/* The newest value of a metric, such as "val_acc", and whether it is known; *value stays
 * as it is where it is not. */
PL_API bool pl_hook_metric(const pl_hook_event_t *event, const char *name, double *value);

/* What a callback wants; comes as a request for nothing. */
typedef struct pl_callback_request {
    bool stop;                      /* end the run here */
    bool skip;                      /* pass over what the point says */
    double lr_factor;               /* on the learning rate from the next step on, 0..;
                                       1: as it is; those of several callbacks multiply */
    int64_t accumulate;             /* batches behind one optimizer step from this epoch
                                       on; 0: as it is; the last callback's counts */
    char freeze[256];               /* patterns, with spaces between, of parameters not to
                                       be trained from the next step on  [""] */
    char unfreeze[256];             /* and of those to be trained again, also where they
                                       are among the others  [""] */
    char reason[160];               /* why it stops, for the result  [""] */
    char save[256];                 /* names of a checkpoint to be made, one a line; it is
                                       made between two steps  [""] */
    char drop[512];                 /* older ones that are no longer wanted once that one
                                       is safe, one a line  [""] */
    struct pl_callback_metrics *metrics;  /* of pl_callback_log() */
} pl_callback_request_t;

/* Wishes a figure to be logged, under a name of its own; one that is not finite becomes
 * null.  From on() only. */
PL_API int pl_callback_log(pl_callback_request_t *request, const char *name, double value,
                           pl_error_t *err);

/* A callback: what is asked at points of a run, and may request for something there.  All of
 * it runs on the rank's thread, where everything else of the rank waits: return soon.
 * What may be wished for where is in PL_HOOKS; anything else fails the run. */
typedef struct pl_callback_ops {
    PL_PART;
    unsigned points;                   /* where on() is called */
    unsigned requests;                 /* what has to be prepared: PL_MAY_ACCUMULATE
                                          when it may request for that, PL_NEEDS_PEAK when
                                          it reads device_flops; PL_MAY_SAVE when it
                                          will: then the first save holds the run up no
                                          longer than the others; PL_LOOKS_ON,
                                          PL_BY_CLOCK  [nothing] */
    /* Optimizer steps between two calls at TRAIN_BATCH_END; 0: never there  [1] */
    int64_t (*every_n_steps)(const void *self);
    int (*start)(void *self, pl_error_t *err);          /* before anything else of the run
                                                           [nothing to do] */
    /* An error fails the run with PL_EUSER. */
    int (*on)(void *self, pl_hook_t point, const pl_hook_event_t *event,
              pl_callback_request_t *request, pl_error_t *err);
    void (*stop)(void *self);            /* at the end; also after a failed start [nothing
                                            to do] */
    /* What a checkpoint is to keep of it, from pl_text(); and what was kept, after
     * start() of a run that goes on [both NULL: nothing].  Errors as of on(). */
    char *(*state)(const void *self, pl_error_t *err);
    int (*restore)(void *self, const char *state, pl_error_t *err);
} pl_callback_ops_t;

/* ---- Loggers ----------------------------------------------------------------------- */

/* Figures at one point of a run. */
typedef struct pl_record {
    uint32_t epoch;                               /* from 0 */
    uint64_t global_step;                         /* optimizer steps done */
    double time;                                  /* s since 1970 */
    const char *metrics;                          /* JSON object of the figures by name */
} pl_record_t;

/* What a logger is told of the run that it logs; borrowed for the call. */
typedef struct pl_log_run {
    const char *run_dir;
    const char *run;                   /* the effective run file, JSON: hyperparameters */
    /* Of a run that goes on: what position() said when the checkpoint was made; what was
     * logged after that is to go.  "": a new run. */
    const char *position;
    uint64_t global_step;             /* of a run that goes on: steps done then; else 0 */
    /* Of one whose checkpoint did not wait for the logger: "" may be a position of it,
     * and so many records that were logged behind it are to stay. */
    bool goes_on;
    uint64_t behind;
} pl_log_run_t;

/* A logger: where the figures of a run go.  All of it runs on a thread of the logger's
 * own, which may wait for a disk or a server.  An error costs figures, never the run, and
 * is told; what failed to open is tried again with the next figures.  Figures that come
 * faster than they are taken are dropped and counted. */
typedef struct pl_logger_ops {
    PL_PART;
    /* Before the first record  [nothing to do] */
    int (*open)(void *self, const pl_log_run_t *run, pl_error_t *err);
    int (*log)(void *self, const pl_record_t *record, pl_error_t *err);
    /* The module's tensors, when a run copies them to the host anyway: for a checkpoint,
     * at the end; record->metrics is "{}"  [not wanted] */
    int (*tensors)(void *self, const pl_record_t *record,
                   const pl_result_tensor_t *tensor, int count, pl_error_t *err);
    /* After each few records: what was logged is to be where it belongs, or an error says
     * that all since the last flush is lost  [nothing to do] */
    int (*flush)(void *self, pl_error_t *err);
    /* Before a position is told, for a checkpoint: what was flushed is to outlast a power
     * cut, or the checkpoint says an older position  [it does] */
    int (*sync)(void *self, pl_error_t *err);
    /* After a flush, from pl_text(); NULL: out of memory  [""] */
    char *(*position)(const void *self);
    /* After an open() that went well; status is as in pl_result_t, or "" when the run was
     * cut off  [nothing to do] */
    void (*close)(void *self, const char *status);
    /* Any thread: the run has ended and waits no longer; what is under way ends soon
     * [it is waited for] */
    void (*interrupt)(void *self);
} pl_logger_ops_t;

/* ---- Texts ------------------------------------------------------------------------- */

/* A copy of text (printf) in Paceline's memory, or NULL; pl_text_free() frees it. */
PL_API char *pl_text(const char *format, ...) PL_PRINTF(1, 2);
PL_API void pl_text_free(char *text);

/* The one of the names, up to NULL, that somebody may have meant by a word, or NULL: for
 * `did you mean …?`. */
PL_API const char *pl_nearest(const char *word, const char *const names[]);

/* The key of a run file that a word may mean: "optimizer.lr" for "lr" and for
 * "learning_rate"; NULL: none.  pl_text_free() frees it. */
PL_API char *pl_options_key(const char *word);

/* Names of earlier versions. */
#define PL_WISHES PL_CALLBACK_REQUESTS
#define pl_wish pl_callback_request
#define pl_wish_t pl_callback_request_t
#define pl_wish_figure pl_callback_log
#define pl_trainer_go_on pl_trainer_continue
#define pl_trainer_go_on_wait pl_trainer_continue_wait

#ifdef __cplusplus
}
#endif

#endif                                                      /* PACELINE_H */
