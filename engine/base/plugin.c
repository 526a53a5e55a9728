/* plugin.c - components from a user's shared object
 *
 * A plug-in is never unloaded: its tables and code are in use as long as the process
 * lives.  A plug-in in a plug-in folder is loaded on demand: a component "mlp" that is
 * not registered is searched for in mlp.so. */
#include "base/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "base/registry.h"
#include "base/utf8.h"

#define SHOWN 200
/* The characters of a component's name that may be the name of a file. */
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

static const char own_folder[] = PL_PLUGIN_FOLDER;

/* A loaded plug-in. */
typedef struct loaded {
    struct loaded *next;
    uint32_t sum;                                           /* CRC-32C of the file */
    char path[];
} loaded_t;

static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER;
static loaded_t *loaded;                                    /* the newest first */

static bool is_file(char path[PATH_MAX], const char *folder, int length, const char *file)
{
    int needed = snprintf(path, PATH_MAX, "%.*s/%s", length, folder, file);
    return length > 0 && needed < PATH_MAX && access(path, F_OK) == 0;
}

/* Moves *at, which starts as NULL, to the next folder: those of PACELINE_PLUGIN_PATH,
 * then Paceline's own.  Returns the length of its name; -1: there are no more folders. */
static int next_folder(const char **at, int length)
{
    const char *folders = getenv("PACELINE_PLUGIN_PATH");
    if (*at == own_folder)
        return -1;
    *at = *at ? *at + length + ((*at)[length] == ':') : folders;
    if (!*at || !**at)
        *at = own_folder;
    return (int)strcspn(*at, ":");
}

static bool in_folders(const char *file, char path[PATH_MAX])
{
    const char *folder = NULL;
    for (int length = 0; (length = next_folder(&folder, length)) >= 0;)
        if (is_file(path, folder, length, file))
            return true;
    return false;
}

const char *pl_plugin_search_path(char text[PL_PLUGIN_SEARCH_PATH])
{
    char shown[SHOWN];
    const char *folders = getenv("PACELINE_PLUGIN_PATH");
    snprintf(text, PL_PLUGIN_SEARCH_PATH,
             "PACELINE_PLUGIN_PATH (%s) nor in " PL_PLUGIN_FOLDER,
             folders ? pl_utf8_show(folders, shown, sizeof shown) : "not set");
    return text;
}

/* ---- Loaded plug-ins ---- */

static int file_sum(const char *path, uint32_t *sum, pl_error_t *err)
{
    unsigned char bytes[16384];
    char shown[SHOWN];
    FILE *file = fopen(path, "rbe");
    *sum = 0;
    for (size_t size; file && (size = fread(bytes, 1, sizeof bytes, file)) > 0;)
        *sum = pl_crc32c(*sum, bytes, size);
    const bool is_read = file && !ferror(file);
    if (file)
        fclose(file);
    return is_read ? PL_OK
                   : pl_fail(err, PL_EIO, "plug-in %s cannot be read",
                             pl_utf8_show(path, shown, sizeof shown));
}

/* Enters a plug-in; returns its absolute path, by which other processes find it. */
static const char *loaded_add(const char *path, pl_error_t *err)
{
    char whole[PATH_MAX];
    uint32_t sum;
    if (file_sum(realpath(path, whole) ? whole : path, &sum, err) != PL_OK)
        return NULL;
    pthread_mutex_lock(&loaded_lock);
    loaded_t *one = loaded;
    while (one && strcmp(one->path, whole))
        one = one->next;
    if (!one && (one = pl_alloc(sizeof *one + strlen(whole) + 1))) {
        one->sum = sum;
        strcpy(one->path, whole);
        one->next = loaded;
        loaded = one;
    }
    pthread_mutex_unlock(&loaded_lock);
    if (!one)
        pl_no_memory(err);
    return one ? one->path : NULL;
}

json_t *pl_plugins_loaded(void)
{
    json_t *list = json_array();
    pthread_mutex_lock(&loaded_lock);
    for (const loaded_t *one = loaded; list && one; one = one->next)
        if (json_array_insert_new(list, 0,
                                  json_pack("{s:s,s:I}", "file", one->path, "sum",
                                            (json_int_t)one->sum))
            != 0) {
            json_decref(list);
            list = NULL;
        }
    pthread_mutex_unlock(&loaded_lock);
    return list;
}

int pl_plugins_load(const json_t *list, pl_error_t *err)
{
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *plugin = json_array_get(list, k);
        const char *path = json_string_value(json_object_get(plugin, "file"));
        uint32_t sum;
        if (!path)
            return pl_fail(err, PL_EPROTOCOL, "a plug-in without a file");
        int code = file_sum(path, &sum, err);
        if (code == PL_OK && sum != json_integer_value(json_object_get(plugin, "sum")))
            code = pl_fail(err, PL_EINVAL,
                           "plug-in %s has changed since the run was created: start the "
                           "program again",
                           path);
        if (code == PL_OK)
            code = pl_plugin_load(path, err);
        if (code != PL_OK)
            return code;
    }
    return PL_OK;
}

/* ---- Loading ---- */

