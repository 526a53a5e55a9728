/* registry.h - the roles that components can have */
#ifndef PL_BASE_REGISTRY_H
#define PL_BASE_REGISTRY_H

#include "paceline.h"

/* "module", "dataset", …; NULL behind the last. */
extern const char *const pl_roles[];

/* pl_register() of components that other processes of the run find as well: in a
 * plug-in, by its path, or, "", because they begin as this one did. */
int pl_register_at(const char *home, const pl_registration_t *registrations,
                   pl_error_t *err);
/* PL_OK when other processes find a component; PL_EINVAL says what to do. */
int pl_component_check_elsewhere(const char *role, const char *name, pl_error_t *err);

/* pl_component_find() of a component that may not exist: registered, or in NAME.so of a
 * plug-in folder.  NULL: neither, or the file cannot be loaded. */
const void *pl_component_offered(const char *role, const char *name);

#endif
