/* output.c - results on standard output, everything else on standard error */
#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 40, WIDEST = 100 };                      /* columns of running text */
enum { FACT_COLUMN = 17 };                                  /* where texts begin */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* of standard error */
static char live[1024];                                   /* the line at the bottom; under
                                                             lock */
static bool can_redraw, has_colour, has_utf8;
static bool is_silent;                                      /* rank 0 writes results */
static int write_error;                                     /* errno of standard output */
static const char own_name[] = "paceline: ";

/* ---- standard error ---- */

static void erase_live(void)
{
    if (live[0])
        fputs("\r\033[K", stderr);
}

static void draw_live(void)
{
    if (live[0])
        fprintf(stderr, "\r%s\033[K", live);
    fflush(stderr);
}

static void say(const char *before, const char *format, va_list args)
{
    pthread_mutex_lock(&lock);
    erase_live();
    fputs(before, stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    draw_live();
    pthread_mutex_unlock(&lock);
}

/* What was printed before a line of standard error comes before it, also in a pipe. */
void cli_error(const char *format, ...)
{
    va_list args;
    cli_flush();
    va_start(args, format);
    say(own_name, format, args);
    va_end(args);
}

bool cli_is_error(const char *line)
{
    return !strncmp(line, own_name, strlen(own_name));
}

void cli_note(const char *format, ...)
{
    va_list args;
    cli_flush();
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

void cli_live_line(const char *text)
{
    pthread_mutex_lock(&lock);
    if (!text[0])
        erase_live();
    snprintf(live, sizeof live, "%s", text);
    draw_live();
    pthread_mutex_unlock(&lock);
}

bool cli_has_live_line(void)
{
    return can_redraw;
}

/* A line of the log, from any thread: it does not wait for the reader of standard
 * output. */
PL_PRINTF(1, 2)
static void say_log(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

static void show_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    (void)user;
    const bool is_output = !strcmp(actor, "stderr");        /* of the rank's process */
    char origin[24] = "";
    if (rank > 0 || is_output)
        snprintf(origin, sizeof origin, "rank %d: ", rank);
    if (is_output)
        say_log("%s%s", origin, text);
    else
        say_log("%s%s%s%s%s", origin,
                level == PL_LOG_WARNING ? "warning: "
                : level == PL_LOG_ERROR ? "error: "
                                        : "",
                actor, *actor ? ": " : "", text);
}

/* ---- standard output ---- */

static void check_write(bool failed)
{
    if (failed && !write_error)
        write_error = errno ? errno : EIO;
}

void cli_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!write_error && !is_silent)
        check_write(vprintf(format, args) < 0);
    va_end(args);
}

void cli_flush(void)
{
    if (!write_error)
        check_write(fflush(stdout) != 0);
}

/* Writes a number with the fewest digits that read back as the same number. */
static bool write_real(FILE *to, const json_t *real)
{
    for (size_t digits = 15; digits <= 17; digits++) {
        char *text = json_dumps(real, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *parsed = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        bool same = json_equal(parsed, real);
        if (same)
            fputs(text, to);
        json_decref(parsed);
        free(text);
        if (same)
            return true;
    }
    return false;
}

bool cli_write_json(FILE *to, const json_t *value)
{
    const char *name, *between = "{";
    json_t *member;
    size_t k;
    bool written = true;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)value, name, member) {
            json_t *key = json_string(name);
            fputs(between, to);
            written = written && json_dumpf(key, to, JSON_ENCODE_ANY) == 0
                      && fputc(':', to) == ':' && cli_write_json(to, member);
            json_decref(key);
            between = ",";
        }
        return fputs(*between == '{' ? "{}" : "}", to) >= 0 && written;
    case JSON_ARRAY:
        written = fputc('[', to) == '[';
        json_array_foreach(value, k, member) {
            fputs(k ? "," : "", to);
            written = written && cli_write_json(to, member);
        }
        return fputc(']', to) == ']' && written;
    case JSON_REAL: return write_real(to, value);
    default: return json_dumpf(value, to, JSON_ENCODE_ANY) == 0;
    }
}

/* json_dumps() writes all numbers of a text with the same number of digits: a number
 * would look as its neighbours need. */
void cli_print_json(json_t *object)
{
    char *text = NULL;
    size_t size;
    FILE *to = object ? open_memstream(&text, &size) : NULL;
    bool written = to && cli_write_json(to, object);
    if (to && fclose(to) != 0)
        written = false;
    if (written)
        cli_print("%s\n", text);
    else
        cli_error("out of memory: a line of JSON is missing");
    cli_flush();
    free(text);
    json_decref(object);
}

