/* context.c - the process's one ZeroMQ context, counted
 *
 * One, because inproc does not cross contexts and several with CURVE can crash in
 * 4.3.4. */
#include <errno.h>
#include <pthread.h>
#include <zmq.h>

#include "runtime/descriptors.h"
#include "runtime/socket.h"

enum { CONTEXT_DESCRIPTORS = 2 };

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static int context_users;

static void *context_new(pl_error_t *err)
{
    if (pl_descriptors_check(CONTEXT_DESCRIPTORS, "messages", err) != PL_OK)
        return NULL;
    void *made = zmq_ctx_new();
    if (!made) {
        pl_fail(err, PL_ENOMEM, "ZeroMQ cannot start: %s", zmq_strerror(zmq_errno()));
        return NULL;
    }
    zmq_ctx_set(made, ZMQ_BLOCKY, 0);
    zmq_ctx_set(made, ZMQ_MAX_SOCKETS, zmq_ctx_get(made, ZMQ_SOCKET_LIMIT));
    return made;
}

void *pl_context_acquire(pl_error_t *err)
{
    pthread_mutex_lock(&context_lock);
    if (!context)
        context = context_new(err);
    if (context)
        context_users++;
    void *acquired = context;
    pthread_mutex_unlock(&context_lock);
    return acquired;
}

void pl_context_release(void)
{
    pthread_mutex_lock(&context_lock);
    if (--context_users == 0) {
        while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR)
            continue;
        context = NULL;
    }
    pthread_mutex_unlock(&context_lock);
}
