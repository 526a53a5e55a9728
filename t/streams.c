/* streams.c - streams and events of a device that does not exist, for tests */
#include "t/streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct streams_event {
    int users;
    uint64_t recorded, passed;                              /* numbers of records */
    struct timespec when;                                   /* the latest that passed */
};

typedef struct item {
    struct item *next;
    int (*run)(void *data);                                 /* NULL: of an event */
    streams_event_t *event;
    uint64_t number;                                   /* of the record */
    bool waits;                                        /* for it; else it is the record */
    _Alignas(max_align_t) char data[];
} item_t;

typedef struct notice {
    struct notice *next;
    streams_event_t *event;
    uint64_t number;
    void (*notify)(void *user);
    void *user;
} notice_t;

struct streams {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    item_t *first[STREAMS_MAX], **last[STREAMS_MAX];
    int running;                                        /* stream whose item runs  [-1] */
    notice_t *notices;
    uint64_t seed;
    int broken;
    bool ending;
};

static uint64_t draw(streams_t *s)
{
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return s->seed;
}

static void event_unref(streams_event_t *event)
{
    if (event && __atomic_sub_fetch(&event->users, 1, __ATOMIC_ACQ_REL) == 0)
        free(event);
}

static streams_event_t *event_ref(streams_event_t *event)
{
    __atomic_add_fetch(&event->users, 1, __ATOMIC_RELAXED);
    return event;
}

static void item_free(item_t *item)
{
    event_unref(item->event);
    free(item);
}

static item_t *item_take(streams_t *s, int stream)
{
    item_t *item = s->first[stream];
    s->first[stream] = item->next;
    if (!item->next)
        s->last[stream] = &s->first[stream];
    return item;
}

/* One of the streams that can continue, each with the same probability  [-1]. */
static int choose(streams_t *s)
{
    int ready[STREAMS_MAX], count = 0;
    for (int stream = 0; stream < STREAMS_MAX; stream++) {
        const item_t *item = s->first[stream];
        if (item && (s->broken || !item->waits || item->event->passed >= item->number))
            ready[count++] = stream;
    }
    return count ? ready[draw(s) % (uint64_t)count] : -1;
}

/* Puts it back, and waits a moment where no other stream has work. */
static void item_again(streams_t *s, int stream, item_t *item)
{
    bool alone = true;
    item->next = s->first[stream];
    if (!item->next)
        s->last[stream] = &item->next;
    s->first[stream] = item;
    for (int k = 0; k < STREAMS_MAX; k++)
        alone &= k == stream || !s->first[k];
    pthread_mutex_unlock(&s->lock);
    nanosleep(&(struct timespec){.tv_nsec = alone ? 50000 : 0}, NULL);
    pthread_mutex_lock(&s->lock);
}

static void event_pass(streams_event_t *event, uint64_t number)
{
    if (event->passed < number)
        event->passed = number;
    clock_gettime(CLOCK_MONOTONIC, &event->when);
}

/* With the lock, but not while it runs. */
static void item_run(streams_t *s, int stream)
{
    item_t *item = item_take(s, stream);
    int code = 0;
    if (item->run && !s->broken) {
        s->running = stream;
        const bool pauses = draw(s) % 16 == 0;
        pthread_mutex_unlock(&s->lock);
        if (pauses)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        code = item->run(item->data);
        pthread_mutex_lock(&s->lock);
        s->running = -1;
    } else if (!item->run && !item->waits) {
        event_pass(item->event, item->number);
    }
    if (code == STREAMS_AGAIN && !s->ending) {
        item_again(s, stream, item);
        return;
    }
    if (code && code != STREAMS_AGAIN)
        s->broken = code;
    item_free(item);
    pthread_cond_broadcast(&s->changed);
}

/* Without the lock while it notifies. */
static bool notify_one(streams_t *s)
{
    for (notice_t **next = &s->notices; *next; next = &(*next)->next) {
        notice_t *t = *next;
        if (t->event->passed < t->number && !s->broken)
            continue;
        *next = t->next;
        pthread_mutex_unlock(&s->lock);
        t->notify(t->user);
        event_unref(t->event);
        free(t);
        pthread_mutex_lock(&s->lock);
        return true;
    }
    return false;
}

