/* datasets_text.c - tests of actors/connectors/datasets: text.c, lines.c, memory.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/connectors/datasets/datasets.h"
#include "dataset_rig.h"
#include "files.h"
#include "base/utf8.h"
#include "tap.h"

static pl_error_t err;

/* ---- text ---- */

#define NUMBERS "{\"path\": \"%s\", \"context\": 2, \"vocabulary\": \"numbers\"}"

static void files_of_tokens_are_read(void)
{
    const uint8_t nanogpt[] = {7, 0, 1, 2, 80, 195, 3, 0};  /* 7, 513, 50000, 3 */
    uint8_t llmc[1024 + 12] = {0x88, 0xd8, 0x34, 1, 1, 0, 0, 0, 3};
    const char *path = file_put("train.bin", nanogpt, sizeof nanogpt);
    rig_t rig = rig_open(&pl_text_dataset, PL_VALIDATE, NUMBERS, path);
    is_int(rig.code, PL_OK, "tokens of nanoGPT: %s", rig.err.text);
    like(rig.info.data_info, "^.\"vocabulary_size\": 50001, \"context\": 2.$",
         "the vocabulary has the largest");
    rig_read(&rig, INDEX(0, 1));
    const int64_t *x = rig.field[0], *y = rig.field[1];
    ok(x[0] == 7 && x[1] == 513 && y[0] == 513 && y[1] == 50000 && y[2] == 3,
       "their numbers");
    rig_close(&rig);
    refused(rig_open(&pl_text_dataset, PL_TRAIN,
                     "{\"path\": \"%s\", \"vocabulary\": \"numbers\", "
                     "\"vocabulary_size\": 50000}",
                     path),
            PL_EFORMAT, "train.bin: token 2 is 50000, but the vocabulary has 50000",
            "a token beyond the vocabulary");
    memcpy(llmc + 1024, (uint8_t[]){1, 0, 2, 0, 4, 0}, 6);
    path = file_put("llm.bin", llmc, 1024 + 6);
    rig = rig_open(&pl_text_dataset, PL_VALIDATE, NUMBERS, path);
    is_int(rig.code, PL_OK, "tokens of llm.c: %s", rig.err.text);
    rig_read(&rig, INDEX(0));
    y = rig.field[1];
    ok(rig.info.samples == 1 && y[0] == 2 && y[1] == 4, "behind the header");
    rig_close(&rig);
    memcpy(llmc, (uint8_t[]){0xa1, 0xd9, 0x34, 1, 7, 0, 0, 0, 3}, 9);
    memcpy(llmc + 1024, (uint8_t[]){1, 0, 0, 0, 2, 0, 1, 0, 4, 0, 0, 0}, 12);
    path = file_put("llm.bin", llmc, sizeof llmc);
    rig = rig_open(&pl_text_dataset, PL_VALIDATE, NUMBERS, path);
    like(rig.info.data_info, "\"vocabulary_size\": 65539", "of 4 bytes: %s",
         rig.err.text);
    rig_close(&rig);
    refused(rig_open(&pl_text_dataset, PL_TRAIN, NUMBERS,
                     file_put("llm.bin", llmc, sizeof llmc - 4)),
            PL_EFORMAT, "llm.bin: its header says 3 tokens, but the file has 2",
            "a truncated file");
    refused(rig_open(&pl_text_dataset, PL_TRAIN, NUMBERS, file_put("o.bin", "abc", 3)),
            PL_EFORMAT, "o.bin: 3 bytes are no tokens of 2 bytes", "an odd length");
    refused(rig_open(&pl_text_dataset, PL_TRAIN, NUMBERS, file_put("e.bin", "", 0)),
            PL_EFORMAT, "e.bin: 0 bytes are no tokens", "an empty file");
}

