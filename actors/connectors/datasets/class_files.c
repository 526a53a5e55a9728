/* class_files.c - the files of a folder of classes, or of a table of paths
 *
 * The order is by name, not as a disk has the files: so each machine
 * numbers the samples and the classes in the same way. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/datasets/csv_parts.h"
#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/run.h"
#include "base/utf8.h"

#define CLASS_NAMES "class_names"
#define DEPTH_MAX 16                           /* of folders; a loop of links is deeper */

typedef struct file_finder {
    const pl_file_source_t *source;
    pl_file_list_t *list;
    const char *root;                                       /* resolved, for links */
    pl_error_t *err;
} file_finder_t;

/* ---- Kinds of files ---- */

const pl_file_kind_t pl_picture_files = {"pictures", "picture",
                                         ".png, .jpg, .jpeg, .webp"},
                     pl_sound_files = {"sounds", "recording", ".wav, .flac, .ogg, .aiff"},
                     pl_text_files = {"csv", "text", NULL};

/* What tells such a file, for errors. */
static const char *endings_of(const pl_file_kind_t *kind)
{
    return kind->endings ? kind->endings : "files without a zero byte";
}

/* Whether the beginning of a file has no zero byte; pictures and archives have some. */
static bool begins_as_text(const char *path)
{
    char begin[4096];
    FILE *file = fopen(path, "re");
    const size_t count = file ? fread(begin, 1, sizeof begin, file) : 0;
    if (file)
        fclose(file);
    return file && !memchr(begin, '\0', count);
}

static bool is_kind(const pl_file_kind_t *kind, const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const char *ending = kind->endings;
    bool is = false;
    if (!ending)
        return begins_as_text(path) || csv_is_json_lines(path);
    for (size_t length; dot && *ending && !is; ending += strspn(ending, ", ")) {
        length = strcspn(ending, ",");
        is = strlen(dot) == length && !strncasecmp(dot, ending, length);
        ending += length;
    }
    return is;
}

/* ---- Finding ---- */

/* Adds a file; consumes path. */
static int list_add(pl_file_list_t *list, char *path, int64_t label, pl_error_t *err)
{
    if (path && list->count == list->capacity) {
        const int64_t capacity = list->capacity ? 2 * list->capacity : 256;
        char **paths = pl_resize(list->path, (size_t)capacity * sizeof *paths);
        list->path = paths ? paths : list->path;
        int64_t *labels = paths
                              ? pl_resize(list->label, (size_t)capacity * sizeof *labels)
                              : NULL;
        list->label = labels ? labels : list->label;
        list->capacity = labels ? capacity : list->capacity;
    }
    if (!path || list->count == list->capacity) {
        pl_text_free(path);
        return pl_no_memory(err);
    }
    list->path[list->count] = path;
    list->label[list->count++] = label;
    return PL_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The type of an entry of a folder: S_IFDIR, S_IFREG, 0 for others.  A link has to stay
 * in the folder of the data, unless the source allows otherwise. */
static int entry_type(const file_finder_t *find, const char *path, mode_t *type)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return pl_fail(find->err, PL_EIO, "%s: %m", path);
    if (S_ISLNK(status.st_mode)) {
        char real[PATH_MAX];
        const size_t length = strlen(find->root);
        if (!realpath(path, real) || stat(real, &status) != 0)
            return pl_fail(find->err, PL_ENOTFOUND, "%s: the target of the link: %m",
                           path);
        if (!find->source->links
            && (strncmp(real, find->root, length)
                || (real[length] != '/' && real[length] != '\0')))
            return pl_fail(find->err, PL_EINVAL,
                           "%s is a link that leads out of %s, to %s: set \"links\": "
                           "true to follow such links",
                           path, find->source->path, real);
    }
    *type = S_ISDIR(status.st_mode) || S_ISREG(status.st_mode) ? status.st_mode & S_IFMT
                                                               : 0;
    return PL_OK;
}

/* The names in a folder, sorted, without hidden ones; the caller frees *names_p, a list.
 * -> their number, or an error code. */
static int folder_names(const file_finder_t *find, const char *folder, char ***names_p)
{
    DIR *directory = opendir(folder);
    char **names = NULL;
    int count = 0, capacity = 0, code = PL_OK;
    if (!directory)
        return pl_fail(find->err,
                       errno == ENOENT   ? PL_ENOTFOUND
                       : errno == ENOMEM ? PL_ENOMEM
                                         : PL_EIO,
                       "%s: %m", folder);
    for (struct dirent *entry; !code && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        if (PL_GROW(names, count, capacity) != PL_OK
            || !(names[count] = pl_strdup(entry->d_name)))
            code = pl_no_memory(find->err);
        else
            count++;
    }
    closedir(directory);
    if (count)
        qsort(names, (size_t)count, sizeof *names, by_name);
    *names_p = names;
    if (!code)
        return count;
    for (int k = 0; k < count; k++)
        pl_free(names[k]);
    pl_free(names);
    *names_p = NULL;
    return code;
}

