/* socket.c - tests of engine/transport/socket.c: what is true of libzmq and libevent that
 * it is built on, and what it makes
 * of it */
#include "transport/socket.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "tap.h"

/* ---- a loop with a ROUTER of ours, and raw peers ---- */

typedef struct loop {
    pl_sockets_t sockets;
    pl_socket_t *socket;
    void *context;
    int messages, dropped, max_in_turn, in_turn;
    uint32_t identity;                                      /* of the last message */
    void (*also)(void);                                     /* at each message */
} loop_t;

static loop_t loop;

static void on_message(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)user;
    loop.messages += frame != NULL;
    loop.dropped += frame == NULL;
    loop.identity = identity;
    loop.in_turn++;
    if (loop.also)
        loop.also();
}

static void loop_open(pl_socket_spec_t spec)
{
    pl_error_t err = {0};
    loop = (loop_t){.sockets.base = event_base_new(),
                    .context = pl_context_acquire(NULL)};
    loop.socket = pl_socket_open(&spec, &loop.sockets, on_message, NULL, &err);
    if (!loop.socket)
        tap_diag("%s", err.text);
}

static void loop_close(void)
{
    pl_socket_close(loop.socket);
    pl_context_release();
    event_base_free(loop.sockets.base);
}

static void loop_turn(void)
{
    loop.in_turn = 0;
    pl_sockets_flush(&loop.sockets);
    event_base_loop(loop.sockets.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    if (loop.in_turn > loop.max_in_turn)
        loop.max_in_turn = loop.in_turn;
}

static bool loop_until(int messages)
{
    int64_t until = pl_now() + 60 * PL_SECOND;
    while (loop.messages + loop.dropped < messages && pl_now() < until) {
        loop_turn();
        sched_yield();
    }
    return loop.messages + loop.dropped == messages;
}

static const pl_socket_spec_t router = {.type = PL_SOCKET_ROUTER,
                                        .endpoint = "inproc://test",
                                        .bind = true};

static void *raw_open(int type, const char *endpoint, uint32_t identity, int max)
{
    void *raw = zmq_socket(loop.context, type);
    int zero = 0;
    char id[5] = {1};
    memcpy(id + 1, &identity, 4);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_SNDHWM, &max, sizeof max);
    zmq_setsockopt(raw, ZMQ_RCVHWM, &max, sizeof max);
    if (type == ZMQ_SUB)
        zmq_setsockopt(raw, ZMQ_SUBSCRIBE, "", 0);
    if (identity)
        zmq_setsockopt(raw, ZMQ_ROUTING_ID, id, sizeof id);
    if (zmq_connect(raw, endpoint))
        tap_diag("%s: %s", endpoint, zmq_strerror(zmq_errno()));
    return raw;
}

static void frame_fill(pl_frame_t *frame, size_t size)
{
    zmq_msg_init_size((zmq_msg_t *)frame->zmq_msg, size);
    memset(zmq_msg_data((zmq_msg_t *)frame->zmq_msg), 'x', size);
}

static int send_to(uint32_t identity, size_t size, pl_error_t *err)
{
    pl_frame_t frame;
    frame_fill(&frame, size);
    return pl_socket_send(loop.socket, identity, &frame, err);
}

/* ---- edges ---- */

static void a_thousand_queued_messages_all_come(void)
{
    loop_open(router);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    for (int k = 0; k < 1000; k++)
        zmq_send(raw, "x", 1, 0);
    loop_until(1000);
    is_int(loop.messages, 1000, "1000 of 1000");
    ok(loop.max_in_turn <= 2 * 64, "in turns of a bounded size: %d", loop.max_in_turn);
    is_int(loop.identity, 7, "with their sender");
    zmq_close(raw);
    loop_close();
}

static bool edge_is_gone(void)
{
    int fd, events;
    size_t fd_size = sizeof fd, size = sizeof events;
    void *zmq = *(void **)loop.socket;              /* the first member: tests may know */
    zmq_getsockopt(zmq, ZMQ_FD, &fd, &fd_size);
    struct pollfd item = {.fd = fd, .events = POLLIN};
    bool readable = poll(&item, 1, 0) == 1;
    zmq_getsockopt(zmq, ZMQ_EVENTS, &events, &size);
    return !readable && (events & ZMQ_POLLIN);
}

