/* checkpoint_requests.c - requested checkpoints: their names, and the older ones to
 * remove */
#include "actors/checkpoint_requests.h"

#include <string.h>

#include "base/error.h"

bool pl_checkpoint_requests_has(const char *list, const char *name, size_t length)
{
    while (*list) {
        size_t line = strcspn(list, "\n");
        if (line == length && !strncmp(list, name, length))
            return true;
        list += line + (list[line] == '\n');
    }
    return false;
}

static int names_add(char *list, size_t capacity, const char *names, pl_error_t *err)
{
    while (*names) {
        size_t length = strcspn(names, "\n"), at = strlen(list);
        if (length && !pl_checkpoint_requests_has(list, names, length)) {
            if (at + length + 2 > capacity)
                return pl_fail(err, PL_EBUSY,
                               "too many checkpoints are requested at once");
            if (at)
                list[at++] = '\n';
            memcpy(list + at, names, length);
            list[at + length] = '\0';
        }
        names += length + (names[length] == '\n');
    }
    return PL_OK;
}

int pl_checkpoint_requests_add(pl_checkpoint_requests_t *requests, const char *save,
                               const char *drop, pl_error_t *err)
{
    pl_checkpoint_requests_t both = *requests;
    int code = names_add(both.save, sizeof both.save, save, err);
    if (code == PL_OK)
        code = names_add(both.drop, sizeof both.drop, drop, err);
    if (code == PL_OK)
        *requests = both;
    return code;
}
