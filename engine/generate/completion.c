/* completion.c - writes the completion of a shell from the table of commands, at make
 *
 * completion bash|zsh|fish.  Never installed.  For bash and zsh it writes tables, which
 * the appended completion.bash and completion.zsh read. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

/* Kind of the value of an option or operand. */
typedef enum kind { NOTHING, FILES, KEYS, ROLES, COMMANDS, PROGRAMS } kind_t;

static kind_t kind_of(const cli_option_t *option)
{
    const char *what = option->what ? option->what : "";
    return !strcmp(what, "KEY=VALUE")       ? KEYS
           : !strcmp(what, "ROLE")          ? ROLES
           : !strcmp(what, "COMMAND")       ? COMMANDS
           : option->kind == CLI_KIND_WORDS ? PROGRAMS
           : strstr(what, "FILE") || strstr(what, "CHECKPOINT") || strstr(what, ".json")
               ? FILES
               : NOTHING;
}

/* "json" of "RUN.json"; "" if any file or folder is possible. */
static const char *suffix_of(const cli_option_t *option)
{
    const char *dot = strrchr(option->what, '.');
    return dot && !strchr(option->what, '|') ? dot + 1 : "";
}

/* Literal words of a value: "last" of "last|CHECKPOINT", "pause save" of "pause|save". */
static const char *words_of(const cli_option_t *option, char words[128])
{
    const char *what = option->what && strchr(option->what, '|') ? option->what : "";
    strcpy(words, "");
    for (; *what; what += *what == '|') {
        const int length = (int)strcspn(what, "|");
        if (islower((unsigned char)*what))
            snprintf(words + strlen(words), 128 - strlen(words), "%s%.*s",
                     *words ? " " : "", length, what);
        what += length;
    }
    return words;
}

/* Writes a text for single quotes; characters with a meaning for the shell's function are
 * escaped. */
static void put(const char *text, const char *escaped)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            printf(strchr(escaped, *text) ? "\\%c" : "%c", *text);
}

/* ---- bash ---- */

/* The line for a value.  bash finds an operand by its command alone, so that an operand
 * without completion has no line. */
static void bash_value(const cli_command_t *command, const cli_option_t *option)
{
    static const char *const names[] = {
        [NOTHING] = "nothing", [FILES] = "files",       [KEYS] = "keys",
        [ROLES] = "roles",     [COMMANDS] = "commands", [PROGRAMS] = "programs"};
    char flag[64], words[128];
    kind_t kind = kind_of(option);
    const bool operand = cli_is_operand(option);
    if (operand && kind == NOTHING && !*words_of(option, words))
        return;
    printf("    '%s%s%s') echo %s %s %s ;;\n", command->name, operand ? "" : " ",
           operand ? "" : cli_option_flag(option, flag), names[kind],
           kind == FILES && *suffix_of(option) ? suffix_of(option) : "-",
           words_of(option, words));
}

static void write_bash(void)
{
    char flag[64];
    puts("# bash completion for paceline, from the tables of the command\n"
         "_paceline_commands() {\n    echo '--help --version'");
    for (const cli_command_t *command = cli_commands; command->name; command++)
        printf("    echo %s\n", command->name);
    puts("}\n_paceline_flags() {\n    case $1 in");
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        printf("    %s) echo '--help", command->name);
        for (const cli_option_t *option = command->options; option->name; option++)
            if (!cli_is_operand(option))
                printf(" %s", cli_option_flag(option, flag));
        puts("' ;;");
    }
    puts("    esac\n}\n# Kind of the value, its suffix or -, literal words.\n"
         "_paceline_what() {\n    case $1 in");
    for (const cli_command_t *command = cli_commands; command->name; command++)
        for (const cli_option_t *option = command->options; option->name; option++)
            if (option->kind != CLI_KIND_FLAG)
                bash_value(command, option);
    puts("    esac\n}");
}

/* ---- zsh ---- */

