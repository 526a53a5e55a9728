/* run_options.c - what connectors that write are told in `start` */
#include "actors/connectors/run_options.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_text.h"

int pl_run_options(const char *options, char **run_dir_p, json_t **data_p,
                   pl_error_t *err)
{
    if (!*options)
        return PL_OK;
    json_t *given = pl_json_read(options, strlen(options), "options", err);
    if (!given)
        return err->code;
    const char *run_dir = json_string_value(json_object_get(given, "run_dir"));
    char *copy = run_dir ? pl_strdup(run_dir) : NULL;
    int code = run_dir && !copy ? pl_no_memory(err) : PL_OK;
    *run_dir_p = copy;
    if (data_p)
        *data_p = json_incref(json_object_get(given, "data"));
    json_decref(given);
    return code;
}

char *pl_run_options_text(const char *run_dir, const char *data, pl_error_t *err)
{
    json_t *content = data && *data ? pl_json_value(data, strlen(data), NULL) : NULL;
    json_t *given = json_pack("{s:s, s:o*}", "run_dir", run_dir, "data", content);
    char *text = given ? pl_json_write(given, PL_JSON_COMPACT) : NULL;
    json_decref(given);
    if (!text)
        pl_no_memory(err);
    return text;
}
