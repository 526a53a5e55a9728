/* plugin.c - parts from a user's shared object
 *
 * A plug-in is never unloaded: its tables and code are in use for as long as the process
 * lives. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"

#define SHOWN 200

static bool is_file(char path[PATH_MAX], const char *folder, int length, const char *file)
{
    int needed = snprintf(path, PATH_MAX, "%.*s/%s", length, folder, file);
    return length > 0 && needed < PATH_MAX && access(path, F_OK) == 0;
}

/* A path is taken as it is, a bare name looked for in the folders. */
static int find_file(const char *file, char path[PATH_MAX], pl_error_t *err)
{
    char shown[SHOWN], shown_folders[SHOWN];
    if (strchr(file, '/') && strlen(file) < PATH_MAX) {
        strcpy(path, file);
        return PL_OK;
    }
    const char *folders = getenv("PACELINE_PLUGIN_PATH");
    for (const char *folder = folders; folder && *folder;) {
        int length = (int)strcspn(folder, ":");
        if (is_file(path, folder, length, file))
            return PL_OK;
        folder += length + (folder[length] == ':');
    }
    if (is_file(path, PL_PLUGIN_FOLDER, (int)strlen(PL_PLUGIN_FOLDER), file))
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
