/* memory.h - memory and processor time of this process and its children */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stdint.h>

/* Bytes of this process that are in memory; 0: unknown. */
int64_t pl_memory_used(void);
/* Processor time of all threads of this process, s. */
double pl_cpu_used(void);
/* Calls visit() for each child process, with its name, its bytes and its seconds. */
typedef void (*pl_memory_visit_t)(void *user, int process, const char *name,
                                  int64_t bytes, double cpu);
void pl_memory_children(pl_memory_visit_t visit, void *user);
/* Bytes that are available without swapping; 0: unknown. */
int64_t pl_memory_free(void);

#endif
