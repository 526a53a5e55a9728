/* registry.c - tests of engine/base/registry.c, plugin.c and suggestion.c */
#include "base/registry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/suggestion.h"
#include "sample_components.h"
#include "scarce.h"
#include "tap.h"

static pl_error_t err;

static void a_component_is_found_by_role_and_name(void)
{
    const pl_component_t *mlp = pl_component_find("module", "mlp", &err);
    is_text(mlp ? mlp->name : NULL, "mlp", "the module");
    ok(!pl_component_find("dataset", "mlp", &err), "but no data set of that name");
    is_int(err.code, PL_ENOTFOUND, "and the error says so");
}

static void an_unknown_component_is_an_error_that_helps(void)
{
    pl_component_find("callback", "early_stoping", &err);
    is_text(err.text,
            "there is no callback \"early_stoping\": did you mean \"early_stopping\"?",
            "the nearest");
    pl_component_find("optimizer", "lbfgs", &err);
    is_text(err.text, "there is no optimizer \"lbfgs\": known are adamw, sgd", "or all");
    pl_component_find("nothing", "x", &err);
    like(err.text,
         "^there is no nothing \"x\": none is known, nor found in PACELINE_PLUGIN_PATH "
         "\\([^)]+\\) nor in /",
         "or that there are none, and where they would be");
}

static void components_are_listed_in_order(void)
{
    is_text(pl_component_at("accelerator", 0)->name, "cpu", "first");
    is_text(pl_component_at("accelerator", 1)->name, "cuda", "second");
    ok(!pl_component_at("accelerator", 2) && !pl_component_at("accelerator", -1),
       "and no more");
    ok(!pl_component_at("zzz", 0) && !pl_component_at("", 0), "nor of other roles");
}

static void the_same_table_twice_is_fine(void)
{
    is_int(pl_register(sample_components, &err), PL_OK, "all again");
    ok(!pl_component_at("accelerator", 2), "and none twice");
    is_int(pl_register(NULL, &err), PL_OK, "nothing at all");
}

static void another_table_of_that_name_is_refused_with_its_company(void)
{
    static const pl_component_t fresh = {"fresh", NULL, 0, NULL},
                                other = {"mlp", NULL, 0, NULL};
    const pl_registration_t both[] = {{"module", &fresh},
                                      {"module", &other},
                                      PL_REGISTRATIONS_END};
    is_int(pl_register(both, &err), PL_EEXIST, "refused");
    is_text(err.text, "another module \"mlp\" already exists: rename one", "by name");
    ok(!pl_component_find("module", "fresh", NULL), "and nothing was registered");
    static const pl_component_t twin = {"fresh", NULL, 0, NULL};
    const pl_registration_t twins[] = {{"module", &fresh},
                                       {"module", &twin},
                                       PL_REGISTRATIONS_END};
    is_int(pl_register(twins, &err), PL_EEXIST, "two in one table as well");
}

static void refused(const char *role, const pl_component_t *component, const char *text)
{
    const pl_registration_t components[] = {{role, component}, PL_REGISTRATIONS_END};
    int rc = pl_register(components, &err);
    ok(rc < 0 && rc == err.code, "refused");
    is_text(err.text, text, "because: %s", text);
}

static void mistakes_of_authors_are_found(void)
{
    typedef struct component {
        int64_t n;
        pl_choice_t c;
    } part_t;
#define REFUSE(text, ...) \
    do { \
        static const pl_option_t options[] = {__VA_ARGS__, PL_OPTIONS_END}; \
        static const pl_component_t component = {"bad", NULL, sizeof(part_t), options}; \
        refused("module", &component, text); \
    } while (0)
    REFUSE("option \"n\" of module \"bad\": takes an integer from 1 up, not 0",
           PL_INT(part_t, n, "0", "1..", ""));
    REFUSE("option \"n\" of module \"bad\": not JSON: invalid token near 'abc'",
           PL_INT(part_t, n, "abc", NULL, ""));
    REFUSE("option \"n\" of module \"bad\": a range has the form 1.. or (0..1], not 5",
           PL_INT(part_t, n, NULL, "5", ""));
    REFUSE("option \"n\" of module \"bad\": x is not a number",
           PL_INT(part_t, n, "1", "1..x", ""));
    REFUSE("option \"n\" of module \"bad\": has the name of another key",
           PL_INT(part_t, n, "1", NULL, ""), PL_INT(part_t, n, "1", NULL, ""));
    REFUSE("option \"name\" of module \"bad\": has the name of another key",
           {"name", PL_OPTION_INT, 0, "1", NULL, ""});
    REFUSE(
        "option \"m\" of module \"bad\": lies outside the component's struct of 24 bytes",
        {"m", PL_OPTION_INT, 24, "1", NULL, ""});
    REFUSE("option \"m\" of module \"bad\": has an unknown type",
           {"m", (pl_option_type_t)99, 0, "1", NULL, ""});
    REFUSE("option \"n\" of module \"bad\": has no words",
           PL_WORD(part_t, n, "\"a\"", NULL, ""));
    REFUSE("option \"n\" of module \"bad\": takes a|b, not \"c\": did you mean \"a\"?",
           PL_WORD(part_t, n, "\"c\"", "a|b", ""));
    REFUSE("option \"c\" of module \"bad\": names a component: its default can only be "
           "\"auto\" or null",
           PL_CHOICE(part_t, c, "\"shm\"", "collective", ""));
}

