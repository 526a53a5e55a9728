/* notifier.c - the thread that waits for events of the device
 *
 * The driver can call a function after the work of a stream (cuLaunchHostFunc), but it
 * does not call it after an error of the device, and the engine would wait forever.  A
 * thread that waits for an event returns in both cases.
 *
 * A step can take less time than waking the host.  Then the host is woken once for several
 * steps: all events are of one stream, so the last of them is enough. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct notice {
    struct notice *next;
    pl_event_t *event;
    unsigned records;                                 /* of the event when it was added */
} notice_t;

struct cuda_notifier {
    cuda_t *cuda;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    notice_t *first, **last;                                /* [pending], in order */
    int pending;
    bool ends;
    int descriptor;
};

int cuda_notices_at_once(int pending, int64_t each)
{
    const int64_t fit = each > 0 ? PL_MILLISECOND / each : pending,
                  half = (pending + 1) / 2;
    const int64_t count = fit < half ? fit : half;
    return count < 1 ? 1 : (int)count;
}

/* Until the event has passed, or every call fails: event_passed() reports that.  An event
 * that was recorded again has passed before. */
static void notice_wait(const cuda_notifier_t *notifier, const notice_t *notice)
{
    const cuda_driver_t *call = notifier->cuda->call;
    const pl_event_t *event = notice->event;
    if (__atomic_load_n(&event->records, __ATOMIC_RELAXED) != notice->records
        || call->event_finish(event->event) == CU_OK)
        return;
    while (call->event_query(event->event) == CU_NOT_READY)
        usleep(1000);
}

static void notice_end(cuda_notifier_t *notifier)
{
    pthread_mutex_lock(&notifier->lock);
    notice_t *notice = notifier->first;
    pl_event_t *event = notice->event;
    notifier->first = notice->next;
    if (!--notifier->pending)
        notifier->last = &notifier->first;
    const bool frees = --event->notices == 0 && event->freed;
    pthread_mutex_unlock(&notifier->lock);
    if (frees) {
        notifier->cuda->call->event_free(event->event);
        pl_free(event);
    }
    pl_free(notice);
}

/* Notices stay in the queue while the thread waits for the last of their events. */
static void *notifier_main(void *user)
{
    cuda_notifier_t *notifier = user;
    const uint64_t one = 1;
    int64_t before = 0, each = PL_SECOND;
    notifier->cuda->call->context_use(notifier->cuda->context);
    for (;;) {
        pthread_mutex_lock(&notifier->lock);
        while (!notifier->first && !notifier->ends)
            pthread_cond_wait(&notifier->changed, &notifier->lock);
        const int count = cuda_notices_at_once(notifier->pending, each);
        const notice_t *last = notifier->first;
        for (int k = 1; k < count; k++)
            last = last->next;
        pthread_mutex_unlock(&notifier->lock);
        if (!last)
            return NULL;
        notice_wait(notifier, last);
        while (write(notifier->descriptor, &one, sizeof one) < 0 && errno == EINTR)
            ;
        const int64_t now = pl_now();
        each = (now - before) / count;
        before = now;
        for (int k = 0; k < count; k++)
            notice_end(notifier);
    }
}

cuda_notifier_t *cuda_notifier_new(cuda_t *cuda, pl_error_t *err)
{
    cuda_notifier_t *notifier = pl_alloc(sizeof *notifier);
    if (!notifier) {
        pl_no_memory(err);
        return NULL;
    }
    notifier->cuda = cuda;
    notifier->last = &notifier->first;
    notifier->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notifier->descriptor < 0) {
        pl_fail(err, PL_EIO, "no descriptor for the device: %s", strerror(errno));
        pl_free(notifier);
        return NULL;
    }
    pthread_mutex_init(&notifier->lock, NULL);
    pthread_cond_init(&notifier->changed, NULL);
    const int failed = pthread_create(&notifier->thread, NULL, notifier_main, notifier);
    if (!failed)
        return notifier;
    pl_fail(err, PL_EBUSY, "no thread for the device can be started: %s",
            strerror(failed));
    close(notifier->descriptor);
    pl_free(notifier);
    return NULL;
}

void cuda_notifier_free(cuda_notifier_t *notifier)
{
    if (!notifier)
        return;
    pthread_mutex_lock(&notifier->lock);
    notifier->ends = true;
    pthread_cond_signal(&notifier->changed);
    pthread_mutex_unlock(&notifier->lock);
    pthread_join(notifier->thread, NULL);
    pthread_cond_destroy(&notifier->changed);
    pthread_mutex_destroy(&notifier->lock);
    close(notifier->descriptor);
    pl_free(notifier);
}

int cuda_descriptor(const void *self)
{
    return ((const cuda_t *)self)->notifier->descriptor;
}

int cuda_notify(void *self, pl_event_t *event, pl_error_t *err)
{
    cuda_notifier_t *notifier = ((cuda_t *)self)->notifier;
    notice_t *notice = pl_alloc(sizeof *notice);
    if (!notice)
        return pl_no_memory(err);
    notice->event = event;
    notice->records = __atomic_load_n(&event->records, __ATOMIC_RELAXED);
    pthread_mutex_lock(&notifier->lock);
    event->notices++;
    *notifier->last = notice;
    notifier->last = &notice->next;
    notifier->pending++;
    pthread_cond_signal(&notifier->changed);
    pthread_mutex_unlock(&notifier->lock);
    return PL_OK;
}

void cuda_event_free(void *self, pl_event_t *event)
{
    cuda_t *cuda = self;
    cuda_notifier_t *notifier = cuda->notifier;
    cuda->call->context_use(cuda->context);
    pthread_mutex_lock(&notifier->lock);
    event->freed = true;
    const bool frees = event->notices == 0;
    pthread_mutex_unlock(&notifier->lock);
    if (frees) {
        notifier->cuda->call->event_free(event->event);
        pl_free(event);
    }
}
