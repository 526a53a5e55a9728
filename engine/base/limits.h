/* limits.h - how many ranks there may be, and how long the keys are that they share */
#ifndef PL_BASE_LIMITS_H
#define PL_BASE_LIMITS_H

#define PL_RANKS_MAX 1024                                   /* of a run */
#define PL_NODE_RANKS_MAX 256                               /* that a run starts itself */
#define PL_KEY_BYTES 32

#endif
