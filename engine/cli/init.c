/* init.c - paceline init: a run file for data, with the reason of each decision
 *
 * The library proposes the run; here it becomes a file whose comments are the reasons.
 * `paceline fit DATA` writes the same file and trains as it says. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

/* ---- the text of the run file ---- */

/* A comment of one or several lines for each reason of a key. */
static void write_reasons(FILE *to, const json_t *reasons, const char *key)
{
    size_t k;
    json_t *reason;
    json_array_foreach(reasons, k, reason) {
        const char *word = json_string_value(json_object_get(reason, "text"));
        size_t column = 0;
        if (strcmp(json_string_value(json_object_get(reason, "key")), key) != 0)
            continue;
        for (size_t length; *word; word += length + (word[length] == ' ')) {
            length = strcspn(word, " ");
            if (column == 0 || column + length > 90)
                column = (size_t)fprintf(to, "%s    //", column ? "\n" : "");
            column += (size_t)fprintf(to, " %.*s", (int)length, word);
        }
        fputc('\n', to);
    }
}

/* {"run": …, "reasons": …} as a run file; to be freed by free()  [NULL: no memory]. */
static char *run_text(const json_t *proposal, const char *data)
{
    const json_t *reasons = json_object_get(proposal, "reasons");
    char *text = NULL;
    size_t size, written = 0;
    const char *section, *key;
    json_t *values, *value;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    fprintf(to, "// A proposal of paceline init for %s. Change what you like.\n{", data);
    json_object_foreach(json_object_get(proposal, "run"), section, values) {
        fprintf(to, "%s\n  \"%s\": ", written++ ? "," : "", section);
        if (!json_is_object(values)) {
            json_dumpf(values, to, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
            continue;
        }
        fputs("{\n", to);
        size_t left = json_object_size(values);
        json_object_foreach(values, key, value) {
            char path[200];
            snprintf(path, sizeof path, "%s.%s", section, key);
            write_reasons(to, reasons, path);
            fprintf(to, "    \"%s\": ", key);
            json_dumpf(value, to, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
            fputs(--left ? ",\n" : "\n", to);
        }
        fputs("  }", to);
    }
    fputs("\n}\n", to);
    const bool failed = ferror(to);
    if (fclose(to) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

/* ---- the file ---- */

#define EXISTS "%s exists: choose another name with --output, or remove it"

char *cli_shell_word(const char *word)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    bool plain = !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789/._-+,=:@%")];
    if (!to)
        return NULL;
    fputs(plain ? word : "'", to);
    for (const char *c = word; !plain && *c; c++)
        fprintf(to, *c == '\'' ? "'\\''" : "%c", *c);
    fputs(plain ? "" : "'", to);
    fclose(to);
    return text;
}

/* The file of "FILE:NAME", where no file has that whole name; otherwise the path. */
static void file_of(const char *path, char file[PATH_MAX])
{
    const char *name = strrchr(path, ':');
    snprintf(file, PATH_MAX, "%.*s",
             name && access(path, F_OK) != 0 ? (int)(name - path) : PATH_MAX - 1, path);
}

char *cli_init_name(const char *path)
{
    char data[PATH_MAX];
    file_of(path, data);
    const char *part = path + strlen(data);
    if (!strcmp(data, ".") || !strcmp(data, "..")) {        /* the name of that folder */
        char place[PATH_MAX];
        snprintf(data, sizeof data, "%s", realpath(path, place) ? place : "data");
    }
    size_t length = strlen(data);
    while (length > 1 && data[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && data[begin - 1] != '/')
        begin--;
    const char *dot = memchr(data + begin + 1, '.',
                             length > begin ? length - begin - 1 : 0);
    const size_t stem = dot ? (size_t)(dot - data) - begin : length - begin;
    char *name = pl_text("%.*s%s%s.json", (int)stem, data + begin, *part ? "-" : "",
                         *part ? part + 1 : "");
    for (char *c = name; c && *c; c++)
        if (*c == '/')
            *c = '-';
    return name;
}

/* The first path of a section "data" that leads to the file or folder `data`, or to a
 * file in that folder; otherwise any path, with *is_found false  [NULL: none]. */
static const char *path_in(const json_t *section, const char *data, bool *is_found)
{
    const char *key, *first = NULL;
    const size_t length = strlen(data);
    json_t *value;
    *is_found = false;
    json_object_foreach((json_t *)section, key, value) {
        char file[PATH_MAX], place[PATH_MAX];
        const char *path = json_string_value(value);
        if (json_is_object(value))
            path = path_in(value, data, is_found);
        else if (path && (!strcmp(key, "path") || !strcmp(key, "x"))) {
            file_of(path, file);
            *is_found = realpath(file, place) && !strncmp(place, data, length)
                        && (!place[length] || place[length] == '/');
        } else
            continue;
        first = *is_found || !first ? path : first;
        if (*is_found)
            break;
    }
    return first;
}

int cli_init_check(const char *data, const char *path, char **trains_on, pl_error_t *err)
{
    char file[PATH_MAX], place[PATH_MAX] = "";
    bool is_found = false;
    pl_options_t *options = pl_options_read(path, err);
    char *text = options ? pl_options_get(options, "data") : NULL;
    json_t *section = text ? json_loads(text, 0, NULL) : NULL;
    file_of(data, file);
    const char *read = realpath(file, place) ? path_in(section, place, &is_found) : NULL;
    int code = options ? PL_OK : err->code;
    char *word = cli_shell_word(data);
    if (options && !is_found)
        code = pl_fail(err, PL_EINVAL,
                       "%s exists and trains on %s, not on %s: remove it, or name the "
                       "new run file: paceline init %s --output NAME.json; paceline fit "
                       "NAME.json",
                       path, read ? read : "other data", data, word ? word : data);
    free(word);
    if (code == PL_OK && !(*trains_on = pl_text("%s", read)))
        code = pl_fail(err, PL_ENOMEM, "out of memory");
    json_decref(section);
    pl_text_free(text);
    pl_options_free(options);
    return code;
}

static bool has_ending(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ending);
}

bool cli_is_data(const char *name)
{
    struct stat status;
    char begin[256] = "", path[PATH_MAX];
    file_of(name, path);
    if (stat(path, &status) != 0)
        return false;
    if (S_ISDIR(status.st_mode))
        return true;
    if (!S_ISREG(status.st_mode))
        return false;
    if (has_ending(path, ".jsonl") || has_ending(path, ".ndjson"))
        return true;                              /* which begin as a run file does */
    FILE *file = fopen(path, "re");
    const size_t count = file ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file)
        fclose(file);
    const size_t mark = count >= 3 && !memcmp(begin, "\xEF\xBB\xBF", 3) ? 3 : 0;
    const char *first = begin + mark + strspn(begin + mark, " \t\r\n");
    return *first ? *first != '{' && *first != '/' : !has_ending(path, ".json");
}

int cli_init_write(const char *data, const char *target, const char *path, bool quiet,
                   pl_error_t *err)
{
    if (access(path, F_OK) == 0 && !cli_are_one_file(path, data))
        return pl_fail(err, PL_EINVAL, EXISTS, path);
    char *made = pl_data_propose(data, target, err);
    json_t *proposal = made ? json_loads(made, 0, NULL) : NULL, *reason;
    char *text = proposal ? run_text(proposal, data) : NULL;
    int code = made ? text ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory") : err->code;
    size_t k;
    json_array_foreach(quiet || code ? NULL : json_object_get(proposal, "reasons"), k,
                       reason)
        cli_print("%s\n", json_string_value(json_object_get(reason, "text")));
    if (!code) {
        FILE *file = fopen(path, "wex");
        bool failed = !file || fputs(text, file) < 0;
        failed = (file && fclose(file) != 0) || failed;
        if (failed && errno == EEXIST)
            code = pl_fail(err, PL_EINVAL, EXISTS, path);
        else if (failed)
            code = pl_fail(err, PL_EIO, "cannot write %s: %s", path, strerror(errno));
    }
    pl_text_free(made);
    json_decref(proposal);
    free(text);
    return code;
}

int cli_init(const cli_init_t *arguments)
{
    pl_error_t err = {0};
    char *name = arguments->output ? pl_text("%s", arguments->output)
                                   : cli_init_name(arguments->data);
    int code = name ? cli_init_write(arguments->data, arguments->target, name,
                                     arguments->json, &err)
                    : pl_fail(&err, PL_ENOMEM, "out of memory");
    if (code != PL_OK)
        cli_failure(&err, arguments->json);
    else if (arguments->json)
        cli_print_json(json_pack("{s:s, s:s}", "event", "result", "run", name));
    else {
        char *word = cli_shell_word(name);
        cli_print("written to %s; train with: %s fit %s\n", name, cli_program(),
                  word ? word : name);
        free(word);
    }
    pl_text_free(name);
    return code == PL_OK ? CLI_DONE : CLI_WRONG;
}
