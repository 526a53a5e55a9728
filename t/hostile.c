/* hostile.c - malformed input of unknown peers at the sockets that the runtime binds:
 * dropped, counted, without effect on others */
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "actor_rig.h"
#include "base/clock.h"
#include "base/random.h"
#include "runtime/actors.h"
#include "runtime/monitor.h"
#include "runtime/message.h"
#include "scarce.h"
#include "tap.h"

/* ---- a wall: it answers every save, whatever that says ---- */

static int wall_save(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_save(call, &(pl_save_reply_t){.path = "stands"});
}

static int wall_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)body, (void)err;
    pl_actor_ready(self);
    return PL_OK;
}

static const pl_handler_t wall_handlers[] = {PL_ON(start, wall_start),
                                             PL_ON(save, wall_save), PL_HANDLERS_END};
static const pl_actor_ops_t wall_ops = {.name = "wall",
                                        .size = 1,
                                        .level = PL_LEVEL_CONNECTOR,
                                        .handlers = wall_handlers};

static pl_address_t wall;
static uint64_t draws;

static uint64_t draw(uint64_t below)
{
    return pl_random_u64(0xBAD, draws++) % below;
}

static void *stranger;                                 /* a DEALER at the wall's thread */
static void *context;

static void stranger_open(const void *id, size_t size)
{
    char endpoint[64];
    int zero = 0;
    snprintf(endpoint, sizeof endpoint, "inproc://paceline-%d-%u", (int)getpid(),
             wall.thread);
    stranger = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(stranger, ZMQ_LINGER, &zero, sizeof zero);
    if (size)
        zmq_setsockopt(stranger, ZMQ_ROUTING_ID, id, size);
    zmq_connect(stranger, endpoint);
}

static void wall_open(void)
{
    rig_open();
    context = pl_context_acquire(NULL);
    rig_spawn(&wall_ops, PL_OWN_THREAD, "", &wall);
    rig_ask(wall, 0);
    rig_wait(1);
}

static void wall_close(void)
{
    rig_close();
    pl_context_release();
}

static uint64_t malformed(void)
{
    return __atomic_load_n(&rig.runtime->malformed, __ATOMIC_RELAXED);
}

static uint64_t seen(void)
{
    return malformed() + __atomic_load_n(&rig.runtime->refused, __ATOMIC_RELAXED);
}

static void until_seen(uint64_t count)
{
    int64_t until = pl_now() + 60 * PL_SECOND;
    while (seen() < count && pl_now() < until)
        sched_yield();
}

static bool wall_stands(void)
{
    int before = rig.queen->replies;
    rig_ask(wall, 0);
    rig_wait(1);
    return rig.queen->replies == before + 1;
}

/* A call to the wall as only its queen could make it, but for the sender's name. */
static size_t forge(unsigned char *bytes, size_t capacity, uint32_t from_thread)
{
    const pl_address_t *queen = &actor_of(rig.queen)->address;
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .kind = PL_KIND_CALL,
                       .message = PL_MESSAGE_save,
                       .call = 99,
                       .remaining = -1,
                       .run = rig.runtime->run,
                       .from_thread = from_thread,
                       .from_actor = queen->actor,
                       .from_kind = queen->kind,
                       .to_thread = wall.thread,
                       .to_actor = wall.actor,
                       .to_kind = wall.kind};
    pl_frame_t frame;
    pl_frame_make(&frame, &e, &(pl_save_t){.global_step = 1}, NULL);
    pl_bytes_t made = pl_frame_bytes(&frame);
    size_t size = made.size < capacity ? made.size : capacity;
    memcpy(bytes, made.data, size);
    pl_frame_release(&frame);
    return size;
}

/* ---- inside the process ---- */

static void random_bytes_are_dropped_and_counted(void)
{
    wall_open();
    unsigned char bytes[300];
    for (int peer = 0; peer < 10; peer++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)draw(256);
        bytes[0] |= 1;                             /* a name must not start with a zero */
        stranger_open(bytes, draw(200));
        for (int n = 0; n < 100; n++) {
            size_t size = draw(sizeof bytes), extra = n % 4;
            for (size_t k = 0; k < size; k++)
                bytes[k] = (unsigned char)draw(256);
            for (size_t k = 0; k < extra; k++)
                zmq_send(stranger, bytes, draw(5), ZMQ_SNDMORE);
            zmq_send(stranger, bytes, size, 0);
        }
        until_seen(250 * ((uint64_t)peer + 1));
        zmq_close(stranger);
    }
    is_int(seen(), 2500, "2500 of 2500");
    ok(wall_stands(), "the actor continues");
    wall_close();
}

