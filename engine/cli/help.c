/* help.c - the text of --help, from the table of commands */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"

enum { LEFT = 24, NARROWEST = 40, WIDEST = 100 };

static int width(void)
{
    int columns = cli_columns(stdout);
    if (columns == 0)
        return 80;
    return columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

/* The text in lines, each behind `indent` blanks; the first stands at column `at` already. */
static void wrap(const char *text, int at, int indent)
{
    int room = width() - 1;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > indent && at + 1 + length > room) {
            cli_print("\n");
            at = 0;
        }
        if (at < indent) {
            cli_print("%*s", indent - at, "");
            at = indent;
        } else if (at > indent) {
            cli_print(" ");
            at++;
        }
        cli_print("%.*s", length, text);
        at += length;
        text += length + (text[length] == ' ');
    }
    cli_print("\n");
}

static void show_entry(const char *left, const char *text)
{
    int at = 2 + (int)strlen(left), indent = width() < 60 ? 8 : LEFT;
    cli_print("  %s", left);
    if (at + 2 > indent) {
        cli_print("\n");
        at = 0;
    }
    wrap(text, at, indent);
}

static void show_option(const cli_option_t *option)
{
    char flag[64], left[160], text[256];
    cli_option_flag(option, flag);
    bool operand = option->kind == CLI_KIND_OPERAND, number = option->kind >= CLI_KIND_COUNT;
    snprintf(left, sizeof left, "%s%s%s", operand ? "" : flag, option->what && !operand ? " " : "",
             option->what ? option->what : "");
    snprintf(text, sizeof text, number ? "%s [%g]" : "%s", option->help, option->fallback);
    show_entry(left, text);
}

static void show_usage(const cli_command_t *command)
{
    cli_print("usage: paceline %s", command->name);
    for (const cli_option_t *option = command->options; option->name; option++)
        if (option->kind == CLI_KIND_OPERAND)
            cli_print(option->needed ? " %s" : " [%s]", option->what);
    cli_print(" [OPTION]...\n");
}

void cli_show_help(const cli_command_t *command)
{
    show_usage(command);
    cli_print("\n");
    wrap(command->more, 0, 0);
    cli_print("\n");
    for (const cli_option_t *option = command->options; option->name; option++)
        show_option(option);
    show_entry("--help", "show this");
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
    wrap("paceline COMMAND --help explains a command, man paceline all of them, paceline list what a run file can say. "
         "Results go to standard output, progress and messages to standard error.", 0, 0);
}

int cli_help(const cli_help_t *arguments)
{
    const cli_command_t *command = arguments->command ? cli_command_find(arguments->command) : NULL;
    if (!arguments->command)
        cli_show_overview();
    else if (command)
        cli_show_help(command);
    else
        cli_error("there is no command \"%s\": see paceline --help", arguments->command);
    return !arguments->command || command ? CLI_DONE : CLI_WRONG;
}
