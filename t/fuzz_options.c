/* fuzz_options.c - run files of any bytes
 *
 * What is read must print, and what was printed must read as the same run; what is
 * refused must say why, where and in one line. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_text.h"
#include "base/options.h"
#include "fuzz_must.h"
#include "sample_components.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_bind(const pl_options_t *o)
{
    pl_error_t err;
    pl_trainer_options_t trainer;
    pl_data_options_t data;
    pl_binding_t *binding;
    pl_instance_t instance = {0};
    must(pl_options_trainer(o, &trainer, &binding, &err) == PL_OK);
    must(trainer.depth >= 0 && trainer.seed >= 0 && trainer.accelerator.name
         && trainer.default_root_dir);
    pl_binding_free(binding);
    must(pl_options_general(o, "data", pl_data_table, &data, &binding, &err) == PL_OK
         && data.batch_size >= 1);
    pl_binding_free(binding);
    if (pl_options_source(o, PL_TRAIN, 0, &instance, &err) != PL_OK)
        must_be_a_sentence(&err);
    pl_instance_release(&instance);
}

static void must_print(const pl_options_t *o)
{
    pl_error_t err;
    char *first = pl_options_print(o, &err);
    must(first);
    pl_options_t *again = pl_options_parse(first, "printed", &err);
    char *second = again ? pl_options_print(again, &err) : NULL;
    must(second && !strcmp(first, second));
    pl_text_free(first);
    pl_text_free(second);
    pl_options_free(again);
}

static size_t lines_of(const char *text, size_t size)
{
    size_t lines = 0;
    for (size_t k = 0; k < size; k++)
        lines += text[k] == '\n';
    return lines;
}

/* No line is lost, what is strict stays as it is, and doing it twice changes nothing. */
static void must_relax(const char *text, size_t size)
{
    char *copy = pl_alloc(size + 1), *twice = pl_alloc(size + 1);
    if (size)
        memcpy(copy, text, size);
    const size_t length = pl_json_strip_comments(copy, size);
    must(length <= size && !copy[length]);
    must(lines_of(copy, length) == lines_of(text, size));
    memcpy(twice, copy, length);
    must(pl_json_strip_comments(twice, length) == length && !memcmp(copy, twice, length));
    json_t *strict = json_loadb(text, size, 0, NULL);
    must(!strict || (length == size && !memcmp(copy, text, size)));
    json_decref(strict);
    pl_free(copy);
    pl_free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pl_error_t err = {0};
    char *text = pl_alloc(size + 1);
    if (size)
        memcpy(text, data, size);
    must(pl_register(sample_components, &err) == PL_OK);
    must_relax(text, size);
    pl_options_t *o = pl_options_take(text, size, "run.json", &err);
    if (!o) {
        must_be_a_sentence(&err);
        must(!strncmp(err.text, "run.json:", 9));
        return 0;
    }
    if (pl_options_set(o, "trainer.accelerator.threads", "1", &err) != PL_OK)
        must_be_a_sentence(&err);
    if (pl_options_check(o, &err) == PL_OK) {
        must_print(o);
        must_bind(o);
    } else {
        must_be_a_sentence(&err);
    }
    pl_text_free(pl_options_get(o, "trainer.max_epochs"));
    pl_options_free(o);
    return 0;
}
