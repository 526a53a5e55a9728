/* registry.h - the roles that parts can have */
#ifndef PL_BASE_REGISTRY_H
#define PL_BASE_REGISTRY_H

#include "paceline.h"

/* "module", "dataset", …; NULL behind the last. */
extern const char *const pl_roles[];

#endif