static void compute(const pl_kernel_call_t *call, int64_t from, int64_t to)
{
    (void)call, (void)from, (void)to;
}

static void operators_that_no_graph_can_hold_are_refused(void)
{
    static const pl_option_t options[] = {{"slope", PL_OPTION_FLOAT, 0, "1", NULL, ""},
                                          PL_OPTIONS_END};
    static const pl_kernel_t gpu_function[] = {{"gpu", compute, NULL}, PL_KERNELS_END},
                             cpu_text[] = {{"cpu", NULL, "OUT(0, 1);"}, PL_KERNELS_END};
    static const pl_operator_ops_t
        no_inputs = {.name = "bad"},
        large = {.name = "bad", .inputs = 1, .size = 65},
        optional = {.name = "bad", .inputs = 1, .size = 8, .options = options},
        function = {.name = "bad", .inputs = 1, .kernels = gpu_function},
        text = {.name = "bad", .inputs = 1, .kernels = cpu_text};
    refused("operator", (const pl_component_t *)&no_inputs,
            "operator \"bad\" takes 0 inputs: 1 to 8 are supported");
    refused("operator", (const pl_component_t *)&large,
            "the struct of operator \"bad\" has 65 bytes: up to 64 are supported");
    refused("operator", (const pl_component_t *)&function,
            "the kernel of operator \"bad\" for \"gpu\" must be a text alone");
    refused("operator", (const pl_component_t *)&text,
            "the kernel of operator \"bad\" for \"cpu\" must be a function alone");
    refused(
        "operator", (const pl_component_t *)&optional,
        "operator \"bad\" has options: options belong to the module, which passes their "
        "values to pl_apply()");
}

static void names_that_mean_something_else_are_refused(void)
{
    static const pl_option_t options[] = {{"batch_size", PL_OPTION_INT, 0, "1", NULL, ""},
                                          PL_OPTIONS_END};
    static const pl_component_t component = {"bad", NULL, 8, options},
                                nameless = {"", NULL, 0, NULL},
                                any = {"auto", NULL, 0, NULL};
    refused("dataset", &component,
            "option \"batch_size\" of dataset \"bad\" has the name of a key of every "
            "data section");
    refused("module", &nameless, "a module has no name, or \"auto\" for its name");
    refused("module", &any, "a module has no name, or \"auto\" for its name");
    refused("modul", &any,
            "unknown role \"modul\" of a component: did you mean \"module\"?");
}

/* ---- Threads ---- */

#define THREADS 4
#define PARTS 50

static pl_component_t many[THREADS][PARTS];
static char many_names[THREADS][PARTS][16];

static void *register_many(void *argument)
{
    int thread = *(int *)argument;
    long wrong = 0;
    for (int i = 0; i < PARTS; i++) {
        snprintf(many_names[thread][i], sizeof many_names[thread][i], "%c%d",
                 "wxyz"[thread], i);
        many[thread][i] = (pl_component_t){many_names[thread][i], NULL, 0, NULL};
        const pl_registration_t one[] = {{"logger", &many[thread][i]},
                                         PL_REGISTRATIONS_END};
        wrong += pl_register(one, NULL) != PL_OK;
        wrong += pl_component_find("logger", many_names[thread][i], NULL)
                 != &many[thread][i];
        wrong += pl_component_at("logger", i) == NULL;
    }
    return (void *)wrong;
}

static void threads_may_register_and_find_at_once(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], before = 0, count = 0;
    long wrong = 0;
    while (pl_component_at("logger", before))
        before++;
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, register_many, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (long)result;
    }
    while (pl_component_at("logger", count))
        count++;
    is_int(wrong, 0, "each found its own");
    is_int(count, before + THREADS * PARTS, "and all are there");
}

/* ---- Plug-ins ---- */