static void a_false_name_is_dropped(void)
{
    wall_open();
    unsigned char bytes[256], id[5] = {1, 0x77, 0x77};
    size_t size = forge(bytes, sizeof bytes, actor_of(rig.queen)->address.thread);
    stranger_open(id, sizeof id);
    zmq_send(stranger, bytes, size, 0);
    until_seen(1);
    zmq_close(stranger);
    stranger_open(NULL, 0);
    zmq_send(stranger, bytes, size, 0);
    until_seen(2);
    is_int(malformed(), 2,
           "a frame that says it is of another thread, or of one that has no name");
    zmq_close(stranger);
    ok(wall_stands(), "the actor continues");
    wall_close();
}

/* From a peer with the right name: every byte has to be checked. */
static void mutated_frames_have_no_effect_on_others(void)
{
    wall_open();
    const int frames = 20000;
    unsigned char bytes[256], id[5] = {1, 0x77, 0x77};
    uint32_t name;
    memcpy(&name, id + 1, sizeof name);
    stranger_open(id, sizeof id);
    for (int n = 0; n < frames; n++) {
        size_t size = forge(bytes, sizeof bytes, name);
        for (uint64_t edits = 1 + draw(4); edits > 0; edits--)
            bytes[draw(size)] ^= (unsigned char)(1u << draw(8));
        zmq_send(stranger, bytes, draw(8) ? size : draw(size), 0);
        while (zmq_recv(stranger, bytes, sizeof bytes, ZMQ_DONTWAIT) >= 0)
            continue;                          /* it gets the errors of readable frames */
    }
    stranger = (zmq_close(stranger), NULL);
    ok(wall_stands(), "the actor continues");
    until_seen(frames / 2 + 1);
    ok(seen() > frames / 2, "%llu refused or dropped", (unsigned long long)seen());
    long live = scarce_live();
    ok(live < 500, "memory is bounded: %ld blocks", live);
    wall_close();
    is_int(pl_flight_count(), 0, "nothing is in flight");
}

/* ---- from outside: bytes on the stream's endpoint ---- */

