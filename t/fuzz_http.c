/* fuzz_http.c - any text as the query and the headers of a request to the page's server
 *
 * The first line is the query, the others are headers.  Whatever they are, a request
 * without the token is refused, and so is one that names another machine. */
#include <stdint.h>
#include <stdlib.h>

/* Answers are counted, not sent. */
#define http_refuse fuzz_refuse
#define http_answer fuzz_answer
#include "telemetry/access.c"

static const char TOKEN[] = "0123456789abcdef0123456789abcdef";
static int answers;

void http_refuse(pl_dashboard_t *d, struct evhttp_request *request, int status,
                 const char *why)
{
    (void)d, (void)request, (void)why;
    answers += status >= 400;
}

void http_answer(pl_dashboard_t *d, struct evhttp_request *request, int status,
                 const char *type, struct evbuffer *body)
{
    (void)d, (void)request, (void)type, (void)body;
    answers += status == 303;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void headers_add(struct evhttp_request *request, char *text)
{
    for (char *line; (line = strsep(&text, "\n"));) {
        char *colon = strstr(line, ": ");
        if (!colon)
            continue;
        *colon = '\0';
        evhttp_add_header(evhttp_request_get_input_headers(request), line, colon + 2);
    }
}

/* Refuses exactly the requests that it must refuse. */
static void look(bool (*guard)(pl_dashboard_t *, struct evhttp_request *),
                 pl_dashboard_t *d, struct evhttp_request *request, bool may_pass)
{
    answers = 0;
    const bool passes = guard(d, request);
    if (passes != !answers || (passes && !may_pass))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_dashboard_t d = {.cookie = "paceline_8080"};
    char *text = malloc(size + 1), *query = text;
    struct evhttp_request *request = evhttp_request_new(NULL, NULL);
    if (!text || !request)
        abort();
    memcpy(d.token, TOKEN, sizeof TOKEN);
    memcpy(text, data, size);
    text[size] = '\0';
    const bool has_token = strstr(text, TOKEN), has_header = strcasestr(text, "paceline"),
               has_host = strcasestr(text, "localhost") || strstr(text, "127.")
                          || strstr(text, "[::1]");
    query = strsep(&text, "\n");
    headers_add(request, text);
    look(guard_host, &d, request, has_host);
    look(guard_token, &d, request, has_token);
    look(guard_post, &d, request, has_header);
    answers = 0;
    if (guard_login(&d, request, query) != (answers == 1))
        abort();
    evhttp_request_free(request);
    free(query);
    return 0;
}