static void a_send_may_consume_the_edge_and_nothing_is_lost(void)
{
    loop_open(router);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    int swallowed = 0, sent = 0;
    zmq_send(raw, "x", 1, 0);
    sent += loop_until(1);
    for (int64_t until = pl_now() + 60 * PL_SECOND; swallowed < 20 && pl_now() < until;
         sent++) {
        zmq_send(raw, "x", 1, 0);
        send_to(7, 1, NULL);
        swallowed += edge_is_gone();
        if (!loop_until(sent + 1))
            break;
    }
    ok(swallowed > 0, "the edge was gone %d times of %d", swallowed, sent);
    is_int(loop.messages, sent, "every message came");
    zmq_close(raw);
    loop_close();
}

static int ticks;
static void *flooder;

static void tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what, (void)user;
    ticks++;
}

static void flood(void)
{
    zmq_send(flooder, "x", 1, 0);
}

static void a_timer_fires_during_a_flood(void)
{
    loop_open(router);
    const struct timeval often = {.tv_usec = 10000};
    struct event *timer = event_new(loop.sockets.base, -1, EV_PERSIST, tick, NULL);
    flooder = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    event_add(timer, &often);
    ticks = 0;
    for (int k = 0; k < 500; k++)
        flood();
    loop.also = flood;                   /* one more for each that comes: it never ends */
    for (int64_t until = pl_now() + 60 * PL_SECOND; ticks < 10 && pl_now() < until;) {
        pl_sockets_flush(&loop.sockets);
        event_base_loop(loop.sockets.base, EVLOOP_ONCE);
    }
    is_int(ticks, 10, "a timer of 10 ms fired 10 times");
    ok(loop.messages > 1000, "beside %d messages", loop.messages);
    event_free(timer);
    zmq_close(flooder);
    loop_close();
}

static void on_alarm(int number)
{
    (void)number;
}

static void signals_interrupt_nothing(void)
{
    loop_open(router);
    struct sigaction action = {.sa_handler = on_alarm}, before;
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    int sent = 0, failed = 0;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int64_t until = pl_now() + PL_SECOND / 2; pl_now() < until; sent++) {
        while (zmq_send(raw, "x", 1, 0) < 0)
            continue;
        failed += !loop_until(sent + 1) || send_to(7, 1, NULL) != PL_OK;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    is_int(failed, 0, "%d messages came and went under 10 000 signals a second", sent);
    zmq_close(raw);
    loop_close();
}

/* ---- sending ---- */

static void a_router_reports_an_unknown_name(void)
{
    pl_error_t err = {0};
    loop_open(router);
    is_int(send_to(99, 1, &err), PL_EPEER, "an unknown identity");
    like(err.text, "unreachable", "with the reason");
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 99, 0);
    zmq_send(raw, "x", 1, 0);
    loop_until(1);
    is_int(send_to(99, 1, &err), PL_OK, "a known one");
    zmq_close(raw);
    loop_close();
}

static void a_full_socket_says_so(void)
{
    pl_socket_spec_t spec = router;
    spec.high_water_mark = 10;
    pl_error_t err = {0};
    loop_open(spec);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 5, 10);
    zmq_send(raw, "x", 1, 0);
    loop_until(1);
    int sent = 0;
    while (sent < 100 && send_to(5, 1, &err) == PL_OK)
        sent++;
    ok(sent >= 10 && sent <= 20,
       "a ROUTER took %d messages with a mark of 10 on each side", sent);
    is_int(err.code, PL_EBUSY, "and says that it is busy");
    zmq_close(raw);

    pl_socket_spec_t dealer = {.type = PL_SOCKET_DEALER,
                               .endpoint = "inproc://test",
                               .identity = 6,
                               .high_water_mark = 10};
    pl_socket_t *caller = pl_socket_open(&dealer, NULL, NULL, NULL, NULL);
    for (sent = 0; sent < 100; sent++) {
        pl_frame_t frame;
        frame_fill(&frame, 1);
        if (pl_socket_send(caller, 0, &frame, &err))
            break;
    }
    ok(sent >= 10 && sent <= 20, "a DEALER took %d", sent);
    is_int(err.code, PL_EBUSY, "and is busy too");
    pl_socket_close(caller);
    loop_close();
}

