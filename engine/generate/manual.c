/* manual.c - writes paceline(1) and a page for each command from the tables, at make
 *
 * manual FOLDER DATE.  Never installed. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "config.h"

static FILE *page;

/* Escapes dashes, and dots and quotes at the start of a line, for roff. */
static void put(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", page);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\')
            putc('\\', page);
        if (!strncmp(text, "…", strlen("…"))) {
            fputs("...", page);
            text += strlen("…") - 1;
        } else {
            putc(*text, page);
        }
    }
}

static void put_line(const char *text)
{
    put(text);
    putc('\n', page);
}

/* ---- a page for each command ---- */

static void write_command(const cli_command_t *command)
{
    static const char options[] = ".RI [ OPTION ]...\n";
    const bool ends = cli_command_words(command) != NULL;
    fprintf(page, ".SH NAME\npaceline\\-%s \\- ", command->name);
    put_line(command->help);
    fprintf(page, ".SH SYNOPSIS\n.B paceline %s\n%s", command->name, ends ? options : "");
    for (const cli_option_t *option = command->options; option->name; option++)
        if (cli_is_operand(option)) {
            fputs(option->needed ? ".I " : ".RI [ ", page);
            put(option->what);
            fputs(option->needed ? "\n" : " ]\n", page);
        }
    fputs(ends ? "" : options, page);
    fputs(".SH DESCRIPTION\n", page);
    put_line(command->more);
    fputs(".SH OPTIONS\n", page);
    for (const cli_option_t *option = command->options; option->name; option++) {
        char flag[64];
        fputs(".TP\n\\fB", page);
        put(cli_is_operand(option) ? "" : cli_option_flag(option, flag));
        fprintf(page, "\\fR%s\\fI", option->what && !cli_is_operand(option) ? " " : "");
        put(option->what ? option->what : "");
        fputs("\\fR\n", page);
        put(option->help);
        if (option->kind >= CLI_KIND_COUNT)
            fprintf(page, " [%g]", option->fallback);
        putc('\n', page);
    }
    fputs(".TP\n.B \\-\\-help\nshow the same, shorter\n", page);
    fputs(".SH SEE ALSO\n.BR paceline (1)\n", page);
}

/* ---- paceline(1) ---- */

static const char *const head =
    ".SH NAME\npaceline \\- train neural networks\n"
    ".SH SYNOPSIS\n.B paceline\n.I COMMAND\n.RI [ OPERAND ]...\n.RI [ OPTION ]...\n"
    ".SH DESCRIPTION\n"
    "Paceline is a training engine. This command trains the run of a run file, predicts "
    "with trained weights and\n"
    "shows runs under way. It writes results to standard output, progress and messages "
    "to standard error. With\n"
    ".B \\-\\-json\nresults are JSON objects, one a line. Every command takes\n.BR "
    "\\-\\-help .\n";

static const char *const run_file =
    ".SH RUN FILE\n"
    "A JSON object with the sections\n.BR module ,\n.BR data ,\n.BR optimizer ,\n.BR "
    "scheduler ,\n.BR momentum_scheduler ,\n.BR weight_decay_scheduler ,\n.BR averaging "
    ",\n.BR trainer ,\n"
    ".BR callbacks ,\n.B loggers\nand\n.BR plugins .\n"
    "A component is written as its name, or as an object with \"name\" and its "
    "options;\n.B "
    "paceline list\n"
    "shows all of them. Keys of the sections themselves:\n";

