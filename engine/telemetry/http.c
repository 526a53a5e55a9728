/* http.c - what the page's server answers
 *
 * One table says which path takes which method, with the token or without.  Every answer
 * has the same headers: nothing is kept by caches, guessed by browsers, framed, or loaded
 * from elsewhere. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "config.h"
#include "telemetry/dashboard_parts.h"

static const char TEXT[] = "text/plain; charset=utf-8";

static const struct {
    int status;
    const char *reason;
} reasons[] = {{200, "OK"},
               {303, "See Other"},
               {400, "Bad Request"},
               {401, "Unauthorized"},
               {403, "Forbidden"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {409, "Conflict"},
               {413, "Content Too Large"},
               {421, "Misdirected Request"},
               {500, "Internal Server Error"},
               {503, "Service Unavailable"}};

static const char *reason_of(int status)
{
    for (size_t k = 0; k < sizeof reasons / sizeof *reasons; k++)
        if (reasons[k].status == status)
            return reasons[k].reason;
    return "";
}

/* ---- answers ---- */

static const char *const all[][2] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
     "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"}};

void http_head(struct evhttp_request *request, const char *type)
{
    struct evkeyvalq *out = evhttp_request_get_output_headers(request);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        evhttp_add_header(out, all[k][0], all[k][1]);
    evhttp_add_header(out, "Connection", "close");
    evhttp_add_header(out, "Content-Type", type);
}

/* What is no HTTP, or too long for it, evhttp answers by itself, and takes no headers for
 * that.  But it writes line by line, so ours can go in behind the first. */
void http_add_to_error(pl_dashboard_t *d, struct evbuffer *out, size_t added)
{
    char line[64];
    struct evbuffer_ptr at;
    if (added >= sizeof line
        || evbuffer_ptr_set(out, &at, evbuffer_get_length(out) - added, EVBUFFER_PTR_SET)
               != 0)
        return;
    evbuffer_copyout_from(out, &at, line, added);
    line[added] = '\0';
    const char *status = strchr(line, ' '), *end = strstr(line, "\r\n");
    if (strncmp(line, "HTTP/", 5) || !status || (status[1] != '4' && status[1] != '5')
        || !end || end[2])
        return;
    d->answered[status[1] - '0']++;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        evbuffer_add_printf(out, "%s: %s\r\n", all[k][0], all[k][1]);
}

void http_answer(pl_dashboard_t *d, struct evhttp_request *request, int status,
                 const char *type, struct evbuffer *body)
{
    const bool has_body = evhttp_request_get_command(request) != EVHTTP_REQ_HEAD;
    d->answered[status / 100]++;
    connection_extend(d, request, ANSWER_SECONDS);
    http_head(request, type);
    evhttp_send_reply(request, status, reason_of(status), has_body ? body : NULL);
    if (body)
        evbuffer_free(body);
}

static void answer_text(pl_dashboard_t *d, struct evhttp_request *request, int status,
                        const char *type, const char *text)
{
    struct evbuffer *body = evbuffer_new();
    if (body)
        evbuffer_add(body, text, strlen(text));
    http_answer(d, request, status, type, body);
}

void http_refuse(pl_dashboard_t *d, struct evhttp_request *request, int status,
                 const char *why)
{
    struct evbuffer *body = evbuffer_new();
    if (body)
        evbuffer_add_printf(body, "%s\n", why);
    http_answer(d, request, status, TEXT, body);
}

/* Of a connection that its other side has closed, evhttp has taken the request off and
 * thinks no more of it; with one that it closes itself it frees it. */
void http_forget(struct evhttp_request *request)
{
    if (!evhttp_request_get_connection(request))
        evhttp_request_free(request);
}

/* ---- health ---- */

static bool beats(const int64_t *pulse)
{
    return pl_now() - __atomic_load_n(pulse, __ATOMIC_RELAXED)
           < PULSE_SECONDS * PL_SECOND;
}

static bool is_stuck(const pl_dashboard_t *d)
{
    return __atomic_load_n(&d->runtime->stuck, __ATOMIC_RELAXED) > 0;
}

static void serve_healthz(pl_dashboard_t *d, struct evhttp_request *request)
{
    const bool control = beats(&d->control_pulse), hub = beats(&d->hub_pulse);
    const bool stuck = is_stuck(d);
    char text[160];
    snprintf(text, sizeof text, "%s\ncontrol thread: %s\nhub: %s\nthreads of ranks: %s\n",
             control && hub && !stuck ? "ok" : "failed", control ? "ok" : "silent",
             hub ? "ok" : "silent", stuck ? "one is stuck" : "ok");
    answer_text(d, request, control && hub && !stuck ? 200 : 503, TEXT, text);
}

/* A trainer refuses to begin anything beside a thread that is stuck. */
static void serve_readyz(pl_dashboard_t *d, struct evhttp_request *request)
{
    const bool closing = __atomic_load_n(&d->is_closing, __ATOMIC_ACQUIRE);
    const bool stuck = is_stuck(d);
    const bool ready = !closing && !stuck && beats(&d->control_pulse);
    char text[80];
    snprintf(text, sizeof text, "%s\n%s: %d\n", ready ? "ok" : "not ready",
             closing ? "closing, runs"
             : stuck ? "stuck, runs"
                     : "runs",
             pl_run_view_living(d->view));
    answer_text(d, request, ready ? 200 : 503, TEXT, text);
}

/* ---- metrics ---- */

