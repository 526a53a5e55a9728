/* http_server.c - a small HTTP server on a loopback port, with given answers */
#include "http_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static http_mood_t mood;
static int listening = -1, stop_pipe[2];
static pthread_t thread;
static char address[64], requests[1 << 18], authorization[256];
static size_t requests_size;

/* Reads a request whole; its text stays in the buffer. */
static bool request_read(int fd, char *text, size_t capacity)
{
    size_t size = 0, wanted = capacity;
    while (size < wanted) {
        struct pollfd ready[] = {{.fd = fd, .events = POLLIN},
                                 {.fd = stop_pipe[0], .events = POLLIN}};
        if (poll(ready, 2, -1) < 0 || ready[1].revents)
            return false;
        ssize_t n = read(fd, text + size, capacity - size - 1);
        if (n <= 0)
            return false;
        size += (size_t)n;
        text[size] = '\0';
        const char *end = strstr(text, "\r\n\r\n"),
                   *length = strcasestr(text, "content-length:");
        if (end)
            wanted = (size_t)(end + 4 - text)
                     + (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
    }
    return true;
}

static void request_keep(const char *text)
{
    const char *body = strstr(text, "\r\n\r\n");
    int line = (int)strcspn(text, "\r"), left = (int)(sizeof requests - requests_size);
    int n = snprintf(requests + requests_size, (size_t)left, "%.*s %s\n", line - 9, text,
                     body ? body + 4 : "");
    requests_size += n < left ? (size_t)n : 0;
    authorization[0] = '\0';
    const char *header = strcasestr(text, "\r\nauthorization: ");
    if (header)
        sscanf(header + 17, "%255[^\r]", authorization);
}

static const char *answer_of(const char *text)
{
    if (strstr(text, "get-by-name"))
        return "HTTP/1.1 404 Not Found\r\n";
    return mood == HTTP_BROKEN ? "HTTP/1.1 500 Internal Server Error\r\n"
                               : "HTTP/1.1 200 OK\r\n";
}

static const char *body_of(const char *text)
{
    if (mood == HTTP_ODD)
        return "<html>";
    if (mood == HTTP_BROKEN || strstr(text, "get-by-name"))
        return "{\"error_code\": \"X\", \"message\": \"the server says why\"}";
    if (strstr(text, "experiments/create"))
        return "{\"experiment_id\": \"7\"}";
    if (strstr(text, "runs/create"))
        return "{\"run\": {\"info\": {\"run_id\": \"abc\"}}}";
    if (strstr(text, "runs/get"))
        return "{\"run\": {\"data\": {\"metrics\": [{\"key\": \"train_loss\", \"value\": "
               "0.5, "
               "\"timestamp\": 1, \"step\": 100}, {\"key\": \"val_loss\", \"value\": "
               "0.25, "
               "\"timestamp\": \"1\", \"step\": \"50\"}]}}}";
    return "{}";
}

static void serve(int fd)
{
    static char text[1 << 17];
    char answer[1024];
    if (!request_read(fd, text, sizeof text))
        return;
    request_keep(text);
    if (mood == HTTP_MUTE) {
        struct pollfd stop = {.fd = stop_pipe[0], .events = POLLIN};
        poll(&stop, 1, -1);
        return;
    }
    const char *body = body_of(text);
    int n = snprintf(answer, sizeof answer,
                     "%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     answer_of(text), strlen(body) + (mood == HTTP_DYING ? 100 : 0),
                     body);
    if (write(fd, answer, (size_t)n) < 0)
        return;
}

static void *serve_all(void *user)
{
    (void)user;
    for (;;) {
        struct pollfd ready[] = {{.fd = listening, .events = POLLIN},
                                 {.fd = stop_pipe[0], .events = POLLIN}};
        if (poll(ready, 2, -1) < 0 || ready[1].revents)
            return NULL;
        int fd = accept(listening, NULL, NULL);
        if (fd >= 0) {
            serve(fd);
            close(fd);
        }
    }
}

const char *http_start(http_mood_t as)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    mood = as;
    requests_size = 0;
    requests[0] = '\0';
    listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listening < 0 || pipe(stop_pipe) != 0
        || bind(listening, (struct sockaddr *)&at, sizeof at) != 0
        || listen(listening, 16) != 0
        || getsockname(listening, (struct sockaddr *)&at, &length) != 0
        || pthread_create(&thread, NULL, serve_all, NULL) != 0)
        abort();
    snprintf(address, sizeof address, "http://127.0.0.1:%d", ntohs(at.sin_port));
    return address;
}

void http_stop(void)
{
    if (write(stop_pipe[1], "x", 1) != 1)
        abort();
    pthread_join(thread, NULL);
    close(listening);
    close(stop_pipe[0]);
    close(stop_pipe[1]);
}

const char *http_requests(void)
{
    return requests;
}

const char *http_authorization(void)
{
    return authorization;
}