static const char *const tail =
    ".SH FILES\n"
    "A fit writes a new directory below\n.BR trainer.default_root_dir ,\n"
    "0001, 0002 and so on, or\n.BR trainer.run_name ;\n.I latest\nnames the newest. "
    "The directory contains\n"
    ".TP\n.I run.json\nthe effective run\n"
    ".TP\n.I metrics.jsonl\nmetrics, one JSON object a line; other loggers have other "
    "files\n"
    ".TP\n.I commands.jsonl\none line for each command that the run received\n"
    ".TP\n.I model.safetensors\nthe weights at the end of the run\n"
    ".TP\n.I checkpoints\ncheckpoints from which the run can be resumed\n"
    ".TP\n.I rank\\-N.stderr\nstandard error of that rank, of the launchers spawn and "
    "script\n"
    ".SH ENVIRONMENT\n"
    ".TP\n.B PACELINE_PLUGIN_PATH\nfolders to search for plug\\-ins, separated by "
    "colons\n"
    ".TP\n.B PACELINE_CUDA_PATH\nfolder that is searched first for NVIDIA's NVRTC, "
    "cuBLASLt, cuDNN and NCCL; then the loader's folders,\n.BR CUDA_HOME ,\n"
    ".BR CUDA_PATH ,\n.IR /usr/local/cuda ,\n.BR VIRTUAL_ENV ,\n.BR CONDA_PREFIX ,\n"
    "and the folders of Python's packages\n"
    ".TP\n.B CUDA_VISIBLE_DEVICES\nGPUs that the driver offers, renumbered from 0\n"
    ".TP\n.B OCL_ICD_VENDORS\nfolder or file that names the drivers of OpenCL\n"
    ".TP\n.B POCL_CACHE_DIR\nfolder of PoCL's compiled kernels, in place of\n"
    ".IR ~/.cache/pocl ;\nwithout one that can be written to PoCL has no device\n"
    ".TP\n.B NCCL_HOSTID\nthe name by which NCCL knows this machine\n"
    ".TP\n.BR XDG_CACHE_HOME ,\\  HOME\nfolder of compiled kernels:\n"
    ".I $XDG_CACHE_HOME/paceline\nor\n.I ~/.cache/paceline\n"
    ".TP\n.B PACELINE_HINTS\nif set,\n.B fit\nends with suggested commands even if its "
    "output is not a terminal\n"
    ".TP\n.B PACELINE_DASHBOARD_TOKEN_FILE\nfile with the token of the dashboard, "
    "created if missing; not set: a new token each time\n"
    ".TP\n.BR TMPDIR ,\\  XDG_RUNTIME_DIR\nfolder for the sockets between processes of "
    "one machine: the first, else the second, else\n.I /tmp\n"
    ".TP\n.BR MLFLOW_TRACKING_URI ,\\  MLFLOW_TRACKING_USERNAME ,\\  "
    "MLFLOW_TRACKING_PASSWORD\nserver and credentials of the logger mlflow\n"
    ".TP\n.BR NO_COLOR ,\\  TERM=dumb\nno colours; no line that is redrawn\n"
    ".TP\n.B COLUMNS\nwidth of a terminal that does not report its width\n"
    ".TP\n.BR LC_ALL ,\\  LC_CTYPE ,\\  LANG\nthe first that is set determines whether "
    "UTF\\-8 is shown\n"
    ".PP\nA rank that Paceline does not start itself reads its rank from the variables "
    "of\n.BR "
    "paceline\\-launch "
    "(1),\ntorchrun, Slurm, MPI, LSF or Kubernetes,\nor from RANK and WORLD_SIZE.\n"
    "The following variables have priority:\n"
    ".TP\n.BR PACELINE_RANK ,\\  PACELINE_WORLD_SIZE\nthis rank, from 0, and the number "
    "of ranks\n"
    ".TP\n.BR PACELINE_LOCAL_RANK ,\\  PACELINE_LOCAL_WORLD_SIZE ,\\  "
    "PACELINE_NODE_RANK\n"
    "the same on its node, and the index of the node\n"
    ".TP\n.B PACELINE_ENDPOINT\nHOST:PORT at which rank 0 listens\n"
    ".TP\n.B PACELINE_JOB_KEY_FILE\nfile with the key of the job, required beyond one "
    "machine; also for\n.BR paceline\\-launch (1)\nwithout\n.B \\-\\-job\\-key\n"
    ".TP\n.B PACELINE_PORT_RANGE\nports, such as 20000-20100, on which ranks "
    "and launcher listen\n"
    ".TP\n.B PACELINE_RUN_ID\nunique name of the job, the same for all its ranks\n"
    ".TP\n.B PACELINE_RESTART_COUNT\nnumber of restarts of the ranks so far\n"
    ".TP\n.B PACELINE_RUN_DIR_INDEX\nfile in which rank 0 records its run directories, "
    "so that "
    "restarted ranks resume there\n"
    ".TP\n.BR PACELINE_FINISHED_RANKS ,\\  PACELINE_PARENT ,\n.TQ\n"
    ".BR PACELINE_BOOTSTRAP ,\\  PACELINE_SCRIPT\nset only by Paceline, for processes "
    "that "
    "it starts\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\nsuccess; also a run that SIGTERM or SIGHUP stopped, after it was saved\n"
    ".TP\n.B 1\nthe command failed after it had begun; of\n.BR paceline\\-control (1):\n"
    "the run cannot do it, "
    "no run is at the endpoint, or it has not answered for 30 seconds\n"
    ".TP\n.B 2\nthe request was wrong and nothing was done: words or a run file with "
    "mistakes, or a file, folder, device or rank that is missing, or that cannot be read "
    "or written\n"
    ".TP\n.B 75\na rank that was started by\n.BR paceline\\-launch (1),\nor with\n.B "
    "PACELINE_RESTART_COUNT\nset, lost another rank; all ranks are restarted\n"
    ".TP\n.B 130\nended by Ctrl\\-C; the first Ctrl\\-C saves the weights\n"
    ".SH EXAMPLES\n"
    ".nf\npaceline fit examples/fashion\\-mlp.json \\-\\-set trainer.max_epochs=3\n"
    "paceline predict run.json \\-\\-checkpoint runs/latest \\-\\-output classes.npy\n"
    "paceline fit run.json \\-\\-monitor ipc:///tmp/run &\n"
    "paceline monitor ipc:///tmp/run\n.fi\n";

