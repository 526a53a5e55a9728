/* keys.c - tests of engine/transport/keys.c and zap.c: the file, and peers without
 * it */
#include "transport/keys.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "config.h"
#include "transport/link.h"
#include "transport/socket.h"
#include "scarce.h"
#include "tap.h"

static char path[256];
static pl_error_t err;

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    return path;
}

static void file_write(const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    fwrite(text, 1, size, file);
    fclose(file);
    chmod(path, 0600);
}

static size_t file_read(char text[1024])
{
    FILE *file = fopen(path, "r");
    size_t size = fread(text, 1, 1023, file);
    fclose(file);
    text[size] = '\0';
    return size;
}

/* ---- the file ---- */

static void keys_that_are_made_can_be_read(void)
{
    pl_keys_t made, found, other;
    struct stat file;
    is_int(pl_keys_read(in_folder("job"), &found, &err), PL_ENOTFOUND,
           "there is none yet");
    is_int(pl_keys_make(path, &made, &err), PL_OK, "it is made");
    stat(path, &file);
    is_int(file.st_mode & 0777, 0600, "closed to others");
    is_int(pl_keys_read(path, &found, &err), PL_OK, "and read");
    ok(!memcmp(&made, &found, sizeof made), "the same");
    is_int(pl_keys_make(path, &other, &err), PL_EEXIST, "not made again");
    is_int(pl_keys_open(path, &other, &err), PL_OK, "but opened");
    ok(!memcmp(&made, &other, sizeof made), "the same");
    is_int(pl_keys_open(in_folder("job2"), &other, &err), PL_OK, "another is made");
    ok(memcmp(made.root, other.root, PL_KEY_BYTES)
           && strcmp(made.server_public, other.server_public)
           && strcmp(made.client_public, other.client_public)
           && strcmp(made.server_public, made.client_public),
       "with keys of its own");
    pl_keys_forget(&made);
    ok(!made.root[0] && !made.client_secret[0], "they can be forgotten");
}

static void a_file_that_others_may_read_is_refused(void)
{
    pl_keys_t keys;
    pl_keys_make(in_folder("open"), &keys, &err);
    static const int modes[] = {0640, 0604, 0620, 0602, 0644};
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        chmod(path, (mode_t)modes[k]);
        is_int(pl_keys_read(path, &keys, &err), PL_EINVAL, "mode %o", modes[k]);
        like(err.text, "open: other users may.*chmod 600", "with what to do");
    }
    chmod(path, 0400);
    is_int(pl_keys_read(path, &keys, &err), PL_OK, "mode 400 is fine");
    if (geteuid() == 0 && chown(path, 4242, (gid_t)-1) == 0) {
        is_int(pl_keys_read(path, &keys, &err), PL_EINVAL, "another's is not");
        like(err.text, "another user", "it says so");
    } else {
        tap_skip("only root can give a file away");
    }
    mkdir(in_folder("folder"), 0700);
    is_int(pl_keys_read(path, &keys, &err), PL_EINVAL, "a folder is no file");
}

static void a_damaged_file_is_refused(void)
{
    pl_keys_t keys, before;
    char text[1024];
    pl_keys_make(in_folder("damaged"), &keys, &err);
    size_t size = file_read(text);
    before = keys;
    int taken = 0;
    for (size_t k = 0; k + 45 < size; k++) {            /* all but the root and its end */
        char old = text[k];
        text[k] = old == 'x' ? 'y' : 'x';
        file_write(text, size);
        taken += pl_keys_read(path, &keys, &err) == PL_OK;
        text[k] = old;
    }
    is_int(taken, 0, "with any byte of its pairs changed");
    ok(!memcmp(&keys, &before, sizeof keys), "what was there stays");
    for (size_t k = 0; k + 1 < size; k += 7) {
        file_write(text, k);
        taken += pl_keys_read(path, &keys, &err) == PL_OK;
    }
    is_int(taken, 0, "or cut off anywhere");
    file_write(text, size);
    is_int(pl_keys_read(path, &keys, &err), PL_OK, "whole it is taken");
    memcpy(text + size, "more\n", 6);
    file_write(text, size + 5);
    is_int(pl_keys_read(path, &keys, &err), PL_EFORMAT, "with more behind it");
    like(err.text, "not a key file, or damaged", "it says so");
}

