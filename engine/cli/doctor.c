/* doctor.c - paceline doctor: what this machine and this build have, and what is amiss
 *
 * The compute library is asked through the loader: this command links to Paceline
 * alone, and what Paceline links to is there by name. */
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

typedef struct report {
    json_t *facts, *warnings;
} report_t;

static void tell(report_t *r, const char *name, const char *format, ...) PL_PRINTF(3, 4);
static void warn(report_t *r, const char *format, ...) PL_PRINTF(2, 3);

static void tell(report_t *r, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_object_set_new(r->facts, name, json_vsprintf(format, args));
    va_end(args);
}

static void warn(report_t *r, const char *format, ...)
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

static void look_at_onednn(report_t *r)
{
    union {
        void *symbol;
        const dnnl_version_fields_t *(*version)(void);
    } dnnl = {dlsym(RTLD_DEFAULT, "dnnl_version")};
    if (dnnl.symbol)
        tell(r, "compute library", "oneDNN %d.%d.%d", dnnl.version()->major,
             dnnl.version()->minor, dnnl.version()->patch);
    else
        tell(r, "compute library", "none");
}

static void look_at_openblas(report_t *r)
{
    union {
        void *symbol;
        char *(*config)(void);
    } blas = {dlsym(RTLD_DEFAULT, "openblas_get_config")};
    if (!blas.symbol)
        return;
    const char *config = blas.config();
    tell(r, "BLAS", "%s", config);
    if (strstr(config, "SINGLE_THREADED"))
        warn(r, "this OpenBLAS is the serial build, which gives wrong products when "
                "several threads use it: apt-get install libopenblas0-openmp");
}

static void look_at_libraries(report_t *r)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    tell(r, "paceline", "%s", PACKAGE_VERSION);
    tell(r, "libevent", "%s", event_get_version());
    tell(r, "ZeroMQ", "%d.%d.%d", major, minor, patch);
    tell(r, "jansson", "%s", jansson_version_str());
    look_at_onednn(r);
    look_at_openblas(r);
}

/* ---- the machine ---- */

/* The value behind "KEY : " in a file of /proc, or "". */
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

static void look_at_processor(report_t *r)
{
    char model[128], flags[8192];
    cpu_set_t cores;
    proc_value("/proc/cpuinfo", "model name", model, sizeof model);
    proc_value("/proc/cpuinfo", "flags", flags, sizeof flags);
    int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    bool avx512 = has_word(flags, "avx512f") && has_word(flags, "avx512bw")
                  && has_word(flags, "avx512dq") && has_word(flags, "avx512vl");
    bool avx2 = has_word(flags, "avx2") && has_word(flags, "fma");
    tell(r, "processor", "%s", *model ? model : "unknown");
    tell(r, "cores", "%d of %ld usable", usable, sysconf(_SC_NPROCESSORS_ONLN));
    tell(r, "instructions", "%s", avx512 ? "avx512" : avx2 ? "avx2" : "portable");
}

static void look_at_memory(report_t *r)
{
    char total[64], available[64], text[2][24];
    proc_value("/proc/meminfo", "MemTotal", total, sizeof total);
    proc_value("/proc/meminfo", "MemAvailable", available, sizeof available);
    tell(r, "memory", "%s, %s available", cli_bytes(atof(total) * 1024, text[0]),
         cli_bytes(atof(available) * 1024, text[1]));
}

static void look_at_limits(report_t *r)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    tell(r, "descriptors", "%llu, can be raised to %llu",
         (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    if (limit.rlim_max < DESCRIPTORS)
        warn(r,
             "the limit of open descriptors is %llu, too low for many ranks or viewers: "
             "raise the hard limit (ulimit -Hn)",
             (unsigned long long)limit.rlim_max);
    if (access("/dev/shm", W_OK) != 0)
        warn(r, "/dev/shm is not writable: ranks on this machine cannot share memory");
}

static void see_fact(void *user, const char *name, const char *text)
{
    report_t *r = user;
    if (name)
        tell(r, name, "%s", text);
    else
        warn(r, "%s", text);
}

static void look_at_parts(report_t *r)
{
    const pl_component_t *component;
    char names[512] = "";
    size_t at = 0;
    for (int k = 0; (component = pl_component_at("accelerator", k)) && at < sizeof names;
         k++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", k ? ", " : "",
                               component->name);
    tell(r, "accelerators", "%s", *names ? names : "none");
    for (int k = 0; (component = pl_component_at("accelerator", k)); k++)
        pl_accelerator_report(component->name, see_fact, r, NULL);
    if (!*names)
        warn(r, "this build has no accelerator: install oneDNN (apt-get install "
                "libdnnl-dev) and build again");
    const char *path = getenv("PACELINE_PLUGIN_PATH");
    tell(r, "plug-ins", "%s%s%s", path ? path : "", path ? ":" : "", PL_PLUGIN_FOLDER);
}

/* ---- the report ---- */

static void show(const report_t *r)
{
    const char *name;
    json_t *value;
    size_t k;
    json_object_foreach(r->facts, name, value)
        cli_print_fact(name, json_string_value(value), 0);
    json_array_foreach(r->warnings, k, value) {
        cli_print("warning: ");
        if (cli_columns(stdout))
            cli_wrap(json_string_value(value), 9, 9);
        else
            cli_print("%s\n", json_string_value(value));
    }
    if (json_array_size(r->warnings) == 0)
        cli_print("no problems found\n");
}

int cli_doctor(const cli_doctor_t *arguments)
{
    report_t r = {json_object(), json_array()};
    look_at_libraries(&r);
    look_at_processor(&r);
    look_at_memory(&r);
    look_at_limits(&r);
    look_at_parts(&r);
    if (!arguments->json)
        show(&r);
    else
        cli_print_json(json_pack("{s:O, s:O}", "facts", r.facts, "warnings", r.warnings));
    json_decref(r.facts);
    json_decref(r.warnings);
    return CLI_DONE;
}
