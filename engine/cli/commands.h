/* commands.h - what carries out each command, and what they share */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/command.h"

/* int cli_fit(const cli_fit_t *arguments); the exit status. */
#define CLI_COMMAND(command, help, more) \
    int cli_##command(const cli_##command##_t *arguments);
#include "cli/commands.def"

/* Text of --help, of one command and of all. */
void cli_show_help(const cli_command_t *command);
void cli_show_overview(void);

#endif
