/* run_dir_index.c - the run-directory index: where the runs of a job have their folders
 *
 * A line for each, "RUN FOLDER"; the last of a run counts.  It need not outlive the
 * machine: nobody would start the job again there. */
#include "actors/launchers/run_dir_index.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

enum { LINE = PATH_MAX + 16 };

static const char *file_name(void)
{
    const char *name = getenv("PACELINE_RUN_DIR_INDEX");
    return name && *name ? name : NULL;
}

char *pl_run_dir_index_find(int run, pl_error_t *err)
{
    const char *name = file_name();
    FILE *file = name ? fopen(name, "re") : NULL;
    char line[LINE], found[LINE] = "";
    int number, at;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%d %n", &number, &at) == 1 && number == run)
            snprintf(found, sizeof found, "%s", line + at);
    }
    if (file)
        fclose(file);
    if (!*found)
        return NULL;
    char *folder = pl_strdup(found);
    if (!folder)
        pl_no_memory(err);
    return folder;
}

void pl_run_dir_index_add(int run, const char *folder)
{
    const char *name = file_name();
    char line[LINE];
    const int length = snprintf(line, sizeof line, "%d %s\n", run, folder);
    if (!name || length >= LINE || strchr(folder, '\n'))
        return;
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        pl_log_line(PL_LOG_WARNING, 0, "launcher.external",
                    "%s: %s: if the job is started again, it begins without a "
                    "checkpoint",
                    name, strerror(errno));
    if (fd >= 0)
        close(fd);
}