static void consecutive_windows_count_each_target_once(void)
{
    for (int length = 2; length < 30; length++) {
        char letters[32];
        for (int i = 0; i < length; i++)
            letters[i] = (char)('A' + i);
        const char *path = file_put("letters.txt", letters, (size_t)length);
        rig_t rig = rig_open(&pl_text_dataset, PL_VALIDATE,
                             "{\"path\": \"%s\", \"context\": 5}", path);
        int seen[32] = {0}, wrong = 0;
        for (int64_t i = 0; i < rig.info.samples; i++) {
            rig_read(&rig, INDEX(i));
            const int64_t *x = rig.field[0], *y = rig.field[1];
            for (int t = 0; t < 5; t++) {
                wrong += y[t] >= 0 && y[t] != x[t] + 1;
                wrong += y[t] < -1 || x[t] < 0;
                seen[y[t] + 1]++;
            }
        }
        for (int token = 1; token < length; token++)
            wrong += seen[token + 1] != 1;
        if (wrong || seen[1] || length == 29)
            ok(!wrong && !seen[1], "of %d tokens each but the first is a target once",
               length);
        rig_close(&rig);
    }
}

static void training_windows_are_a_function_of_seed_epoch_and_index(void)
{
    char letters[1000];
    for (int i = 0; i < 1000; i++)
        letters[i] = (char)(33 + i % 90);
    const char *path = file_put("train.txt", letters, sizeof letters);
    rig_t rig = rig_open(&pl_text_dataset, PL_TRAIN, "{\"path\": \"%s\", \"context\": 8}",
                         path);
    ok(rig.info.samples == 125 && rig.info.ordered
           && has_field(&rig, 0, "x", PL_I64, "8"),
       "tokens / context samples");
    int64_t first[8], wrong = 0, distinct = 0, starts[90] = {0};
    for (int64_t i = 0; i < 125; i++) {
        rig_read(&rig, INDEX(i));
        const int64_t *x = rig.field[0], *y = rig.field[1];
        for (int t = 0; t < 8; t++)
            wrong += y[t] != (x[t] + 1) % 90;
        distinct += !starts[x[0]]++;
    }
    is_int(wrong, 0, "each window is whole");
    ok(distinct > 40, "they begin anywhere (%d letters)", (int)distinct);
    rig_read_epoch(&rig, 3, INDEX(7, 8));
    memcpy(first, rig.field[0], sizeof first);
    rig_read_epoch(&rig, 3, INDEX(8, 7));
    ok(!memcmp(first, (int64_t *)rig.field[0] + 8, sizeof first),
       "the same again, in any batch");
    rig_read_epoch(&rig, 4, INDEX(7));
    ok(memcmp(first, rig.field[0], sizeof first), "another in another epoch");
    rig_close(&rig);

    rig = rig_open(&pl_text_dataset, PL_TRAIN,
                   "{\"path\": \"%s\", \"context\": 8, \"windows\": \"consecutive\"}",
                   path);
    rig_read(&rig, INDEX(1));
    ok(*(int64_t *)rig.field[0] == 8, "or side by side, when asked");
    rig_close(&rig);

    rig = rig_open(&pl_text_dataset, PL_TRAIN, "{\"path\": \"%s\", \"context\": 5000}",
                   path);
    rig_read(&rig, INDEX(0));
    const int64_t *y = rig.field[1];
    ok(rig.info.samples == 1 && y[998] == 999 % 90 && y[999] == -1 && y[4999] == -1,
       "a context past the text is padded");
    rig_close(&rig);
}

static void shares_of_a_text_meet_without_overlap(void)
{
    char letters[101], options[4200];
    for (int i = 0; i < 101; i++)
        letters[i] = (char)(27 + i);
    const char *path = file_put("share.txt", letters, sizeof letters);
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"context\": 200}", path);
    rig_t train = rig_open_share(&pl_text_dataset, PL_TRAIN, 0, .9, options);
    rig_t val = rig_open_share(&pl_text_dataset, PL_VALIDATE, .9, 1, options);
    rig_read(&train, INDEX(0));
    rig_read(&val, INDEX(0));
    const int64_t *x = train.field[0], *y = train.field[1];
    ok(x[0] == 0 && x[90] == 90 && y[89] == 90 && y[90] == -1,
       "training ends before what validation begins with");
    ok(*(int64_t *)val.field[0] == 91, "validation begins there");
    is_text(train.info.data_info, val.info.data_info,
            "and both know the vocabulary of the whole");
    rig_close(&train);
    rig_close(&val);
    refused(rig_open_share(&pl_text_dataset, PL_TRAIN, 0, .01, options), PL_EFORMAT,
            "has 1 tokens, but 2 are needed", "a share of one token");
    refused(rig_open_share(&pl_text_dataset, PL_TRAIN, .5, .5, options), PL_EINVAL,
            "must lie in 0 to 1", "of none");
    refused(rig_open_share(&pl_text_dataset, PL_TRAIN, 0, 1.5, options), PL_EINVAL,
            "must lie in 0 to 1", "of more");
}