/* Adds all files of a folder and the folders in it. */
static int folder_add(const file_finder_t *find, const char *folder, int64_t label,
                      int depth)
{
    char **names = NULL;
    const int count = folder_names(find, folder, &names);
    int code = count < 0 ? count : PL_OK;
    if (depth > DEPTH_MAX)
        code = pl_fail(find->err, PL_EINVAL, "%s: folders are nested too deep", folder);
    for (int k = 0; k < count; k++) {
        char *path = code ? NULL : pl_text("%s/%s", folder, names[k]);
        mode_t type = 0;
        if (!code)
            code = path ? entry_type(find, path, &type) : pl_no_memory(find->err);
        if (!code && type == S_IFDIR) {
            code = folder_add(find, path, label, depth + 1);
        } else if (!code && type == S_IFREG && is_kind(find->source->kind, path)) {
            code = list_add(find->list, path, label, find->err);
            path = NULL;
        } else if (!code && find->list->others++ == 0) {
            find->list->other = path;
            path = NULL;
        }
        pl_text_free(path);
        pl_free(names[k]);
    }
    pl_free(names);
    return code;
}

/* The number of a class, by its name; a further one gets the next number unless they are
 * known from training.  -1: unknown, -2: out of memory. */
static int64_t class_number(pl_file_list_t *list, json_t *places, const char *name,
                            bool known)
{
    const json_t *place = json_object_get(places, name);
    const int64_t next = (int64_t)json_array_size(list->class_names);
    if (place)
        return json_integer_value(place);
    if (known)
        return -1;
    return json_array_append_new(list->class_names, json_string(name)) != 0
                   || json_object_set_new(places, name, json_integer(next)) != 0
               ? -2
               : next;
}

/* Adds the folder of a class. */
static int class_add(const file_finder_t *find, json_t *places, const char *path,
                     const char *name)
{
    const bool known = find->source->class_names;
    const int64_t before = find->list->count;
    if (!pl_utf8_ok(name, strlen(name)))
        return pl_fail(find->err, PL_EFORMAT,
                       "%s: the name of a class is not UTF-8: rename the folder", path);
    const int64_t label = class_number(find->list, places, name, known);
    if (label == -2)
        return pl_no_memory(find->err);
    if (label == -1)
        return pl_fail(find->err, PL_EFORMAT,
                       "%s: the training data have no class \"%s\"", path, name);
    const int code = folder_add(find, path, label, 1);
    if (!code && !known && find->list->count == before)
        return pl_fail(find->err, PL_EFORMAT,
                       "%s: there is no %s of this class (%s): remove the folder", path,
                       find->source->kind->what, endings_of(find->source->kind));
    return code;
}

/* Each folder in the root is a class. */
static int classes_add(const file_finder_t *find, json_t *places)
{
    const char *root = find->source->path;
    char **names = NULL;
    const int count = folder_names(find, root, &names);
    int code = count < 0 ? count : PL_OK, classes = 0;
    for (int k = 0; k < count; k++) {
        char *path = code ? NULL : pl_text("%s/%s", root, names[k]);
        mode_t type = 0;
        if (!code)
            code = path ? entry_type(find, path, &type) : pl_no_memory(find->err);
        if (!code && type == S_IFDIR) {
            classes++;
            code = class_add(find, places, path, names[k]);
        }
        pl_text_free(path);
        pl_free(names[k]);
    }
    pl_free(names);
    if (!code && classes == 0)
        code = pl_fail(find->err, PL_EFORMAT,
                       "%s has no folders: put the %ss of each class into a folder "
                       "with its name, or name a table of paths",
                       root, find->source->kind->what);
    return code;
}

/* ---- A table ---- */

/* Loads the table.  All its cells may be texts, so a first line that names a file is
 * no header. */
