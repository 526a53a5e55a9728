/* command.c - the commands of commands.def as tables, and the parser of their words */
#include "cli/command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPTIONS = 32 };                                      /* of a command at most */

/* ---- the tables ---- */

#define ENTRY(kind_, command, field_, fallback_, least_, needed_, what_, help_) \
    {.name = #field_, \
     .kind = CLI_KIND_##kind_, \
     .offset = offsetof(cli_##command##_t, field_), \
     .fallback = fallback_, \
     .min = least_, \
     .needed = needed_, \
     .what = what_, \
     .help = help_},

#define CLI_COMMAND(command, help, more) static const cli_option_t command##_options[] = {
#define CLI_OPERAND(command, field, needed, what, help) \
    ENTRY(OPERAND, command, field, 0, 0, needed, what, help)
#define CLI_WORDS(command, field, what, help) \
    ENTRY(WORDS, command, field, 0, 0, true, what, help)
#define CLI_FLAG(command, field, help) \
    ENTRY(FLAG, command, field, 0, 0, false, NULL, help)
#define CLI_TEXT(command, field, what, help) \
    ENTRY(TEXT, command, field, 0, 0, false, what, help)
#define CLI_TEXTS(command, field, what, help) \
    ENTRY(TEXTS, command, field, 0, 0, false, what, help)
#define CLI_COUNT(command, field, fallback, min, what, help) \
    ENTRY(COUNT, command, field, fallback, min, false, what, help)
#define CLI_REAL(command, field, fallback, min, what, help) \
    ENTRY(REAL, command, field, fallback, min, false, what, help)
/* clang-format off */
#define CLI_END(command) {.name = NULL}};
/* clang-format on */
#include "cli/commands.def"

const cli_command_t cli_commands[] = {
#define CLI_COMMAND(command, help, more) \
    {#command, help, more, sizeof(cli_##command##_t), command##_options},
#include "cli/commands.def"
    {.name = NULL},
};

const cli_section_t cli_sections[] = {
    {"trainer", "trainer", "length of the run, devices, precision, checks and logs"},
    {"data", "data", "in addition to the options of the data set"},
    {"data.sources", "data", "separate sources, instead of the name of one data set"},
    {"module", "module", "in addition to the options of the module"},
    {"optimizer", "optimizer", "in addition to the options of the optimizer"},
    {"optimizer.groups", "optimizer.groups",
     "in each group, in addition to the options of the optimizer"},
    {"averaging", "averaging", "in addition to the options of the average"},
    {NULL, NULL, NULL},
};

const cli_command_t *cli_command_find(const char *name)
{
    const cli_command_t *command = cli_commands;
    while (command->name && strcmp(command->name, name))
        command++;
    return command->name ? command : NULL;
}

int cli_command_unknown(const char *word, pl_error_t *err)
{
    const char *names[] = {
#define CLI_COMMAND(command, help, more) #command,
#include "cli/commands.def"
        NULL};
    static const char *const others[][2] = {{"eval", "test"},
                                            {"evaluate", "test"},
                                            {"infer", "predict"},
                                            {"train", "fit"},
                                            {"version", "--version"}};
    const char *near = NULL;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (!strcmp(others[k][0], word))
            near = others[k][1];
    if (!near)
        near = pl_nearest(word, names);
    return pl_fail(err, PL_EINVAL, "no command is called \"%s\": %s%s%s", word,
                   near ? "did you mean \"" : "see paceline --help", near ? near : "",
                   near ? "\"?" : "");
}

bool cli_is_operand(const cli_option_t *option)
{
    return option->kind == CLI_KIND_OPERAND || option->kind == CLI_KIND_WORDS;
}

const cli_option_t *cli_command_words(const cli_command_t *command)
{
    const cli_option_t *option = command->options;
    while (option->name && option->kind != CLI_KIND_WORDS)
        option++;
    return option->name ? option : NULL;
}

const char *cli_option_flag(const cli_option_t *option, char text[64])
{
    snprintf(text, 64, "--%s", option->name);
    for (char *c = text; *c; c++)
        if (*c == '_')
            *c = '-';
    return text;
}

const char *cli_option_type(const pl_option_t *option)
{
    static const char *const type_names[] = {
        [PL_OPTION_END] = "",
        [PL_OPTION_INT] = "integer",
        [PL_OPTION_FLOAT] = "number",
        [PL_OPTION_BOOL] = "true|false",
        [PL_OPTION_TEXT] = "text",
        [PL_OPTION_INTS] = "integers",
        [PL_OPTION_REALS] = "numbers",
        [PL_OPTION_TEXTS] = "texts by name",
        [PL_OPTION_AMOUNT] = "share or count",
        [PL_OPTION_COMPONENT] = "component",
        [PL_OPTION_GROUPS] = "list of objects",
        [PL_OPTION_INTERVAL] = "share, count or time",
        [PL_OPTION_COMPONENTS] = "component or list of them",
        [PL_OPTION_SPAN] = "integer, MIN:MAX or [NUMBER, ...]",
        [PL_OPTION_WORD] = "text",
        [PL_OPTION_JSON] = "JSON",
    };
    return type_names[option->type];
}

const char *cli_range_words(const char *range, char words[64])
{
    const char *dots = strstr(range, "..");
    if (!dots || !strpbrk(range, "([])"))
        return range;
    const char *low = range + strspn(range, "(["), *high = dots + 2;
    int length = (int)strcspn(high, ")]");
    snprintf(words, 64, "%s %.*s%s%.*s",
             *low == *dots   ? ""
             : *range == '(' ? "above"
                             : "from",
             (int)(dots - low), low,
             !length               ? ""
             : high[length] == ')' ? " to below "
                                   : " to ",
             length, high);
    return words;
}

/* ---- words ---- */

typedef struct word_parser {
    const cli_command_t *command;
    int count, at;
    char **words;
    char *into;                                             /* the command's struct */
    pl_error_t *err;
} word_parser_t;

/* The option of the command that a word means: by letters the nearest one, otherwise the
 * option of the checkpoint for words of other engines; NULL: none. */
static const char *option_meant(const word_parser_t *r, const char *word, bool by_letters)
{
    static const char *const checkpoints[] = {"checkpoint",  "ckpt",
                                              "ckpt_path",   "load",
                                              "resume_from", "resume_from_checkpoint"};
    const char *names[OPTIONS + 1] = {NULL}, *found = NULL;
    int count = 0;
    for (const cli_option_t *o = r->command->options; o->name && count < OPTIONS; o++)
        if (!cli_is_operand(o))
            names[count++] = o->name;
    if (by_letters)
        return pl_nearest(word, names);
    for (int k = count - 1; k >= 0; k--)
        if (!strcmp(names[k], "resume") || !strcmp(names[k], "checkpoint"))
            found = names[k];
    for (size_t k = 0; k < sizeof checkpoints / sizeof *checkpoints; k++)
        if (!strcmp(checkpoints[k], word))
            return found;
    return NULL;
}

static int fail_flag(const word_parser_t *r, const char *word, size_t length)
{
    char given[64], flag[64], word_of[64];
    bool sets = false;
    snprintf(given, sizeof given, "%.*s", (int)length, word);
    snprintf(word_of, sizeof word_of, "%s", given + strspn(given, "-"));
    for (char *c = word_of; *c; c++)
        *c = *c == '-' ? '_' : *c;
    for (const cli_option_t *o = r->command->options; o->name; o++)
        sets |= !strcmp(o->name, "set");
    const char *near = option_meant(r, word_of, false);
    char *key = sets && !near ? pl_options_key(word_of) : NULL,
         *hint = sets && !near ? pl_options_hint(word_of) : NULL;
    if (key)
        pl_fail(r->err, PL_EINVAL, "%s has no option %s: did you mean --set %s=VALUE?",
                r->command->name, given, key);
    else if (hint)
        pl_fail(r->err, PL_EINVAL, "%s has no option %s: %s", r->command->name, given,
                hint);
    const bool has_failed = key || hint;
    pl_text_free(key);
    pl_text_free(hint);
    if (has_failed)
        return PL_EINVAL;
    if (!near)
        near = option_meant(r, given + strspn(given, "-"), true);
    if (!near)
        return pl_fail(r->err, PL_EINVAL, "%s has no option %s: see paceline %s --help",
                       r->command->name, given, r->command->name);
    return pl_fail(r->err, PL_EINVAL, "%s has no option %s: did you mean %s?",
                   r->command->name, given,
                   cli_option_flag(&(cli_option_t){.name = near}, flag));
}

/* Replaces a word for the newest run, such as runs/latest, by the name of that run. The
 * result lives as long as the process, like other words. */
static const char *word_of_run(const char *word)
{
    enum { MAX = 16 };
    static char *kept[MAX];
    static int count;
    char *path = count < MAX ? pl_run_path(word) : NULL;
    if (path && strcmp(path, word) != 0)
        return kept[count++] = path;
    pl_text_free(path);
    return word;
}

static int put(const word_parser_t *r, const cli_option_t *option, const char *word)
{
    char *field = r->into + option->offset, flag[64], *end;
    cli_texts_t *texts = (cli_texts_t *)field;
    const bool is_whole = option->kind == CLI_KIND_COUNT;
    switch (option->kind) {
    case CLI_KIND_FLAG: *(bool *)field = true; return PL_OK;
    case CLI_KIND_OPERAND:
    case CLI_KIND_TEXT: *(const char **)field = word_of_run(word); return PL_OK;
    case CLI_KIND_WORDS:
    case CLI_KIND_TEXTS: texts->text[texts->count++] = word; return PL_OK;
    case CLI_KIND_COUNT:
    case CLI_KIND_REAL: break;
    }
    errno = 0;
    const double number = is_whole ? (double)strtoll(word, &end, 10) : strtod(word, &end);
    if (!*word || *end || errno || !isfinite(number) || number < option->min
        || fabs(number) > 1e15)
        return pl_fail(r->err, PL_EINVAL, "%s takes %s of at least %g, not \"%s\"",
                       cli_option_flag(option, flag),
                       is_whole ? "an integer" : "a number", option->min, word);
    if (is_whole)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return PL_OK;
}

/* --flag, --flag=WORD or --flag WORD. */
static int read_flag(word_parser_t *r, const char *word)
{
    char flag[64];
    size_t length = strcspn(word, "=");
    const cli_option_t *option = r->command->options;
    while (option->name
           && (cli_is_operand(option) || strlen(cli_option_flag(option, flag)) != length
               || strncmp(flag, word, length)))
        option++;
    if (!option->name)
        return fail_flag(r, word, length);
    if (option->kind == CLI_KIND_FLAG)
        return word[length] ? pl_fail(r->err, PL_EINVAL, "%s takes no value", flag)
                            : put(r, option, NULL);
    if (word[length])
        return put(r, option, word + length + 1);
    if (r->at + 1 >= r->count)
        return pl_fail(r->err, PL_EINVAL, "%s needs a value: %s", flag, option->what);
    return put(r, option, r->words[++r->at]);
}

static int read_operand(const word_parser_t *r, const char *word)
{
    bool takes_run = false;
    for (const cli_option_t *option = r->command->options; option->name; option++) {
        if (option->kind == CLI_KIND_OPERAND
            && !*(const char **)(r->into + option->offset))
            return put(r, option, word);
        takes_run |= option->kind == CLI_KIND_OPERAND && !strcmp(option->name, "run");
    }
    if (takes_run && access(word, F_OK) == 0)
        return pl_fail(r->err, PL_EINVAL,
                       "%s takes one run file, and not \"%s\" beside it: other data are "
                       "read by --set data.path=%s",
                       r->command->name, word, word);
    return pl_fail(r->err, PL_EINVAL,
                   "%s has one operand too many, \"%s\": see paceline %s --help",
                   r->command->name, word, r->command->name);
}

/* Whether a word is a negative number and not an option: "-1", "-.5". */
static bool is_negative(const char *word)
{
    const char *digits = word + 1 + (word[1] == '.');
    return word[0] == '-' && *digits >= '0' && *digits <= '9';
}

static int read_words(word_parser_t *r, bool *wants_help)
{
    int code = PL_OK;
    bool only_operands = false;
    const cli_option_t *rest = cli_command_words(r->command);
    for (; code == PL_OK && r->at < r->count; r->at++) {
        const char *word = r->words[r->at];
        if (!only_operands && !strcmp(word, "--"))
            only_operands = true;
        else if (!only_operands && (!strcmp(word, "--help") || !strcmp(word, "-h")))
            return *wants_help = true, PL_OK;
        else if (!only_operands && word[0] == '-' && word[1] && !is_negative(word))
            code = read_flag(r, word);
        else if (rest)
            code = put(r, rest, word), only_operands = true;
        else
            code = read_operand(r, word);
    }
    for (const cli_option_t *o = r->command->options; code == PL_OK && o->name; o++) {
        const char *field = r->into + o->offset;
        if (!o->needed)                                     /* others may be no text */
            continue;
        const bool is_given = o->kind == CLI_KIND_WORDS
                                  ? ((const cli_texts_t *)field)->count > 0
                                  : *(const char *const *)field != NULL;
        if (!is_given)
            code = pl_fail(r->err, PL_EINVAL, "%s needs %s: see paceline %s --help",
                           r->command->name, o->what, r->command->name);
    }
    return code;
}

/* Sets defaults, and allocates lists for as many texts as there are words. */
static bool fill(const word_parser_t *r)
{
    for (const cli_option_t *option = r->command->options; option->name; option++) {
        char *field = r->into + option->offset;
        if (option->kind == CLI_KIND_COUNT)
            *(int64_t *)field = (int64_t)option->fallback;
        if (option->kind == CLI_KIND_REAL)
            *(double *)field = option->fallback;
        if (option->kind != CLI_KIND_TEXTS && option->kind != CLI_KIND_WORDS)
            continue;
        ((cli_texts_t *)field)->text = calloc((size_t)r->count + 1, sizeof(char *));
        if (!((cli_texts_t *)field)->text)
            return false;
    }
    return true;
}

void *cli_command_read(const cli_command_t *command, int count, char **words,
                       bool *wants_help, pl_error_t *err)
{
    word_parser_t r = {.command = command, .count = count, .words = words, .err = err};
    *wants_help = false;
    r.into = calloc(1, command->size);
    if (!r.into) {
        pl_fail(err, PL_ENOMEM, "out of memory");
        return NULL;
    }
    int code = fill(&r) ? PL_OK : pl_fail(err, PL_ENOMEM, "out of memory");
    if (code == PL_OK)
        code = read_words(&r, wants_help);
    if (code == PL_OK)
        return r.into;
    cli_command_free(command, r.into);
    return NULL;
}

void cli_command_free(const cli_command_t *command, void *arguments)
{
    for (const cli_option_t *option = command->options; arguments && option->name;
         option++)
        if (option->kind == CLI_KIND_TEXTS || option->kind == CLI_KIND_WORDS)
            free(((cli_texts_t *)((char *)arguments + option->offset))->text);
    free(arguments);
}