static void any_characters_and_bytes_are_tokens(void)
{
    char *many = calloc(1, 20000),
         *at = many;                /* 3000 characters of 3 bytes, 600 of them distinct */
    for (int i = 0; i < 3000; i++)
        at += pl_utf8_put(0x4E00 + (uint32_t)i % 600, at);
    const char *path = file_put_text("many.txt", many);
    rig_t rig = rig_open(&pl_text_dataset, PL_TEST,
                         "{\"path\": \"%s\", \"context\": 3000}", path);
    is_int(rig.code, PL_OK, "more than 256 characters: %s", rig.err.text);
    rig_read(&rig, INDEX(0));
    ok(((int64_t *)rig.field[0])[2999] == 599 && ((int64_t *)rig.field[1])[0] == 1,
       "each has its token");
    like(rig.info.data_info, "\"vocabulary_size\":600.*\"context\":3000", "are counted");
    rig_close(&rig);
    rig = rig_open(&pl_text_dataset, PL_TEST,
                   "{\"path\": \"%s\", \"context\": 9000, \"vocabulary\": \"byte\"}",
                   path);
    is_text(rig.info.data_info,
            "{\"vocabulary_size\":256,\"vocabulary\":\"\",\"context\":9000}", "bytes");
    rig_read(&rig, INDEX(0));
    int wrong = 0;
    for (int i = 0; i < 9000; i++)
        wrong += ((int64_t *)rig.field[0])[i] != (uint8_t)many[i];
    is_int(wrong, 0, "as they are");
    rig_close(&rig);
    refused(rig_open(&pl_text_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                     file_put("bad.txt", "ab\xff", 3)),
            PL_EFORMAT, "bad.txt: byte 2: .*\"byte\"", "text that is no UTF-8");
    free(many);
}

static void tiny_shakespeare_has_65_characters(void)
{
    const char *path = tap_data("text/tinyshakespeare.txt");
    if (!path) {
        tap_skip("PACELINE_TEST_DATA is not set");
        return;
    }
    rig_t rig = rig_open(&pl_text_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    is_int(rig.info.samples, 1115394 / 64, "all of it");
    is_text(rig.info.data_info,
            "{\"vocabulary_size\":65,\"vocabulary\":\"\\n !$&',-.3:;?"
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
            "abcdefghijklmnopqrstuvwxyz\",\"context\":64}",
            "data info");
    rig_close(&rig);
}

static void a_share_or_file_has_the_vocabulary_of_the_training(void)
{
    static const char data_info[] = "{\"vocabulary\": \"abcd\", \"vocabulary_size\": 4}";
    char options[4200];
    snprintf(options, sizeof options, "{\"path\": \"%s\", \"context\": 3}",
             file_put_text("test.txt", "dcd"));
    rig_t rig = rig_open_told(&pl_text_dataset, PL_TEST, data_info, options);
    rig_read(&rig, INDEX(0));
    const int64_t *x = rig.field[0];
    ok(x[0] == 3 && x[1] == 2, "so that tokens mean the same");
    rig_close(&rig);
    file_put_text("test.txt", "dce");
    refused(rig_open_told(&pl_text_dataset, PL_TEST, data_info, options), PL_EINVAL,
            "test.txt: .*'e'.* is not in the vocabulary", "a character that it lacks");
}

/* Makes a folder below tap_folder(); -> its path, until the next call. */
static const char *folder_put(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    mkdir(path, 0777);
    return path;
}

/* What a data set of characters has, with "|" for U+0003; the text is in `vocabulary`. */
static const char *tokens_as_text(rig_t *rig)
{
    static char text[200];
    json_error_t why;
    json_t *info = json_loads(rig->info.data_info, 0, &why);
    const char *characters = json_string_value(json_object_get(info, "vocabulary"));
    const int64_t *x;
    text[0] = '\0';
    for (int64_t k = 0; k < rig->info.samples; k++) {
        rig_read(rig, INDEX(k));
        x = rig->field[0];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%c",
                 characters[x[0]] == '\3' ? '|' : characters[x[0]]);
    }
    json_decref(info);
    return text;
}

