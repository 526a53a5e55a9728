/* tsan_annotations.h - for ThreadSanitizer: a message that libzmq hands over orders
 * memory
 *
 * One address stands for all sockets, which orders more than necessary.  A race inside a
 * thread's own data is still found, because that data is never sent. */
#ifndef PL_TRANSPORT_TSAN_ANNOTATIONS_H
#define PL_TRANSPORT_TSAN_ANNOTATIONS_H

#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
extern char pl_tsan_address;
#define PL_TSAN_ACQUIRE() __tsan_acquire(&pl_tsan_address)
#define PL_TSAN_RELEASE() __tsan_release(&pl_tsan_address)
#else
#define PL_TSAN_ACQUIRE() ((void)0)
#define PL_TSAN_RELEASE() ((void)0)
#endif

#endif
