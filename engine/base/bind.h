/* bind.h - binds a component: fills its struct from a run and keeps the texts
 *
 * A run says "mlp" or {"name": "mlp", "hidden": [128]}; an actor needs the table of
 * functions and a struct with the value of every option.  Options that are "auto" get
 * their value from auto_values: the data info. */
#ifndef PL_BASE_BIND_H
#define PL_BASE_BIND_H

#include <jansson.h>

#include "paceline.h"

/* Owns the texts and components of a bound struct; free it after the struct's last
 * use. */
typedef struct pl_binding pl_binding_t;

/* Fills the struct `component` by the table: from object [no values], for "auto" from
 * auto_values [none], else with the defaults.  A key that the table lacks is an error,
 * except "name".  On failure component is undefined. */
int pl_bind(const pl_option_t *table, const json_t *object, const json_t *auto_values,
            void *component, pl_binding_t **binding_p, pl_error_t *err);
void pl_binding_free(pl_binding_t *binding);

/* A request for a component in use. */
typedef struct pl_instance_request {
    const char *role;                /* "accelerator" */
    const json_t *value;             /* "cpu", {"name": "cpu", …}  ["auto"] */
    const char *automatic;           /* the name for "auto" and for no name  [an error] */
    const json_t *auto_values;       /* [none] */
} pl_instance_request_t;

/* Finds the component, allocates its struct and binds it.  pl_instance_release() frees
 * it; releasing a zeroed instance is allowed. */
int pl_instance_make(pl_instance_t *instance, const pl_instance_request_t *request,
                     pl_error_t *err);
PL_API void pl_instance_release(pl_instance_t *instance);

/* Makes an instance from an option of type component, such as a strategy's collective. */
PL_API int pl_instance_of_choice(pl_instance_t *instance, const char *role,
                                 const pl_choice_t *choice, const char *automatic,
                                 pl_error_t *err);

/* The name in "cpu" or {"name": "cpu"}; "auto" for an object without a name; NULL for
 * other values.  Borrowed. */
const char *pl_component_name(const json_t *value);

/* Whether the value has a component for each objective of a module. */
bool pl_is_by_objective(const json_t *value);

#endif
