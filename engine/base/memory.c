/* memory.c - how much memory this process has, and how much there is for it: what Linux
 * tells in /proc */
#include "base/memory.h"

#include <stdio.h>
#include <unistd.h>

int64_t pl_memory_used(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
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