static const char *plugin_folder(void)
{
    static char folder[4096];
    const char *build = getenv("top_builddir");
    snprintf(folder, sizeof folder, "%s/t/.libs", build ? build : ".");
    return folder;
}

/* A link guest.so to the sample plug-in, in the folders. */
static void link_guest(void)
{
    char file[8192], link[4096], *whole = NULL;
    snprintf(file, sizeof file, "%s/sample_plugin.so", plugin_folder());
    snprintf(link, sizeof link, "%s/guest.so", tap_folder());
    whole = realpath(file, NULL);
    ok(whole && symlink(whole, link) == 0, "there is a guest.so");
    free(whole);
}

static bool is_loaded(const char *folder, const char *file)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library != NULL;
}

/* In a process of its own, which has loaded nothing: whether the component is found, the
 * sample is loaded for it, and what comes with Paceline is not. */
static bool sample_alone_is_loaded_for(const char *name, const char *examples)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(pl_component_find("dataset", name, &err)
              && is_loaded(tap_folder(), "guest.so") && !is_loaded(examples, "mlp.so")
              && !is_loaded(examples, "vote.so"));
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void a_file_without_the_component_is_not_loaded(void)
{
    char examples[4096], folders[8300];
    const char *build = getenv("top_builddir");
    snprintf(examples, sizeof examples, "%s/examples/.libs", build ? build : ".");
    snprintf(folders, sizeof folders, "%s:%s", examples, tap_folder());
    link_guest();
    setenv("PACELINE_PLUGIN_PATH", folders, 1);
    ok(sample_alone_is_loaded_for("silent", examples),
       "a component of a file of another name");
    unsetenv("PACELINE_PLUGIN_PATH");
}

/* What an unknown name is answered, by a process of its own, which has loaded nothing. */
static const char *refusal_of(const char *role, const char *name)
{
    static char text[PL_ERROR_TEXT];
    int ends[2];
    memset(text, 0, sizeof text);
    if (pipe(ends) != 0)
        return text;
    const pid_t child = fork();
    if (child == 0) {
        err = (pl_error_t){0};
        pl_component_find(role, name, &err);
        _exit(write(ends[1], err.text, strlen(err.text)) < 0);
    }
    close(ends[1]);
    ok(read(ends[0], text, sizeof text - 1) > 0, "there is no %s %s", role, name);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return text;
}

static void a_suggestion_is_a_component_of_the_role_by_its_own_name(void)
{
    setenv("PACELINE_PLUGIN_PATH", tap_folder(), 1);
    like(refusal_of("module", "gest"), "did you mean \"guest\"\\?", "one of a file");
    like(refusal_of("dataset", "silnt"), "did you mean \"silent\"\\?",
         "also of one that has another name");
    is_text(refusal_of("dataset", "guest"),
            "there is no dataset \"guest\": known are idx, silent",
            "which is no data set");
    is_text(refusal_of("strategy", "guest"),
            "there is no strategy \"guest\": known are ddp, single", "nor a strategy");
    unsetenv("PACELINE_PLUGIN_PATH");
}

static void an_unregistered_component_is_looked_for_in_a_file_of_its_name(void)
{
    unsetenv("PACELINE_PLUGIN_PATH");
    ok(!pl_component_find("module", "guest", &err), "not without the folder");
    setenv("PACELINE_PLUGIN_PATH", tap_folder(), 1);
    const pl_component_t *guest = pl_component_find("module", "guest", &err);
    is_text(guest ? guest->name : NULL, "guest", "but with it");
    ok(!pl_component_find("module", "../guest", &err), "a path is no name");
    char broken[4096];
    snprintf(broken, sizeof broken, "%s/broken.so", tap_folder());
    fclose(fopen(broken, "w"));
    ok(!pl_component_find("module", "broken", &err), "a broken file");
    like(err.text, "broken.so", "is named");
    unlink(broken);
    unsetenv("PACELINE_PLUGIN_PATH");
}

static void a_bare_name_is_looked_for_in_folders(void)
{
    char path[8192];
    unsetenv("PACELINE_PLUGIN_PATH");
    is_int(pl_plugin_load("sample_plugin.so", &err), PL_ENOTFOUND,
           "not where Paceline is installed");
    like(err.text,
         "^no plug-in sample_plugin.so in PACELINE_PLUGIN_PATH \\(not set\\) nor in /.*: "
         "set its path",
         "and the error says where it was looked for");
    snprintf(path, sizeof path, "/nonexistent::%s", plugin_folder());
    setenv("PACELINE_PLUGIN_PATH", path, 1);
    is_int(pl_plugin_load("sample_plugin.so", &err), PL_OK,
           "but in a folder of PACELINE_PLUGIN_PATH");
    ok(pl_component_find("module", "guest", &err), "its component is there");
    unsetenv("PACELINE_PLUGIN_PATH");
}

