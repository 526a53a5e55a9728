/* vocabulary.c - tests of engine/formats/vocabulary.c and utf8.c */
#include "formats/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "base/utf8.h"
#include "tap.h"

static pl_error_t err;

static void utf8_is_read_strictly(void)
{
    int wrong = 0;
    uint32_t code;
    char text[4];
    for (uint32_t c = 0; c < 0x110000; c++) {
        int bytes = pl_utf8_put(c, text);
        bool surrogate = c >= 0xD800 && c < 0xE000;
        wrong += pl_utf8_get(text, 4, &code) != (surrogate ? 0 : bytes)
                 || (!surrogate && code != c);
        wrong += pl_utf8_get(text, (size_t)bytes - 1, &code) != 0;
    }
    is_int(wrong, 0, "every code point comes back; surrogates and halves do not");
    ok(!pl_utf8_get("\xC0\x80", 2, &code) && !pl_utf8_get("\xE0\x80\x80", 3, &code)
           && !pl_utf8_get("\xF0\x80\x80\x80", 4, &code),
       "overlong forms are none");
    ok(!pl_utf8_get("\x80", 1, &code) && !pl_utf8_get("\xFF", 1, &code)
           && !pl_utf8_get("\xC3x", 2, &code)
           && !pl_utf8_get("\xF4\x90\x80\x80", 4, &code),
       "stray bytes and what is past the end are none");
}

static void a_vocabulary_is_the_characters_of_a_text_sorted(void)
{
    static const char text[] = "zürich 😀 abba";
    pl_vocabulary_t *v = pl_vocabulary_of(text, strlen(text), "file", &err);
    is_text(pl_vocabulary_characters(v), " abchirzü😀", "by code point");
    is_int(pl_vocabulary_size(v), 10, "each once");
    pl_vocabulary_free(v);
}

static void text_comes_back_from_its_tokens(void)
{
    static const char text[] = "zürich 😀 abba";
    int32_t token[32];
    size_t count, size;
    pl_vocabulary_t *v = pl_vocabulary_new(" abchirzü😀", &err);
    is_int(pl_vocabulary_encode(v, text, strlen(text), token, &count, &err), PL_OK,
           "encoded");
    ok(count == 13 && token[0] == 7 && token[1] == 8 && token[7] == 9,
       "a token for each character");
    char *back = pl_vocabulary_decode(v, token, count, &size, &err);
    ok(size == strlen(text), "as long as it was");
    is_text(back, text, "decoded");
    pl_text_free(back);
    pl_vocabulary_free(v);
}

static void bytes_are_a_vocabulary_too(void)
{
    int32_t token[8];
    size_t count, size;
    pl_vocabulary_t *v = pl_vocabulary_new("", &err);
    is_int(pl_vocabulary_size(v), 256, "of 256");
    is_text(pl_vocabulary_characters(v), "", "without a text");
    ok(!pl_vocabulary_encode(v, "\xff\0a", 3, token, &count, &err) && count == 3
           && token[0] == 255 && token[1] == 0,
       "any byte has a token");
    char *back = pl_vocabulary_decode(v, token, count, &size, &err);
    ok(size == 3 && !memcmp(back, "\xff\0a", 4), "and comes back");
    pl_text_free(back);
    pl_vocabulary_free(v);
}

static void an_unknown_character_is_named(void)
{
    int32_t token[8] = {0, 2, 3};
    size_t count = 77;
    pl_vocabulary_t *v = pl_vocabulary_new("ab\xC3\xBC", &err);
    is_int(pl_vocabulary_encode(v, "ab?", 3, token, &count, &err), PL_EINVAL,
           "a character");
    like(err.text, "byte 2: the character '\\?' \\(U\\+003F\\) is not in the vocabulary",
         "with its place");
    is_int(pl_vocabulary_encode(v, "a\xE2\x82\xAC", 4, token, &count, &err), PL_EINVAL,
           "one of several bytes");
    like(err.text, "byte 1: the character '€' \\(U\\+20AC\\)", "as it looks");
    is_int(pl_vocabulary_encode(v, "a\x01", 2, token, &count, &err), PL_EINVAL,
           "a control character");
    like(err.text, "byte 1: the character '' \\(U\\+0001\\)", "by number only");
    is_int(pl_vocabulary_encode(v, "a\xff", 2, token, &count, &err), PL_EINVAL,
           "a byte that is no character");
    is_int(count, 77, "the count is untouched");
    token[0] = 0, token[1] = 2, token[2] = 3;
    ok(!pl_vocabulary_decode(v, token, 3, NULL, &err), "a token past the end");
    like(err.text, "token 2 is 3; the vocabulary has 0 to 2", "is named");
    pl_vocabulary_free(v);
    ok(!pl_vocabulary_new("ba", &err) && !pl_vocabulary_new("aa", &err)
           && !pl_vocabulary_new("a\xff", &err),
       "a vocabulary must be sorted, distinct and UTF-8");
    ok(!pl_vocabulary_of("ab\xff", 3, "file", &err), "a text must be UTF-8");
    like(err.text, "file: byte 2: .*\"byte\"", "the text says where and what else to do");
    ok(!pl_vocabulary_of("a\0b", 3, "file", &err), "a zero has no place in it");
    ok(!pl_vocabulary_of("", 0, "file", &err), "nor has nothing");
}

static int use(pl_error_t *error)
{
    int32_t token[8];
    size_t count;
    char *back = NULL;
    pl_vocabulary_t *v = pl_vocabulary_of("abc", 3, "file", error), *again = NULL,
                    *bytes = NULL;
    if (v)
        again = pl_vocabulary_new(pl_vocabulary_characters(v), error);
    if (again && !pl_vocabulary_encode(again, "cab", 3, token, &count, error))
        back = pl_vocabulary_decode(again, token, count, NULL, error);
    if (back)
        bytes = pl_vocabulary_new("", error);
    int code = bytes ? PL_OK : error->code;
    pl_text_free(back);
    pl_vocabulary_free(bytes);
    pl_vocabulary_free(again);
    pl_vocabulary_free(v);
    return code;
}

static void memory_may_run_out(void)
{
    survives_lack_of_memory(use);
}

int main(void)
{
    run(utf8_is_read_strictly);
    run(a_vocabulary_is_the_characters_of_a_text_sorted);
    run(text_comes_back_from_its_tokens);
    run(bytes_are_a_vocabulary_too);
    run(an_unknown_character_is_named);
    run(memory_may_run_out);
    return tap_done();
}
