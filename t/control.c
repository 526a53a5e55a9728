/* control.c - commands to runs over a socket, from any client, and from hostile ones */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/random.h"
#include "rig.h"
#include "runtime/message.h"
#include "tap.h"

#define LONG "\"max_epochs\": 100000"
#define SLOW "replay of forward_backward takes 1 ms"

/* ---- a client ---- */

typedef struct client {
    void *context, *socket;
    char reply[4096];
} client_t;

static const char *endpoint(void)
{
    static char text[300];
    snprintf(text, sizeof text, "ipc://%s/control", tap_folder());
    return text;
}

static client_t client_open(int type, const char *at)
{
    client_t client = {.context = zmq_ctx_new()};
    const int none = 0;
    client.socket = zmq_socket(client.context, type);
    zmq_setsockopt(client.socket, ZMQ_LINGER, &none, sizeof none);
    ok(zmq_connect(client.socket, at) == 0, "a client connects");
    return client;
}

static void client_close(client_t *client)
{
    zmq_close(client->socket);
    zmq_ctx_term(client->context);
}

static bool has_reply(client_t *client, int milliseconds)
{
    zmq_pollitem_t item = {.socket = client->socket, .events = ZMQ_POLLIN};
    return zmq_poll(&item, 1, milliseconds) > 0;
}

/* The program's loop need not turn for it. */
static const char *received(client_t *client)
{
    int size = has_reply(client, 30000)
                   ? zmq_recv(client->socket, client->reply, sizeof client->reply - 1, 0)
                   : 0;
    client->reply[size > 0 ? size : 0] = '\0';
    return client->reply;
}

static const char *said(client_t *client, const char *request)
{
    zmq_send(client->socket, request, strlen(request), 0);
    return received(client);
}

static rig_t *rig_listening(const char *at)
{
    rig_t *rig = rig_new(.script = SLOW, .trainer = LONG);
    ok(pl_engine_control(rig_engine(rig), at, &rig_error) == PL_OK,
       "an engine listens %s", rig_error.text);
    return rig;
}

static long step_in(const char *reply)
{
    const char *at = strstr(reply, "\"global_step\":");
    return at ? atol(at + strlen("\"global_step\":")) : -1;
}

/* ---- commands ---- */

static void a_client_commands_a_run(void)
{
    rig_t *rig = rig_listening(endpoint());
    client_t client = client_open(ZMQ_REQ, endpoint());
    like(said(&client, "{\"command\": \"list\"}"), "\"runs\": ?\\[\\]", "no run yet");
    like(said(&client, "{\"command\": \"pause\"}"), "PL_ESTATE.*no run is active",
         "nor one to be paused");
    rig_begin(rig);
    like(said(&client, "{\"command\": \"pause\", \"id\": 7}"),
         "\"ok\": ?true.*\"global_step\".*\"id\": ?7", "a pause is carried out");
    const long paused_at = step_in(client.reply);
    like(said(&client, "{\"command\": \"list\"}"), "\"run\": ?1, ?\"state\": ?\"paused\"",
         "the list says so");
    ok(paused_at >= 0 && step_in(client.reply) == paused_at,
       "at the step of the pause, %ld", paused_at);
    like(said(&client, "{\"command\": \"save\", \"run\": 1}"),
         "checkpoints/asked-step=", "a save says where");
    like(said(&client, "{\"command\": \"set_lr\", \"lr\": 0.01}"), "\"ok\": ?true",
         "a rate");
    like(said(&client, "{\"command\": \"set_lr\", \"factor\": 2}"), "\"factor\": ?2",
         "or a factor is set, and the answer has it");
    like(said(&client, "{\"command\": \"continue\"}"), "\"ok\": ?true", "it continues");
    like(said(&client, "{\"command\": \"stop\", \"reason\": \"enough\"}"),
         "\"ok\": ?true", "a stop is taken");
    const rig_result_t *result = rig_wait(rig);
    is_text(result->status, "stopped", "and obeyed");
    is_text(result->reason, "enough", "with its reason");
    client_close(&client);
    rig_free(&rig);
}