static void each_incarnation_has_a_key_of_its_own(void)
{
    pl_keys_t keys, other;
    unsigned char a[PL_KEY_BYTES], b[PL_KEY_BYTES];
    pl_keys_make(in_folder("c1"), &keys, &err);
    pl_keys_make(in_folder("c2"), &other, &err);
#ifdef HAVE_SODIUM
    is_int(pl_keys_collective(&keys, 1, 1, a, &err), PL_OK, "a key");
    pl_keys_collective(&keys, 1, 1, b, &err);
    ok(!memcmp(a, b, sizeof a), "the same everywhere");
    pl_keys_collective(&keys, 1, 2, b, &err);
    ok(memcmp(a, b, sizeof a), "another in another incarnation");
    pl_keys_collective(&keys, 2, 1, b, &err);
    ok(memcmp(a, b, sizeof a), "in another run");
    pl_keys_collective(&other, 1, 1, b, &err);
    ok(memcmp(a, b, sizeof a), "and of another job");
    ok(memcmp(a, keys.root, sizeof a), "it is not what it comes from");
#else
    (void)b;
    is_int(pl_keys_collective(&keys, 1, 1, a, &err), PL_EUNSUPPORTED, "or none");
#endif
}

/* ---- admission ---- */

static struct {
    pl_sockets_t sockets;
    pl_socket_t *socket;
    char endpoint[128];
    int messages;
} server;

static void server_received(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)user, (void)identity;
    server.messages += frame != NULL;
}

static void server_open(const pl_keys_t *keys)
{
    pl_socket_spec_t spec = {.type = PL_SOCKET_ROUTER,
                             .endpoint = "tcp://127.0.0.1:*",
                             .bind = true,
                             .keys = keys};
    server.messages = 0;
    server.sockets = (pl_sockets_t){.base = event_base_new()};
    server.socket = pl_socket_open(&spec, &server.sockets, server_received, NULL, &err);
    if (!server.socket)
        tap_diag("%s", err.text);
    pl_socket_endpoint(server.socket, server.endpoint, sizeof server.endpoint, &err);
}

static void server_close(void)
{
    pl_socket_close(server.socket);
    event_base_free(server.sockets.base);
}

static void server_turn(int milliseconds, int messages)
{
    for (int64_t end = pl_now() + milliseconds * PL_MILLISECOND;
         server.messages < messages && pl_now() < end;) {
        struct timeval soon = {0, 2000};
        pl_sockets_flush(&server.sockets);
        event_base_loopexit(server.sockets.base, &soon);
        event_base_loop(server.sockets.base, EVLOOP_ONCE);
    }
}

/* A peer that knows of CURVE what it is given. */
static void *peer_open(const char *endpoint, const char *server_public,
                       const char *public, const char *secret)
{
    int zero = 0;
    void *raw = zmq_socket(pl_context_acquire(NULL), ZMQ_DEALER);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_ROUTING_ID, "\1\2\3\4\5", 5);
    if (server_public) {
        zmq_setsockopt(raw, ZMQ_CURVE_SERVERKEY, server_public, 40);
        zmq_setsockopt(raw, ZMQ_CURVE_PUBLICKEY, public, 40);
        zmq_setsockopt(raw, ZMQ_CURVE_SECRETKEY, secret, 40);
    }
    zmq_connect(raw, endpoint);
    for (int k = 0; k < 10; k++)
        zmq_send(raw, "hello", 5, ZMQ_DONTWAIT);
    return raw;
}

static void peer_close(void *raw)
{
    zmq_close(raw);
    pl_context_release();
}

static void only_peers_with_the_keys_get_messages_through(void)
{
    pl_keys_t keys, other;
    char public[PL_KEY_TEXT], secret[PL_KEY_TEXT];
    pl_keys_make(in_folder("in"), &keys, &err);
    pl_keys_make(in_folder("out"), &other, &err);
    zmq_curve_keypair(public, secret);
    server_open(&keys);
    void *none = peer_open(server.endpoint, NULL, NULL, NULL),
         *own = peer_open(server.endpoint, keys.server_public, public, secret),
         *others = peer_open(server.endpoint, keys.server_public, other.client_public,
                             other.client_secret),
         *wrong_server = peer_open(server.endpoint, other.server_public,
                                   keys.client_public, keys.client_secret),
         *no_secret = peer_open(server.endpoint, keys.server_public, keys.client_public,
                                secret);
    server_turn(400, 1);
    is_int(server.messages, 0,
           "nothing from one without keys, with its own, with another job's, for another "
           "server, or with the public half");
    void *right = peer_open(server.endpoint, keys.server_public, keys.client_public,
                            keys.client_secret);
    server_turn(20000, 10);
    is_int(server.messages, 10, "all from the right one");
    void *all[] = {none, own, others, wrong_server, no_secret, right};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        peer_close(all[k]);
    server_close();
}

