/* tap.c - tests that are sentences: Test Anything Protocol on standard output */
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int tests, failures;

static void report(bool truth, const char *text, const char *file, int line)
{
    printf("%sok %d - %s\n", truth ? "" : "not ", ++tests, text);
    if (!truth) {
        failures++;
        printf("#   at %s:%d\n", file, line);
    }
    fflush(stdout);
}

#define SENTENCE \
    char text[512]; \
    va_list args; \
    va_start(args, format); \
    vsnprintf(text, sizeof text, format, args); \
    va_end(args)

bool tap_ok(bool truth, const char *file, int line, const char *format, ...)
{
    SENTENCE;
    report(truth, text, file, line);
    return truth;
}

bool tap_is_int(long long got, long long expected, const char *file, int line,
                const char *format, ...)
{
    SENTENCE;
    report(got == expected, text, file, line);
    if (got != expected)
        tap_diag("got %lld, expected %lld", got, expected);
    return got == expected;
}

bool tap_is_text(const char *got, const char *expected, const char *file, int line,
                 const char *format, ...)
{
    SENTENCE;
    bool same = got && expected ? !strcmp(got, expected) : got == expected;
    report(same, text, file, line);
    if (!same)
        tap_diag("got \"%s\", expected \"%s\"", got ? got : "(null)",
                 expected ? expected : "(null)");
    return same;
}

bool tap_like(const char *got, const char *pattern, const char *file, int line,
              const char *format, ...)
{
    SENTENCE;
    regex_t re;
    bool match = false;
    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) == 0) {
        match = got && regexec(&re, got, 0, NULL, 0) == 0;
        regfree(&re);
    }
    report(match, text, file, line);
    if (!match)
        tap_diag("got \"%s\", expected a match of /%s/", got ? got : "(null)", pattern);
    return match;
}

bool tap_is_near(double got, double expected, double tolerance, const char *file,
                 int line, const char *format, ...)
{
    SENTENCE;
    bool near = fabs(got - expected) <= tolerance * fmax(1, fabs(expected));
    report(near, text, file, line);
    if (!near)
        tap_diag("got %.9g, expected %.9g within %g", got, expected, tolerance);
    return near;
}

void tap_run(const char *name, void (*test)(void))
{
    printf("# %s\n", name);
    fflush(stdout);
    test();
}

void tap_diag(const char *format, ...)
{
    SENTENCE;
    printf("#   %s\n", text);
    fflush(stdout);
}

void tap_skip(const char *format, ...)
{
    SENTENCE;
    printf("ok %d # SKIP %s\n", ++tests, text);
    fflush(stdout);
}

int tap_done(void)
{
    printf("1..%d\n", tests);
    return failures ? 1 : 0;
}

double tap_larger(double a, double b)
{
    return isnan(a) || isnan(b) ? INFINITY : fmax(a, b);
}

bool tap_nap(int *tries)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return ++*tries < TAP_TRIES;
}

static char folder[64];

static int remove_entry(const char *path, const struct stat *status, int type,
                        struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_folder(void)
{
    remove_tree(folder);
}

/* Processes of another one have other numbers, and may share /tmp. */
static unsigned process_namespace(void)
{
    struct stat status = {0};
    stat("/proc/self/ns/pid", &status);
    return (unsigned)(status.st_ino % 1000);
}

/* Of a process that a signal has ended, which removed nothing. */
static void remove_left_folders(void)
{
    DIR *all = opendir("/tmp");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        char path[sizeof "/tmp/" + sizeof entry->d_name];
        unsigned process, of;
        if (sscanf(entry->d_name, "paceline-t-%u.%u-", &process, &of) != 2
            || of != process_namespace() || kill((pid_t)process, 0) == 0
            || errno != ESRCH)
            continue;
        snprintf(path, sizeof path, "/tmp/%s", entry->d_name);
        remove_tree(path);
    }
    if (all)
        closedir(all);
}

const char *tap_folder(void)
{
    if (!folder[0]) {
        remove_left_folders();
        snprintf(folder, sizeof folder, "/tmp/paceline-t-%u.%u-XXXXXX",
                 (unsigned)getpid(), process_namespace());
        if (!mkdtemp(folder)) {
            perror(folder);
            exit(99);
        }
        atexit(remove_folder);
    }
    return folder;
}

const char *tap_data(const char *name)
{
    static char path[4096];
    const char *root = getenv("PACELINE_TEST_DATA");
    if (!root || !*root)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (access(path, R_OK) == 0)
        return path;
    report(false, "the test data are where PACELINE_TEST_DATA says", __FILE__, __LINE__);
    tap_diag("no %s", path);
    return NULL;
}