static int table_load(const pl_file_source_t *source, pl_table_t *table, int *file,
                      int *label, pl_error_t *err)
{
    pl_csv_format_t format = PL_CSV_ANY;
    int code = pl_csv_load(source->path, pl_file_limit(), &format, table, err);
    bool names_file = false;
    for (int k = 0; !code && table->name && k < table->columns; k++)
        names_file = names_file || is_kind(source->kind, table->name[k]);
    if (names_file) {
        pl_table_release(table);
        format.header = PL_CSV_NO;
        code = pl_csv_load(source->path, pl_file_limit(), &format, table, err);
    }
    if (code)
        return code;
    *file = *source->file ? csv_column(table, source->file, strlen(source->file)) : 0;
    *label = *source->label ? csv_column(table, source->label, strlen(source->label))
             : table->columns > 1 ? (*file == table->columns - 1 ? 0 : table->columns - 1)
                                  : -1;
    if (*file < 0)
        return pl_fail(err, PL_EINVAL, "%s: there is no column \"%.40s\" of paths",
                       source->path, source->file);
    if (*label < 0 && !source->without_classes)
        return pl_fail(err, PL_EINVAL, "%s: there is no column \"%.40s\" of classes",
                       source->path, *source->label ? source->label : "1");
    return PL_OK;
}

/* Each row of the table is a file. */
static int table_add(const file_finder_t *find, json_t *places)
{
    const pl_file_source_t *source = find->source;
    pl_table_t table = {0};
    int file = -1, column = -1;
    char **names = NULL, place[PL_PLACE_TEXT];
    int code = table_load(source, &table, &file, &column, find->err);
    const char *slash = strrchr(source->path, '/');
    const int folder = slash ? (int)(slash - source->path) + 1 : 0;
    const bool finds = !code && !source->without_classes && !source->class_names;
    if (finds && !(names = pl_alloc_array((size_t)table.rows + 1, sizeof *names)))
        code = pl_no_memory(find->err);
    for (int64_t row = 0; !code && finds && row < table.rows; row++)
        names[row] = (char *)pl_table_cell(&table, row, column);
    if (!code && finds && table.rows)
        qsort(names, (size_t)table.rows, sizeof *names, by_name);
    for (int64_t row = 0; !code && finds && row < table.rows; row++)
        if (*names[row] && class_number(find->list, places, names[row], false) == -2)
            code = pl_no_memory(find->err);
    for (int64_t row = 0; !code && row < table.rows; row++) {
        const char *cell = pl_table_cell(&table, row, file);
        const char *class = column < 0 ? "" : pl_table_cell(&table, row, column);
        const int64_t label = source->without_classes
                                  ? -1
                                  : class_number(find->list, places, class, true);
        pl_table_place(&table, row, *cell ? column < 0 ? 0 : column : file, place);
        if (!*cell)
            code = pl_fail(find->err, PL_EFORMAT, "%s:%s: the path of the %s is missing",
                           source->path, place, source->kind->what);
        else if (label < 0 && !source->without_classes)
            code = pl_fail(find->err, PL_EFORMAT,
                           *class ? "%s:%s: the training data have no class \"%.40s\""
                                  : "%s:%s: the class is missing",
                           source->path, place, class);
        else
            code = list_add(find->list,
                            *cell == '/' ? pl_text("%s", cell)
                                         : pl_text("%.*s%s", folder, source->path, cell),
                            label, find->err);
    }
    pl_free(names);
    pl_table_release(&table);
    return code;
}

int pl_files_find(const pl_file_source_t *source, pl_file_list_t *list, pl_error_t *err)
{
    char root[PATH_MAX];
    struct stat status;
    *list = (pl_file_list_t){.class_names = json_array()};
    if (!realpath(source->path, root) || stat(root, &status) != 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m",
                       source->path);
    const file_finder_t find = {source, list, root, err};
    json_t *places = json_object();
    const char *name;
    size_t k;
    json_t *known;
    int code = places && list->class_names ? PL_OK : pl_no_memory(err);
    json_array_foreach(source->class_names, k, known)
        if (!code && (name = json_string_value(known))
            && class_number(list, places, name, false) == -2)
            code = pl_no_memory(err);
    if (!code)
        code = !S_ISDIR(status.st_mode)  ? table_add(&find, places)
               : source->without_classes ? folder_add(&find, source->path, -1, 1)
                                         : classes_add(&find, places);
    json_decref(places);
    return code;
}

void pl_files_release(pl_file_list_t *list)
{
    for (int64_t k = 0; k < list->count; k++)
        pl_text_free(list->path[k]);
    pl_free(list->path);
    pl_free(list->label);
    pl_text_free(list->other);
    json_decref(list->class_names);
    *list = (pl_file_list_t){0};
}

/* ---- The files of a data set ---- */