#define ONE "{\"path\": \"%s\", \"context\": 1%s}"

static void a_folder_of_texts_is_one_text_with_separators(void)
{
    char path[600];
    folder_put("tree");
    folder_put("tree/a");
    file_put("tree/b.txt", "dog", 3);
    file_put("tree/a/2.md",
             "\xEF\xBB\xBF"
             "owl\r\n",
             8);
    file_put("tree/a/1", "cat", 3);
    file_put("tree/a/empty", "", 0);
    file_put("tree/.hidden", "never", 5);
    file_put("tree/c.png", "\x89PNG\0\0", 6);
    file_put("tree/d.jsonl", "{\"text\": \"hen\"}\n", 16);
    snprintf(path, sizeof path, "%s/tree", tap_folder());
    rig_t rig = rig_open(&pl_text_dataset, PL_VALIDATE, ONE, path, "");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    is_text(tokens_as_text(&rig), "cat|owl\n|dog|he",
            "in the order of names, without other and empty files");
    rig_close(&rig);
    rig = rig_open(&pl_text_dataset, PL_VALIDATE, ONE, path, ", \"separator\": \"--\"");
    is_text(tokens_as_text(&rig), "cat--owl\n--dog--he", "the separator is an option");
    rig_close(&rig);
    char options[700];
    snprintf(options, sizeof options, ONE, path, "");
    rig_t told = rig_open_told(&pl_text_dataset, PL_VALIDATE,
                               "{\"vocabulary\": \"\\nacdeghlnotw\"}", options);
    is_text(tokens_as_text(&told), "catowl\ndoghe",
            "it is left out where the vocabulary of training lacks it");
    rig_close(&told);
    file_put("tree/e.txt", "good\xff", 5);
    refused(rig_open(&pl_text_dataset, PL_TRAIN, ONE, path, ""), PL_EFORMAT,
            "tree/e.txt: byte 4: this is not UTF-8; use the vocabulary \"byte\"",
            "the file that is not UTF-8 is named");
    rig = rig_open(&pl_text_dataset, PL_VALIDATE, ONE, path,
                   ", \"vocabulary\": \"byte\"");
    rig_read(&rig, INDEX(3));
    is_int(*(const int64_t *)rig.field[0], 3, "bytes have the separator, too");
    rig_close(&rig);
    folder_put("void");
    file_put("void/a.txt", "", 0);
    snprintf(path, sizeof path, "%s/void", tap_folder());
    refused(rig_open(&pl_text_dataset, PL_TRAIN, ONE, path, ""), PL_EFORMAT,
            "void: there is no text", "a folder without texts");
    refused(rig_open(&pl_text_dataset, PL_TRAIN, ONE, path,
                     ", \"vocabulary\": \"numbers\""),
            PL_EINVAL, "void", "a folder has no tokens");
}

