/* fake.h - an accelerator for tests: memory that the host cannot address, replays that
 * are done later, delays and faults by script
 *
 * It computes in float64 (reference.h).  Its option "script" is a list of rules with ';'
 * between them:
 *
 *   open fails                             region 3 fails      (3 is a pl_region_t)
 *   compile 2 fails                        write 1 hangs       (the 1st; none: each)
 *   replay 5 of forward_backward fails     done() says so
 *   replay 5 of optimizer_step is refused  replay() says so
 *   replay 1 of forward hangs              and all behind it: done() never comes
 *   replay of forward takes 2 ms           each of them, one after the other
 *   step 5 of forward_backward gives nan in fc1.weight  its gradient; or in loss
 *
 * Its option "launches" is how many launches each replay has, which end one after
 * another while it takes its time; of one that hangs the first does  [0: the device does
 * not say].
 *
 * Replays are counted by kind, from 1; steps are the optimizer's. */
#ifndef T_FAKE_H
#define T_FAKE_H

#include "accelerators/accelerator.h"

extern const pl_accelerator_ops_t fake_accelerator;

/* What was asked of the devices of this process: to open, regions, plans, writes,
 * replays. */
int fake_calls(void);
/* Waits until it is that much; false: it took too long. */
bool fake_wait_calls(int count);
/* How often a device of this process has begun to hang. */
int fake_hangs(void);

/* The device number that the newest accelerator of a local rank was opened with. */
int fake_device(int local_rank);
/* Waits until that is more than before; false: it took too long. */
bool fake_wait_hang(int before);

#endif
