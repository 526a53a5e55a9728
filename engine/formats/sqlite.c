/* sqlite.c - a table or a query of a SQLite database as a table of texts
 *
 * libsqlite3 is opened when a file needs it, so that neither a build nor other files do;
 * constants and functions below are of its stable interface.  The database is opened for
 * reading alone, schemas are not trusted, extensions cannot be loaded, and no other file
 * can be attached. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/symbols.h"
#include "formats/table.h"

#define SQLITE_FILE "libsqlite3.so.0"

enum {
    OK = 0,
    ROW = 100,
    DONE = 101,
    OPEN_READONLY = 1,
    LIMIT_ATTACHED = 7,
    TYPE_BLOB = 4,
    CONFIG_DEFENSIVE = 1010,
    CONFIG_TRUSTED_SCHEMA = 1017
};

typedef struct library {
    void *handle;
    int (*open)(const char *path, void **db, int flags, const char *vfs);
    int (*close)(void *db);
    int (*config)(void *db, int what, ...);
    int (*limit)(void *db, int what, int value);
    const char *(*message)(void *db);
    int (*prepare)(void *db, const char *sql, int size, void **query, const char **rest);
    int (*read_only)(void *query);
    int (*step)(void *query);
    int (*finalize)(void *query);
    int (*columns)(void *query);
    const char *(*column_name)(void *query, int column);
    const unsigned char *(*text)(void *query, int column);
    int (*bytes)(void *query, int column);
    int (*type)(void *query, int column);
} library_t;

/* A table that is being read.  Offsets into `text`, as it moves while it grows. */
typedef struct sqlite_scan {
    library_t lib;
    void *db;
    const char *name;
    size_t *offset;                                /* of names, then of cells, in order */
    size_t count, offsets;                         /* used, reserved */
    char *text;
    size_t used, reserved, limit;
    pl_error_t *err;
} sqlite_scan_t;

static int library_open(sqlite_scan_t *s)
{
    library_t *lib = &s->lib;
    const pl_symbol_t needed[] = {{"sqlite3_open_v2", &lib->open},
                                  {"sqlite3_close", &lib->close},
                                  {"sqlite3_db_config", &lib->config},
                                  {"sqlite3_limit", &lib->limit},
                                  {"sqlite3_errmsg", &lib->message},
                                  {"sqlite3_prepare_v2", &lib->prepare},
                                  {"sqlite3_stmt_readonly", &lib->read_only},
                                  {"sqlite3_step", &lib->step},
                                  {"sqlite3_finalize", &lib->finalize},
                                  {"sqlite3_column_count", &lib->columns},
                                  {"sqlite3_column_name", &lib->column_name},
                                  {"sqlite3_column_text", &lib->text},
                                  {"sqlite3_column_bytes", &lib->bytes},
                                  {"sqlite3_column_type", &lib->type}};
    lib->handle = pl_symbols_open(SQLITE_FILE, needed, sizeof needed / sizeof *needed);
    return lib->handle ? PL_OK
                       : pl_fail(s->err, PL_ENOTFOUND,
                                 "%s is a SQLite database, and " SQLITE_FILE
                                 " is not installed: apt-get install libsqlite3-0",
                                 s->name);
}

static int sqlite_fail(const sqlite_scan_t *s)
{
    return pl_fail(s->err, PL_EFORMAT, "%s: %s", s->name, s->lib.message(s->db));
}

/* Adds a text of `size` bytes, with a zero byte behind it. */
static int put_text(sqlite_scan_t *s, const char *text, size_t size)
{
    if (s->used + size + 1 > s->limit)
        return pl_fail(s->err, PL_EFORMAT,
                       "%s: the rows have more than %zu bytes, half of this machine's "
                       "memory: choose fewer columns or rows with \"query\"",
                       s->name, s->limit);
    if (s->used + size + 1 > s->reserved) {
        s->reserved = 2 * (s->reserved + size) + 4096;
        char *larger = pl_resize(s->text, s->reserved);
        if (!larger)
            return pl_no_memory(s->err);
        s->text = larger;
    }
    if (s->count == s->offsets) {
        s->offsets = 2 * s->offsets + 64;
        size_t *larger = pl_resize(s->offset, s->offsets * sizeof *larger);
        if (!larger)
            return pl_no_memory(s->err);
        s->offset = larger;
    }
    s->offset[s->count++] = s->used;
    memcpy(s->text + s->used, text, size);
    s->text[s->used + size] = '\0';
    s->used += size + 1;
    return PL_OK;
}