static void texts_of_json_lines_are_tokens(void)
{
    static const char lines[] =
        "{\"text\": \"a\\nb\", \"id\": 1}\n\n{\"text\": null}\n"
        "{\"id\": 2, \"text\": \"cd\", \"m\": {\"c\": \"xyz\"}}\n";
    const char *path = file_put("t.jsonl", lines, sizeof lines - 1);
    rig_t rig = rig_open(&pl_text_dataset, PL_VALIDATE, ONE, path, "");
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    is_text(tokens_as_text(&rig), "a\nb|c", "the field \"text\" of each line");
    rig_close(&rig);
    rig = rig_open(&pl_text_dataset, PL_VALIDATE, ONE, path, ", \"field\": \"\"");
    ok(rig.info.samples > 60, "or all of the file: %s", rig.err.text);
    rig_close(&rig);
    refused(rig_open(&pl_text_dataset, PL_TRAIN, ONE, path, ", \"field\": \"id\""),
            PL_EFORMAT, "t.jsonl:1: the field \"id\" is no text", "a number");
    refused(rig_open(&pl_text_dataset, PL_TRAIN, ONE, path, ", \"field\": \"m.c\""),
            PL_EFORMAT, "t.jsonl:1: there is no field \"m.c\"",
            "a field that is missing");
    rig = rig_open(&pl_text_dataset, PL_VALIDATE, ONE,
                   file_put("nest.jsonl", "{\"m\": {\"c\": \"xyz\"}}", 19),
                   ", \"field\": \"m.c\"");
    is_text(tokens_as_text(&rig), "xy", "a field in an object: %s", rig.err.text);
    rig_close(&rig);
    refused(rig_open(&pl_text_dataset, PL_TRAIN, ONE,
                     file_put("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\n", 26),
                     ""),
            PL_EFORMAT, "bad.jsonl:2:", "damage is named with its line");
}

static void a_folder_of_classes_of_texts_is_a_table(void)
{
    char options[700];
    folder_put("mail");
    folder_put("mail/ham");
    folder_put("mail/spam");
    file_put("mail/ham/1", "see you", 7);
    file_put("mail/ham/2", "you see\xff", 8);
    file_put("mail/spam/1", "free prize", 10);
    file_put("mail/spam/2", "prize free", 10);
    snprintf(options, sizeof options,
             "{\"path\": \"%s\", \"fields\": {\"y\": \"class\"}, \"texts\": \"words\"}",
             folder_put("mail"));
    rig_t rig = rig_open_told(&pl_csv_dataset, PL_TRAIN, NULL, options);
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    is_int(rig.info.samples, 4, "a row for each file");
    like(rig.info.data_info, "\"class_names\": .\"ham\", ?\"spam\".", "classes by name");
    rig_read(&rig, INDEX(0, 1, 2, 3));
    const int64_t *y = rig.field[1];
    ok(y[0] == 0 && y[1] == 0 && y[2] == 1 && y[3] == 1, "the class of each");
    rig_t predict = rig_open_told(&pl_csv_dataset, PL_PREDICT, rig.info.data_info,
                                  options);
    is_int(predict.info.samples, 4, "without classes, too: %s", predict.err.text);
    rig_close(&predict);
    rig_close(&rig);
    opens_without_memory(&pl_csv_dataset, "path", folder_put("mail"));
    folder_put("mail/none");
    refused(rig_open_told(&pl_csv_dataset, PL_TRAIN, NULL, options), PL_EFORMAT,
            "mail/none: there is no text of this class", "a class without texts");
    snprintf(options, sizeof options, "{\"path\": \"%s\"}", folder_put("tree/a"));
    refused(rig_open_told(&pl_csv_dataset, PL_TRAIN, NULL, options), PL_EFORMAT,
            "tree/a has no folders: put the texts of each class into a folder",
            "a folder without classes");
}

static void documents_leave_nothing_behind_without_memory(void)
{
    const char *path = folder_put("small");
    file_put("small/a.txt", "one", 3);
    file_put("small/b.jsonl", "{\"text\": \"two\"}", 15);
    opens_without_memory(&pl_text_dataset, "path", path);
}

/* ---- lines ---- */

/* Sample i as "x -> y" with what it is padded by, "." for no target. */
static const char *shown(const rig_t *rig, int i, char text[64])
{
    int at = 0;
    for (int k = 0; k < 2; k++) {
        const int64_t *token = (int64_t *)rig->field[k] + i * rig->length;
        for (int64_t t = 0; t < rig->length; t++)
            text[at++] = "./abcdefgh"[token[t] + 1];
        if (k == 0)
            at += sprintf(text + at, " -> ");
    }
    text[at] = '\0';
    return text;
}