static void two_jobs_in_one_process_are_kept_apart(void)
{
    pl_keys_t a, b;
    pl_keys_make(in_folder("a"), &a, &err);
    pl_keys_make(in_folder("b"), &b, &err);
    server_open(&a);
    pl_sockets_t sockets = server.sockets;
    pl_socket_t *first = server.socket;
    server_open(&b);
    void *wrong = peer_open(server.endpoint, b.server_public, a.client_public,
                            a.client_secret);
    server_turn(300, 1);
    is_int(server.messages, 0, "a key of the one is none of the other");
    pl_socket_close(first);
    event_base_free(sockets.base);
    void *right = peer_open(server.endpoint, b.server_public, b.client_public,
                            b.client_secret);
    server_turn(20000, 10);
    is_int(server.messages, 10, "and the end of one server leaves ZAP to the other");
    peer_close(wrong);
    peer_close(right);
    server_close();
}

static void without_a_zap_handler_no_peer_is_admitted(void)
{
    pl_keys_t keys;
    char domain[PL_ZAP_DOMAIN];
    int one = 1, enforce = 93;
    pl_keys_make(in_folder("without_zap"), &keys, &err);
    void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_ROUTER);
    zmq_setsockopt(raw, ZMQ_CURVE_SERVER, &one, sizeof one);
    zmq_setsockopt(raw, ZMQ_CURVE_SECRETKEY, keys.server_secret, 40);
    zmq_setsockopt(raw, ZMQ_ZAP_DOMAIN, "absent", 6);
    is_int(zmq_setsockopt(raw, enforce, &one, sizeof one), 0, "option 93 is there");
    zmq_bind(raw, "tcp://127.0.0.1:*");
    char endpoint[128], received[16];
    size_t size = sizeof endpoint;
    zmq_getsockopt(raw, ZMQ_LAST_ENDPOINT, endpoint, &size);
    void *peer = peer_open(endpoint, keys.server_public, keys.client_public,
                           keys.client_secret);
    zmq_pollitem_t item = {.socket = raw, .events = ZMQ_POLLIN};
    is_int(zmq_poll(&item, 1, 300), 0, "it refuses even the right key");
    ok(zmq_recv(raw, received, sizeof received, ZMQ_DONTWAIT) < 0, "nothing came");
    peer_close(peer);
    zmq_close(raw);
    zmq_ctx_term(context);
    is_int(pl_zap_open(&keys, domain, &err), PL_OK, "ZAP opens");
    pl_zap_close(domain);
    is_int(pl_zap_open(&keys, domain, &err), PL_OK, "closes, and opens again");
    pl_zap_close(domain);
}

/* ---- a recorded conversation ---- */

static int tcp_to(const char *endpoint)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port =
                                 htons((uint16_t)atoi(strrchr(endpoint, ':') + 1))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
    return fd;
}

static unsigned char recorded[65536];
static size_t recorded_size;

