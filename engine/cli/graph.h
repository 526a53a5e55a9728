/* graph.h - paceline inspect RUN.json: the graph that a run file describes */
#ifndef CLI_GRAPH_H
#define CLI_GRAPH_H

#include "cli/commands.h"

/* Whether a path is text, as a run file is; "-" is standard input. Files of weights and
 * folders are not. */
bool cli_is_run_file(const char *path);

/* Prints the graph of the run file; the exit status. */
int cli_inspect_run(const cli_inspect_t *arguments);

#endif