static int plugin_register(void *library, const char *path, const char *file,
                           pl_error_t *err)
{
    union {
        void *symbol;
        pl_plugin_t function;
    } entry = {dlsym(library, PL_PLUGIN_SYMBOL)};
    if (!entry.symbol)
        return pl_fail(err, PL_EFORMAT,
                       "%s is not a plug-in: it exports no function " PL_PLUGIN_SYMBOL
                       "()",
                       file);
    pl_error_t why = {0};
    const char *home = loaded_add(path, &why);
    int rc = home ? pl_register_at(home, entry.function(), &why) : why.code;
    return rc == PL_OK ? rc : pl_fail(err, rc, "plug-in %s: %s", file, why.text);
}

int pl_plugin_load(const char *file, pl_error_t *err)
{
    char path[PATH_MAX], shown[SHOWN], why[2 * SHOWN], search_path[PL_PLUGIN_SEARCH_PATH];
    int rc = pl_require(file, "a file", err);
    if (rc != PL_OK)
        return rc;
    if (strchr(file, '/') && strlen(file) < PATH_MAX)
        strcpy(path, file);
    else if (!in_folders(file, path))
        return pl_fail(err, PL_ENOTFOUND, "no plug-in %s in %s: set its path, with a '/'",
                       pl_utf8_show(file, shown, sizeof shown),
                       pl_plugin_search_path(search_path));
    if (access(path, F_OK) != 0)
        return pl_fail(err, PL_ENOTFOUND, "plug-in %s does not exist",
                       pl_utf8_show(path, shown, sizeof shown));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return pl_fail(err, PL_EFORMAT, "cannot load the shared object: %s",
                       pl_utf8_show(dlerror(), why, sizeof why));
    rc = plugin_register(library, path, pl_utf8_show(path, shown, sizeof shown), err);
    if (rc != PL_OK)
        dlclose(library);
    return rc;
}

/* ---- Plug-ins that are loaded on demand ---- */

int pl_plugin_load_named(const char *name, pl_error_t *err)
{
    char file[NAME_MAX + 1], path[PATH_MAX];
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX - 3 || strspn(name, NAME_CHARACTERS) != length)
        return PL_OK;
    snprintf(file, sizeof file, "%s.so", name);
    return in_folders(file, path) ? pl_plugin_load(path, err) : PL_OK;
}

/* ---- Search in files that are not loaded ---- */

/* The bytes of a file that loading would map; debuggers read the bytes behind them. */
static size_t file_core(FILE *file)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) segment;
    size_t core = 0;
    if (fread(&head, sizeof head, 1, file) != 1
        || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0
        || fseeko(file, (off_t)head.e_phoff, SEEK_SET) != 0)
        return 0;
    for (int k = 0; k < head.e_phnum && fread(&segment, sizeof segment, 1, file) == 1;
         k++)
        if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > core)
            core = segment.p_offset + segment.p_filesz;
    rewind(file);
    return core;
}

/* Whether the text, with its NUL, is in the mapped part of a file. */
static bool file_has(const char *path, const char *text)
{
    char bytes[16384];
    const size_t wanted = strlen(text) + 1;
    FILE *file = wanted < sizeof bytes / 2 ? fopen(path, "rbe") : NULL;
    size_t left = file ? file_core(file) : 0, kept = 0;
    bool has = false;
    while (left && !has) {
        const size_t capacity = sizeof bytes - kept;
        const size_t got = fread(bytes + kept, 1, capacity < left ? capacity : left,
                                 file);
        left = got ? left - got : 0;
        has = memmem(bytes, kept + got, text, wanted) != NULL;
        const size_t keeps = kept + got < wanted ? kept + got : wanted - 1;
        memmove(bytes, bytes + kept + got - keeps, keeps);
        kept = keeps;
    }
    if (file)
        fclose(file);
    return has;
}

static int is_plugin(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 3 && !strcmp(entry->d_name + length - 3, ".so");
}

/* Which plug-ins of the folders to load: those whose file has these texts  [any]. */
typedef struct search {
    const char *role, *name;
    bool logs;                                        /* a failure to load is a warning */
} search_t;

static void load_matching(const search_t *search)
{
    const char *folder = NULL;
    for (int length = 0; (length = next_folder(&folder, length)) >= 0;) {
        struct dirent **entries = NULL;
        char name[PATH_MAX], path[PATH_MAX];
        if (!length || snprintf(name, sizeof name, "%.*s", length, folder) >= PATH_MAX)
            continue;
        const int count = scandir(name, &entries, is_plugin, alphasort);
        for (int i = 0; i < count; i++) {
            pl_error_t why = {0};
            if (is_file(path, folder, length, entries[i]->d_name)
                && (!search->role || file_has(path, search->role))
                && (!search->name || file_has(path, search->name))
                && pl_plugin_load(path, &why) != PL_OK && search->logs)
                pl_log_line(PL_LOG_WARNING, -1, "", "plug-in not loaded: %s", why.text);
            free(entries[i]);
        }
        free(entries);
    }
}

static void load_all(void)
{
    load_matching(&(search_t){.logs = true});
}

void pl_plugins_load_all(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_all);
}

void pl_plugins_search(const char *role, const char *name)
{
    load_matching(&(search_t){.role = role, .name = name, .logs = name});
}