static void nothing_is_queued_without_a_peer(void)
{
    char endpoint[128];
    pl_error_t err = {0};
    pl_frame_t frame;
    snprintf(endpoint, sizeof endpoint, "ipc://%s/absent", tap_folder());
    loop_open((
        pl_socket_spec_t){.type = PL_SOCKET_DEALER, .endpoint = endpoint, .identity = 1});
    frame_fill(&frame, 1);
    is_int(pl_socket_send(loop.socket, 0, &frame, &err), PL_EPEER,
           "a DEALER without a listener does not take a message");
    loop_close();
}

static void a_message_too_large_never_comes(void)
{
    char endpoint[256];
    loop_open((pl_socket_spec_t){.type = PL_SOCKET_ROUTER,
                                 .endpoint = "tcp://127.0.0.1:*",
                                 .bind = true,
                                 .message_max = 1000});
    pl_socket_endpoint(loop.socket, endpoint, sizeof endpoint, NULL);
    void *rude = raw_open(ZMQ_DEALER, endpoint, 1, 0),
         *polite = raw_open(ZMQ_DEALER, endpoint, 2, 0);
    static char much[100000];
    for (int k = 0; k < 10; k++)
        zmq_send(rude, much, sizeof much, 0);
    zmq_send(polite, much, 1000, 0);
    ok(loop_until(1), "the smaller one did");
    is_int(loop.identity, 2, "from the polite peer");
    for (int k = 0; k < 100; k++)
        loop_turn();
    is_int(loop.messages, 1, "no other");
    zmq_close(rude);
    zmq_close(polite);
    loop_close();
}

static void a_message_of_several_parts_is_dropped(void)
{
    loop_open(router);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    zmq_send(raw, "x", 1, ZMQ_SNDMORE);
    zmq_send(raw, "y", 1, 0);
    zmq_send(raw, "z", 1, 0);
    ok(loop_until(2), "two messages");
    is_int(loop.dropped, 1, "the one with two parts is dropped");
    is_int(loop.messages, 1, "the other is not");
    zmq_close(raw);
    raw = raw_open(ZMQ_DEALER, "inproc://test", 0, 0);
    zmq_send(raw, "x", 1, 0);
    loop_until(3);
    is_int(loop.identity, 0, "a name that ZeroMQ made is none of ours");
    zmq_close(raw);
    loop_close();
}

/* More of them than one turn takes. */
static void with_lines_each_part_is_a_message(void)
{
    enum { PARTS = 200 };
    pl_socket_spec_t spec = router;
    spec.company = true;
    loop_open(spec);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    for (int k = 0; k < PARTS; k++)
        zmq_send(raw, "x", 1, k + 1 < PARTS ? ZMQ_SNDMORE : 0);
    zmq_send(raw, "y", 1, 0);
    ok(loop_until(PARTS + 1), "all that come");
    is_int(loop.dropped, 0, "none is dropped");
    is_int(loop.identity, 7, "with their sender");
    for (int k = 0; k < 3; k++) {
        pl_frame_t frame;
        frame_fill(&frame, 1);
        pl_socket_send_with(loop.socket, 7, &frame, k < 2, NULL);
    }
    int more[4] = {0};
    for (int k = 0; k < 3; k++) {
        char text[8];
        size_t size = sizeof more[k];
        zmq_recv(raw, text, sizeof text, 0);
        zmq_getsockopt(raw, ZMQ_RCVMORE, &more[k], &size);
    }
    ok(more[0] && more[1] && !more[2], "three that are sent go together");
    is_int(send_to(7, 1, NULL), PL_OK, "one behind them goes alone");
    zmq_close(raw);
    loop_close();
}

