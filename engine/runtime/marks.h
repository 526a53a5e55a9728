/* marks.h - tells ThreadSanitizer what it cannot see: a message handed over by libzmq
 * orders memory
 *
 * One address stands for all sockets, which orders more than need be; what a race inside
 * a thread's own data would be is still found, since that is never sent. */
#ifndef PL_RUNTIME_MARKS_H
#define PL_RUNTIME_MARKS_H

#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
extern char pl_mark;
#define PL_MARK_ACQUIRE() __tsan_acquire(&pl_mark)
#define PL_MARK_RELEASE() __tsan_release(&pl_mark)
#else
#define PL_MARK_ACQUIRE() ((void)0)
#define PL_MARK_RELEASE() ((void)0)
#endif

#endif
