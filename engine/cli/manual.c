/* manual.c - writes paceline(1) from the tables, at make; never installed */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "config.h"

/* Roff takes a dash, a dot or a quote at the wrong place for its own. */
static void put(const char *text)
{
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            putchar('\\');
        if (!strncmp(text, "…", strlen("…"))) {
            fputs("...", stdout);
            text += strlen("…") - 1;
        } else {
            putchar(*text);
        }
    }
}

static void put_line(const char *macro, const char *text)
{
    printf("%s", macro);
    put(text);
    putchar('\n');
}

static void write_option(const cli_option_t *option)
{
    char flag[64];
    puts(".TP");
    printf("\\fB");
    put(cli_is_operand(option) ? "" : cli_option_flag(option, flag));
    printf("\\fR%s\\fI", option->what && !cli_is_operand(option) ? " " : "");
    put(option->what ? option->what : "");
    puts("\\fR");
    put(option->help);
    if (option->kind >= CLI_KIND_COUNT)
        printf(" [%g]", option->fallback);
    putchar('\n');
}

static void write_command(const cli_command_t *command)
{
    printf(".SS \"paceline %s", command->name);
    for (const cli_option_t *option = command->options; option->name; option++)
        if (cli_is_operand(option)) {
            printf(option->needed ? " " : " [");
            put(option->what);
            printf(option->needed ? "" : "]");
        }
    puts("\"");
    put_line("", command->more);
    for (const cli_option_t *option = command->options; option->name; option++)
        write_option(option);
}

static void write_key(const pl_option_t *option)
{
    char words[64];
    puts(".TP");
    printf("\\fB");
    put(option->name);
    printf("\\fR");
    if (option->range) {
        printf(" (");
        put(cli_range_words(option->range, words));
        printf(")");
    }
    if (option->fallback) {
        printf(" [");
        put(option->fallback);
        printf("]");
    }
    putchar('\n');
    put_line("", option->help);
}

static void write_section(const cli_section_t *section)
{
    printf(".SS \"%s: %s\"\n", section->title, section->what);
    for (const pl_option_t *option = pl_options_of(section->name); option->name; option++)
        write_key(option);
}

static const char *const head =
    ".SH NAME\npaceline \\- train neural networks\n"
    ".SH SYNOPSIS\n.B paceline\n.I COMMAND\n.RI [ OPERAND ]...\n.RI [ OPTION ]...\n"
    ".SH DESCRIPTION\n"
    "Paceline is a training engine. This command trains what a run file describes, "
    "predicts with what was trained and\n"
    "shows what goes on meanwhile. Results go to standard output, progress and messages "
    "to standard error; with\n"
    ".B \\-\\-json\nresults are JSON objects, one a line. Every command takes\n.BR "
    "\\-\\-help .\n";

static const char *const run_file =
    ".SH RUN FILE\n"
    "A JSON object with the sections\n.BR module ,\n.BR data ,\n.BR optimizer ,\n.BR "
    "scheduler ,\n.BR averaging ,\n.BR trainer ,\n"
    ".BR callbacks ,\n.B loggers\nand\n.BR plugins .\n"
    "A part is written as its name or as an object with \"name\" and its options;\n.B "
    "paceline list\n"
    "shows all of them. Keys of the sections themselves:\n";

static const char *const tail =
    ".SH FILES\n"
    "A fit writes a directory of its own below\n.BR trainer.default_root_dir ,\n"
    "0001, 0002 and so on, or\n.BR trainer.run_name ;\n.I latest\npoints to the newest. "
    "In it are\n.I run.json\n"
    "(the effective run),\n.I metrics.jsonl\n(one JSON object a line) and\n.IR "
    "model.safetensors .\n"
    ".SH ENVIRONMENT\n"
    ".TP\n.B PACELINE_PLUGIN_PATH\nfolders where plug\\-ins are looked for, separated by "
    "colons\n"
    ".TP\n.B PACELINE_HINTS\nwhen set,\n.B fit\nends with commands to try next also "
    "where it writes to no terminal\n"
    ".TP\n.BR NO_COLOR ,\\  TERM=dumb\nno colours; no line that is redrawn\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\ndone; also a run that SIGTERM or SIGHUP stopped and that was saved\n"
    ".TP\n.B 1\nthe run failed\n"
    ".TP\n.B 2\nthe request was wrong: nothing was started\n"
    ".TP\n.B 130\nended by Ctrl\\-C; after the first, the weights were saved\n"
    ".SH EXAMPLES\n"
    ".nf\npaceline fit examples/fashion\\-mlp.json \\-\\-set trainer.max_epochs=3\n"
    "paceline predict run.json \\-\\-checkpoint runs/latest \\-\\-output classes.npy\n"
    "paceline fit run.json \\-\\-monitor ipc:///tmp/run & paceline monitor "
    "ipc:///tmp/run\n.fi\n";

int main(void)
{
    printf(".TH PACELINE 1 \"\" \"paceline %s\" \"User Commands\"\n%s.SH COMMANDS\n",
           PACKAGE_VERSION, head);
    for (const cli_command_t *command = cli_commands; command->name; command++)
        write_command(command);
    fputs(run_file, stdout);
    for (const cli_section_t *section = cli_sections; section->name; section++)
        write_section(section);
    fputs(tail, stdout);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
