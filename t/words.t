#!/usr/bin/env bash
# words.t - tests that texts which users see are plain technical English, by t/words
. "$(dirname "$0")/tap.sh"

sources_have_plain_words() {
    for folder_of in accelerators actors engine examples strategies; do
        is "$(cd "$srcdir" && t/words $(find "$folder_of" -name '*.[ch]' -o -name '*.def' -o -name '*.js' -o -name '*.html' |
            LC_ALL=C sort))" "" "texts of $folder_of/"
    done
}

comments_have_plain_words() {
    for folder_of in accelerators actors engine examples strategies t; do
        is "$(cd "$srcdir" && t/words -c $(find "$folder_of" -name '*.[chkt]' -o -name '*.sh' -o -name '*.py' |
            grep -v '^t/\(words\|page\)\.t$' | LC_ALL=C sort))" "" "comments, names and texts of $folder_of/"
    done
    is "$(cd "$srcdir" && t/words -c Makefile.am configure.ac quickstart)" "" "Makefile.am, configure.ac, quickstart"
}

pages_have_plain_words_and_short_sentences() {
    is "$(cd "$srcdir" && t/words README.md CONTRIBUTING.md doc/*.md)" "" "README.md, CONTRIBUTING.md, doc/"
}

a_word_that_is_refused_is_found() {
    printf 'int f(void) { return pl_fail(err, PL_EINVAL, "%%s goes on anew"); }\n' >bad.c
    like "$("$srcdir/t/words" bad.c)" '^bad\.c:1:%s goes on anew$' "in a source"
    printf 'Somebody\nelse.\n\n```\nnobody\n```\n\n%s.\n' "$(printf 'word %.0s' {1..31})" >bad.md
    try "$srcdir/t/words" bad.md
    is "$(cut -d: -f1-3 <<<"$out")" $'bad.md:1:Somebody\nbad.md:8:31 words' "in a page, not in its code, and a long sentence"
}

a_comment_or_name_that_is_refused_is_found() {
    printf '/* Who\n * asks. */\nint f(void); /* "nobody" */ /* that\n      of it */\n    run(it_goes_on);\n' >bad.c
    printf '# It was\n# told.\nrun nobody_comes\necho who\nok "who asks"\n' >bad.t
    is "$("$srcdir/t/words" -c bad.c bad.t | cut -d: -f1,2 | tr '\n' ' ')" "bad.c:1 bad.c:3 bad.c:5 bad.t:1 bad.t:3 bad.t:5 " \
        "in comments of two lines and at the end of a line, in the names of tests, and in texts"
}

a_long_sentence_in_a_cell_of_a_table_is_found() {
    printf '| a | b |\n|---|---|\n| %s | %s; %s |\n' "$(printf 'word %.0s' {1..30})" "$(printf 'word %.0s' {1..15})" \
        "$(printf 'word %.0s' {1..15})" >table.md
    try "$srcdir/t/words" table.md
    is "$(cut -d: -f1-3 <<<"$out")" 'table.md:3:31 words' "one of 31 words with a semicolon; cells are separate"
}

run a_word_that_is_refused_is_found
run a_comment_or_name_that_is_refused_is_found
run a_long_sentence_in_a_cell_of_a_table_is_found
run sources_have_plain_words
run comments_have_plain_words
run pages_have_plain_words_and_short_sentences
done_testing
