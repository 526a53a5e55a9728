/* access.c - which requests the page's server accepts
 *
 * Another page in the same browser can send requests to it too.  Such a page cannot read
 * the answers or send the cookie (SameSite).  It cannot have the same host name, unless
 * its name was made to point here (Host is checked).  It cannot set its own headers
 * without a preflight request, which is always refused (a command needs such a header).
 *
 * The token is new for each run and is not stored.  A client that was configured once,
 * such as Prometheus, needs a token that stays: in a file that only its owner can read.
 * The token is never on a command line or in the environment. */
#include <errno.h>
#include <event2/keyvalq_struct.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "telemetry/dashboard_parts.h"

enum { RANDOM_BYTES = 16, TOKEN_MIN = 16 };

/* ---- the token ---- */

static int token_draw(char token[static PL_TOKEN_TEXT], pl_error_t *err)
{
    unsigned char bytes[RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return pl_fail(err, PL_EIO, "no random numbers: %s", strerror(errno));
    for (int k = 0; k < RANDOM_BYTES; k++)
        sprintf(token + 2 * k, "%02x", bytes[k]);
    return PL_OK;
}

/* An existing file. */
static int token_load(int fd, const char *path, char token[static PL_TOKEN_TEXT],
                      pl_error_t *err)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~";           /* without escape in a URL */
    char text[PL_TOKEN_TEXT + 1] = "";
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return pl_fail(err, PL_EINVAL, "dashboard token %s: it is not a regular file",
                       path);
    if ((file.st_uid != geteuid() && file.st_uid != 0) || file.st_mode & 077)
        return pl_fail(
            err, PL_EINVAL,
            "dashboard token %s: the file belongs to another user, or others may read "
            "or write it: set mode 600, and replace the token if others could read it",
            path);
    const ssize_t size = read(fd, text, sizeof text - 1);
    if (size < 0)
        return pl_fail(err, PL_EIO, "dashboard token %s: %s", path, strerror(errno));
    text[strcspn(text, "\r\n")] = '\0';
    const size_t length = strlen(text);
    if (length < TOKEN_MIN || length >= PL_TOKEN_TEXT || strspn(text, plain) != length)
        return pl_fail(
            err, PL_EFORMAT,
            "dashboard token %s: the file must hold one line of %d to %d letters, "
            "digits and -._~",
            path, TOKEN_MIN, PL_TOKEN_TEXT - 1);
    memcpy(token, text, PL_TOKEN_TEXT);
    return PL_OK;
}

/* Makes the file as a whole or not at all: of two processes that make it at once, one
 * finds the other's. */
static int token_make(const char *path, pl_error_t *err)
{
    char drawn[PL_TOKEN_TEXT + 1];
    char *fresh = pl_text("%s.XXXXXX", path);
    if (!fresh)
        return pl_no_memory(err);
    if (token_draw(drawn, err) != PL_OK) {
        pl_text_free(fresh);
        return PL_EIO;
    }
    strcat(drawn, "\n");
    const size_t length = strlen(drawn);
    const int fd = mkostemp(fresh, O_CLOEXEC);
    bool is_kept = fd >= 0 && write(fd, drawn, length) == (ssize_t)length;
    if (fd >= 0)
        is_kept = close(fd) == 0 && is_kept;
    is_kept = is_kept && (link(fresh, path) == 0 || errno == EEXIST);
    const int failed = errno;
    if (fd >= 0)
        unlink(fresh);
    pl_text_free(fresh);
    return is_kept ? PL_OK
                   : pl_fail(err, PL_EIO, "cannot make dashboard token %s: %s", path,
                             strerror(failed));
}

