/* http.c - the paths of the page's server and their answers
 *
 * One table has each path, its method, and whether it needs the token.  Every answer has
 * the same headers: caches store nothing, browsers guess nothing, no other page frames
 * it, and it loads nothing from other servers.  The files of the page are compiled in: a
 * program that embeds Paceline needs no files at run time. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "config.h"
#include "engine/telemetry/page.inc"
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

/* evhttp itself answers a request that is malformed or too long, without our headers.  It
 * writes line by line, so ours are added after the first line. */
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
    const char *reason = "";
    for (size_t k = 0; k < sizeof reasons / sizeof *reasons; k++)
        if (reasons[k].status == status)
            reason = reasons[k].reason;
    d->answered[status / 100]++;
    connection_extend(d, request, ANSWER_SECONDS);
    http_head(request, type);
    evhttp_send_reply(request, status, reason, has_body ? body : NULL);
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

/* When the other side closes the connection, evhttp detaches the request and does not
 * free it; when evhttp closes the connection, it does. */
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

static void serve_healthz(pl_dashboard_t *d, struct evhttp_request *request)
{
    const bool control = beats(&d->control_pulse), hub = beats(&d->hub_pulse);
    const bool stuck = __atomic_load_n(&d->runtime->stuck, __ATOMIC_RELAXED) > 0;
    char text[160];
    snprintf(text, sizeof text, "%s\ncontrol thread: %s\nhub: %s\nthreads of ranks: %s\n",
             control && hub && !stuck ? "ok" : "failed", control ? "ok" : "silent",
             hub ? "ok" : "silent", stuck ? "one is stuck" : "ok");
    answer_text(d, request, control && hub && !stuck ? 200 : 503, TEXT, text);
}

/* While a thread is stuck, trainers start no runs. */
static void serve_readyz(pl_dashboard_t *d, struct evhttp_request *request)
{
    const bool closing = __atomic_load_n(&d->is_closing, __ATOMIC_ACQUIRE);
    const bool stuck = __atomic_load_n(&d->runtime->stuck, __ATOMIC_RELAXED) > 0;
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
    static const struct {
        const char *path, *type;
        const unsigned char *bytes;
        size_t size;
    } files[] = {
        {"/", "text/html; charset=utf-8", index_html, sizeof index_html},
        {"/drawings.js", "text/javascript; charset=utf-8", drawings_js,
         sizeof drawings_js},
        {"/icon.svg", "image/svg+xml", icon_svg, sizeof icon_svg},
        {"/page.css", "text/css; charset=utf-8", page_css, sizeof page_css},
        {"/page.js", "text/javascript; charset=utf-8", page_js, sizeof page_js},
    };
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    struct evbuffer *body = evbuffer_new();
    size_t k = 0;
    while (strcmp(path, files[k].path) != 0)                /* a route names it */
        k++;
    if (body)
        evbuffer_add_reference(body, files[k].bytes, files[k].size, NULL, NULL);
    http_answer(d, request, 200, files[k].type, body);
}

static void serve_page(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
    if (!guard_login(d, request, query) && guard_token(d, request))
        serve_file(d, request);
}

/* dygraphs may be installed after Paceline. */
static void serve_dygraphs(pl_dashboard_t *d, struct evhttp_request *request)
{
    struct stat file;
    const int fd = open(PL_DYGRAPHS_JS, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct evbuffer *body = fd >= 0 ? evbuffer_new() : NULL;
    if (body && fstat(fd, &file) == 0 && S_ISREG(file.st_mode)
        && evbuffer_add_file(body, fd, 0, file.st_size) == 0) {  /* which closes fd */
        http_answer(d, request, 200, "text/javascript; charset=utf-8", body);
        return;
    }
    if (body)
        evbuffer_free(body);
    if (fd >= 0)
        close(fd);
    http_refuse(d, request, 404,
                "dygraphs is not at " PL_DYGRAPHS_JS
                ": apt-get install libjs-dygraphs, or configure --with-dygraphs=FILE");
}

/* ---- routes ---- */

typedef struct route {
    const char *path;
    enum evhttp_cmd_type method;
    bool is_open;                             /* without the token, or checks it itself */
    void (*serve)(pl_dashboard_t *d, struct evhttp_request *request);
} route_t;

static const route_t routes[] = {
    {"/", EVHTTP_REQ_GET, true, serve_page},
    {"/command", EVHTTP_REQ_POST, false, command_begin},
    {"/dygraph.js", EVHTTP_REQ_GET, false, serve_dygraphs},
    {"/events", EVHTTP_REQ_GET, false, live_begin},
    {"/drawings.js", EVHTTP_REQ_GET, false, serve_file},
    {"/healthz", EVHTTP_REQ_GET, true, serve_healthz},
    {"/icon.svg", EVHTTP_REQ_GET, true, serve_file},
    {"/metrics", EVHTTP_REQ_GET, false, serve_metrics},
    {"/page.css", EVHTTP_REQ_GET, false, serve_file},
    {"/page.js", EVHTTP_REQ_GET, false, serve_file},
    {"/readyz", EVHTTP_REQ_GET, true, serve_readyz},
    {"/state", EVHTTP_REQ_GET, false, serve_state},
};

void http_request(struct evhttp_request *request, void *dashboard)
{
    pl_dashboard_t *d = dashboard;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    const enum evhttp_cmd_type method = evhttp_request_get_command(request);
    const route_t *route = NULL;
    if (!guard_host(d, request))
        return;
    for (size_t k = 0; path && k < sizeof routes / sizeof *routes; k++)
        if (!strcmp(path, routes[k].path))
            route = &routes[k];
    if (!route) {
        http_refuse(d, request, 404, "This server has no such path.");
    } else if (method != route->method
               && !(method == EVHTTP_REQ_HEAD && route->method == EVHTTP_REQ_GET)) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Allow",
                          route->method == EVHTTP_REQ_GET ? "GET, HEAD" : "POST");
        http_refuse(d, request, 405, "This path does not accept that method.");
    } else if (evbuffer_get_length(evhttp_request_get_input_buffer(request)) > BODY_MAX) {
        http_refuse(d, request, 413, "The body of a request has at most 4096 bytes.");
    } else if (route->is_open || guard_token(d, request)) {
        route->serve(d, request);
    }
}
