/* plugin.h - plug-ins that are found without being named
 *
 * The folders are those of PACELINE_PLUGIN_PATH and the one where Paceline's own modules
 * are installed. */
#ifndef PL_BASE_PLUGIN_H
#define PL_BASE_PLUGIN_H

#include <jansson.h>

#include "paceline.h"

/* Loads NAME.so when it lies in one of the folders; PL_OK when it does not. */
int pl_plugin_load_named(const char *name, pl_error_t *err);

/* Loads all that lie in the folders, once in a process; what cannot be loaded is logged
 * and left out. */
void pl_plugins_load_all(void);

/* Where none is: "PACELINE_PLUGIN_PATH (not set) nor in /usr/lib/paceline". */
#define PL_PLUGIN_SEARCH_PATH 320
const char *pl_plugin_search_path(char text[PL_PLUGIN_SEARCH_PATH]);

/* A component's role and name stand as texts in the file that has it: so those that
 * have not both need not be loaded, with all the libraries that they bring.  Loads the
 * others. */
void pl_plugins_search(const char *role, const char *name);

/* The same of all that may have components of that role: what an unknown name may have
 * meant are their names, which only who is loaded tells. */
void pl_plugins_search_role(const char *role);

/* Those that are loaded, for other processes of the same run, which load them as well: a
 * list of files and of what was in them; to be decref'd.  NULL: out of memory. */
json_t *pl_plugins_loaded(void);
/* PL_EINVAL: there is something else in a file by now. */
int pl_plugins_load(const json_t *list, pl_error_t *err);

#endif
