/* rank_process.h - the process of a rank: pl_init() enters it when a launcher has started
 * this program */
#ifndef PL_LAUNCHERS_RANK_PROCESS_H
#define PL_LAUNCHERS_RANK_PROCESS_H

/* When this process is a rank's alone it is one until its end: then this never returns.
 * When it runs the program for one it is noted. */
void pl_entry_if_rank(void);

#endif
