/* gate.c - who is let in where keys are asked for
 *
 * A request has the parts version, id, domain, address, identity, mechanism and
 * credentials, which for CURVE are the client's public key.  What is not exactly that is
 * refused. */
#include "runtime/gate.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/reactor.h"

enum { PART_ID = 1, PART_DOMAIN = 2, PART_ADDRESS = 3, PART_MECHANISM = 5, PART_KEY = 6 };
enum { PARTS = 7, PART_MOST = 255 };

typedef struct room {
    struct room *next;
    char domain[PL_GATE_DOMAIN];
    uint8_t client[PL_KEY_BYTES];
} room_t;

typedef struct part {
    size_t size;
    char bytes[PART_MOST + 1];
} part_t;

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;    /* of all but the rooms */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* of the rooms */
static room_t *rooms;
static pl_runtime_t runtime;
static pl_reactor_t *reactor;
static pl_socket_t *handler;
static part_t parts[PARTS];                                /* of the request that comes */
static int came;                                           /* so many of them */

/* ---- answering ---- */

static bool is_part(int k, const char *text)
{
    return parts[k].size == strlen(text) && !memcmp(parts[k].bytes, text, parts[k].size);
}

static bool is_known(void)
{
    bool known = false;
    pthread_mutex_lock(&lock);
    for (const room_t *room = rooms; room && !known; room = room->next)
        known = is_part(PART_DOMAIN, room->domain)
                && !memcmp(room->client, parts[PART_KEY].bytes, PL_KEY_BYTES);
    pthread_mutex_unlock(&lock);
    return known;
}

static void answer(bool is_whole)
{
    bool lets_in = is_whole && is_part(0, "1.0") && is_part(PART_MECHANISM, "CURVE")
                   && parts[PART_KEY].size == PL_KEY_BYTES && is_known();
    const char *code = lets_in ? "200" : "400",
               *text = lets_in ? "OK" : "no key of this job";
    const pl_bytes_t reply[] = {{"1.0", 3}, {parts[PART_ID].bytes, parts[PART_ID].size},
                                {code, 3},  {text, strlen(text)},
                                {"", 0},    {"", 0}};
    if (!lets_in)
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "refused a connection from %.*s: it has no key of this job",
                    (int)parts[PART_ADDRESS].size, parts[PART_ADDRESS].bytes);
    pl_socket_send_parts(handler, reply, sizeof reply / sizeof *reply, NULL);
}

static void part_came(void *user, uint32_t more, pl_frame_t *frame)
{
    (void)user;
    pl_bytes_t bytes = pl_frame_bytes(frame);
    if (came < PARTS) {
        parts[came].size = bytes.size < PART_MOST ? bytes.size : PART_MOST;
        memcpy(parts[came].bytes, bytes.data, parts[came].size);
    }
    came++;
    if (more)
        return;
    answer(came == PARTS);
    came = 0;
    memset(parts, 0, sizeof parts);
}

/* ---- life ---- */

static void gate_stop(void)
{
    if (reactor)
        pl_reactor_join(reactor);
    pl_socket_close(handler);
    pl_reactor_free(reactor);
    handler = NULL;
    reactor = NULL;
    pl_runtime_release(&runtime);
}

static int gate_start(pl_error_t *err)
{
    pl_socket_spec_t spec = {.type = PL_SOCKET_REP,
                             .endpoint = "inproc://zeromq.zap.01",
                             .bind = true};
    pl_error_t own = {0};
    err = err ? err : &own;
    int code = pl_runtime_init(&runtime, err);
    if (code != PL_OK)
        return code;
    reactor = pl_reactor_new(&runtime, -1, err);
    handler = reactor ? pl_socket_open(&spec, &reactor->loop, part_came, NULL, err)
                      : NULL;
    if (handler && pl_reactor_start(reactor, "gate", err) == PL_OK)
        return PL_OK;
    gate_stop();
    return err->code;
}

int pl_gate_open(const pl_keys_t *keys, char domain[PL_GATE_DOMAIN], pl_error_t *err)
{
    static unsigned opened;
    room_t *room = pl_alloc(sizeof *room);
    if (!room)
        return pl_no_memory(err);
    pthread_mutex_lock(&life);
    snprintf(room->domain, sizeof room->domain, "paceline-%u", ++opened);
    int code = zmq_z85_decode(room->client, keys->client_public)
                   ? PL_OK
                   : pl_fail(err, PL_EINVAL, "the client's key is invalid");
    if (code == PL_OK && !rooms)
        code = gate_start(err);
    if (code == PL_OK) {
        pthread_mutex_lock(&lock);
        room->next = rooms;
        rooms = room;
        pthread_mutex_unlock(&lock);
        memcpy(domain, room->domain, sizeof room->domain);
    } else {
        pl_free(room);
    }
    pthread_mutex_unlock(&life);
    return code;
}

void pl_gate_close(const char *domain)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&lock);
    room_t **at = &rooms, *room;
    while (*at && strcmp((*at)->domain, domain))
        at = &(*at)->next;
    room = *at;
    if (room)
        *at = room->next;
    pthread_mutex_unlock(&lock);
    if (room && !rooms)
        gate_stop();
    pl_free(room);
    pthread_mutex_unlock(&life);
}
