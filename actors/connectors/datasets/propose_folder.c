/* propose_folder.c - a run for a folder: which data it has, and what all files of classes
 * have in common
 *
 * The kind of the files decides: pictures, recordings or texts in folders of classes,
 * texts without classes, or the files of MNIST. */
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/error.h"
#include "base/json_path.h"

/* Fewer texts in each folder are chapters or articles, and the folders no classes. */
enum { STEPS = 3000, FILES_MIN = 10, CLASS_FILES = 4 };

static bool is_there(const char *folder, const char *name, mode_t type)
{
    char *path = pl_text("%s/%s", folder, name);
    struct stat status;
    const bool found = path && stat(path, &status) == 0
                       && (status.st_mode & S_IFMT) == type;
    pl_text_free(path);
    return found;
}

/* ---- Files of classes ---- */

/* One source: the data set with a path. */
static json_t *source_of(const json_t *source, const char *path, const char *part)
{
    char *folder = pl_text("%s%s%s", path, part ? "/" : "", part ? part : "");
    json_t *made = json_deep_copy(source);
    made = pl_json_with(made, "path", folder ? json_string(folder) : NULL);
    pl_text_free(folder);
    return made;
}

void propose_class_folder(proposal_t *p, const class_folder_t *folder,
                          const pl_file_kind_t *kind, json_t *source)
{
    const int64_t count = folder->list.count;
    const int batch = count < 500 ? 16 : count < 2000 ? 32 : 64;
    const int64_t train = folder->val ? count : count * 4 / 5,
                  steps = (train + batch - 1) / batch;
    int64_t epochs = STEPS / (steps ? steps : 1);
    epochs = epochs > 40 ? 40 : epochs < 5 ? 5 : epochs;
    propose_reason(p, PROPOSE_SOURCE_KEY(folder, "name"),
                   "%lld %ss of %lld classes, which are folders.", (long long)count,
                   kind->what, (long long)folder->classes);
    if (folder->val) {
        propose_set(p, "data.train", source_of(source, folder->path, "train"));
        propose_set(p, "data.val", source_of(source, folder->path, folder->val));
        if (folder->test)
            propose_set(p, "data.test", source_of(source, folder->path, "test"));
        propose_reason(p, "data.train", "The folders train%s %s%s were found.",
                       folder->test ? "," : " and", folder->val,
                       folder->test ? " and test" : "");
    } else {
        propose_set(p, "data", source_of(source, folder->path, NULL));
        propose_set(p, "data.val_split", json_real(0.2));
        propose_reason(p, "data.val_split",
                       "A fifth of the %lld %ss is for validation%s.", (long long)count,
                       kind->what,
                       folder->test ? "; those in the folder test are for paceline test"
                                    : "");
    }
    json_decref(source);
    propose_set(p, "data.batch_size", json_integer(batch));
    propose_set(p, "data.workers", json_integer(2));
    propose_reason(p, "data.workers",
                   "Two threads decode %ss while the network computes.", kind->what);
    propose_set(p, "optimizer",
                json_pack("{s:s, s:f, s:f}", "name", "adamw", "lr", 0.002, "weight_decay",
                          0.05));
    propose_set(p, "scheduler", json_pack("{s:s}", "name", "cosine"));
    propose_set(p, "trainer.max_epochs", json_integer(epochs));
    propose_reason(p, "trainer.max_epochs", "%lld steps of %d %ss are an epoch.",
                   (long long)steps, batch, kind->what);
}

/* Looks for files of a kind in folders of classes, and proposes the run for them.
 * PL_EFORMAT, PL_ENOTFOUND: there are none. */
static int propose_files(proposal_t *p, const char *path, const pl_file_kind_t *kind,
                         pl_error_t *err)
{
    static const char *const vals[] = {"val", "valid", "validation"};
    const bool has_train = is_there(path, "train", S_IFDIR);
    char *root = pl_text("%s%s", path, has_train ? "/train" : "");
    const pl_file_source_t source = {.kind = kind,
                                     .path = root ? root : "",
                                     .file = "",
                                     .label = ""};
    class_folder_t folder = {.path = path};
    int code = root ? pl_files_find(&source, &folder.list, err) : pl_no_memory(err);
    for (size_t k = 0; has_train && k < sizeof vals / sizeof *vals && !folder.val; k++)
        folder.val = is_there(path, vals[k], S_IFDIR) ? vals[k] : NULL;
    folder.test = has_train && is_there(path, "test", S_IFDIR);
    folder.classes = (int64_t)json_array_size(folder.list.class_names);
    if (!code && folder.classes < 2)
        code = pl_fail(err, PL_EFORMAT,
                       "%s has one folder of %ss; a class to learn needs another one "
                       "beside it",
                       root, kind->what);
    if (!code && !folder.val && folder.list.count < FILES_MIN)
        code = pl_fail(err, PL_EFORMAT,
                       "%s has %lld %ss, too few to learn from and to validate on: at "
                       "least %d are needed",
                       root, (long long)folder.list.count, kind->what, FILES_MIN);
    if (!code && kind == &pl_sound_files)
        code = propose_sounds(p, &folder, err);
    else if (!code && kind == &pl_picture_files)
        code = propose_pictures(p, &folder, err);
    else if (!code)
        propose_text_classes(p, &folder);
    pl_files_release(&folder.list);
    pl_text_free(root);
    return code;
}

