/* weights.c - what is stored in a file of weights and beside it */
#include "cli/weights.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

json_t *cli_weights_read(const char *path, pl_error_t *err)
{
    char *text = pl_weights_describe(path, err);
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    if (text && !said)
        pl_fail(err, PL_ENOMEM, "out of memory");
    pl_text_free(text);
    return said;
}

json_t *cli_weights_facts(const char *checkpoint)
{
    char path[PATH_MAX];
    struct stat status;
    bool folder = stat(checkpoint, &status) == 0 && S_ISDIR(status.st_mode);
    snprintf(path, sizeof path, "%s%s", checkpoint, folder ? "/" CLI_WEIGHTS : "");
    json_t *said = cli_weights_read(path, NULL);
    const json_t *metadata = json_object_get(said, "metadata");
    const char *facts = json_string_value(json_object_get(metadata, "facts"));
    json_t *parsed = facts ? json_loads(facts, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_decref(said);
    return parsed;
}
