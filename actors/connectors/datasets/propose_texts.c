/* propose_texts.c - a run for texts: a language model, or classes by words
 *
 * JSON Lines are a table unless they are prose: one long text on each line, beside which
 * there is nothing that could be predicted. */
#include <string.h>
#include <strings.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/json_path.h"
#include "base/json_text.h"

/* Lines that are looked at; mean bytes of a long text. */
enum { LOOKED_AT = 200, LONG = 200 };

void propose_text(proposal_t *p, const char *path, const char *field)
{
    const bool is_tokens = ends_with(path, ".bin"),
               is_file = ends_with(path, ".txt") || is_tokens;
    propose_set(p, "data",
                json_pack("{s:s, s:s, s:s, s:s*, s:f, s:i}", "name", "text", "path", path,
                          "vocabulary", is_tokens ? "numbers" : "char", "field", field,
                          "val_split", 0.1, "batch_size", 32));
    propose_set(p, "module", json_pack("{s:s}", "name", "gpt"));
    propose_set(p, "optimizer", json_pack("{s:s, s:f}", "name", "adamw", "lr", 0.001));
    propose_set(p, "trainer.max_epochs", json_integer(1));
    if (field)
        propose_reason(p, "data.field",
                       "JSON Lines with a long text in the field \"%.60s\", and nothing "
                       "beside it to predict: each character is a token.",
                       field);
    else
        propose_reason(p, "data.name",
                       is_tokens ? "Tokens, as nanoGPT and llm.c write them."
                       : is_file ? "A text: each character is a token."
                                 : "A folder of texts without classes: each character is "
                                   "a token.");
    if (!is_file)
        propose_reason(p, "data.name",
                       "Between two texts stands a token of its own, U+0003; "
                       "\"separator\" replaces it.");
    propose_reason(p, "module.name",
                   is_tokens
                       ? "A small language model."
                       : "A small language model; paceline predict --prompt continues a "
                         "text.");
}

/* Whether a field could be a target: its values occur again. */
static bool could_be_target(const json_t *counts, int lines)
{
    const size_t different = json_object_size(counts);
    return different > 1 && different * 2 <= (size_t)lines;
}

bool propose_prose_field(const char *path, char *field, size_t size)
{
    pl_file_bytes_t bytes = {0};
    json_t *fields = csv_is_json_lines(path) ? json_object() : NULL, *object = NULL,
           *value;
    int lines = 0;
    const char *key;
    int64_t longest = 0;
    bool has_target = false;
    if (!fields || pl_file_read(path, pl_file_limit(), &bytes, NULL) != PL_OK) {
        json_decref(fields);
        return false;
    }
    pl_jsonl_t at = {.name = path,
                     .at = (char *)bytes.data,
                     .end = (char *)bytes.data + bytes.size};
    for (; lines < LOOKED_AT && pl_jsonl_next(&at, &object, NULL) == PL_OK && object;
         lines++) {
        json_object_foreach(object, key, value) {
            json_t *seen = json_object_get(fields, key);
            char *text = json_is_object(value) || json_is_array(value) || !value
                             ? NULL
                             : pl_json_write(value, PL_JSON_COMPACT);
            if (!seen && json_object_set_new(fields, key, seen = json_object()) != 0)
                seen = NULL;
            if (text && seen)
                json_object_set_new(seen, text, json_true());
            pl_text_free(text);
        }
        json_decref(object);
    }
    pl_file_bytes_release(&bytes);
    json_object_foreach(fields, key, value) {
        const char *text;
        json_t *one;
        int64_t total = 0;
        json_object_foreach(value, text, one)
            total += *text == '"' ? (int64_t)strlen(text) : 0;
        if (total > longest && total >= (int64_t)LONG * lines && strlen(key) < size) {
            longest = total;
            strcpy(field, key);
        }
    }
    json_object_foreach(fields, key, value)
        has_target |= (longest == 0 || strcmp(key, field) != 0)
                      && could_be_target(value, lines);
    json_decref(fields);
    return lines > 0 && longest > 0 && !has_target;
}

void propose_text_classes(proposal_t *p, const class_folder_t *folder)
{
    const long long count = (long long)folder->list.count;
    propose_set(p, "data",
                json_pack("{s:s, s:s, s:{s:s}, s:s, s:b, s:s, s:s}", "name", "csv",
                          "path", folder->path, "fields", "y", "class", "target", "class",
                          "stratify", true, "texts", "words", "missing",
                          "most_frequent"));
    propose_reason(p, "data.name", "%lld texts of %lld classes, which are folders.",
                   count, (long long)folder->classes);
    propose_reason(p, "data.fields",
                   "A row has a text and its class, the name of the folder.");
    propose_reason(p, "data.texts",
                   "The most frequent words and pairs of words are features.");
    if (folder->test)
        propose_reason(p, "data.path",
                       "The folder train is for training, test for paceline test.");
    propose_reason(p, "module.name",
                   "A network of two hidden layers predicts the class.");
    propose_set(p, "module",
                json_pack("{s:s, s:[i,i], s:f}", "name", "mlp", "hidden",
                          count < 1000 ? 64 : 128, count < 1000 ? 32 : 64, "dropout",
                          count < 20000 ? 0.1 : 0.0));
    propose_training(p, count, PROPOSE_LR);
}