static void a_line_is_a_sample_as_long_as_it_is(void)
{
    char text[64];
    const char *path = file_put_text("lines.txt", "abc\n\nd\nefgh");
    rig_t rig = rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    is_int(rig.info.samples, 3, "empty ones are none: %s", rig.err.text);
    ok(has_field(&rig, 0, "x", PL_I64, "-1") && has_field(&rig, 1, "y", PL_I64, "-1"),
       "fields");
    is_text(rig.info.data_info,
            "{\"vocabulary_size\":9,\"vocabulary\":\"\\nabcdefgh\",\"context\":64}",
            "data info");
    rig_read(&rig, INDEX(1, 0, 2));
    is_int(rig.length, 5, "the longest of the batch");
    is_text(shown(&rig, 0, text), "/d/// -> d/...", "each from newline to newline");
    is_text(shown(&rig, 1, text), "/abc/ -> abc/.", "and then padding");
    is_text(shown(&rig, 2, text), "/efgh -> efgh/", "also the last");
    rig_close(&rig);
    rig = rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\", \"context\": 3}",
                   path);
    rig_read(&rig, INDEX(0, 1, 2));
    is_text(shown(&rig, 0, text), "/ab -> abc", "what is too long is cut");
    is_text(shown(&rig, 1, text), "/d/ -> d/.", "what is not is whole");
    is_int(rig.length, 3, "and no more");
    rig_close(&rig);
}

static void lines_of_a_folder_are_samples(void)
{
    char text[64], path[600], options[700];
    folder_put("parts");
    folder_put("parts/more");
    file_put("parts/more/c.jsonl", "{\"text\": \"g\\nh\"}\n{\"text\": \"a\"}\n", 30);
    file_put("parts/b.txt", "d\nef\n", 5);
    file_put("parts/a.txt", "abc", 3);
    snprintf(path, sizeof path, "%s/parts", tap_folder());
    rig_t rig = rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path);
    is_int(rig.info.samples, 6, "of each file, and of each text of JSON Lines: %s",
           rig.err.text);
    rig_read(&rig, INDEX(0, 1, 2, 3, 4, 5));
    is_text(shown(&rig, 0, text), "/abc -> abc/", "in the order of names, also behind");
    is_text(shown(&rig, 1, text), "/d// -> d/..", "a file without a line end");
    is_text(shown(&rig, 3, text), "/g// -> g/..", "a text may have several lines");
    is_text(shown(&rig, 5, text), "/a// -> a/..", "up to the last");
    snprintf(options, sizeof options, "{\"path\": \"%s/b.txt\"}", path);
    rig_t told = rig_open_told(&pl_lines_dataset, PL_VALIDATE, rig.info.data_info,
                               options);
    is_int(told.info.samples, 2, "a file may follow a folder: %s", told.err.text);
    rig_close(&told);
    rig_close(&rig);
    refused(rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\", \"field\": \"t\"}",
                     path),
            PL_EFORMAT, "parts/more/c.jsonl:1: there is no field \"t\": name the one",
            "file and line are named");
    file_put("parts/c.txt", "good\n\xff", 6);
    refused(rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\"}", path), PL_EFORMAT,
            "parts/c.txt: byte 5: this is not UTF-8", "or the byte");
}

