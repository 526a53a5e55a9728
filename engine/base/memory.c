/* memory.c - memory and processor time of this process and its children, from /proc */
#include "base/memory.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t used_by(const char *process)
{
    char path[64];
    long long pages = 0;
    snprintf(path, sizeof path, "/proc/%s/statm", process);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

double pl_cpu_used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Fields are read behind the name, which may contain brackets and blanks. */
static double cpu_of(const char *process)
{
    char path[64], line[1024] = "";
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", process);
    FILE *file = fopen(path, "re");
    const char *rest = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    if (!rest
        || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                  &system)
               != 2)
        return 0;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

int64_t pl_memory_used(void)
{
    return used_by("self");
}

void pl_memory_children(pl_memory_visit_t visit, void *user)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *entry;
    while (threads && (entry = readdir(threads))) {
        char path[300], number[16];
        int process;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/children", entry->d_name);
        FILE *children = fopen(path, "re");
        while (children && fscanf(children, "%d", &process) == 1) {
            char name[32] = "";
            snprintf(number, sizeof number, "%d", process);
            snprintf(path, sizeof path, "/proc/%s/comm", number);
            FILE *file = fopen(path, "re");
            if (file && fgets(name, sizeof name, file)) {
                name[strcspn(name, "\n")] = '\0';
                visit(user, process, name, used_by(number), cpu_of(number));
            }
            if (file)
                fclose(file);
        }
        if (children)
            fclose(children);
    }
    if (threads)
        closedir(threads);
}

int64_t pl_memory_free(void)
{
    long long kilobytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}
