/* memory.h - how much memory this process has, and how much there is for it */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stdint.h>

/* Bytes of this process that are in memory; 0: unknown. */
int64_t pl_memory_used(void);
/* Bytes that the machine could give without swapping; 0: unknown. */
int64_t pl_memory_free(void);

#endif
