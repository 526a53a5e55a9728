/* http_guard.c - who may ask the page's server for what
 *
 * Another page in the same browser can send requests here too.  It cannot read answers
 * nor send the cookie along (SameSite), it cannot be of the same name unless its name was
 * made to point here (Host is checked), and it cannot set headers of its own without
 * being asked first, which is never allowed (what commands needs one). */
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <string.h>

#include "telemetry/dashboard_parts.h"

static const char *header(struct evhttp_request *request, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(request), name);
}

/* ---- Host ---- */

/* "127.0.0.1:8080", "localhost", "[::1]:80": this machine, whatever the port, which a
 * tunnel may have changed. */
static bool is_this_machine(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : NULL;
    const size_t length = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    const char *rest = host + length;
    unsigned a, b, c, d;
    int used = 0;
    if (*rest && (*rest != ':' || strspn(rest + 1, "0123456789") != strlen(rest + 1)))
        return false;
    if (length == 9 && !strncasecmp(host, "localhost", 9))
        return true;
    if (length == 5 && !strncmp(host, "[::1]", 5))
        return true;
    return sscanf(host, "%3u.%3u.%3u.%3u%n", &a, &b, &c, &d, &used) == 4
           && (size_t)used == length && a == 127 && b < 256 && c < 256 && d < 256;
}

bool guard_host(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *host = header(request, "Host");
    if (host && is_this_machine(host))
        return true;
    http_refuse(
        d, request, 421,
        "The header Host must name this machine: 127.0.0.1, localhost or [::1]. A "
        "reverse proxy must set it.");
    return false;
}

/* ---- the token ---- */

/* The value of one of the cookies. */
static const char *cookie_value(const char *cookies, const char *name, size_t *length)
{
    const size_t size = strlen(name);
    while (cookies) {
        cookies += strspn(cookies, "; ");
        if (!strncmp(cookies, name, size) && cookies[size] == '=') {
            *length = strcspn(cookies + size + 1, ";");
            return cookies + size + 1;
        }
        cookies = strchr(cookies, ';');
    }
    return NULL;
}

static bool has_token(const pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *bearer = header(request, "Authorization");
    if (bearer && !strncasecmp(bearer, "Bearer ", 7))
        return pl_token_is(d->token, bearer + 7, strlen(bearer + 7));
    size_t length = 0;
    const char *cookie = cookie_value(header(request, "Cookie"), d->cookie, &length);
    return cookie && pl_token_is(d->token, cookie, length);
}

bool guard_token(pl_dashboard_t *d, struct evhttp_request *request)
{
    if (has_token(d, request))
        return true;
    evhttp_add_header(evhttp_request_get_output_headers(request), "WWW-Authenticate",
                      "Bearer realm=\"paceline\"");
    http_refuse(d, request, 401,
                "Open the address with the token that the program prints, or send "
                "Authorization: Bearer TOKEN.");
    return false;
}

static void log_in(pl_dashboard_t *d, struct evhttp_request *request, const char *given)
{
    char cookie[PL_TOKEN_TEXT + 96];
    if (!pl_token_is(d->token, given, strlen(given))) {
        http_refuse(d, request, 401, "This is not the token of this run.");
        return;
    }
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict", d->cookie,
             d->token);
    struct evkeyvalq *out = evhttp_request_get_output_headers(request);
    evhttp_add_header(out, "Set-Cookie", cookie);
    evhttp_add_header(out, "Location", "./");
    http_answer(d, request, 303, "text/plain; charset=utf-8", NULL);
}

bool guard_login(pl_dashboard_t *d, struct evhttp_request *request, const char *query)
{
    struct evkeyvalq parts = {0};
    const char *given = query && evhttp_parse_query_str(query, &parts) == 0
                            ? evhttp_find_header(&parts, "token")
                            : NULL;
    if (given)
        log_in(d, request, given);
    evhttp_clear_headers(&parts);
    return given != NULL;
}

/* ---- what commands ---- */

/* "http://HOST" of the page that sent it is where it was sent to. */
static bool is_own_origin(const char *origin, const char *host)
{
    const char *at = strstr(origin, "://");
    return at && host && !strcasecmp(at + 3, host);
}

bool guard_post(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *site = header(request, "Sec-Fetch-Site"),
               *origin = header(request, "Origin");
    const bool is_ours = site     ? !strcmp(site, "same-origin")
                         : origin ? is_own_origin(origin, header(request, "Host"))
                                  : true;
    if (is_ours && header(request, "X-Paceline"))
        return true;
    http_refuse(d, request, 403,
                "Commands must come from this page, or have a header X-Paceline: 1.");
    return false;
}
