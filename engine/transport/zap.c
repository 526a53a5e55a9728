/* zap.c - which peers are admitted where keys are required (ZAP)
 *
 * A request has the fields version, id, domain, address, identity, mechanism and
 * credentials, which for CURVE are the client's public key.  Every other request is
 * refused. */
#include "transport/keys.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/socket.h"

enum {
    FIELD_ID = 1,
    FIELD_DOMAIN = 2,
    FIELD_ADDRESS = 3,
    FIELD_MECHANISM = 5,
    FIELD_KEY = 6
};
enum { FIELDS = 7, FIELD_MAX = 255 };

typedef struct key_domain {
    struct key_domain *next;
    char name[PL_ZAP_DOMAIN];
    uint8_t client[PL_KEY_BYTES];
} key_domain_t;

typedef struct field {
    size_t size;
    char bytes[FIELD_MAX + 1];
} field_t;

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;    /* of all but the domains */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* of the domains */
static key_domain_t *key_domains;
static pl_sockets_t loop;                                   /* of the thread */
static pl_socket_t *handler;
static pthread_t thread;
static bool has_thread, leaves;
static int wake_fd = -1;                                    /* eventfd: leave */
static struct event *wake;
static field_t fields[FIELDS];                           /* of the request that arrives */
static int came;                                         /* fields that arrived */

/* ---- answering ---- */

static bool is_field(int k, const char *text)
{
    return fields[k].size == strlen(text)
           && !memcmp(fields[k].bytes, text, fields[k].size);
}

static void answer(bool is_complete)
{
    bool known = false;
    pthread_mutex_lock(&lock);
    for (const key_domain_t *entry = key_domains; entry && !known; entry = entry->next)
        known = is_field(FIELD_DOMAIN, entry->name)
                && !memcmp(entry->client, fields[FIELD_KEY].bytes, PL_KEY_BYTES);
    pthread_mutex_unlock(&lock);
    const bool admits = is_complete && known && is_field(0, "1.0")
                        && is_field(FIELD_MECHANISM, "CURVE")
                        && fields[FIELD_KEY].size == PL_KEY_BYTES;
    const char *code = admits ? "200" : "400",
               *text = admits ? "OK" : "no key of this job";
    const pl_bytes_t reply[] = {{"1.0", 3},
                                {fields[FIELD_ID].bytes, fields[FIELD_ID].size},
                                {code, 3},
                                {text, strlen(text)},
                                {"", 0},
                                {"", 0}};
    if (!admits)
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "refused a connection from %.*s: it has no key of this job",
                    (int)fields[FIELD_ADDRESS].size, fields[FIELD_ADDRESS].bytes);
    pl_socket_send_parts(handler, reply, sizeof reply / sizeof *reply, NULL);
}

static void field_came(void *user, uint32_t more, pl_frame_t *frame)
{
    (void)user;
    pl_bytes_t bytes = pl_frame_bytes(frame);
    if (came < FIELDS) {
        fields[came].size = bytes.size < FIELD_MAX ? bytes.size : FIELD_MAX;
        memcpy(fields[came].bytes, bytes.data, fields[came].size);
    }
    came++;
    if (more)
        return;
    answer(came == FIELDS);
    came = 0;
    memset(fields, 0, sizeof fields);
}

/* ---- life ---- */

static void woken(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what, (void)user;
    leaves = true;
}

static void *zap_main(void *unused)
{
    (void)unused;
    while (!leaves) {
        pl_sockets_flush(&loop);
        event_base_loop(loop.base, EVLOOP_ONCE);
    }
    return NULL;
}

static void zap_stop(void)
{
    const uint64_t one = 1;
    if (has_thread && write(wake_fd, &one, sizeof one) == sizeof one)
        pthread_join(thread, NULL);
    pl_socket_close(handler);
    if (wake)
        event_free(wake);
    pl_sockets_close(&loop);
    if (wake_fd >= 0)
        close(wake_fd);
    handler = NULL;
    wake = NULL;
    wake_fd = -1;
    has_thread = leaves = false;
}

static int zap_start(pl_error_t *err)
{
    pl_socket_spec_t spec = {.type = PL_SOCKET_REP,
                             .endpoint = "inproc://zeromq.zap.01",
                             .bind = true};
    pl_error_t own = {0};
    err = err ? err : &own;
    int code = pl_sockets_open(&loop, err);
    if (code != PL_OK)
        return code;
    wake_fd = eventfd(0, EFD_CLOEXEC);
    wake = wake_fd < 0 ? NULL : event_new(loop.base, wake_fd, EV_READ, woken, NULL);
    if (wake_fd < 0)
        code = pl_fail(err, PL_EBUSY,
                       "no descriptor left for an event loop: raise the limit "
                       "(ulimit -n)");
    else if (!wake || event_add(wake, NULL) != 0)
        code = pl_no_memory(err);
    else if (!(handler = pl_socket_open(&spec, &loop, field_came, NULL, err)))
        code = err->code;
    else
        code = pl_thread_start(&thread, "zap", NULL, zap_main, NULL, err);
    has_thread = code == PL_OK;
    if (!has_thread)
        zap_stop();
    return code;
}

int pl_zap_open(const pl_keys_t *keys, char domain[PL_ZAP_DOMAIN], pl_error_t *err)
{
    static unsigned opened;
    key_domain_t *entry = pl_alloc(sizeof *entry);
    if (!entry)
        return pl_no_memory(err);
    pthread_mutex_lock(&life);
    snprintf(entry->name, sizeof entry->name, "paceline-%u", ++opened);
    int code = zmq_z85_decode(entry->client, keys->client_public)
                   ? PL_OK
                   : pl_fail(err, PL_EINVAL, "the client's key is invalid");
    if (code == PL_OK && !key_domains)
        code = zap_start(err);
    if (code == PL_OK) {
        pthread_mutex_lock(&lock);
        entry->next = key_domains;
        key_domains = entry;
        pthread_mutex_unlock(&lock);
        memcpy(domain, entry->name, sizeof entry->name);
    } else {
        pl_free(entry);
    }
    pthread_mutex_unlock(&life);
    return code;
}

void pl_zap_close(const char *domain)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&lock);
    key_domain_t **at = &key_domains, *entry;
    while (*at && strcmp((*at)->name, domain))
        at = &(*at)->next;
    entry = *at;
    if (entry)
        *at = entry->next;
    pthread_mutex_unlock(&lock);
    if (entry && !key_domains)
        zap_stop();
    pl_free(entry);
    pthread_mutex_unlock(&life);
}