static void the_socket_file_is_private_to_its_user(void)
{
    struct stat status;
    const mode_t before = umask(0);
    rig_t *rig = rig_listening(endpoint());
    umask(before);
    ok(stat(endpoint() + 6, &status) == 0 && (status.st_mode & 0777) == 0600,
       "its mode is 0600");
    is_text(pl_engine_control_endpoint(rig_engine(rig)), endpoint(),
            "it says where it is");
    rig_free(&rig);
    ok(access(endpoint() + 6, F_OK) != 0, "it goes with the engine");
}

static void clients_of_other_machines_are_refused(void)
{
    static const char *const wrong[] = {
        "tcp://0.0.0.0:*", "tcp://*:5000", "inproc://x", "tcp://192.0.2.1:5000", "",
        "nonsense"};
    rig_t *rig = rig_new(.trainer = LONG);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        is_int(pl_engine_control(rig_engine(rig), wrong[k], &rig_error), PL_EINVAL,
               "\"%s\" is refused", wrong[k]);
    is_int(pl_engine_control(rig_engine(rig), "tcp://127.0.0.1:*", &rig_error), PL_OK,
           "loopback is fine");
    like(pl_engine_control_endpoint(rig_engine(rig)), "^tcp://127.0.0.1:[0-9]+$",
         "at a port of its own");
    is_int(pl_engine_control(rig_engine(rig), endpoint(), &rig_error), PL_ESTATE,
           "once for an engine");
    rig_free(&rig);
}

/* ---- what is none ---- */

static void wrong_requests_get_an_error(void)
{
    static const char *const wrong[][2] = {
        {"", "error"},
        {"{", "error"},
        {"[]", "error"},
        {"{}", "needs a .\"command"},
        {"{\"command\": 7}", "needs a .\"command"},
        {"{\"command\": \"fly\"}", "unknown command"},
        {"{\"command\": \"paus\"}", "did you mean .\"pause"},
        {"{\"command\": \"pause\", \"lr\": 1}", "unknown key"},
        {"{\"command\": \"pause\", \"run\": \"x\"}", "wrong type"},
        {"{\"command\": \"pause\", \"run\": 9}", "PL_ENOTFOUND"},
        {"{\"command\": \"set_lr\"}", "needs either"},
        {"{\"command\": \"set_lr\", \"lr\": -1}", "at least 0"},
        {"{\"command\": \"set_lr\", \"lr\": 1, \"factor\": 1}", "needs either"},
        {"{\"command\": \"list\", \"command\": \"stop\"}", "error"},
    };
    rig_t *rig = rig_listening(endpoint());
    client_t client = client_open(ZMQ_REQ, endpoint());
    rig_begin(rig);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        like(said(&client, wrong[k][0]), wrong[k][1], "%s", wrong[k][0]);
    like(said(&client, "{\"command\": \"list\"}"), "\"run\": ?1", "the run continues");
    client_close(&client);
    rig_free(&rig);
}

