/* left_folders.c - tests that what a killed test leaves in /tmp is removed by the next */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

typedef struct child {
    pid_t process;
    int end;                                             /* it ends when this is closed */
    char folder[64];
} child_t;

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* In the child: a folder with something in it. */
static void child_run(int reported, int end)
{
    char path[128], byte;
    snprintf(path, sizeof path, "%s/below", tap_folder());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/below/file", tap_folder());
    fclose(fopen(path, "w"));
    if (write(reported, tap_folder(), strlen(tap_folder()) + 1) < 0
        || read(end, &byte, 1) != 0)
        abort();
    exit(0);
}

/* Before this process has a folder, which the child would share. */
static child_t child_begin(void)
{
    int reported[2], end[2];
    child_t child = {0};
    if (pipe(reported) != 0 || pipe(end) != 0)
        exit(99);
    fflush(stdout);
    child.process = fork();
    if (child.process == 0) {
        close(end[1]);
        child_run(reported[1], end[0]);
    }
    close(reported[1]), close(end[0]);
    ok(read(reported[0], child.folder, sizeof child.folder - 1) > 0
           && is_there(child.folder),
       "a process has %s", child.folder);
    close(reported[0]);
    child.end = end[1];
    return child;
}

/* A script whose shell kills itself. */
static void script_run(char left[64])
{
    const char *top = getenv("top_srcdir");
    char command[512];
    snprintf(command, sizeof command,
             "exec bash -c '. %s/t/tap.sh; echo \"$folder\"; kill -KILL $$'",
             top ? top : ".");
    FILE *script = popen(command, "r");
    if (script && fgets(left, 64, script))
        left[strcspn(left, "\n")] = '\0';
    if (script)
        pclose(script);
    ok(is_there(left), "a script that was killed leaves %s", left);
}

static void folders_of_killed_tests_are_removed_by_the_next(void)
{
    char left[64] = "";
    child_t killed = child_begin(), lives = child_begin();
    kill(killed.process, SIGKILL);
    waitpid(killed.process, NULL, 0);
    ok(is_there(killed.folder), "one that was killed leaves it");
    script_run(left);
    ok(is_there(tap_folder()), "the next has %s", tap_folder());
    ok(!is_there(killed.folder) && !is_there(left), "and those that were left are gone");
    ok(is_there(lives.folder), "but not the folder of a process that lives");
    close(killed.end), close(lives.end);
    waitpid(lives.process, NULL, 0);
    ok(!is_there(lives.folder), "which removes it itself");
}

int main(void)
{
    run(folders_of_killed_tests_are_removed_by_the_next);
    return tap_done();
}