static int connect_to(const char *endpoint)
{
    struct sockaddr_un file = {.sun_family = AF_UNIX};
    struct sockaddr_in host = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool is_file = !strncmp(endpoint, "ipc://", 6);
    if (is_file)
        snprintf(file.sun_path, sizeof file.sun_path, "%s", endpoint + 6);
    else
        host.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    int fd = socket(is_file ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    int failed = is_file ? connect(fd, (struct sockaddr *)&file, sizeof file)
                         : connect(fd, (struct sockaddr *)&host, sizeof host);
    if (failed)
        tap_diag("cannot connect to %s", endpoint);
    return fd;
}

static void push(int fd, const void *bytes, size_t size)
{
    if (send(fd, bytes, size, MSG_NOSIGNAL) < 0)
        return;                                          /* it may have hung up already */
}

/* ZMTP 3.0, mechanism NULL, a subscriber: a peer as it should be, so far. */
static void greet(int fd)
{
    static const unsigned char greeting[64] = {0xFF, 0,    0, 0, 0,   0,   0,   0,
                                               1,    0x7F, 3, 0, 'N', 'U', 'L', 'L'};
    static const char ready[] = "\x04\x19\x05READY\x0BSocket-Type\0\0\0\x03SUB";
    char theirs[256];
    push(fd, greeting, sizeof greeting);
    push(fd, ready, sizeof ready - 1);
    for (size_t got = 0; got < 64;) {
        ssize_t n = recv(fd, theirs, sizeof theirs, 0);
        if (n <= 0)
            return;
        got += (size_t)n;
    }
}

static void throw_random(int fd, int max)
{
    unsigned char bytes[600];
    size_t size = draw((uint64_t)max);
    for (size_t k = 0; k < size; k++)
        bytes[k] = (unsigned char)draw(256);
    push(fd, bytes, size);
}

enum { FRAMES_OF_NO_VIEWER = 2 };                           /* "\2hm" and "\2b" */

static void throw_frames(int fd)
{
    static const char subscribe[] = "\0\x06\x01hello", again[] = "\0\x06\x01hello",
                      cancel[] = "\0\x06\0other";
    static const char user[] = "\0\x03\x02hm", parts[] = "\x01\x02\x01"
                                                         "a\x01\x02\x02"
                                                         "b\0\x02\x01"
                                                         "c";
    static const char huge[] = "\x02\0\0\x01\0\0\0\0\0\x01",
                      large[] = "\x02\0\0\0\0\0\0\x03\xE8\x01";
    push(fd, subscribe, sizeof subscribe - 1);
    push(fd, again, sizeof again - 1);
    push(fd, cancel, sizeof cancel - 1);
    push(fd, user, sizeof user - 1);
    push(fd, parts, sizeof parts - 1);
    push(fd, draw(2) ? huge : large, sizeof huge - 1);
    throw_random(fd, 600);
}

static void besiege(const char *endpoint)
{
    pl_error_t err = {0};
    wall_open();
    if (pl_monitor_start(rig.runtime, endpoint, false, &err))
        tap_diag("%s", err.text);
    enum { PEERS = 60 };
    int fd[PEERS];
    uint64_t thrown = 0;
    for (int k = 0; k < PEERS; k++) {
        fd[k] = connect_to(pl_monitor_endpoint(rig.runtime));
        if (k % 3 == 0)
            throw_random(fd[k], 600);
        if (k % 3 == 1) {
            static const char old[] = "\x01\0\x06\0\x01old";  /* ZMTP 1.0 */
            push(fd[k], old, sizeof old - 1);
            throw_random(fd[k], 100);
        }
        if (k % 3 == 2) {
            greet(fd[k]);
            throw_frames(fd[k]);
            thrown += FRAMES_OF_NO_VIEWER;
        }
    }
    char topic[64], text[8192];
    void *viewers = zmq_ctx_new(), *viewer = zmq_socket(viewers, ZMQ_SUB);
    zmq_setsockopt(viewer, ZMQ_SUBSCRIBE, "-1.wall.", 8);
    zmq_connect(viewer, pl_monitor_endpoint(rig.runtime));
    bool stands = true, received = false;
    for (int64_t until = pl_now() + 60 * PL_SECOND;
         stands && !received && pl_now() < until;) {
        stands = wall_stands();
        received = zmq_recv(viewer, topic, sizeof topic, ZMQ_DONTWAIT) > 0
                   && zmq_recv(viewer, text, sizeof text, 0) > 0;
    }
    ok(stands, "the actors continue under malformed input at %.6s", endpoint);
    ok(received, "an honest viewer sees them");
    until_seen(thrown);
    ok(malformed() >= thrown, "%llu malformed frames are counted",
       (unsigned long long)malformed());
    zmq_close(viewer);
    zmq_ctx_term(viewers);
    for (int k = 0; k < PEERS; k++)
        close(fd[k]);
    for (int64_t until = pl_now() + 60 * PL_SECOND;
         pl_monitor_watchers(rig.runtime) && pl_now() < until;)
        sched_yield();
    is_int(pl_monitor_watchers(rig.runtime), 0,
           "no viewer is counted when all have gone");
    wall_close();
}

static void bytes_from_outside_have_no_effect_on_others(void)
{
    char file[128];
    snprintf(file, sizeof file, "ipc://%s/siege", tap_folder());
    besiege(file);
    besiege("tcp://127.0.0.1:*");
}

/* ---- memory that runs out ---- */

static int start_a_stream(void *user)
{
    pl_runtime_t runtime;
    pl_error_t err = {0};
    int code = pl_runtime_init(&runtime, &err);
    if (code != PL_OK)
        return code;
    code = pl_monitor_start(&runtime, user, false, &err);
    pl_monitor_stop(&runtime);
    pl_runtime_release(&runtime);
    return code;
}

static void a_stream_begins_or_says_that_memory_is_out(void)
{
    char file[128], port[] = "tcp://127.0.0.1:*";
    snprintf(file, sizeof file, "ipc://%s/narrow", tap_folder());
    scarce_try(start_a_stream, file, "a stream at a file");
    ok(access(file + 6, F_OK) != 0, "which is gone");
    scarce_try(start_a_stream, port, "a stream at a port");
}

int main(void)
{
    scarce_init();
    run(random_bytes_are_dropped_and_counted);
    run(a_false_name_is_dropped);
    run(mutated_frames_have_no_effect_on_others);
    run(bytes_from_outside_have_no_effect_on_others);
    run(a_stream_begins_or_says_that_memory_is_out);
    return tap_done();
}
