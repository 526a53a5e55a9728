/* teller.c - the thread that waits for events of the device
 *
 * The driver can call a function behind the work of a stream (cuLaunchHostFunc), but it
 * does not call it any more after an error of the device, and the engine would wait
 * forever.  A thread that waits for an event returns in both cases. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct told {
    struct told *next;
    pl_event_t *event;
    unsigned records;                                 /* of the event, when it was told */
} told_t;

struct cuda_teller {
    cuda_t *cuda;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    told_t *first, **last;                                  /* what is told, in order */
    bool ends;
    int descriptor;
};

static void event_destroy(const cuda_teller_t *teller, pl_event_t *event)
{
    teller->cuda->call->event_free(event->event);
    pl_free(event);
}

/* The next that was told; NULL: the teller ends. */
static told_t *told_take(cuda_teller_t *teller)
{
    pthread_mutex_lock(&teller->lock);
    while (!teller->first && !teller->ends)
        pthread_cond_wait(&teller->changed, &teller->lock);
    told_t *told = teller->first;
    pthread_mutex_unlock(&teller->lock);
    return told;
}

/* It stays in the queue while its event is waited for. */
static void told_done(cuda_teller_t *teller, told_t *told)
{
    pl_event_t *event = told->event;
    pthread_mutex_lock(&teller->lock);
    teller->first = told->next;
    if (!teller->first)
        teller->last = &teller->first;
    const bool frees = --event->told == 0 && event->freed;
    pthread_mutex_unlock(&teller->lock);
    if (frees)
        event_destroy(teller, event);
    pl_free(told);
}

static void *teller_main(void *user)
{
    cuda_teller_t *teller = user;
    const uint64_t one = 1;
    teller->cuda->call->context_use(teller->cuda->context);
    for (told_t *told; (told = told_take(teller)); told_done(teller, told)) {
        /* An event that was recorded again has been seen to pass.  An error is for
         * event_passed() to tell. */
        if (__atomic_load_n(&told->event->records, __ATOMIC_RELAXED) == told->records)
            teller->cuda->call->event_finish(told->event->event);
        while (write(teller->descriptor, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
    return NULL;
}

cuda_teller_t *cuda_teller_new(cuda_t *cuda, pl_error_t *err)
{
    cuda_teller_t *teller = pl_alloc(sizeof *teller);
    if (!teller) {
        pl_no_memory(err);
        return NULL;
    }
    teller->cuda = cuda;
    teller->last = &teller->first;
    teller->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (teller->descriptor < 0) {
        pl_fail(err, PL_EIO, "no descriptor for the device: %s", strerror(errno));
        pl_free(teller);
        return NULL;
    }
    pthread_mutex_init(&teller->lock, NULL);
    pthread_cond_init(&teller->changed, NULL);
    const int failed = pthread_create(&teller->thread, NULL, teller_main, teller);
    if (!failed)
        return teller;
    pl_fail(err, PL_EBUSY, "no thread for the device can be started: %s",
            strerror(failed));
    close(teller->descriptor);
    pl_free(teller);
    return NULL;
}

void cuda_teller_free(cuda_teller_t *teller)
{
    if (!teller)
        return;
    pthread_mutex_lock(&teller->lock);
    teller->ends = true;
    pthread_cond_signal(&teller->changed);
    pthread_mutex_unlock(&teller->lock);
    pthread_join(teller->thread, NULL);
    pthread_cond_destroy(&teller->changed);
    pthread_mutex_destroy(&teller->lock);
    close(teller->descriptor);
    pl_free(teller);
}

int cuda_teller_descriptor(const cuda_teller_t *teller)
{
    return teller->descriptor;
}

int cuda_teller_tell(cuda_teller_t *teller, pl_event_t *event, pl_error_t *err)
{
    told_t *told = pl_alloc(sizeof *told);
    if (!told)
        return pl_no_memory(err);
    told->event = event;
    told->records = __atomic_load_n(&event->records, __ATOMIC_RELAXED);
    pthread_mutex_lock(&teller->lock);
    event->told++;
    *teller->last = told;
    teller->last = &told->next;
    pthread_cond_signal(&teller->changed);
    pthread_mutex_unlock(&teller->lock);
    return PL_OK;
}

void cuda_teller_forget(cuda_teller_t *teller, pl_event_t *event)
{
    pthread_mutex_lock(&teller->lock);
    event->freed = true;
    const bool frees = event->told == 0;
    pthread_mutex_unlock(&teller->lock);
    if (frees)
        event_destroy(teller, event);
}