static void a_path_is_taken_as_it_is_and_twice(void)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/sample_plugin.so", plugin_folder());
    is_int(pl_plugin_load(path, &err), PL_OK, "once");
    is_int(pl_plugin_load(path, &err), PL_OK, "and once more");
    is_int(pl_plugin_load("./none.so", &err), PL_ENOTFOUND, "one that is not there");
    is_text(err.text, "plug-in ./none.so does not exist", "says so");
}

static void a_file_that_is_no_plugin_says_so(void)
{
    char path[8192];
    Dl_info libc;
    snprintf(path, sizeof path, "%s/text.so", tap_folder());
    FILE *file = fopen(path, "w");
    fputs("not a library\n", file);
    fclose(file);
    is_int(pl_plugin_load(path, &err), PL_EFORMAT, "a text");
    like(err.text, "text.so", "is named");
    ok(dladdr((void *)(uintptr_t)strlen, &libc) && strchr(libc.dli_fname, '/'),
       "another library");
    is_int(pl_plugin_load(libc.dli_fname, &err), PL_EFORMAT, "without our function");
    like(err.text, "is not a plug-in: it exports no function paceline_plugin\\(\\)",
         "says what it lacks");
}

/* ---- Memory and names ---- */

static int register_fresh(void *user)
{
    static pl_component_t components[300];
    static char names[300][16];
    int *next = user;
    pl_registration_t several[64] = {{NULL, NULL}};
    for (int i = 0; i < 60; i++, (*next)++) {
        snprintf(names[*next], sizeof names[*next], "part%d", *next);
        components[*next] = (pl_component_t){names[*next], NULL, 0, NULL};
        several[i] = (pl_registration_t){"optimizer", &components[*next]};
    }
    int rc = pl_register(several, &err);
    bool there = pl_component_find("optimizer",
                                   several[0].table
                                       ? ((const pl_component_t *)several[0].table)->name
                                       : "",
                                   NULL);
    return there == (rc == PL_OK) ? rc : PL_EBUG;
}

static void without_memory_nothing_is_registered(void)
{
    int next = 0;
    scarce_try(register_fresh, &next, "registering");
}

static void distances_count_edits(void)
{
    is_int(pl_edit_distance("max_epoch", "max_epochs"), 1, "added");
    is_int(pl_edit_distance("adma", "adam"), 1, "swapped");
    is_int(pl_edit_distance("kitten", "sitting"), 3, "the usual example");
    is_int(pl_edit_distance("", "abc"), 3, "from nothing");
    is_int(pl_edit_distance("same", "same"), 0, "to itself");
    is_int(pl_edit_distance("AdamW", "adamw"), 0, "in another case");
}

static void a_long_list_of_names_is_cut(void)
{
    char text[PL_SUGGESTION_TEXT];
    pl_suggestion_t nearest;
    pl_suggestion_init(&nearest, "wanted");
    for (int i = 0; i < 100; i++)
        pl_suggestion_offer(&nearest, "something else");
    pl_suggestion_text(&nearest, text);
    like(text, "^known are (something else, )+…$", "at a comma");
}

int main(void)
{
    unsetenv("PACELINE_PLUGIN_PATH");                       /* the tests set their own */
    scarce_init();
    is_int(pl_register(sample_components, &err), PL_OK, "the samples are in order: %s",
           err.text);
    run(a_component_is_found_by_role_and_name);
    run(an_unknown_component_is_an_error_that_helps);
    run(components_are_listed_in_order);
    run(the_same_table_twice_is_fine);
    run(another_table_of_that_name_is_refused_with_its_company);
    run(mistakes_of_authors_are_found);
    run(operators_that_no_graph_can_hold_are_refused);
    run(names_that_mean_something_else_are_refused);
    run(without_memory_nothing_is_registered);
    run(threads_may_register_and_find_at_once);
    run(a_file_without_the_component_is_not_loaded);
    run(a_suggestion_is_a_component_of_the_role_by_its_own_name);
    run(an_unregistered_component_is_looked_for_in_a_file_of_its_name);
    run(a_bare_name_is_looked_for_in_folders);
    run(a_path_is_taken_as_it_is_and_twice);
    run(a_file_that_is_no_plugin_says_so);
    run(distances_count_edits);
    run(a_long_list_of_names_is_cut);
    return tap_done();
}