/* Passes on what goes either way until all came, and keeps what the client said. */
static void pass_and_record(int listener)
{
    unsigned char bytes[8192];
    int near = -1, far = -1;
    for (int64_t end = pl_now() + 60 * PL_SECOND;
         server.messages < 10 && pl_now() < end;) {
        if (near < 0 && (near = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
            far = tcp_to(server.endpoint);
        ssize_t size = near >= 0 ? recv(near, bytes, sizeof bytes, 0) : -1;
        if (size > 0 && recorded_size + (size_t)size < sizeof recorded) {
            memcpy(recorded + recorded_size, bytes, (size_t)size);
            recorded_size += (size_t)size;
        }
        if (size > 0 && send(far, bytes, (size_t)size, MSG_NOSIGNAL) != size)
            tap_diag("not passed on");
        size = far >= 0 ? recv(far, bytes, sizeof bytes, 0) : -1;
        if (size > 0 && send(near, bytes, (size_t)size, MSG_NOSIGNAL) != size)
            tap_diag("not passed back");
        server_turn(1, 10);
    }
    close(near);
    close(far);
}

static void a_recorded_conversation_gets_nothing_through(void)
{
    pl_keys_t keys;
    char through[64];
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    pl_keys_make(in_folder("replay"), &keys, &err);
    server_open(&keys);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    bind(listener, (struct sockaddr *)&at, sizeof at);
    listen(listener, 4);
    getsockname(listener, (struct sockaddr *)&at, &size);
    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    void *peer = peer_open(through, keys.server_public, keys.client_public,
                           keys.client_secret);
    pass_and_record(listener);
    is_int(server.messages, 10, "an honest conversation was recorded: %zu bytes",
           recorded_size);
    peer_close(peer);
    server.messages = 0;
    int fd = tcp_to(server.endpoint);
    for (size_t sent = 0; sent < recorded_size;) {
        ssize_t n = send(fd, recorded + sent, recorded_size - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    server_turn(400, 1);
    is_int(server.messages, 0, "said again, nothing of it comes through");
    close(fd);
    close(listener);
    server_close();
}

/* ---- links with keys ---- */

static int joined, gone;

static void on_event(void *user, int peer, pl_link_event_t event, const char *text)
{
    (void)user, (void)peer, (void)text;
    joined += event == PL_LINK_JOINED;
    gone += event == PL_LINK_GONE;
}

static void on_message(void *user, int peer, pl_frame_t *message)
{
    (void)user, (void)peer, (void)message;
}

static void a_link_beyond_this_machine_needs_the_keys(void)
{
    pl_keys_t keys, other;
    char endpoint[128];
    pl_keys_make(in_folder("l1"), &keys, &err);
    pl_keys_make(in_folder("l2"), &other, &err);
    pl_sockets_t loop = {.base = event_base_new()};
    pl_link_spec_t spec = {.endpoint = "tcp://0.0.0.0:0",
                           .run = 1,
                           .incarnation = 1,
                           .world_size = 2,
                           .times = {.join = 500},
                           .on_message = on_message,
                           .on_event = on_event};
    ok(!pl_link_listen(&spec, &loop, &err), "without them it is refused");
    spec.keys = &keys;
    pl_link_t *host = pl_link_listen(&spec, &loop, &err);
    ok(host != NULL, "with them it listens on all addresses, at any port");
    pl_link_endpoint(host, endpoint, sizeof endpoint, &err);
    snprintf(path, sizeof path, "tcp://localhost:%s", strrchr(endpoint, ':') + 1);
    spec.endpoint = path;
    pl_link_t *right = pl_link_connect(&spec, &loop, &err);
    spec.rank = 1;
    spec.keys = &other;
    pl_link_t *wrong = pl_link_connect(&spec, &loop, &err);
    ok(right && wrong, "a host may be named");
    for (int64_t end = pl_now() + 60 * PL_SECOND; gone < 1 && pl_now() < end;) {
        struct timeval soon = {0, 2000};
        pl_sockets_flush(&loop);
        event_base_loopexit(loop.base, &soon);
        event_base_loop(loop.base, EVLOOP_ONCE);
    }
    is_int(joined, 2, "a peer that has them joins");
    is_int(pl_link_state(wrong, PL_LINK_HOST), PL_LINK_IS_GONE,
           "a peer that has others does not");
    is_int(pl_link_counts(host)->strangers + pl_link_counts(host)->malformed, 0,
           "nothing of theirs came as far as the link");
    pl_link_free(right);
    pl_link_free(wrong);
    pl_link_free(host);
    event_base_free(loop.base);
}

/* ---- memory that runs out ---- */

static int open_zap(void *user)
{
    char domain[PL_ZAP_DOMAIN];
    pl_error_t error = {0};
    int code = pl_zap_open(user, domain, &error);
    if (code == PL_OK)
        pl_zap_close(domain);
    return code;
}

static void zap_opens_or_memory_is_out(void)
{
    pl_keys_t keys;
    pl_keys_make(in_folder("scarce"), &keys, &err);
    scarce_init();
    scarce_try(open_zap, &keys, "ZAP");
}

int main(void)
{
    run(keys_that_are_made_can_be_read);
    run(a_file_that_others_may_read_is_refused);
    run(a_damaged_file_is_refused);
    run(each_incarnation_has_a_key_of_its_own);
    run(only_peers_with_the_keys_get_messages_through);
    run(two_jobs_in_one_process_are_kept_apart);
    run(without_a_zap_handler_no_peer_is_admitted);
    run(a_recorded_conversation_gets_nothing_through);
    run(a_link_beyond_this_machine_needs_the_keys);
    run(zap_opens_or_memory_is_out);
    return tap_done();
}
