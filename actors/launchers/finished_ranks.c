/* finished_ranks.c - which ranks of a job have ended well, for those that wait for them
 *
 * A line for each, "RANK TEXT". */
#include "actors/launchers/finished_ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = PL_ERROR_TEXT + 16 };

static const char *file_name(void)
{
    const char *name = getenv("PACELINE_FINISHED_RANKS");
    return name && *name ? name : NULL;
}

bool pl_finished_ranks_are_reported(void)
{
    return file_name() != NULL;
}

void pl_finished_ranks_add(const char *file, int rank, const char *text)
{
    char line[LINE];
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(line, sizeof line - 1, "%d %s", rank, text);
    strcat(line, "\n");
    if (fd < 0)
        return;
    ssize_t written = write(fd, line, strlen(line));
    (void)written;
    close(fd);
}

bool pl_finished_ranks_find(int rank, char *text, size_t capacity)
{
    const char *name = file_name();
    FILE *file = name ? fopen(name, "re") : NULL;
    char line[LINE];
    int number, at;
    bool is_there = false;
    while (file && !is_there && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        is_there = sscanf(line, "%d %n", &number, &at) == 1 && number == rank;
        if (is_there)
            snprintf(text, capacity, "%s", line + at);
    }
    if (file)
        fclose(file);
    return is_there;
}