/* Parts of any number and bytes; then the socket still answers. */
static void malformed_messages_are_dropped_or_refused(void)
{
    rig_t *rig = rig_listening(endpoint());
    client_t noise = client_open(ZMQ_DEALER, endpoint());
    uint64_t seed = 5;
    rig_begin(rig);
    for (int k = 0; k < 3000; k++) {
        char bytes[64];
        const int parts = 1 + (int)(pl_hash(PL_HASH_EMPTY, &seed, sizeof seed) % 4);
        for (int part = 0; part < parts; part++) {
            seed++;
            const uint64_t drawn = pl_hash(PL_HASH_EMPTY, &seed, sizeof seed);
            for (size_t b = 0; b < sizeof bytes; b++)
                bytes[b] = "{}[]\":,command 0\\\n\xff"[(drawn >> b % 32) % 19];
            zmq_send(noise.socket, bytes, drawn % sizeof bytes,
                     (part + 1 < parts ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT);
        }
    }
    client_t client = client_open(ZMQ_REQ, endpoint());
    like(said(&client, "{\"command\": \"list\"}"), "\"run\": ?1",
         "a request is answered");
    client_close(&client);
    client_close(&noise);
    rig_free(&rig);
}

static char *spaces_new(size_t size)
{
    char *text = malloc(size + 1);
    memset(text, ' ', size);
    text[size] = '\0';
    return text;
}

static void a_long_request_is_refused_with_the_reason(void)
{
    static const size_t sizes[] = {4097, 64 << 10};
    rig_t *rig = rig_listening(endpoint());
    client_t plain = client_open(ZMQ_REQ, endpoint()),
             dealer = client_open(ZMQ_DEALER, endpoint());
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char expected[80], *text = spaces_new(sizes[k]);
        snprintf(expected, sizeof expected,
                 "PL_EINVAL.*the request has %zu bytes; at most 4096", sizes[k]);
        like(said(&plain, text), expected, "of a REQ");
        like(said(&dealer, text), expected, "and of a DEALER");
        free(text);
    }
    char *text = spaces_new(4096);
    memcpy(text, "{\"command\": \"list\"}", 19);
    like(said(&plain, text), "\"runs\"", "one of the most bytes is carried out");
    free(text);
    client_close(&dealer);
    client_close(&plain);
    rig_free(&rig);
}

static void a_large_request_costs_its_client_the_connection(void)
{
    rig_t *rig = rig_listening(endpoint());
    client_t large = client_open(ZMQ_DEALER, endpoint()),
             client = client_open(ZMQ_REQ, endpoint());
    char *bytes = calloc(1, 1 << 20);
    zmq_send(large.socket, bytes, 1 << 20, 0);
    like(said(&client, "{\"command\": \"list\"}"), "\"runs\"", "others are answered");
    ok(!has_reply(&large, 5), "it is not");
    free(bytes);
    client_close(&client);
    client_close(&large);
    rig_free(&rig);
}

static void many_requests_at_once_are_all_answered(void)
{
    rig_t *rig = rig_listening(endpoint());
    client_t client = client_open(ZMQ_DEALER, endpoint());
    rig_begin(rig);
    for (int k = 0; k < 40; k++)
        zmq_send(client.socket, "{\"command\": \"set_lr\", \"lr\": 0.1}", 32, 0);
    int answers = 0;
    while (answers < 40 && *received(&client))
        answers++;
    is_int(answers, 40, "each has a reply, of success or that too many wait");
    client_close(&client);
    rig_free(&rig);
}

static void closing_answers_open_requests(void)
{
    rig_t *rig = rig_listening(endpoint());
    client_t client = client_open(ZMQ_REQ, endpoint());
    rig_begin(rig);
    like(said(&client, "{\"command\": \"pause\"}"), "\"ok\": ?true", "a run is paused");
    static const char list[] = "{\"command\": \"list\"}";
    zmq_send(client.socket, list, sizeof list - 1, 0);
    rig_free(&rig);
    is_int(pl_flight_count(), 0, "the engine is freed with a client and the run");
    ok(*received(&client), "a request that came before that has an answer: %s",
       client.reply);
    client_close(&client);
}

int main(void)
{
    rig_init(NULL);
    run(a_client_commands_a_run);
    run(the_socket_file_is_private_to_its_user);
    run(clients_of_other_machines_are_refused);
    run(wrong_requests_get_an_error);
    run(malformed_messages_are_dropped_or_refused);
    run(a_long_request_is_refused_with_the_reason);
    run(a_large_request_costs_its_client_the_connection);
    run(many_requests_at_once_are_all_answered);
    run(closing_answers_open_requests);
    return tap_done();
}