/* ---- Folders ---- */

/* The number of files of a kind in a folder and below it, and of those that are not in a
 * folder of it  [NULL]. */
static int64_t count_files(const char *path, const pl_file_kind_t *kind, int64_t *direct)
{
    const pl_file_source_t source = {.kind = kind,
                                     .path = path,
                                     .without_classes = true,
                                     .links = true};
    const size_t length = strlen(path);
    pl_file_list_t list;
    pl_files_find(&source, &list, NULL);
    const int64_t count = list.count;
    for (int64_t k = 0; direct && k < count; k++)
        *direct += !strchr(list.path[k] + length + 1, '/');
    pl_files_release(&list);
    return count;
}

/* The kind of the files that are in folders of classes; NULL: they are texts without
 * classes. */
static const pl_file_kind_t *find_kind(const char *path)
{
    int64_t direct = 0;
    const int64_t pictures = count_files(path, &pl_picture_files, NULL),
                  sounds = count_files(path, &pl_sound_files, NULL);
    if (pictures || sounds)
        return sounds > pictures ? &pl_sound_files : &pl_picture_files;
    const int64_t texts = count_files(path, &pl_text_files, &direct);
    const pl_file_source_t source = {
        .kind = &pl_text_files, .path = path, .links = true, .file = "", .label = ""};
    pl_file_list_t list;
    const int code = pl_files_find(&source, &list, NULL);
    const int64_t classes = (int64_t)json_array_size(list.class_names);
    const bool has_train = is_there(path, "train", S_IFDIR);
    pl_files_release(&list);
    const char *json, *other;
    const bool is_table = csv_find_texts(path, &list, &json, &other, NULL) == PL_OK
                          && json && !other;
    pl_files_release(&list);
    if (is_table)
        return NULL;
    if (texts == 0)
        return &pl_picture_files;
    return has_train
                   || (!code && classes > 1 && texts >= CLASS_FILES * classes
                       && direct * 10 <= texts)
               ? &pl_text_files
               : NULL;
}

/* A folder of texts without classes.  JSON Lines are a table, unless the first file shows
 * a field with texts and nothing to predict. */
static int propose_texts(proposal_t *p, const char *path, const char *target,
                         pl_error_t *err)
{
    pl_file_list_t list;
    const char *json, *other;
    char field[64];
    int code = csv_find_texts(path, &list, &json, &other, err);
    if (!code && json && other)
        code = csv_refuse_mixture(path, json, other, err);
    else if (!code && json && (target || !propose_prose_field(json, field, sizeof field)))
        code = propose_table(p, path, target, err);
    else if (!code)
        propose_text(p, path, json ? field : NULL);
    pl_files_release(&list);
    return code;
}

static void propose_mnist(proposal_t *p, const char *path)
{
    propose_set(p, "data",
                json_pack("{s:s, s:s, s:f, s:i}", "name", "idx", "path", path,
                          "val_split", 0.1, "batch_size", 128));
    propose_set(p, "module", json_pack("{s:s}", "name", "cnn"));
    propose_set(p, "optimizer", json_pack("{s:s, s:f}", "name", "adamw", "lr", 0.001));
    propose_set(p, "scheduler", json_pack("{s:s}", "name", "cosine"));
    propose_set(p, "trainer.max_epochs", json_integer(5));
    propose_reason(p, "data.name",
                   "A folder with images and labels in the format of MNIST.");
    propose_reason(p, "module.name", "A convolutional network predicts the class.");
}

int propose_folder(proposal_t *p, const char *path, const char *target, pl_error_t *err)
{
    int code = PL_OK;
    const bool is_idx = is_there(path, "train-images-idx3-ubyte", S_IFREG)
                        || is_there(path, "train-images-idx3-ubyte.gz", S_IFREG);
    const pl_file_kind_t *kind = is_idx ? NULL : find_kind(path);
    if (is_idx)
        propose_mnist(p, path);
    else if (!kind)
        code = propose_texts(p, path, target, err);
    else if ((code = propose_files(p, path, kind, err)) != PL_OK)
        return pl_error_prefix(err,
                               "%s is a folder without train-images-idx3-ubyte, so "
                               "it is read as %ss in folders of classes",
                               path, kind->what);
    if (code || kind == &pl_text_files || (!kind && !is_idx))
        return code;
    propose_set(p, "callbacks",
                json_pack("[{s:s, s:s, s:b, s:b}]", "name", "model_checkpoint", "monitor",
                          "val_loss", "restore_best", true, "verbose", false));
    propose_reason(
        p, "trainer.max_epochs",
        "The weights and metrics of the run are those of the epoch with the best "
        "val_loss.");
    return PL_OK;
}
