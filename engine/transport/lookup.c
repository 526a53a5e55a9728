/* lookup.c - the address of an endpoint's host, from a name server that may not answer
 *
 * The resolver has time limits of its own and cannot be cancelled: a thread that is late
 * is left behind, and frees what it has found. */
#include "transport/lookup.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/endpoint.h"

struct pl_lookup {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    char host[PL_HOST_TEXT], port[8];
    struct addrinfo *found;
    int wrong;                                      /* as of getaddrinfo() */
    bool is_over, is_left;                          /* by the thread; by the other side */
};

bool pl_lookup_is_needed(const char *endpoint)
{
    char host[PL_HOST_TEXT];
    const char *port;
    return pl_endpoint_split(endpoint, host, &port) && !pl_host_is_number(host);
}

static void lookup_free(pl_lookup_t *lookup)
{
    if (lookup->found)
        freeaddrinfo(lookup->found);
    pthread_cond_destroy(&lookup->ended);
    pthread_mutex_destroy(&lookup->mutex);
    pl_free(lookup);
}

static void *lookup_main(void *user)
{
    pl_lookup_t *lookup = user;
    const bool is_number = pl_host_is_number(lookup->host);
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM,
                                   .ai_family = is_number ? AF_UNSPEC : AF_INET};
    struct addrinfo *found = NULL;
    const int wrong = getaddrinfo(lookup->host, lookup->port, &hints, &found);
    pthread_mutex_lock(&lookup->mutex);
    lookup->found = found;
    lookup->wrong = wrong;
    lookup->is_over = true;
    const bool is_left = lookup->is_left;
    pthread_cond_signal(&lookup->ended);
    pthread_mutex_unlock(&lookup->mutex);
    if (is_left)
        lookup_free(lookup);
    return NULL;
}

pl_lookup_t *pl_lookup_start(const char *endpoint, pl_error_t *err)
{
    pthread_t thread;
    pthread_condattr_t clock;
    const char *port;
    pl_lookup_t *lookup = pl_alloc(sizeof *lookup);
    if (!lookup) {
        pl_no_memory(err);
        return NULL;
    }
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&lookup->mutex, NULL);
    if (!pl_endpoint_split(endpoint, lookup->host, &port)) {
        pl_fail(err, PL_EINVAL, "\"%s\" has no host", endpoint);
    } else {
        snprintf(lookup->port, sizeof lookup->port, "%s", port);
        if (pthread_create(&thread, NULL, lookup_main, lookup) == 0) {
            pthread_detach(thread);
            return lookup;
        }
        pl_fail(err, PL_EBUSY, "no thread to look up the host \"%s\"", lookup->host);
    }
    lookup_free(lookup);
    return NULL;
}

bool pl_lookup_wait(pl_lookup_t *lookup, int64_t until)
{
    const int64_t left = until - pl_now();
    struct timespec at;
    int late = 0;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t end = at.tv_sec * PL_SECOND + at.tv_nsec + (left > 0 ? left : 0);
    at = (struct timespec){.tv_sec = end / PL_SECOND, .tv_nsec = end % PL_SECOND};
    pthread_mutex_lock(&lookup->mutex);
    while (!lookup->is_over && !late)
        late = pthread_cond_timedwait(&lookup->ended, &lookup->mutex, &at);
    const bool is_over = lookup->is_over;
    pthread_mutex_unlock(&lookup->mutex);
    return is_over;
}

int pl_lookup_result(pl_lookup_t *lookup, const struct addrinfo **found, pl_error_t *err)
{
    if (!pl_lookup_wait(lookup, pl_now()))
        return pl_fail(err, PL_ETIMEOUT,
                       "the host \"%s\": the name server has not answered within the "
                       "join timeout; give an address instead, or check "
                       "/etc/resolv.conf",
                       lookup->host);
    *found = lookup->found;
    return lookup->wrong ? pl_fail(err, PL_ENOTFOUND, "the host \"%s\": %s", lookup->host,
                                   gai_strerror(lookup->wrong))
                         : PL_OK;
}

int pl_lookup_endpoint(pl_lookup_t *lookup, char *endpoint, size_t capacity,
                       pl_error_t *err)
{
    const struct addrinfo *found;
    char host[PL_HOST_TEXT];
    const int code = pl_lookup_result(lookup, &found, err);
    if (code != PL_OK)
        return code;
    const int wrong = getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host,
                                  NULL, 0, NI_NUMERICHOST);
    if (wrong)
        return pl_fail(err, PL_ENOTFOUND, "the host \"%s\": %s", lookup->host,
                       gai_strerror(wrong));
    const bool is_v6 = found->ai_family == AF_INET6;
    snprintf(endpoint, capacity, is_v6 ? "tcp://[%s]:%s" : "tcp://%s:%s", host,
             lookup->port);
    return PL_OK;
}

void pl_lookup_leave(pl_lookup_t *lookup)
{
    if (!lookup)
        return;
    pthread_mutex_lock(&lookup->mutex);
    const bool is_over = lookup->is_over;
    lookup->is_left = true;
    pthread_mutex_unlock(&lookup->mutex);
    if (is_over)
        lookup_free(lookup);
}
