/* paceline.c - main(): finds the command, reads its options and calls its function */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "config.h"

/* The functions of the commands, in the order of cli_commands. */
#define CLI_COMMAND(command, help, more) \
    static int run_##command(const void *arguments) \
    { \
        return cli_##command(arguments); \
    }
#include "cli/commands.def"

static int (*const functions[])(const void *arguments) = {
#define CLI_COMMAND(command, help, more) run_##command,
#include "cli/commands.def"
};

/* In the build tree, adds the folders of plug-ins that were built there. */
static void find_built_plugins(void)
{
    static const char *const built[] = {"accelerators/cuda", "accelerators/opencl",
                                        "examples", "actors/connectors/loggers",
                                        "strategies/collectives"};
    enum { BUILT = sizeof built / sizeof *built };
    char folder[PATH_MAX], path[(BUILT + 1) * PATH_MAX];
    const char *others = getenv("PACELINE_PLUGIN_PATH");
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length < 0 ? 0 : length] = '\0';
    char *libtool = strstr(folder, "/.libs/");
    if (!libtool)
        return;
    strcpy(libtool, "");
    size_t at = (size_t)snprintf(path, PATH_MAX, "%s", others ? others : "");
    for (int k = 0; k < BUILT && at < sizeof path; k++)
        at += (size_t)snprintf(path + at, sizeof path - at, "%s%s/%s/.libs",
                               at ? ":" : "", folder, built[k]);
    setenv("PACELINE_PLUGIN_PATH", path, 1);
}

/* Words that cannot be read may contain --json nevertheless. */
static bool wants_json(int count, char **words)
{
    for (int k = 0; k < count && strcmp(words[k], "--"); k++)
        if (!strcmp(words[k], "--json"))
            return true;
    return false;
}

static int run_command(const cli_command_t *command, int count, char **words)
{
    pl_error_t err = {0};
    bool wants_help;
    void *arguments = cli_command_read(command, count, words, &wants_help, &err);
    if (!arguments) {
        cli_failure(&err, wants_json(count, words));
        return CLI_WRONG;
    }
    int status = CLI_DONE;
    if (wants_help)
        cli_show_help(command);
    else
        status = functions[command - cli_commands](arguments);
    cli_command_free(command, arguments);
    return status;
}

static int run(int count, char **words)
{
    pl_error_t err = {0};
    const cli_command_t *command = count ? cli_command_find(words[0]) : NULL;
    if (command)
        return run_command(command, count - 1, words + 1);
    if (count && (!strcmp(words[0], "--help") || !strcmp(words[0], "-h"))) {
        cli_show_overview();
        return CLI_DONE;
    }
    if (count && !strcmp(words[0], "--version")) {
        cli_print("paceline %s\n", PACKAGE_VERSION);
        return CLI_DONE;
    }
    if (count)
        cli_command_unknown(words[0], &err);
    else
        pl_fail(&err, PL_EINVAL, "no command given: paceline --help lists the commands");
    cli_failure(&err, wants_json(count, words));
    return CLI_WRONG;
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    find_built_plugins();
    cli_output_begin();
    if (pl_init(&argc, &argv, NULL, &err) != PL_OK) {
        cli_error("%s", err.text);
        return CLI_FAILED;
    }
    return cli_output_end(run(argc - 1, argv + 1));
}
