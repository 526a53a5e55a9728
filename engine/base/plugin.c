/* plugin.c - parts from a user's shared object
 *
 * A plug-in is never unloaded: its tables and code are in use for as long as the process
 * lives.  One that lies in a plug-in folder needs no loading by hand: a part "mlp" that
 * nobody registered is looked for in mlp.so. */
#include "base/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"

#define SHOWN 200
/* Of the name of a part that may be looked for in a file. */
#define NAME_CHARACTERS                                                                  \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

static const char own_folder[] = PL_PLUGIN_FOLDER;

static bool is_file(char path[PATH_MAX], const char *folder, int length, const char *file)
{
    int needed = snprintf(path, PATH_MAX, "%.*s/%s", length, folder, file);
    return length > 0 && needed < PATH_MAX && access(path, F_OK) == 0;
}

/* The folders in their order: those of PACELINE_PLUGIN_PATH, then Paceline's own.  *at
 * starts as NULL; returns the length of the folder it was moved to, -1 behind the last. */
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

/* A path is taken as it is, a bare name looked for in the folders. */
static int find_file(const char *file, char path[PATH_MAX], pl_error_t *err)
{
    char shown[SHOWN], shown_folders[SHOWN];
    const char *folders = getenv("PACELINE_PLUGIN_PATH");
    if (strchr(file, '/') && strlen(file) < PATH_MAX) {
        strcpy(path, file);
        return PL_OK;
    }
    if (in_folders(file, path))
        return PL_OK;
    return pl_fail(err, PL_ENOTFOUND,
                   "no plug-in %s in PACELINE_PLUGIN_PATH (%s) nor in " PL_PLUGIN_FOLDER
                   ": give its path, with a '/'",
                   pl_utf8_show(file, shown, sizeof shown),
                   folders ? pl_utf8_show(folders, shown_folders, sizeof shown_folders)
                           : "not set");
}

static int plugin_register(void *library, const char *file, pl_error_t *err)
{
    union {
        void *symbol;
        pl_plugin_t function;
    } entry = {dlsym(library, PL_PLUGIN_SYMBOL)};
    if (!entry.symbol)
        return pl_fail(err, PL_EFORMAT,
                       "%s is no plug-in: it exports no function " PL_PLUGIN_SYMBOL "()",
                       file);
    pl_error_t why = {0};
    int rc = pl_register(entry.function(), &why);
    return rc == PL_OK ? rc : pl_fail(err, rc, "plug-in %s: %s", file, why.text);
}

int pl_plugin_load(const char *file, pl_error_t *err)
{
    char path[PATH_MAX], shown[SHOWN], why[2 * SHOWN];
    int rc = find_file(file, path, err);
    if (rc != PL_OK)
        return rc;
    if (access(path, F_OK) != 0)
        return pl_fail(err, PL_ENOTFOUND, "there is no plug-in %s",
                       pl_utf8_show(path, shown, sizeof shown));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return pl_fail(err, PL_EFORMAT, "no shared object that can be loaded: %s",
                       pl_utf8_show(dlerror(), why, sizeof why));
    rc = plugin_register(library, pl_utf8_show(path, shown, sizeof shown), err);
    if (rc != PL_OK)
        dlclose(library);
    return rc;
}

/* ---- Plug-ins that nobody loaded by hand ---- */

int pl_plugin_offer(const char *name, pl_error_t *err)
{
    char file[NAME_MAX + 1], path[PATH_MAX];
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX - 3 || strspn(name, NAME_CHARACTERS) != length)
        return PL_OK;
    snprintf(file, sizeof file, "%s.so", name);
    return in_folders(file, path) ? pl_plugin_load(path, err) : PL_OK;
}

static int is_plugin(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 3 && !strcmp(entry->d_name + length - 3, ".so");
}

static void load_folder(const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_plugin, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        pl_error_t why = {0};
        if (is_file(path, folder, (int)strlen(folder), entries[i]->d_name) &&
            pl_plugin_load(path, &why) != PL_OK)
            pl_log_line(PL_LOG_WARNING, -1, "", "left out: %s", why.text);
        free(entries[i]);
    }
    free(entries);
}

static void load_folders(void)
{
    const char *folder = NULL;
    for (int length = 0; (length = next_folder(&folder, length)) >= 0;) {
        char path[PATH_MAX];
        if (length > 0 && snprintf(path, sizeof path, "%.*s", length, folder) < PATH_MAX)
            load_folder(path);
    }
}

void pl_plugins_offer(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_folders);
}
