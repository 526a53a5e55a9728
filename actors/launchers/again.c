/* again.c - this program once more, as a child */
#include "actors/launchers/again.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { COMMAND_MOST = 64 << 10 };

/* One after the other, as they were before the program took them apart. */
static char words[COMMAND_MOST + 1];
static size_t words_length;

void pl_again_note(void)
{
    FILE *file = words_length ? NULL : fopen("/proc/self/cmdline", "rbe");
    if (!file)
        return;
    words_length = fread(words, 1, COMMAND_MOST, file);
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

pl_process_t *pl_again_start(const pl_process_spec_t *spec, struct event_base *loop,
                             pl_error_t *err)
{
    const char **argv = words_list();
    pl_process_spec_t again = *spec;
    again.program = "/proc/self/exe";
    again.argv = argv;
    pl_process_t *process = argv ? pl_process_start(&again, loop, err) : NULL;
    if (!argv)
        pl_no_memory(err);
    pl_free(argv);
    return process;
}