static void line_ends_of_windows_and_its_mark_are_no_text(void)
{
    static const char *const sets[] = {"char", "byte"};
    const pl_dataset_ops_t *const ops[] = {&pl_text_dataset, &pl_lines_dataset};
    for (int k = 0; k < 4; k++) {
        rig_t rig[2];
        const char *text[] = {"ab\nb\n\nca\rb\n", "\xEF\xBB\xBF"
                                                  "ab\r\nb\r\n\r\nca\rb\r\n"};
        for (int i = 0; i < 2; i++)
            rig[i] = rig_open(ops[k / 2], PL_VALIDATE,
                              "{\"path\": \"%s\", \"context\": 4, \"vocabulary\": "
                              "\"%s\"}",
                              file_put_text(i ? "crlf.txt" : "lf.txt", text[i]),
                              sets[k % 2]);
        is_int(rig[1].code, PL_OK, "opened: %s", rig[1].err.text);
        is_text(rig[1].info.data_info, rig[0].info.data_info,
                "the vocabulary is the same");
        is_int(rig[1].info.samples, rig[0].info.samples, "as many samples");
        for (int64_t i = 0; i < rig[0].info.samples; i++) {
            rig_read(&rig[0], 1, &i);
            rig_read(&rig[1], 1, &i);
            const size_t bytes = sizeof(int64_t) * (size_t)(k < 2 ? 4 : rig[0].length);
            ok(!memcmp(rig[0].field[0], rig[1].field[0], bytes), "of the same tokens");
        }
        rig_close(&rig[0]);
        rig_close(&rig[1]);
    }
}

static void a_text_without_lines_is_refused(void)
{
    refused(rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                     file_put_text("one.txt", "abc")),
            PL_EFORMAT, "one.txt: there is no line end", "a text without newlines");
    refused(rig_open(&pl_lines_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                     file_put_text("none.txt", "\n\n")),
            PL_EFORMAT, "none.txt: all lines are empty", "or with nothing else");
}

/* ---- memory ---- */

static const float rows[3][2] = {{1, 2}, {3, 4}, {5, 6}};
static const int64_t targets[3] = {7, 8, 9};

static pl_arrays_t three_rows(void)
{
    return (pl_arrays_t){.samples = 3,
                         .field_count = 2,
                         .data_info = "{\"classes\": 10}",
                         .field = {{"x", PL_F32, {.rank = 1, .dim = {2}}},
                                   {"y", PL_I64, {.rank = 0}}},
                         .data = {rows, targets}};
}

static void arrays_of_the_program_are_served(void)
{
    pl_arrays_t arrays = three_rows();
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_OK, "registered");
    memset(&arrays, 0, sizeof arrays);                      /* it was copied */
    rig_t rig = rig_open(&pl_memory_dataset, PL_TRAIN, "{\"source\": \"rows\"}");
    is_int(rig.code, PL_OK, "opened");
    ok(rig.info.samples == 3 && has_field(&rig, 0, "x", PL_F32, "2")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "fields");
    is_text(rig.info.data_info, "{\"classes\": 10}", "data info");
    is_int(rig_read(&rig, INDEX(2, 0)), PL_OK, "read");
    ok(((float *)rig.field[0])[1] == 6 && ((float *)rig.field[0])[2] == 1
           && ((int64_t *)rig.field[1])[0] == 9,
       "values");
    rig_close(&rig);
    pl_memory_data("rows", NULL, &err);
    refused(rig_open(&pl_memory_dataset, PL_TRAIN, "{\"source\": \"rows\"}"),
            PL_ENOTFOUND, "no memory data 'rows' in this process",
            "gone when it is removed");
}

static int read_squares(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *error)
{
    for (int i = 0; i < request->count; i++) {
        if (request->index[i] == 5)
            return pl_fail(error, PL_EIO, "the fifth is broken");
        if (request->index[i] == 6)
            return 1;
        ((float *)field[0])[i] = (float)(request->index[i] * request->index[i])
                                 + *(float *)user;
    }
    return PL_OK;
}

static void a_function_of_the_program_is_served(void)
{
    float add = .5f;
    const pl_memory_data_t squares = {.samples = 10,
                                      .field_count = 1,
                                      .field = {{"x", PL_F32, {0}}},
                                      .read = read_squares,
                                      .user = &add};
    is_int(pl_memory_data("squares", &squares, &err), PL_OK, "registered");
    rig_t rig = rig_open(&pl_memory_dataset, PL_TRAIN, "{\"source\": \"squares\"}");
    ok(!rig_read(&rig, INDEX(3)) && *(float *)rig.field[0] == 9.5f && !rig.info.data_info,
       "read");
    is_int(rig_read(&rig, INDEX(5)), PL_EUSER, "its failure");
    is_text(rig.err.text, "memory data 'squares': the fifth is broken", "has its text");
    is_int(rig_read(&rig, INDEX(6)), PL_EUSER, "a failure without a text");
    is_text(rig.err.text, "memory data 'squares': its read function failed",
            "has one too");
    rig_close(&rig);
    pl_memory_data("squares", NULL, &err);
}