char *pl_stage_folder(const char *path, pl_stage_t stage)
{
    static const char *const tests[] = {"test", "val", "valid", "validation"};
    struct stat status;
    char *train = pl_text("%s/train", path);
    const bool is_parted = train && stat(train, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_parted && (stage == PL_TRAIN || stage == PL_VALIDATE))
        return train;
    const bool lacks_memory = !train;
    pl_text_free(train);
    for (size_t k = 0; is_parted && k < sizeof tests / sizeof *tests; k++) {
        char *folder = pl_text("%s/%s", path, tests[k]);
        if (!folder || (stat(folder, &status) == 0 && S_ISDIR(status.st_mode)))
            return folder;
        pl_text_free(folder);
    }
    return lacks_memory ? NULL : pl_text("%s", path);
}

int pl_class_files_open(pl_class_files_t *files, const pl_file_kind_t *kind,
                        const pl_data_request_t *request, pl_error_t *err)
{
    const char *text = request->data_info;
    json_t *data_info = text ? pl_json_read(text, strlen(text), "data_info", err) : NULL;
    char *folder = pl_stage_folder(files->path, request->stage), dataset[48];
    int code = PL_OK;
    if (text && !data_info)
        code = err ? err->code : PL_EFORMAT;
    else if (!folder)
        code = pl_no_memory(err);
    files->kind = kind;
    files->rank = request->rank;
    files->has_target = request->stage != PL_PREDICT;
    const pl_file_source_t source = {.kind = kind,
                                     .path = folder,
                                     .file = files->file,
                                     .label = files->label,
                                     .links = files->links,
                                     .without_classes = !files->has_target,
                                     .class_names = json_object_get(data_info,
                                                                    CLASS_NAMES)};
    pl_file_list_t *list = &files->list;
    if (!code)
        code = pl_files_find(&source, list, err);
    if (!code && list->count == 0 && !pl_may_be_empty(request->stage))
        code = pl_fail(err, PL_EFORMAT, "%s: there are no %ss (%s)", folder, kind->what,
                       endings_of(kind));
    snprintf(dataset, sizeof dataset, "data set %s", kind->dataset);
    if (!code && list->others && request->rank == 0)
        pl_log_line(PL_LOG_INFO, 0, dataset,
                    "%s: %lld files are left out, because they are no "
                    "%ss (%s), such as %s",
                    folder, (long long)list->others, kind->what, endings_of(kind),
                    list->other);
    json_decref(data_info);
    pl_text_free(folder);
    files->classes = (int64_t)json_array_size(list->class_names);
    files->skipped =
        code ? NULL
             : pl_alloc(sizeof *files->skipped
                        + (size_t)list->count * sizeof *files->skipped->sample);
    return code || files->skipped ? code : pl_no_memory(err);
}

void pl_class_files_close(pl_class_files_t *files)
{
    pl_files_release(&files->list);
    pl_free(files->skipped);
    files->skipped = NULL;
}

char *pl_class_files_data_info(const pl_class_files_t *files, const pl_shape_t *shape)
{
    char *names = files->classes ? pl_json_write(files->list.class_names, PL_JSON_COMPACT)
                                 : NULL;
    char *data_info = pl_dataset_data_info(files->classes, shape), *paths;
    if (files->classes)
        data_info = pl_data_info_add(&data_info, CLASS_NAMES, &names);
    if (files->has_target)
        return data_info;
    json_t *list = json_array();
    for (int64_t k = 0; k < files->list.count; k++) {
        const char *path = files->list.path[k];
        char shown[PATH_MAX];                     /* '?' for what is not UTF-8 */
        list = pl_json_append(list, json_string(pl_utf8_ok(path, strlen(path))
                                                    ? path
                                                    : pl_utf8_show(path, shown,
                                                                   sizeof shown)));
    }
    paths = list ? pl_json_write(list, PL_JSON_COMPACT) : NULL;
    json_decref(list);
    return pl_data_info_add(&data_info, PL_DATA_FILES, &paths);
}

int pl_class_files_answer(const pl_class_files_t *files, int64_t sample, int code,
                          const pl_error_t *why, int64_t *label, pl_error_t *err)
{
    char dataset[48];
    *label = code ? -1 : files->list.label[sample];
    if (code
        && (files->damaged != PL_DAMAGED_SKIP
            || (code != PL_EFORMAT && code != PL_EUNSUPPORTED)))
        return pl_fail(err, code, "%s", why->text);
    if (!code || atomic_exchange(&files->skipped->sample[sample], true))
        return PL_OK;
    const long long count = atomic_fetch_add(&files->skipped->count, 1) + 1;
    snprintf(dataset, sizeof dataset, "data set %s", files->kind->dataset);
    pl_log_line(PL_LOG_WARNING, (int)files->rank, dataset,
                "%s; it is skipped (%lld skipped so far)", why->text, count);
    return PL_OK;
}