/* ---- closing ---- */

static void close_it(void)
{
    if (loop.messages != 3)
        return;
    pl_socket_close(loop.socket);
    loop.socket = NULL;
}

static void a_socket_may_be_closed_by_what_it_brings(void)
{
    for (int drained = 0; drained < 2; drained++) {
        loop_open(router);
        void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
        for (int k = 0; k < 10; k++)
            zmq_send(raw, "x", 1, 0);
        loop.also = close_it;
        if (drained)
            pl_socket_drain(loop.socket);
        else
            loop_until(3);
        for (int k = 0; k < 10; k++)
            loop_turn();
        is_int(loop.messages, 3, "nothing came after it was closed%s",
               drained ? " while drained" : "");
        zmq_close(raw);
        loop_close();
    }
}

static void drain_it(void)
{
    if (loop.messages == 1)
        pl_socket_drain(loop.socket);
}

static void a_drain_takes_all_there_is(void)
{
    loop_open(router);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    for (int k = 0; k < 500; k++)
        zmq_send(raw, "x", 1, 0);
    loop.also = drain_it;                                   /* from inside a turn, too */
    pl_socket_drain(loop.socket);
    is_int(loop.messages, 500, "at once");
    zmq_close(raw);
    loop_close();
}

static void a_read_leaves_the_loop_its_turn(void)
{
    loop_open(router);
    void *raw = raw_open(ZMQ_DEALER, "inproc://test", 7, 0);
    for (int k = 0; k < 500; k++)
        zmq_send(raw, "x", 1, 0);
    pl_socket_look(loop.socket);
    ok(loop.messages > 0 && loop.messages <= 64, "%d messages of 500 at once",
       loop.messages);
    pl_socket_drain(loop.socket);
    is_int(loop.messages, 500, "the others stay");
    zmq_close(raw);
    loop_close();
}

/* How long it takes to close a socket that a viewer does not read from. */
static int64_t closing_time(int linger_ms)
{
    static char text[1000];
    char endpoint[128], seen[1];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/slow%d", tap_folder(), linger_ms);
    loop_open((pl_socket_spec_t){.type = PL_SOCKET_XPUB,
                                 .endpoint = endpoint,
                                 .bind = true,
                                 .linger_ms = linger_ms});
    void *viewers = zmq_ctx_new(), *own = loop.context;
    loop.context = viewers;
    void *raw = raw_open(ZMQ_SUB, endpoint, 0, 1);
    loop.context = own;
    loop_until(1);
    for (int k = 0; k < 20000; k++)
        pl_socket_publish(loop.socket, (pl_bytes_t){"t", 1},
                          (pl_bytes_t){text, sizeof text}, NULL);
    zmq_recv(raw, seen, 1, 0);
    int64_t before = pl_now();
    loop_close();
    int64_t took = pl_now() - before;
    zmq_close(raw);
    zmq_ctx_term(viewers);
    return took;
}

static void closing_does_not_wait_by_default(void)
{
    int64_t took = closing_time(0);
    ok(took < PL_SECOND, "with LINGER 0 it took %.3f ms", (double)took / 1e6);
    took = closing_time(300);
    ok(took > PL_SECOND / 4 && took < 5 * PL_SECOND, "with 300 ms it took %.3f ms",
       (double)took / 1e6);
}

static void endpoints_beyond_this_machine_are_refused(void)
{
    static const char *const refused[] = {"tcp://*:0",
                                          "tcp://0.0.0.0:0",
                                          "tcp://example.org:80",
                                          "tcp://10.0.0.1:80",
                                          "tcp://127.0.0.1@10.0.0.1:80",
                                          "pgm://lo;239.0.0.1:5",
                                          "ws://127.0.0.1:80",
                                          ""};
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
        for (int bind = 0; bind < 2; bind++) {
            pl_error_t err = {0};
            pl_socket_spec_t spec = {.type = PL_SOCKET_ROUTER,
                                     .endpoint = refused[k],
                                     .bind = bind};
            ok(!pl_socket_open(&spec, NULL, NULL, NULL, &err) && err.code == PL_EINVAL,
               "\"%s\"", refused[k]);
        }
}