/* Adds names of columns and all rows that a query answers with; *columns_p of each. */
static int read_query(sqlite_scan_t *s, const char *sql, int *columns_p)
{
    const library_t *lib = &s->lib;
    void *query = NULL;
    const char *rest = "";
    int state, code = PL_OK;
    if (lib->prepare(s->db, sql, -1, &query, &rest) != OK)
        return sqlite_fail(s);
    if (!query || !lib->read_only(query) || rest[strspn(rest, " \t\r\n;")]
        || lib->columns(query) < 1) {
        lib->finalize(query);
        return pl_fail(s->err, PL_EINVAL,
                       "%s: \"query\" is one SELECT, which changes nothing", s->name);
    }
    const int columns = *columns_p = lib->columns(query);
    for (int k = 0; k < columns && !code; k++) {
        const char *name = lib->column_name(query, k);
        code = name ? put_text(s, name, strlen(name)) : pl_no_memory(s->err);
    }
    for (size_t row = 1; !code && (state = lib->step(query)) != DONE; row++) {
        if (state != ROW)
            code = sqlite_fail(s);
        for (int k = 0; k < columns && !code; k++) {
            const bool is_blob = lib->type(query, k) == TYPE_BLOB;
            const char *text = is_blob ? "" : (const char *)lib->text(query, k);
            const size_t size = text && !is_blob ? (size_t)lib->bytes(query, k) : 0;
            if (is_blob || (size && memchr(text, '\0', size)))
                code = pl_fail(s->err, PL_EFORMAT,
                               "%s:%zu: \"%.100s\" is binary, neither a number nor a "
                               "text: leave that column out with \"query\"",
                               s->name, row, lib->column_name(query, k));
            code = code ? code : put_text(s, text ? text : "", size);
        }
    }
    lib->finalize(query);
    return code;
}

/* The texts that were added, as a table. */
static int make_table(sqlite_scan_t *s, int columns, pl_table_t *result)
{
    const size_t cells = s->count - (size_t)columns, rows = cells / (size_t)columns;
    pl_table_t table = {.rows = (int64_t)rows,
                      .columns = columns,
                      .cell = pl_alloc_array(cells + 1, sizeof *table.cell),
                      .line = pl_alloc_array(rows + 1, sizeof *table.line),
                      .start = pl_alloc_array(rows + 1, sizeof *table.start),
                      .name = pl_alloc_array((size_t)columns, sizeof *table.name),
                      .format = PL_CSV_ANY,
                      .text = s->text};
    s->text = NULL;
    table.format.delimiter = ',';
    table.format.decimal = '.';
    if (!table.cell || !table.line || !table.start || !table.name) {
        pl_table_release(&table);
        return pl_no_memory(s->err);
    }
    for (int k = 0; k < columns; k++)
        table.name[k] = table.text + s->offset[k];
    for (size_t k = 0; k < cells; k++)
        table.cell[k] = table.text + s->offset[(size_t)columns + k];
    for (size_t row = 0; row < rows; row++) {
        table.line[row] = (int64_t)row + 1;
        table.start[row] = table.cell[row * (size_t)columns];
    }
    *result = table;
    return PL_OK;
}

/* The query for all of a table, whose name is quoted; to be freed by pl_text_free(). */
static char *query_of(const char *table)
{
    char quoted[600];
    size_t n = 0;
    for (; *table && n + 3 < sizeof quoted; table++) {
        if (*table == '"')
            quoted[n++] = '"';
        quoted[n++] = *table;
    }
    quoted[n] = '\0';
    return pl_text("SELECT * FROM \"%s\"", quoted);
}

/* The query for the only table; an error names the tables if there are several. */
static int find_table(sqlite_scan_t *s, char **query)
{
    char names[200] = "";
    int columns;
    int code = read_query(s,
                          "SELECT name FROM sqlite_master WHERE type IN ('table', "
                          "'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY "
                          "name",
                          &columns);
    for (size_t k = 1; k < s->count && !code; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 k > 1 ? ", " : "", s->text + s->offset[k]);
    if (!code && s->count < 2)
        code = pl_fail(s->err, PL_EINVAL, "%s: the database has no tables", s->name);
    else if (!code && s->count > 2)
        code = pl_fail(s->err, PL_EINVAL,
                       "%s: the database has several tables: set \"table\" to one of %s, "
                       "or \"query\"; init and fit take one as %s:TABLE",
                       s->name, names, s->name);
    if (!code && !(*query = query_of(s->text + s->offset[1])))
        code = pl_no_memory(s->err);
    s->count = s->used = 0;
    return code;
}

bool pl_is_sqlite(const char *path)
{
    char begin[16];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && read(fd, begin, sizeof begin) == (ssize_t)sizeof begin
                    && !memcmp(begin, "SQLite format 3", sizeof begin);
    if (fd >= 0)
        close(fd);
    return is;
}

int pl_sqlite_load(const char *path, const char *table, const char *query, size_t limit,
                   pl_table_t *cells, pl_error_t *err)
{
    sqlite_scan_t s = {.name = path, .limit = limit, .err = err};
    char *made = NULL;
    int columns = 0, code = PL_OK;
    if (*table && *query)
        return pl_fail(err, PL_EINVAL, "%s: set \"table\" or \"query\", not both", path);
    code = library_open(&s);
    if (!code && s.lib.open(path, &s.db, OPEN_READONLY, NULL) != OK)
        code = sqlite_fail(&s);
    if (!code) {
        s.lib.config(s.db, CONFIG_DEFENSIVE, 1, (int *)NULL);
        s.lib.config(s.db, CONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
        s.lib.limit(s.db, LIMIT_ATTACHED, 0);
    }
    if (!code && *table && !(made = query_of(table)))
        code = pl_no_memory(err);
    if (!code && !*table && !*query)
        code = find_table(&s, &made);
    if (!code)
        code = read_query(&s, made ? made : query, &columns);
    if (!code)
        code = make_table(&s, columns, cells);
    if (s.db)
        s.lib.close(s.db);
    if (s.lib.handle)
        dlclose(s.lib.handle);
    pl_text_free(made);
    pl_free(s.offset);
    pl_free(s.text);
    return code;
}
