/* notifier.c - the threads that wait for events of the device: one for results of steps,
 * one for regions, which take longer
 *
 * The driver can call a function after the work of a stream (cuLaunchHostFunc), but it
 * does not call it after an error of the device, and the engine would wait forever.  A
 * thread that waits for an event returns in both cases.
 *
 * A step can take less time than waking the host.  Then the host is woken once for
 * several steps. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct notice {
    struct notice *next;
    pl_event_t *event;
    unsigned records;                                 /* of the event when it was added */
    bool soon;                                        /* it is not delayed */
} notice_t;

/* Of one thread. */
typedef struct notices {
    cuda_notifier_t *of;
    pthread_t thread;
    pthread_cond_t changed;
    notice_t *first, **last;                                /* pending, in order */
} notices_t;

struct cuda_notifier {
    cuda_t *cuda;
    pthread_mutex_t lock;
    notices_t queue[2];
    int threads;
    bool ends;
    int descriptor;
};

/* Those before one that is wanted soon. */
static int notices_count(const notice_t *notice)
{
    int count = 0;
    for (; notice && !notice->soon; notice = notice->next)
        count++;
    return count;
}

int64_t cuda_notice_delay(int pending, int64_t each)
{
    const int64_t half = pending / 2, fit = each > 0 ? PL_MILLISECOND / each : half;
    return (half < fit ? half : fit) * each;
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

static bool notice_is_over(const cuda_notifier_t *notifier, const notice_t *notice)
{
    const pl_event_t *event = notice->event;
    return __atomic_load_n(&event->records, __ATOMIC_RELAXED) != notice->records
           || notifier->cuda->call->event_query(event->event) != CU_NOT_READY;
}

/* Ends the first notice.  Returns the next one  [NULL]. */
static const notice_t *notice_end(notices_t *queue)
{
    cuda_notifier_t *notifier = queue->of;
    pthread_mutex_lock(&notifier->lock);
    notice_t *notice = queue->first;
    pl_event_t *event = notice->event;
    const notice_t *next = queue->first = notice->next;
    if (!next)
        queue->last = &queue->first;
    const bool frees = --event->notices == 0 && event->freed;
    pthread_mutex_unlock(&notifier->lock);
    if (frees) {
        notifier->cuda->call->event_free(event->event);
        pl_free(event);
    }
    pl_free(notice);
    return next;
}

/* A notice stays in the queue while the thread waits for its event. */
static void *notifier_main(void *user)
{
    notices_t *queue = user;
    cuda_notifier_t *notifier = queue->of;
    const uint64_t one = 1;
    int64_t before = 0, each = PL_SECOND;             /* ns from one notice to the next */
    prctl(PR_SET_TIMERSLACK, 1000UL);                 /* ns: delays are short */
    notifier->cuda->call->context_use(notifier->cuda->context);
    for (;;) {
        pthread_mutex_lock(&notifier->lock);
        while (!queue->first && !notifier->ends)
            pthread_cond_wait(&queue->changed, &notifier->lock);
        const notice_t *notice = queue->first;
        const int64_t delay = cuda_notice_delay(notices_count(notice), each);
        pthread_mutex_unlock(&notifier->lock);
        if (!notice)
            return NULL;
        if (delay >= 1000)
            usleep((useconds_t)(delay / 1000));
        notice_wait(notifier, notice);
        int ended = 0;
        do
            notice = notice_end(queue), ended++;
        while (notice && notice_is_over(notifier, notice));
        while (write(notifier->descriptor, &one, sizeof one) < 0 && errno == EINTR)
            ;
        const int64_t now = pl_now();
        each = (now - before) / ended;
        before = now;
    }
}

cuda_notifier_t *cuda_notifier_new(cuda_t *cuda, pl_error_t *err)
{
    cuda_notifier_t *notifier = pl_alloc(sizeof *notifier);
    int failed = 0;
    if (!notifier) {
        pl_no_memory(err);
        return NULL;
    }
    notifier->cuda = cuda;
    notifier->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notifier->descriptor < 0) {
        pl_fail(err, PL_EIO, "no descriptor for the device: %s", strerror(errno));
        pl_free(notifier);
        return NULL;
    }
    pthread_mutex_init(&notifier->lock, NULL);
    for (int k = 0; k < 2 && !failed; k++) {
        notices_t *queue = &notifier->queue[k];
        queue->of = notifier;
        queue->last = &queue->first;
        pthread_cond_init(&queue->changed, NULL);
        failed = pthread_create(&queue->thread, NULL, notifier_main, queue);
        notifier->threads += !failed;
    }
    if (!failed)
        return notifier;
    pl_fail(err, PL_EBUSY, "no thread for the device can be started: %s",
            strerror(failed));
    cuda_notifier_free(notifier);
    return NULL;
}

void cuda_notifier_free(cuda_notifier_t *notifier)
{
    if (!notifier)
        return;
    pthread_mutex_lock(&notifier->lock);
    notifier->ends = true;
    for (int k = 0; k < notifier->threads; k++)
        pthread_cond_signal(&notifier->queue[k].changed);
    pthread_mutex_unlock(&notifier->lock);
    for (int k = 0; k < notifier->threads; k++)
        pthread_join(notifier->queue[k].thread, NULL);
    for (int k = 0; k < 2; k++)
        if (notifier->queue[k].of)
            pthread_cond_destroy(&notifier->queue[k].changed);
    pthread_mutex_destroy(&notifier->lock);
    close(notifier->descriptor);
    pl_free(notifier);
}

int cuda_descriptor(const void *self)
{
    return ((const cuda_t *)self)->notifier->descriptor;
}

int cuda_notify(void *self, pl_event_t *event, pl_stream_t stream, bool soon,
                pl_error_t *err)
{
    cuda_notifier_t *notifier = ((cuda_t *)self)->notifier;
    notices_t *queue = &notifier->queue[stream == PL_STREAM_SAVE];
    notice_t *notice = pl_alloc(sizeof *notice);
    if (!notice)
        return pl_no_memory(err);
    notice->event = event;
    notice->soon = soon;
    notice->records = __atomic_load_n(&event->records, __ATOMIC_RELAXED);
    pthread_mutex_lock(&notifier->lock);
    event->notices++;
    *queue->last = notice;
    queue->last = &notice->next;
    pthread_cond_signal(&queue->changed);
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
