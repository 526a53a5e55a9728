/* help.c - the text of --help, from the table of commands */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum { LEFT = 24, NARROW = 60 };                            /* columns */

/* An option or command on the left, its help on the right. */
static void show_entry(const char *left, const char *text)
{
    int at = 2 + (int)strlen(left), indent = cli_width() < NARROW ? 8 : LEFT;
    cli_print("  %s", left);
    if (at + 2 > indent) {
        cli_print("\n");
        at = 0;
    }
    cli_wrap(text, at, indent);
}

void cli_show_help(const cli_command_t *command)
{
    const bool ends = cli_command_words(command) != NULL;
    char usage[256];
    size_t at = (size_t)snprintf(usage, sizeof usage, "paceline %s%s", command->name,
                                 ends ? " [OPTION]..." : "");
    for (const cli_option_t *option = command->options; option->name; option++)
        if (cli_is_operand(option))
            at += (size_t)snprintf(usage + at, sizeof usage - at,
                                   option->needed ? " %s" : " [%s]", option->what);
    snprintf(usage + at, sizeof usage - at, ends ? "" : " [OPTION]...");
    cli_print("usage: ");
    cli_wrap(usage, 7, 7);
    cli_print("\n");
    cli_wrap(command->more, 0, 0);
    cli_print("\n");
    for (const cli_option_t *option = command->options; option->name; option++) {
        char flag[64], left[160], text[256];
        const bool operand = cli_is_operand(option),
                   number = option->kind >= CLI_KIND_COUNT;
        cli_option_flag(option, flag);
        snprintf(left, sizeof left, "%s%s%s", operand ? "" : flag,
                 option->what && !operand ? " " : "", option->what ? option->what : "");
        snprintf(text, sizeof text, number ? "%s [%g]" : "%s", option->help,
                 option->fallback);
        show_entry(left, text);
    }
    show_entry("--help", "show this help");
}

void cli_show_overview(void)
{
    cli_print("usage: paceline COMMAND [OPERAND]... [OPTION]...\n\n");
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        show_entry(command->name, command->help);
    }
    cli_print("\n");
    cli_wrap(
        "paceline COMMAND --help explains a command, and man paceline all of them. "
        "paceline list shows what a run file can contain. Results go to standard output, "
        "progress and messages to standard error.",
        0, 0);
}

int cli_help(const cli_help_t *arguments)
{
    pl_error_t err = {0};
    const cli_command_t *command = arguments->command
                                       ? cli_command_find(arguments->command)
                                       : NULL;
    if (!arguments->command)
        cli_show_overview();
    else if (command)
        cli_show_help(command);
    else
        cli_command_unknown(arguments->command, &err);
    if (err.code != PL_OK)
        cli_failure(&err, false);
    return err.code == PL_OK ? CLI_DONE : CLI_WRONG;
}
