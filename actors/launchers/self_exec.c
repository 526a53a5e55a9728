/* self_exec.c - starts this program once more, as a child */
#include "actors/launchers/self_exec.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { COMMAND_MAX = 64 << 10 };

/* One after the other, as they were before the program took them apart. */
static char words[COMMAND_MAX + 1];
static size_t words_length;

void pl_self_exec_init(void)
{
    FILE *file = words_length ? NULL : fopen("/proc/self/cmdline", "rbe");
    if (!file)
        return;
    words_length = fread(words, 1, COMMAND_MAX, file);
    fclose(file);
}

static const char **words_list(void)
{
    size_t count = 0;
    const char *word = words;
    for (size_t k = 0; k < words_length; k++)
        count += words[k] == '\0';
    const char **list = pl_alloc_array(count + 2, sizeof *list);
    for (size_t k = 0; list && k < count; k++, word += strlen(word) + 1)
        list[k] = word;
    if (list && !count)
        list[0] = "paceline";
    return list;
}

pl_process_t *pl_self_exec_start(const pl_process_spec_t *spec, struct event_base *loop,
                                 pl_error_t *err)
{
    const char **argv = words_list();
    pl_process_spec_t own = *spec;
    own.program = "/proc/self/exe";
    own.argv = argv;
    pl_process_t *process = argv ? pl_process_start(&own, loop, err) : NULL;
    if (!argv)
        pl_no_memory(err);
    pl_free(argv);
    return process;
}