static void *work(void *user)
{
    streams_t *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->ending) {
        const int stream = choose(s);
        if (notify_one(s))
            continue;
        if (stream >= 0)
            item_run(s, stream);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

streams_t *streams_new(uint64_t seed)
{
    streams_t *s = calloc(1, sizeof *s);
    s->seed = seed * 2 + 1;
    s->running = -1;
    for (int k = 0; k < STREAMS_MAX; k++)
        s->last[k] = &s->first[k];
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&s->thread, NULL, work, s);
    return s;
}

void streams_free(streams_t *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (int k = 0; k < STREAMS_MAX; k++)
        while (s->first[k])
            item_free(item_take(s, k));
    while (s->notices) {
        notice_t *t = s->notices;
        s->notices = t->next;
        event_unref(t->event);
        free(t);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void put(streams_t *s, int stream, item_t *item)
{
    *s->last[stream] = item;
    s->last[stream] = &item->next;
    pthread_cond_broadcast(&s->changed);
}

void streams_put(streams_t *s, int stream, int (*run)(void *data), const void *data,
                 size_t bytes)
{
    item_t *item = calloc(1, sizeof *item + bytes);
    item->run = run;
    if (bytes)
        memcpy(item->data, data, bytes);
    pthread_mutex_lock(&s->lock);
    put(s, stream, item);
    pthread_mutex_unlock(&s->lock);
}

int streams_broken(streams_t *s)
{
    pthread_mutex_lock(&s->lock);
    const int broken = s->broken;
    pthread_mutex_unlock(&s->lock);
    return broken;
}

typedef struct call {
    void (*function)(void *user);
    void *user;
} call_t;

static int call_run(void *data)
{
    const call_t *call = data;
    call->function(call->user);
    return 0;
}

void streams_call(streams_t *s, int stream, void (*function)(void *user), void *user)
{
    const call_t call = {function, user};
    streams_put(s, stream, call_run, &call, sizeof call);
}

void streams_finish(streams_t *s, int stream)
{
    pthread_mutex_lock(&s->lock);
    while (s->first[stream] || s->running == stream)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

streams_event_t *streams_event_new(void)
{
    streams_event_t *event = calloc(1, sizeof *event);
    event->users = 1;
    return event;
}

void streams_event_free(streams_event_t *event)
{
    event_unref(event);
}

static void put_event(streams_t *s, int stream, streams_event_t *event, bool waits)
{
    item_t *item = calloc(1, sizeof *item);
    item->event = event_ref(event);
    item->waits = waits;
    pthread_mutex_lock(&s->lock);
    event->recorded += !waits;
    item->number = event->recorded;
    put(s, stream, item);
    pthread_mutex_unlock(&s->lock);
}

void streams_record(streams_t *s, int stream, streams_event_t *event)
{
    put_event(s, stream, event, false);
}

void streams_wait(streams_t *s, int stream, streams_event_t *event)
{
    put_event(s, stream, event, true);
}

void streams_expect(streams_event_t *event)
{
    event->recorded++;
}

void streams_pass(streams_t *s, streams_event_t *event)
{
    pthread_mutex_lock(&s->lock);
    event_pass(event, event->recorded);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

bool streams_passed(streams_t *s, streams_event_t *event)
{
    pthread_mutex_lock(&s->lock);
    const bool passed = s->broken || event->passed == event->recorded;
    pthread_mutex_unlock(&s->lock);
    return passed;
}

void streams_event_finish(streams_t *s, streams_event_t *event)
{
    pthread_mutex_lock(&s->lock);
    while (!s->broken && event->passed < event->recorded)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void streams_notify(streams_t *s, streams_event_t *event, void (*notify)(void *user),
                    void *user)
{
    notice_t *t = calloc(1, sizeof *t);
    pthread_mutex_lock(&s->lock);
    *t = (notice_t){.next = s->notices,
                    .event = event_ref(event),
                    .number = event->recorded,
                    .notify = notify,
                    .user = user};
    s->notices = t;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

double streams_seconds(const streams_event_t *from, const streams_event_t *to)
{
    return (double)(to->when.tv_sec - from->when.tv_sec)
           + (double)(to->when.tv_nsec - from->when.tv_nsec) / 1e9;
}
