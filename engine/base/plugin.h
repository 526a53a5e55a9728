/* plugin.h - plug-ins that are loaded on demand
 *
 * The folders are those of PACELINE_PLUGIN_PATH and the one where Paceline's own plug-ins
 * are installed. */
#ifndef PL_BASE_PLUGIN_H
#define PL_BASE_PLUGIN_H

#include <jansson.h>

#include "paceline.h"

/* Loads NAME.so if it is in one of the folders; PL_OK if it is not. */
int pl_plugin_load_named(const char *name, pl_error_t *err);

/* Loads all plug-ins in the folders, once in a process; logs those that cannot be
 * loaded. */
void pl_plugins_load_all(void);

/* The searched folders: "PACELINE_PLUGIN_PATH (not set) nor in /usr/lib/paceline". */
#define PL_PLUGIN_SEARCH_PATH 320
const char *pl_plugin_search_path(char text[PL_PLUGIN_SEARCH_PATH]);

/* Loads the plug-ins that may have a component: its role and name are texts in their
 * file.  Others need not be loaded, with all their libraries.  [name: any, without log
 * lines; suggestions for an unknown name need the names of all components of a role] */
void pl_plugins_search(const char *role, const char *name);

/* The loaded plug-ins, for other processes of the run: a list of files and checksums, a
 * new reference.  NULL: out of memory. */
json_t *pl_plugins_loaded(void);
/* Loads such a list.  PL_EINVAL: a file has changed. */
int pl_plugins_load(const json_t *list, pl_error_t *err);

#endif
