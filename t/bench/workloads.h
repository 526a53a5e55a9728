/* workloads.h - the training steps that are measured beside PyTorch's
 *
 * Each has a model of the same name, with as many parameters, in
 * t/bench/torch_peer.py. */
#ifndef T_BENCH_WORKLOADS_H
#define T_BENCH_WORKLOADS_H

#include "t/training_cases.h"

extern const training_case_t bench_workloads[];
extern const int bench_workload_count;

#endif
