/* registry.h - every component by its role and name */
#ifndef PL_BASE_REGISTRY_H
#define PL_BASE_REGISTRY_H

#include "paceline.h"

/* "module", "dataset", …; NULL behind the last. */
extern const char *const pl_roles[];

/* pl_register() of components that other processes of the run find as well: in the
 * plug-in at path `home`, or, "", because they start as this process did. */
int pl_register_at(const char *home, const pl_registration_t *registrations,
                   pl_error_t *err);
/* PL_OK if other processes find a component; PL_EINVAL says what to do. */
int pl_component_check_elsewhere(const char *role, const char *name, pl_error_t *err);

/* The component if it is registered, or in NAME.so of a plug-in folder.  NULL: neither,
 * or the file cannot be loaded. */
const void *pl_component_offered(const char *role, const char *name);

#endif