static void serve_metrics(pl_dashboard_t *d, struct evhttp_request *request)
{
    char *text = pl_run_view_metrics(d->view);
    struct evbuffer *body = text ? evbuffer_new() : NULL;
    if (!body) {
        pl_text_free(text);
        http_refuse(d, request, 503, "out of memory");
        return;
    }
    evbuffer_add(body, text, strlen(text));
    evbuffer_add_printf(body,
                        "# HELP paceline_http_connections Connections to this server.\n"
                        "# TYPE paceline_http_connections gauge\n"
                        "paceline_http_connections %d\n"
                        "# HELP paceline_http_answers_total Answers of this server.\n"
                        "# TYPE paceline_http_answers_total counter\n",
                        d->connection_count);
    for (int k = 2; k <= 5; k++)
        evbuffer_add_printf(body, "paceline_http_answers_total{code=\"%dxx\"} %llu\n", k,
                            (unsigned long long)d->answered[k]);
    evbuffer_add_printf(body,
                        "# HELP paceline_build_info Always 1; the label is the version.\n"
                        "# TYPE paceline_build_info gauge\n"
                        "paceline_build_info{version=\"%s\"} 1\n",
                        PACKAGE_VERSION);
    pl_text_free(text);
    http_answer(d, request, 200, "text/plain; version=0.0.4; charset=utf-8", body);
}

static void serve_state(pl_dashboard_t *d, struct evhttp_request *request)
{
    char *text = pl_run_view_state(d->view);
    if (text)
        answer_text(d, request, 200, "application/json", text);
    else
        http_refuse(d, request, 503, "out of memory");
    pl_text_free(text);
}

/* ---- the page ---- */

static void serve_file(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const page_file_t *file = page_file(path);
    struct evbuffer *body = evbuffer_new();
    if (body)
        evbuffer_add_reference(body, file->bytes, file->size, NULL, NULL);
    http_answer(d, request, 200, file->type, body);
}

static void serve_page(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
    if (!guard_login(d, request, query) && guard_token(d, request))
        serve_file(d, request);
}

/* Where it is installed, which may be later than Paceline. */
static struct evbuffer *dygraphs_read(void)
{
    struct stat file;
    const int fd = open(PL_DYGRAPHS_JS, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct evbuffer *body = fd >= 0 ? evbuffer_new() : NULL;
    if (body && fstat(fd, &file) == 0 && S_ISREG(file.st_mode)
        && evbuffer_add_file(body, fd, 0, file.st_size) == 0)
        return body;                                       /* the descriptor is its own */
    if (body)
        evbuffer_free(body);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void serve_dygraphs(pl_dashboard_t *d, struct evhttp_request *request)
{
    struct evbuffer *body = dygraphs_read();
    if (body)
        http_answer(d, request, 200, "text/javascript; charset=utf-8", body);
    else
        http_refuse(
            d, request, 404,
            "dygraphs is not at " PL_DYGRAPHS_JS
            ": apt-get install libjs-dygraphs, or configure --with-dygraphs=FILE");
}

/* ---- which is which ---- */

static void refuse_method(pl_dashboard_t *d, struct evhttp_request *request,
                          enum evhttp_cmd_type takes)
{
    evhttp_add_header(evhttp_request_get_output_headers(request), "Allow",
                      takes == EVHTTP_REQ_GET ? "GET, HEAD" : "POST");
    http_refuse(d, request, 405, "This path does not accept that method.");
}

typedef struct route {
    const char *path;
    enum evhttp_cmd_type method;
    bool is_open;                         /* to who has no token, or asks for it itself */
    void (*serve)(pl_dashboard_t *d, struct evhttp_request *request);
} route_t;

static const route_t routes[] = {
    {"/", EVHTTP_REQ_GET, true, serve_page},
    {"/command", EVHTTP_REQ_POST, false, command_begin},
    {"/dygraph.js", EVHTTP_REQ_GET, false, serve_dygraphs},
    {"/events", EVHTTP_REQ_GET, false, live_begin},
    {"/healthz", EVHTTP_REQ_GET, true, serve_healthz},
    {"/icon.svg", EVHTTP_REQ_GET, true, serve_file},
    {"/metrics", EVHTTP_REQ_GET, false, serve_metrics},
    {"/page.css", EVHTTP_REQ_GET, false, serve_file},
    {"/page.js", EVHTTP_REQ_GET, false, serve_file},
    {"/readyz", EVHTTP_REQ_GET, true, serve_readyz},
    {"/state", EVHTTP_REQ_GET, false, serve_state},
};

static const route_t *route_of(struct evhttp_request *request)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    for (size_t k = 0; path && k < sizeof routes / sizeof *routes; k++)
        if (!strcmp(path, routes[k].path))
            return &routes[k];
    return NULL;
}

void http_request(struct evhttp_request *request, void *dashboard)
{
    pl_dashboard_t *d = dashboard;
    const route_t *route = route_of(request);
    const enum evhttp_cmd_type method = evhttp_request_get_command(request);
    if (!guard_host(d, request))
        return;
    if (!route)
        http_refuse(d, request, 404, "This server has no such path.");
    else if (method != route->method
             && !(method == EVHTTP_REQ_HEAD && route->method == EVHTTP_REQ_GET))
        refuse_method(d, request, route->method);
    else if (evbuffer_get_length(evhttp_request_get_input_buffer(request)) > BODY_MAX)
        http_refuse(d, request, 413, "The body of a request has at most 4096 bytes.");
    else if (route->is_open || guard_token(d, request))
        route->serve(d, request);
}