/* The value for _arguments: ":WHAT:ACTION". */
static void zsh_action(const cli_option_t *option)
{
    static const char *const actions[] = {[NOTHING] = " ",
                                          [FILES] = "_files",
                                          [KEYS] = "_paceline_keys",
                                          [ROLES] = "_paceline_roles",
                                          [COMMANDS] = "_paceline_commands",
                                          [PROGRAMS] = "_normal"};
    char words[128];
    kind_t kind = kind_of(option);
    putchar(':');
    put(option->what, ":[]");
    if (*words_of(option, words))
        printf(kind == FILES
                   ? ":_alternative \"words\\:word\\:(%s)\" \"files\\:file\\:_files\""
                   : ":(%s)",
               words);
    else if (kind == FILES && *suffix_of(option))
        printf(":_files -g \"*.%s(-.)\"", suffix_of(option));
    else
        printf(":%s", actions[kind]);
}

/* at: number of the operand, from 1. */
static void zsh_option(const cli_option_t *option, int at)
{
    char flag[64];
    bool many = option->kind == CLI_KIND_TEXTS;
    printf(" \\\n            '");
    if (option->kind == CLI_KIND_WORDS) {
        fputs("*:", stdout);
    } else if (option->kind == CLI_KIND_OPERAND) {
        printf(option->needed ? "%d" : "%d:", at);
    } else {
        printf("%s%s%s[", many ? "*" : "", cli_option_flag(option, flag),
               option->kind == CLI_KIND_FLAG ? "" : "=");
        put(option->help, ":[]\\");
        putchar(']');
    }
    if (option->kind != CLI_KIND_FLAG)
        zsh_action(option);
    putchar('\'');
}

static void write_zsh(void)
{
    puts("#compdef paceline\n# zsh completion for paceline, from the tables of the "
         "command\n"
         "_paceline_commands() {\n    local -a commands=(");
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        printf("        '%s:", command->name);
        put(command->help, "");
        puts("'");
    }
    puts("    )\n    _describe command commands\n}\n_paceline_arguments() {\n    case $1 "
         "in");
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        printf("    %s)\n        _arguments '--help[explain it]'", command->name);
        int at = 0;
        for (const cli_option_t *option = command->options; option->name; option++)
            zsh_option(option, at += option->kind == CLI_KIND_OPERAND);
        puts("\n        ;;");
    }
    puts("    esac\n}");
}

/* ---- fish ---- */

static void fish_option(const cli_command_t *command, const cli_option_t *option)
{
    char flag[64], words[128];
    kind_t kind = kind_of(option);
    printf("complete -c paceline -n '__fish_seen_subcommand_from %s'", command->name);
    if (!cli_is_operand(option))
        printf(" -l %s", cli_option_flag(option, flag) + 2);
    if (option->kind != CLI_KIND_FLAG && !cli_is_operand(option))
        fputs(" -r", stdout);
    fputs(kind == FILES || kind == PROGRAMS ? " -F" : " -f", stdout);
    if (kind == KEYS)
        fputs(" -a '(paceline list --keys 2>/dev/null)'", stdout);
    else if (kind == ROLES)
        fputs(
            " -a '(paceline list 2>/dev/null | string match -r \"^\\S+\") trainer data'",
            stdout);
    else if (kind == COMMANDS)
        for (const cli_command_t *c = cli_commands; c->name; c++)
            printf(" -a %s", c->name);
    else if (*words_of(option, words))
        printf(" -a '%s'", words);
    fputs(" -d '", stdout);
    put(option->help, "");
    puts("'");
}

static void write_fish(void)
{
    puts("# fish completion for paceline, from the tables of the command\n"
         "complete -c paceline -f\n"
         "complete -c paceline -l help -d 'explain it'");
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        printf("complete -c paceline -n __fish_use_subcommand -f -a %s -d '",
               command->name);
        put(command->help, "");
        puts("'");
        for (const cli_option_t *option = command->options; option->name; option++)
            fish_option(command, option);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *shell;
        void (*write)(void);
    } shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
    for (size_t k = 0; argc == 2 && k < sizeof shells / sizeof *shells; k++)
        if (!strcmp(argv[1], shells[k].shell)) {
            shells[k].write();
            return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
        }
    fputs("usage: completion bash|zsh|fish\n", stderr);
    return 2;
}
