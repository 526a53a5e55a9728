/* documents.c - the texts of several documents as one: files of a folder, or a field of
 * JSON Lines
 *
 * The order is by name, not as a disk has the files.  Between two documents
 * stands a separator, so that a model can learn where one ends. */
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/datasets/csv_parts.h"
#include "actors/connectors/datasets/tokens.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/utf8.h"
#include "formats/vocabulary.h"

typedef struct joined {
    const pl_documents_t *documents;
    pl_file_bytes_t text;
    size_t capacity;
    pl_error_t *err;
} joined_t;

/* Removes the byte order mark of Windows programs and the CR of line ends, in place. */
static size_t text_clean(uint8_t *text, size_t size)
{
    size_t from = size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0, to = 0;
    for (; from < size; from++)
        if (text[from] != '\r' || from + 1 == size || text[from + 1] != '\n')
            text[to++] = text[from];
    return to;
}

/* Appends a document, behind the separator if it is not the first; an empty one is left
 * out. */
static int append(joined_t *j, uint8_t *document, size_t length, const char *name)
{
    const char *separator = j->text.size ? j->documents->separator : "";
    const size_t size = text_clean(document, length), gap = strlen(separator),
                 needed = j->text.size + gap + size + 1;
    if (size == 0)
        return PL_OK;
    if (j->documents->characters
        && pl_vocabulary_check(document, size, name, j->err) != PL_OK)
        return PL_EFORMAT;
    if (needed > pl_file_limit())
        return pl_fail(j->err, PL_EFORMAT,
                       "%s: the documents up to %s have more than %zu bytes",
                       j->documents->path, name, pl_file_limit());
    if (needed > j->capacity) {
        const size_t more = needed > 2 * j->capacity ? needed : 2 * j->capacity;
        uint8_t *data = pl_resize(j->text.data, more);
        if (!data)
            return pl_no_memory(j->err);
        j->text.data = data;
        j->capacity = more;
    }
    memcpy(j->text.data + j->text.size, separator, gap);
    memcpy(j->text.data + j->text.size + gap, document, size);
    j->text.size += gap + size;
    j->text.data[j->text.size] = '\0';
    return PL_OK;
}

/* Appends the field of each line; null is an empty document. */
static int append_lines(joined_t *j, const pl_file_bytes_t *bytes, const char *path)
{
    const char *field = j->documents->field;
    pl_jsonl_t lines = {.name = path,
                        .at = (char *)bytes->data,
                        .end = (char *)bytes->data + bytes->size};
    json_t *object;
    int code;
    while ((code = pl_jsonl_next(&lines, &object, j->err)) == PL_OK && object) {
        const json_t *value = pl_json_get_path(object, field);
        char name[600];
        snprintf(name, sizeof name, "%.500s:%lld", path, (long long)lines.line);
        if (json_is_string(value)) {
            char *text = pl_text("%s", json_string_value(value));
            code = text ? append(j, (uint8_t *)text, strlen(text), name)
                        : pl_no_memory(j->err);
            pl_text_free(text);
        } else if (!json_is_null(value)) {
            code = pl_fail(j->err, PL_EFORMAT,
                           value
                               ? "%s: the field \"%.60s\" is no text: name another one "
                                 "by \"field\""
                               : "%s: there is no field \"%.60s\": name the one with the "
                                 "texts by \"field\"",
                           name, field);
        }
        json_decref(object);
        if (code)
            break;
    }
    return code;
}

static int append_file(joined_t *j, const char *path)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, pl_file_limit(), &bytes, j->err);
    if (code)
        return code;
    if (*j->documents->field && csv_is_json_lines(path))
        code = append_lines(j, &bytes, path);
    else if (j->text.data)
        code = append(j, bytes.data, bytes.size, path);
    else {                                      /* the first, or the only one: as it is */
        bytes.size = text_clean(bytes.data, bytes.size);
        bytes.data[bytes.size] = '\0';
        code = j->documents->characters && bytes.size
                   ? pl_vocabulary_check(bytes.data, bytes.size, path, j->err)
                   : PL_OK;
        j->text = code ? j->text : bytes;
        j->capacity = code ? 0 : bytes.size + 1;
        if (!code)
            return PL_OK;
    }
    pl_file_bytes_release(&bytes);
    return code;
}

int pl_documents_read(const pl_documents_t *documents, pl_file_bytes_t *bytes,
                      pl_error_t *err)
{
    joined_t j = {.documents = documents, .err = err};
    struct stat status;
    pl_file_list_t list = {0};
    int code = PL_OK;
    if (stat(documents->path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        code = append_file(&j, documents->path);
    } else {
        const pl_file_source_t source = {.kind = &pl_text_files,
                                         .path = documents->path,
                                         .links = true,
                                         .without_classes = true};
        code = pl_files_find(&source, &list, err);
        for (int64_t k = 0; k < list.count && !code; k++)
            code = append_file(&j, list.path[k]);
    }
    pl_files_release(&list);
    if (!code && !j.text.size)
        code = pl_fail(err, PL_EFORMAT, "%s: there is no text", documents->path);
    if (code)
        pl_file_bytes_release(&j.text);
    else
        *bytes = j.text;
    return code;
}
