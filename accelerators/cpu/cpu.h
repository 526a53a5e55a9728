/* cpu.h - the CPU as an accelerator: its table */
#ifndef PL_CPU_H
#define PL_CPU_H

#include "accelerators/accelerator.h"

extern const pl_accelerator_ops_t pl_cpu_accelerator;

#endif
