/* plugin.h - plug-ins that are found without being named
 *
 * The folders are those of PACELINE_PLUGIN_PATH and the one where Paceline's own modules
 * are installed. */
#ifndef PL_BASE_PLUGIN_H
#define PL_BASE_PLUGIN_H

#include "paceline.h"

/* Loads NAME.so when it lies in one of the folders; PL_OK when it does not. */
int pl_plugin_offer(const char *name, pl_error_t *err);

/* Loads all that lie in the folders, once in a process; what cannot be loaded is logged
 * and left out. */
void pl_plugins_offer(void);

#endif