static void write_overview(void)
{
    fprintf(page, "%s.SH COMMANDS\nEach command has a manual page.\n", head);
    for (const cli_command_t *command = cli_commands; command->name; command++) {
        fprintf(page, ".TP\n.BR paceline\\-%s (1)\n", command->name);
        put_line(command->help);
    }
    fputs(run_file, page);
    for (const cli_section_t *section = cli_sections; section->name; section++) {
        const pl_option_t *option = pl_options_of(section->name);
        fprintf(page, ".SS \"%s: %s\"\n", section->title, section->what);
        for (; option->name; option++) {
            char words[64];
            fputs(".TP\n\\fB", page);
            put(option->name);
            fputs("\\fR", page);
            if (option->range) {
                fputs(" (", page);
                put(cli_range_words(option->range, words));
                putc(')', page);
            }
            if (option->fallback) {
                fputs(" [", page);
                put(option->fallback);
                putc(']', page);
            }
            putc('\n', page);
            put_line(option->help);
        }
    }
    fputs(tail, page);
    fputs(".SH SEE ALSO\n.BR paceline (3)\n", page);
}

/* ---- files ---- */

/* The page of a command; NULL: the overview. */
static bool write_page(const char *folder, const char *date, const cli_command_t *command)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/paceline%s%s.1", folder, command ? "-" : "",
             command ? command->name : "");
    page = fopen(path, "w");
    if (!page)
        return false;
    fprintf(page, ".TH PACELINE%s", command ? "\\-" : "");
    for (const char *c = command ? command->name : ""; *c; c++)
        putc(toupper((unsigned char)*c), page);
    fprintf(page, " 1 \"%s\" \"paceline %s\" \"User Commands\"\n", date, PACKAGE_VERSION);
    if (command)
        write_command(command);
    else
        write_overview();
    bool written = !ferror(page);
    return !fclose(page) && written;
}

int main(int argc, char **argv)
{
    bool written = argc == 3 && write_page(argv[1], argv[2], NULL);
    for (const cli_command_t *command = cli_commands; written && command->name; command++)
        written = write_page(argv[1], argv[2], command);
    if (!written)
        fprintf(stderr, "usage: manual FOLDER DATE, a folder that can be written to\n");
    return !written;
}
