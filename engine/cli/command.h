/* command.h - the commands as structs and tables, and the parser of their words */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <paceline.h>

typedef struct cli_texts {
    int count;
    const char **text;                                      /* [count]; words of argv */
} cli_texts_t;

/* One struct for each command: cli_fit_t with a field for each operand and option. */
#define CLI_COMMAND(command, help, more) typedef struct cli_##command {
#define CLI_OPERAND(command, field, needed, what, help) const char *field;
#define CLI_WORDS(command, field, what, help) cli_texts_t field;
#define CLI_FLAG(command, field, help) bool field;
#define CLI_TEXT(command, field, what, help) const char *field;
#define CLI_TEXTS(command, field, what, help) cli_texts_t field;
#define CLI_COUNT(command, field, fallback, min, what, help) int64_t field;
#define CLI_REAL(command, field, fallback, min, what, help) double field;
/* clang-format off */
#define CLI_END(command) } cli_##command##_t;
/* clang-format on */
#include "cli/commands.def"

typedef enum cli_kind {
    CLI_KIND_OPERAND,
    CLI_KIND_WORDS,
    CLI_KIND_FLAG,
    CLI_KIND_TEXT,
    CLI_KIND_TEXTS,
    CLI_KIND_COUNT,
    CLI_KIND_REAL
} cli_kind_t;

typedef struct cli_option {
    const char *name;                                      /* "top_k"; shown as --top-k */
    cli_kind_t kind;
    size_t offset;                              /* of the field in the command's struct */
    double fallback, min;
    bool needed;                                            /* of an operand */
    const char *what, *help;
} cli_option_t;

typedef struct cli_command {
    const char *name, *help, *more;
    size_t size;                                            /* of the command's struct */
    const cli_option_t *options;                            /* up to a NULL name */
} cli_command_t;

/* All commands, up to a NULL name. */
extern const cli_command_t cli_commands[];

/* The sections of a run file that are no components, up to a NULL name; their options are
 * those of pl_options_of(name). */
typedef struct cli_section {
    const char *name, *title, *what;
} cli_section_t;

extern const cli_section_t cli_sections[];

/* The command of that name, or NULL. */
const cli_command_t *cli_command_find(const char *name);

/* Fails for a word that is no command, and suggests one. */
int cli_command_unknown(const char *word, pl_error_t *err);

/* Reads the words after the name of the command into its struct, which cli_command_free()
 * frees; NULL with an error. *wants_help: --help was among them, and the rest is not
 * read. */
void *cli_command_read(const cli_command_t *command, int count, char **words,
                       bool *wants_help, pl_error_t *err);
void cli_command_free(const cli_command_t *command, void *arguments);

/* Whether it is given without a name before it. */
bool cli_is_operand(const cli_option_t *option);
/* The operand that takes the words after the options, which belong to another program
 * [NULL: none]. */
const cli_option_t *cli_command_words(const cli_command_t *command);
/* "--top-k" */
const char *cli_option_flag(const cli_option_t *option, char text[64]);

/* "integer": the type of the values of a component's option. */
const char *cli_option_type(const pl_option_t *option);
/* A range of pl_option_t as words: "(0.." is "above 0", "[0..1)" is "from 0 to below 1";
 * other ranges stay as they are. */
const char *cli_range_words(const char *range, char words[64]);

#endif