int token_open(char token[static PL_TOKEN_TEXT], pl_error_t *err)
{
    const char *path = getenv("PACELINE_DASHBOARD_TOKEN_FILE");
    if (!path || !*path)
        return token_draw(token, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        const int code = token_make(path, err);
        if (code != PL_OK)
            return code;
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    if (fd < 0)
        return pl_fail(err, PL_EIO, "dashboard token %s: %s", path, strerror(errno));
    const int code = token_load(fd, path, token, err);
    close(fd);
    return code;
}

/* Takes as long for a wrong token as for the right one. */
static bool token_is(const char *token, const char *given, size_t length)
{
    volatile unsigned char differs = 0;
    if (length != strlen(token))
        return false;
    for (size_t k = 0; k < length; k++)
        differs |= (unsigned char)(token[k] ^ given[k]);
    return !differs;
}

/* ---- requests ---- */

static const char *header(struct evhttp_request *request, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(request), name);
}

/* The header Host: "127.0.0.1:8080", "localhost", "[::1]:80".  A tunnel may change the
 * port. */
bool guard_host(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *host = header(request, "Host") ? header(request, "Host") : "";
    const char *end = *host == '[' ? strchr(host, ']') : NULL;
    const size_t length = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    const char *rest = host + length;
    const bool has_port = *rest == ':'
                          && strspn(rest + 1, "0123456789") == strlen(rest + 1);
    unsigned a, b, c, e;
    int used = 0;
    const bool is_name = (length == 9 && !strncasecmp(host, "localhost", 9))
                         || (length == 5 && !strncmp(host, "[::1]", 5)),
               is_number = sscanf(host, "%3u.%3u.%3u.%3u%n", &a, &b, &c, &e, &used) == 4
                           && (size_t)used == length && a == 127 && b < 256 && c < 256
                           && e < 256;
    if ((!*rest || has_port) && (is_name || is_number))
        return true;
    http_refuse(
        d, request, 421,
        "The header Host must name this machine: 127.0.0.1, localhost or [::1]. A "
        "reverse proxy must set it.");
    return false;
}

bool guard_token(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *bearer = header(request, "Authorization"),
               *cookies = header(request, "Cookie");
    const size_t size = strlen(d->cookie);
    bool is_right = false;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) {
        is_right = token_is(d->token, bearer + 7, strlen(bearer + 7));
        cookies = NULL;
    }
    for (; cookies; cookies = strchr(cookies, ';')) {
        cookies += strspn(cookies, "; ");
        if (strncmp(cookies, d->cookie, size) != 0 || cookies[size] != '=')
            continue;
        const char *value = cookies + size + 1;
        is_right = token_is(d->token, value, strcspn(value, ";"));
        break;
    }
    if (is_right)
        return true;
    evhttp_add_header(evhttp_request_get_output_headers(request), "WWW-Authenticate",
                      "Bearer realm=\"paceline\"");
    http_refuse(d, request, 401,
                "Open the address with the token that the program prints, or send "
                "Authorization: Bearer TOKEN.");
    return false;
}

bool guard_login(pl_dashboard_t *d, struct evhttp_request *request, const char *query)
{
    struct evkeyvalq parts = {0}, *out = evhttp_request_get_output_headers(request);
    char cookie[PL_TOKEN_TEXT + 96];
    const char *given = query && evhttp_parse_query_str(query, &parts) == 0
                            ? evhttp_find_header(&parts, "token")
                            : NULL;
    if (given && !token_is(d->token, given, strlen(given))) {
        http_refuse(d, request, 401, "This is not the token of this run.");
    } else if (given) {
        snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict",
                 d->cookie, d->token);
        evhttp_add_header(out, "Set-Cookie", cookie);
        evhttp_add_header(out, "Location", "./");
        http_answer(d, request, 303, "text/plain; charset=utf-8", NULL);
    }
    evhttp_clear_headers(&parts);
    return given != NULL;
}

bool guard_post(pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *site = header(request, "Sec-Fetch-Site"),
               *origin = header(request, "Origin"), *host = header(request, "Host");
    const char *at = origin ? strstr(origin, "://") : NULL;  /* "http://HOST" */
    const bool is_ours = site     ? !strcmp(site, "same-origin")
                         : origin ? at && host && !strcasecmp(at + 3, host)
                                  : true;
    if (is_ours && header(request, "X-Paceline"))
        return true;
    http_refuse(d, request, 403,
                "Commands must come from this page, or have a header X-Paceline: 1.");
    return false;
}