/* ---- a flooded port ---- */

static int peers_max, comers;

static void count_peers(void *user, int peers)
{
    (void)user;
    comers += peers > peers_max;
    peers_max = peers;
}

static void connect_and_leave(int port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(fd, (const struct sockaddr *)&at, sizeof at);
    close(fd);
}

/* Until it is flooded, or so many have tried; the system may refuse some. */
static int flood_until(int max)
{
    const int64_t end = pl_now() + 60 * PL_SECOND;
    char endpoint[128];
    pl_socket_endpoint(loop.socket, endpoint, sizeof endpoint, NULL);
    const int port = atoi(strrchr(endpoint, ':') + 1);
    int tried = 0;
    while (tried < max && pl_now() < end && !pl_socket_is_flooded(loop.socket)) {
        connect_and_leave(port);
        loop_turn();
        tried++;
    }
    return tried;
}

static void port_open(int comers_a_second)
{
    peers_max = comers = 0;
    loop_open((pl_socket_spec_t){.type = PL_SOCKET_XPUB,
                                 .endpoint = "tcp://127.0.0.1:*",
                                 .bind = true,
                                 .on_peers = count_peers,
                                 .comers_a_second = comers_a_second});
}

static void turns_for(int64_t time)
{
    for (const int64_t end = pl_now() + time; pl_now() < end; sched_yield())
        loop_turn();
}

static void connections_to_a_flooded_port_wait(void)
{
    enum { A_SECOND = 20, TRIES = 10000 };
    port_open(A_SECOND);
    const int tried = flood_until(100 * TRIES);
    ok(pl_socket_is_flooded(loop.socket), "it is flooded after %d", tried);
    turns_for(PL_SECOND / 10);
    comers = 0;
    const int64_t began = pl_now();
    char endpoint[128];
    pl_socket_endpoint(loop.socket, endpoint, sizeof endpoint, NULL);
    for (int k = 0; k < TRIES; k++) {
        connect_and_leave(atoi(strrchr(endpoint, ':') + 1));
        loop_turn();
    }
    const double seconds = (double)(pl_now() - began) / 1e9;
    ok(comers < TRIES / 10 + A_SECOND * seconds, "of %d more %d come in, in %.2f s",
       TRIES, comers, seconds);
    for (int k = 0; k < 200 && pl_socket_is_flooded(loop.socket); k++)
        turns_for(PL_SECOND / 10);
    ok(!pl_socket_is_flooded(loop.socket), "then it has room again");
    void *viewer = raw_open(ZMQ_SUB, endpoint, 0, 0);
    ok(loop_until(1), "and a viewer gets in");
    zmq_close(viewer);
    loop_close();
}

static void a_port_without_a_limit_is_never_flooded(void)
{
    port_open(0);
    flood_until(5000);
    ok(!pl_socket_is_flooded(loop.socket), "5000 come");
    loop_close();
}

int main(void)
{
    run(a_thousand_queued_messages_all_come);
    run(a_send_may_consume_the_edge_and_nothing_is_lost);
    run(a_timer_fires_during_a_flood);
    run(signals_interrupt_nothing);
    run(a_router_reports_an_unknown_name);
    run(a_full_socket_says_so);
    run(nothing_is_queued_without_a_peer);
    run(a_message_too_large_never_comes);
    run(a_message_of_several_parts_is_dropped);
    run(with_lines_each_part_is_a_message);
    run(a_socket_may_be_closed_by_what_it_brings);
    run(a_drain_takes_all_there_is);
    run(a_read_leaves_the_loop_its_turn);
    run(closing_does_not_wait_by_default);
    run(endpoints_beyond_this_machine_are_refused);
    run(connections_to_a_flooded_port_wait);
    run(a_port_without_a_limit_is_never_flooded);
    return tap_done();
}
