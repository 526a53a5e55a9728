/* help.c - the text of --help, from the table of commands */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"

enum { LEFT = 24, NARROW = 60 };                            /* columns */

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

static void show_option(const cli_option_t *option)
{
    char flag[64], left[160], text[256];
    cli_option_flag(option, flag);
    bool operand = cli_is_operand(option), number = option->kind >= CLI_KIND_COUNT;
    snprintf(left, sizeof left, "%s%s%s", operand ? "" : flag,
             option->what && !operand ? " " : "", option->what ? option->what : "");
    snprintf(text, sizeof text, number ? "%s [%g]" : "%s", option->help,
             option->fallback);
    show_entry(left, text);
}

static void show_usage(const cli_command_t *command)
{
    const bool ends = cli_ends_with_words(command);
    char text[256];
    size_t at = (size_t)snprintf(text, sizeof text, "paceline %s%s", command->name,
                                 ends ? " [OPTION]..." : "");
    for (const cli_option_t *option = command->options; option->name; option++)
        if (cli_is_operand(option))
            at += (size_t)snprintf(text + at, sizeof text - at,
                                   option->needed ? " %s" : " [%s]", option->what);
    snprintf(text + at, sizeof text - at, ends ? "" : " [OPTION]...");
    cli_print("usage: ");
    cli_wrap(text, 7, 7);
}

void cli_show_help(const cli_command_t *command)
{
    show_usage(command);
    cli_print("\n");
    cli_wrap(command->more, 0, 0);
    cli_print("\n");
    for (const cli_option_t *option = command->options; option->name; option++)
        show_option(option);
    show_entry("--help", "show this help");
}

void cli_show_overview(void)
{
    cli_print("usage: paceline COMMAND [OPERAND]... [OPTION]...\n\n");
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        char left[32];
        snprintf(left, sizeof left, "%s", command->name);
        show_entry(left, command->help);
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
