/* pattern.c - tests of names by pattern */
#include "base/pattern.h"

#include <string.h>

#include "tap.h"

static bool fits(const char *pattern, const char *name)
{
    return pl_pattern_matches(pattern, strlen(pattern), name);
}

static void the_whole_name_has_to_fit(void)
{
    ok(fits("h.0.bias", "h.0.bias"), "as it is");
    ok(!fits("h.0", "h.0.bias") && !fits("bias", "h.0.bias"), "not a part of it");
    ok(fits("", "") && !fits("", "h"), "nothing is nothing");
}

static void a_star_is_any_text(void)
{
    ok(fits("*", "h.0.bias") && fits("*", ""), "all of it, or none");
    ok(fits("h.*.bias", "h.10.attention.bias"), "dots included");
    ok(fits("*a*b*", "xaxaxbx") && !fits("*a*b", "xaxbx"), "also several times");
    ok(fits("**s", "s") && fits("s**", "s"), "or nothing at all");
}

static void a_question_mark_is_one_character(void)
{
    ok(fits("h.?.bias", "h.3.bias"), "whatever it is");
    ok(!fits("h.?.bias", "h.10.bias") && !fits("h.0.bias?", "h.0.bias"),
       "not two or none");
}

static void brackets_are_one_of_some(void)
{
    ok(fits("[wb]2", "w2") && fits("[wb]2", "b2") && !fits("[wb]2", "c2"), "of a few");
    ok(fits("h.[0-3x].*", "h.2.w") && fits("h.[0-3x].*", "h.x.w"), "or of a range");
    ok(!fits("h.[0-3x].*", "h.4.w") && !fits("h.[0-3].*", "h.12.w"), "and of no others");
    ok(fits("*[ab]", "cab") && !fits("*[ab]", "abc"), "behind a star, too");
    ok(fits("a[-b]", "a-") && fits("a[b-]", "a-"), "at an end '-' is itself");
    ok(fits("a[b", "a[b") && !fits("a[b", "ab"), "what is not closed is itself");
    ok(!fits("[]a", "]a") && !fits("[]", ""), "among none there is nothing");
}

static void several_have_spaces_between(void)
{
    ok(pl_patterns_match(" wte.*\th.[01].* ", "h.1.w"), "one that fits is enough");
    ok(!pl_patterns_match("wte.* h.[01].*", "h.2.w") && !pl_patterns_match(" ", ""),
       "but needed");
}

int main(void)
{
    run(the_whole_name_has_to_fit);
    run(a_star_is_any_text);
    run(a_question_mark_is_one_character);
    run(brackets_are_one_of_some);
    run(several_have_spaces_between);
    return tap_done();
}
