/* memory.h - how much memory and processor time this process has taken, and how much
 * memory there is for it */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stdint.h>

/* Bytes of this process that are in memory; 0: unknown. */
int64_t pl_memory_used(void);
/* Processor time of all its threads, seconds. */
double pl_cpu_used(void);
/* The same of each process that this one has started, with what it calls itself. */
typedef void (*pl_memory_visit_t)(void *user, int process, const char *name,
                                  int64_t bytes, double cpu);
void pl_memory_children(pl_memory_visit_t tell, void *user);
/* Bytes that the machine could give without swapping; 0: unknown. */
int64_t pl_memory_free(void);

#endif
