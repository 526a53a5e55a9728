/* doctor.c - paceline doctor: reports on this machine and this build, and on problems
 *
 * The version of the compute library comes through the loader: this command links to
 * Paceline alone, whose libraries can be found by name. */
#include <dlfcn.h>
#include <event2/event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "config.h"

enum { DESCRIPTORS = 1024 };                               /* fewer are worth a warning */

typedef struct doctor_report {
    json_t *facts, *warnings;
} doctor_report_t;

static void fact(doctor_report_t *r, const char *name, const char *format, ...)
    PL_PRINTF(3, 4);
static void warn(doctor_report_t *r, const char *format, ...) PL_PRINTF(2, 3);

static void fact(doctor_report_t *r, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_object_set_new(r->facts, name, json_vsprintf(format, args));
    va_end(args);
}

static void warn(doctor_report_t *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_array_append_new(r->warnings, json_vsprintf(format, args));
    va_end(args);
}

/* ---- libraries ---- */

typedef struct dnnl_version_fields {                 /* the beginning of dnnl_version_t */
    int major, minor, patch;
} dnnl_version_fields_t;

static void report_libraries(doctor_report_t *r)
{
    union {
        void *symbol;
        const dnnl_version_fields_t *(*version)(void);
    } dnnl = {dlsym(RTLD_DEFAULT, "dnnl_version")};
    union {
        void *symbol;
        char *(*config)(void);
    } blas = {dlsym(RTLD_DEFAULT, "openblas_get_config")};
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    fact(r, "paceline", "%s", PACKAGE_VERSION);
    fact(r, "libevent", "%s", event_get_version());
    fact(r, "ZeroMQ", "%d.%d.%d", major, minor, patch);
    fact(r, "jansson", "%s", jansson_version_str());
    if (dnnl.symbol)
        fact(r, "compute library", "oneDNN %d.%d.%d", dnnl.version()->major,
             dnnl.version()->minor, dnnl.version()->patch);
    else
        fact(r, "compute library", "none");
    if (!blas.symbol)
        return;
    const char *config = blas.config();
    fact(r, "BLAS", "%s", config);
    if (strstr(config, "SINGLE_THREADED"))
        warn(r, "this OpenBLAS is the serial build, which gives wrong products when "
                "several threads use it: apt-get install libopenblas0-openmp");
}

/* ---- the machine ---- */

/* The value after "KEY : " in a file of /proc, or "". */
static void proc_value(const char *path, const char *key, char *value, size_t capacity)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    value[0] = '\0';
    while (file && getline(&line, &size, file) > 0) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)))
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, capacity, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    free(line);
    if (file)
        fclose(file);
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length)
        if ((at == text || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}

static void report_machine(doctor_report_t *r)
{
    char model[128], flags[8192], total[64], available[64], text[2][24];
    cpu_set_t cores;
    struct rlimit limit = {0};
    proc_value("/proc/cpuinfo", "model name", model, sizeof model);
    proc_value("/proc/cpuinfo", "flags", flags, sizeof flags);
    proc_value("/proc/meminfo", "MemTotal", total, sizeof total);
    proc_value("/proc/meminfo", "MemAvailable", available, sizeof available);
    int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    bool avx512 = has_word(flags, "avx512f") && has_word(flags, "avx512bw")
                  && has_word(flags, "avx512dq") && has_word(flags, "avx512vl");
    bool avx2 = has_word(flags, "avx2") && has_word(flags, "fma");
    fact(r, "processor", "%s", *model ? model : "unknown");
    fact(r, "cores", "%d of %ld usable", usable, sysconf(_SC_NPROCESSORS_ONLN));
    fact(r, "instructions", "%s%s", avx512 ? "avx512" : avx2 ? "avx2" : "portable",
         has_word(flags, "avx512_bf16") ? ", products of bfloat16" : "");
    fact(r, "memory", "%s, %s available", cli_bytes(atof(total) * 1024, text[0]),
         cli_bytes(atof(available) * 1024, text[1]));
    getrlimit(RLIMIT_NOFILE, &limit);
    fact(r, "descriptors", "%llu, can be raised to %llu",
         (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    if (limit.rlim_max < DESCRIPTORS)
        warn(r,
             "the limit of open descriptors is %llu, too low for many ranks or viewers: "
             "raise the hard limit (ulimit -Hn)",
             (unsigned long long)limit.rlim_max);
    if (access("/dev/shm", W_OK) != 0)
        warn(r, "/dev/shm is not writable: ranks on this machine cannot share memory");
}

/* A fact, or a warning without a name, of an accelerator. */
static void add_fact(void *user, const char *name, const char *text)
{
    doctor_report_t *r = user;
    if (name)
        fact(r, name, "%s", text);
    else
        warn(r, "%s", text);
}

static void report_components(doctor_report_t *r)
{
    const pl_component_t *component;
    char names[512] = "";
    size_t at = 0;
    for (int k = 0; (component = pl_component_at("accelerator", k)) && at < sizeof names;
         k++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", k ? ", " : "",
                               component->name);
    fact(r, "accelerators", "%s", *names ? names : "none");
    for (int k = 0; (component = pl_component_at("accelerator", k)); k++)
        pl_accelerator_report(component->name, add_fact, r, NULL);
    if (!*names)
        warn(r, "this build has no accelerator: install oneDNN (apt-get install "
                "libdnnl-dev) and build again");
    const char *path = getenv("PACELINE_PLUGIN_PATH");
    fact(r, "plug-ins", "%s%s%s", path ? path : "", path ? ":" : "", PL_PLUGIN_FOLDER);
}

int cli_doctor(const cli_doctor_t *arguments)
{
    doctor_report_t r = {json_object(), json_array()};
    const char *name;
    json_t *value;
    size_t k;
    report_libraries(&r);
    report_machine(&r);
    report_components(&r);
    if (arguments->json) {
        cli_print_json(json_pack("{s:o, s:o}", "facts", r.facts, "warnings", r.warnings));
        return CLI_DONE;
    }
    json_object_foreach(r.facts, name, value)
        cli_print_fact(name, json_string_value(value), 0);
    json_array_foreach(r.warnings, k, value) {
        cli_print("warning: ");
        if (cli_columns(stdout))
            cli_wrap(json_string_value(value), 9, 9);
        else
            cli_print("%s\n", json_string_value(value));
    }
    if (json_array_size(r.warnings) == 0)
        cli_print("no problems found\n");
    json_decref(r.facts);
    json_decref(r.warnings);
    return CLI_DONE;
}
