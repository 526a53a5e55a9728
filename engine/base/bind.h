/* bind.h - a component as a run describes it: its struct filled in, its texts kept
 *
 * A run says "mlp" or {"name": "mlp", "hidden": [128]}; an actor needs the table of
 * functions and a struct with every option in it.  What the run leaves "auto" comes from
 * auto_values: what the data says of itself. */
#ifndef PL_BASE_BIND_H
#define PL_BASE_BIND_H

#include <jansson.h>

#include "paceline.h"

/* Owns the texts of a bound struct; free it after the struct's last use. */
typedef struct pl_binding pl_binding_t;

/* Fills the struct `component` as the table says: from object (NULL: nothing given),
 * from auto_values (NULL: none) where it says auto, else from the defaults.  A key
 * that the table lacks is an error, except "name".  On failure component is undefined. */
int pl_bind(const pl_option_t *table, const json_t *object, const json_t *auto_values,
            void *component, pl_binding_t **binding_p, pl_error_t *err);
void pl_binding_free(pl_binding_t *binding);

/* What a component in use is made from. */
typedef struct pl_instance_request {
    const char *role;                  /* "accelerator" */
    const json_t *value;               /* "cpu", {"name": "cpu", …}  [all is auto] */
    const char *automatic;             /* what "auto" or no name means here  [an error] */
    const json_t *auto_values;         /* [none] */
} pl_instance_request_t;

/* Finds the component, makes its zeroed struct and binds it.  instance_release()
 * undoes it, of a zeroed instance too. */
int pl_instance_make(pl_instance_t *instance, const pl_instance_request_t *request,
                     pl_error_t *err);
PL_API void pl_instance_release(pl_instance_t *instance);

/* The same from an option of type component, such as a strategy's collective. */
PL_API int pl_instance_of_choice(pl_instance_t *instance, const char *role,
                                 const pl_choice_t *choice, const char *automatic,
                                 pl_error_t *err);

/* The name in "cpu" or {"name": "cpu"}; "auto" when an object has none, NULL when there
 * is nothing.  Borrowed. */
const char *pl_component_name(const json_t *value);

/* Whether it is no component but has one for each objective of a module. */
bool pl_is_by_objective(const json_t *value);

#endif
