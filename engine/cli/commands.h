/* commands.h - what carries out each command: cli_fit() and the others, and what they share */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <jansson.h>

#include "cli/command.h"

/* int cli_fit(const cli_fit_t *arguments); the exit status. */
#define CLI_COMMAND(command, help, more) int cli_##command(const cli_##command##_t *arguments);
#include "cli/commands.def"

/* What is stored with the weights of a run directory: the facts of its data; NULL: none.  To be decref'd. */
json_t *cli_weights_facts(const char *run_dir);

/* Text of --help, of one command and of all. */
void cli_show_help(const cli_command_t *command);
void cli_show_overview(void);

#endif