static void a_source_in_use_outlives_its_name(void)
{
    pl_arrays_t arrays = three_rows();
    pl_memory_arrays("rows", &arrays, &err);
    rig_t rig = rig_open(&pl_memory_dataset, PL_TRAIN, "{\"source\": \"rows\"}");
    arrays.samples = 2;
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_OK, "another of the same name");
    ok(!rig_read(&rig, INDEX(2)), "the first is still served");
    rig_t second = rig_open(&pl_memory_dataset, PL_TRAIN, "{\"source\": \"rows\"}");
    is_int(second.info.samples, 2, "a later reader gets the second");
    pl_memory_data("rows", NULL, &err);
    ok(!rig_read(&rig, INDEX(2)) && !rig_read(&second, INDEX(1)),
       "both are served without the name");
    rig_close(&rig);
    rig_close(&second);
}

static void impossible_sources_are_refused(void)
{
    pl_arrays_t arrays = three_rows();
    arrays.samples = 0;
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_EINVAL, "no samples");
    arrays = three_rows();
    arrays.field_count = PL_FIELDS + 1;
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_EINVAL, "too many fields");
    arrays = three_rows();
    arrays.field[1].name[0] = '\0';
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_EINVAL, "a field without a name");
    arrays = three_rows();
    arrays.field[0].shape.dim[0] = -1;
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_EINVAL, "a negative shape");
    arrays = three_rows();
    arrays.data[1] = NULL;
    is_int(pl_memory_arrays("rows", &arrays, &err), PL_EINVAL, "no array");
    like(err.text, "memory data 'rows': field 'y' has no array", "is named");
    pl_memory_data_t data = {.samples = 1,
                             .field_count = 1,
                             .field = {{"x", PL_F32, {0}}}};
    is_int(pl_memory_data("rows", &data, &err), PL_EINVAL, "no function");
}

static int register_and_remove(pl_error_t *error)
{
    pl_arrays_t arrays = three_rows();
    int code = pl_memory_arrays("tried", &arrays, error);
    pl_memory_data("tried", NULL, NULL);
    return code;
}

static void memory_may_run_out(void)
{
    pl_arrays_t arrays = three_rows();
    pl_memory_arrays("rows", &arrays, &err);
    opens_without_memory(&pl_text_dataset, "path", file_put_text("m.txt", "some text"));
    opens_without_memory(&pl_lines_dataset, "path", file_put_text("l.txt", "a\nb\n"));
    opens_without_memory(&pl_memory_dataset, "source", "rows");
    pl_memory_data("rows", NULL, &err);
    survives_lack_of_memory(register_and_remove);
}

int main(void)
{
    run(a_folder_of_texts_is_one_text_with_separators);
    run(texts_of_json_lines_are_tokens);
    run(a_folder_of_classes_of_texts_is_a_table);
    run(documents_leave_nothing_behind_without_memory);
    run(files_of_tokens_are_read);
    run(consecutive_windows_count_each_target_once);
    run(training_windows_are_a_function_of_seed_epoch_and_index);
    run(shares_of_a_text_meet_without_overlap);
    run(any_characters_and_bytes_are_tokens);
    run(tiny_shakespeare_has_65_characters);
    run(a_share_or_file_has_the_vocabulary_of_the_training);
    run(a_line_is_a_sample_as_long_as_it_is);
    run(line_ends_of_windows_and_its_mark_are_no_text);
    run(lines_of_a_folder_are_samples);
    run(a_text_without_lines_is_refused);
    run(arrays_of_the_program_are_served);
    run(a_function_of_the_program_is_served);
    run(a_source_in_use_outlives_its_name);
    run(impossible_sources_are_refused);
    run(memory_may_run_out);
    return tap_done();
}