bool cli_output_gone(void)
{
    return write_error != 0;
}

/* A reader that has closed the pipe (paceline list | head) is no failure. */
int cli_output_end(int status)
{
    cli_live_line("");
    if (!write_error)
        check_write(fflush(stdout) != 0 || ferror(stdout));
    if (!write_error || write_error == EPIPE)
        return status;
    cli_error("cannot write to standard output: %s", strerror(write_error));
    return status == CLI_DONE ? CLI_FAILED : status;
}

/* ---- the terminal ---- */

int cli_columns(FILE *stream)
{
    struct winsize size;
    if (!isatty(fileno(stream)))
        return 0;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *columns = getenv("COLUMNS");
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

bool cli_has_colour(void)
{
    return has_colour;
}

bool cli_has_utf8(void)
{
    return has_utf8;
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void cli_output_begin(void)
{
    const char *term = environment("TERM");
    const char *locale = environment("LC_ALL");
    if (!locale)
        locale = environment("LC_CTYPE");
    if (!locale)
        locale = environment("LANG");
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);       /* so that no other line gets into one */
    can_redraw = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
    has_colour = can_redraw && !environment("NO_COLOR");
    is_silent = pl_rank() > 0;
    has_utf8 = locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
    pl_log_hook(show_log, PL_LOG_WARNING, NULL);
}

void cli_show_information(void)
{
    pl_log_hook(show_log, PL_LOG_INFO, NULL);
}

/* ---- words ---- */

int cli_width(void)
{
    int columns = cli_columns(stdout);
    if (columns == 0)
        return 80;
    return columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

void cli_wrap(const char *text, int at, int indent)
{
    int capacity = cli_width() - 1;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > indent && at + 1 + length > capacity) {
            cli_print("\n");
            at = 0;
        }
        if (at < indent) {
            cli_print("%*s", indent - at, "");
            at = indent;
        } else if (at > indent) {
            cli_print(" ");
            at++;
        }
        cli_print("%.*s", length, text);
        at += length;
        text += length + (text[length] == ' ');
    }
    cli_print("\n");
}

void cli_print_fact(const char *name, const char *text, int indent)
{
    const int column = indent + FACT_COLUMN;
    const bool is_short = (int)strlen(name) < FACT_COLUMN;
    cli_print("%*s%-*s", indent, "", is_short ? FACT_COLUMN : 0, name);
    if (!is_short)
        cli_print(" ");
    if (cli_columns(stdout))
        cli_wrap(text, is_short ? column : indent + (int)strlen(name) + 1, column);
    else
        cli_print("%s\n", text);
}

size_t cli_bytes_of(const char *text, int columns)
{
    size_t at = 0;
    for (; text[at] && columns >= 0; at++)
        if (((unsigned char)text[at] & 0xC0) != 0x80 && columns-- == 0)
            break;
    return at;
}

const char *cli_number(double value, int decimals, char text[24])
{
    if (!isfinite(value))
        snprintf(text, 24, "not finite");
    else if (fabs(value) > 1e6)
        snprintf(text, 24, "%.4g", value);
    else if (value != 0 && fabs(value) < pow(10, 1 - decimals))
        snprintf(text, 24, "%.1e", value);                  /* 0.0000 would say nothing */
    else
        snprintf(text, 24, "%.*f", decimals, value);
    return text;
}

const char *cli_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

const char *cli_bytes(double bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, 24, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

const char *cli_clock(double seconds, char text[24])
{
    long long s = seconds < 0       ? 0
                  : seconds > 3.6e8 ? 360000000
                                    : (long long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, 24, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 24, "%lld:%02lld", s / 60, s % 60);
    return text;
}

/* Libtool runs BUILD/.libs/paceline for BUILD/paceline. */
const char *cli_program(void)
{
    static char name[PATH_MAX + 16];
    char path[PATH_MAX], here[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    char *folder = strstr(path, "/.libs/");
    if (!folder)
        return "paceline";
    *folder = '\0';
    size_t at = getcwd(here, sizeof here) ? strlen(here) : 0;
    bool below = at > 0 && !strncmp(path, here, at) && (path[at] == '/' || !path[at]);
    snprintf(name, sizeof name, "%s%s/paceline", below ? "." : "",
             below ? path + at : path);
    return name;
}
