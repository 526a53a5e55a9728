/* fake_script.c - the rules that the fake accelerator follows */
#include "fake_script.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "fails", "is refused", "hangs", "takes 2 ms", "gives nan in fc1.weight" */
static bool action_read(fake_rule_t *rule, const char *text)
{
    int end = 0;
    if (!strcmp(text, "fails"))
        rule->action = FAKE_FAILS;
    else if (!strcmp(text, "is refused"))
        rule->action = FAKE_IS_REFUSED;
    else if (!strcmp(text, "hangs"))
        rule->action = FAKE_HANGS;
    else if (sscanf(text, "takes %lf ms%n", &rule->ms, &end) == 1 && end)
        rule->action = FAKE_TAKES;
    else if (sscanf(text, "gives nan in %63s%n", rule->tensor, &end) == 1 && end)
        rule->action = FAKE_GIVES_NAN;
    else
        return false;
    return end == 0 || text[end] == '\0';
}

static bool rule_read(fake_rule_t *rule, const char *text)
{
    char number[24];
    int end = 0;
    if (sscanf(text, "%15[a-z] %n", rule->what, &end) != 1)
        return false;
    text += end;
    if (sscanf(text, "%20[0-9] %n", number, &end) == 1) {
        rule->number = strtoull(number, NULL, 10);
        text += end;
    }
    if (sscanf(text, "of %19[a-z_] %n", rule->kind, &end) == 1)
        text += end;
    return action_read(rule, text);
}

int fake_script_read(fake_script_t *script, const char *text, pl_error_t *err)
{
    *script = (fake_script_t){0};
    while (*text) {
        char one[160];
        size_t length = strcspn(text, ";"), capacity = sizeof one - 1;
        snprintf(one, sizeof one, "%.*s", (int)(length < capacity ? length : capacity),
                 text);
        if (script->count == FAKE_RULES
            || !rule_read(&script->rule[script->count++], one))
            return pl_fail(err, PL_EINVAL, "no rule for the fake accelerator: \"%s\"",
                           one);
        text += length + (text[length] == ';');
        text += strspn(text, " ");
    }
    return PL_OK;
}

const fake_rule_t *fake_script_find(const fake_script_t *script, const char *what,
                                    uint64_t number, const char *kind,
                                    const fake_rule_t *after)
{
    const fake_rule_t *rule = after ? after + 1 : script->rule;
    for (; rule < script->rule + script->count; rule++)
        if (!strcmp(rule->what, what) && (!rule->number || rule->number == number)
            && (!rule->kind[0] || !strcmp(rule->kind, kind)))
            return rule;
    return NULL;
}
