/* suggestion.c - the name that a misspelled word probably means */
#include "base/suggestion.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 48

static int min(int a, int b)
{
    return a < b ? a : b;
}

static bool is_same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment; row[0] is the current row, the others the two before. */
int pl_edit_distance(const char *a, const char *b)
{
    size_t rows = strlen(a), columns = strlen(b);
    if (rows > LONGEST || columns > LONGEST)
        return INT_MAX;
    int space[3][LONGEST + 1], *row[3] = {space[0], space[1], space[2]};
    for (size_t j = 0; j <= columns; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= rows; i++) {
        int *oldest = row[2];
        row[2] = row[1], row[1] = row[0], row[0] = oldest;
        row[0][0] = (int)i;
        for (size_t j = 1; j <= columns; j++) {
            row[0][j] = min(row[1][j - 1] + !is_same_letter(a[i - 1], b[j - 1]),
                            min(row[1][j], row[0][j - 1]) + 1);
            if (i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2])
                && is_same_letter(a[i - 2], b[j - 1]))
                row[0][j] = min(row[0][j], row[2][j - 2] + 1);
        }
    }
    return row[0][columns];
}

void pl_suggestion_init(pl_suggestion_t *suggestion, const char *wanted)
{
    *suggestion = (pl_suggestion_t){.wanted = wanted, .distance = INT_MAX};
}

void pl_suggestion_offer(pl_suggestion_t *suggestion, const char *name)
{
    static const char more[] = "…";
    const size_t wanted = strlen(suggestion->wanted);
    /* "16" means the first name that continues with '-', such as "16-mixed". */
    const bool is_begun = wanted && !strncmp(name, suggestion->wanted, wanted)
                          && name[wanted] == '-';
    const int distance = is_begun ? 1 : pl_edit_distance(suggestion->wanted, name);
    if (distance < suggestion->distance) {
        suggestion->distance = distance;
        suggestion->name = name;
    }
    if (suggestion->full)
        return;
    const char *comma = suggestion->length ? ", " : "";
    const size_t capacity = sizeof suggestion->known - sizeof more - 2,
                 length = strlen(comma) + strlen(name);
    suggestion->full = suggestion->length + length > capacity;
    suggestion->length += (size_t)sprintf(suggestion->known + suggestion->length, "%s%s",
                                          comma, suggestion->full ? more : name);
}

/* Whether the nearest name differs by no more edits than a typing error makes. */
static bool is_near(const pl_suggestion_t *suggestion)
{
    return suggestion->name
           && suggestion->distance <= 1 + (int)strlen(suggestion->wanted) / 4;
}

const char *pl_nearest(const char *word, const char *const names[])
{
    pl_suggestion_t suggestion;
    if (!word || !names)
        return NULL;
    pl_suggestion_init(&suggestion, word);
    for (int k = 0; names[k]; k++)
        pl_suggestion_offer(&suggestion, names[k]);
    return is_near(&suggestion) ? suggestion.name : NULL;
}

/* The text of the entry of compat.def with this kind and name, or NULL. */
static const char *foreign_find(char kind, const char *word)
{
    static const struct {
        char kind;
        const char *name, *says;
    } names[] = {
#define PL_FOREIGN(name, says) {'f', #name, says},
#define PL_SYNONYM(name, key) {'s', #name, key},
#define PL_FOREIGN_COMPONENT(name, here) {'c', #name, here},
#define PL_FOREIGN_LAYER(name, here) {'l', #name, here},
#include "base/compat.def"
#undef PL_FOREIGN
#undef PL_SYNONYM
#undef PL_FOREIGN_COMPONENT
#undef PL_FOREIGN_LAYER
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (names[k].kind == kind && !strcmp(names[k].name, word))
            return names[k].says;
    return NULL;
}

const char *pl_compat_advice(const char *word)
{
    return foreign_find('f', word);
}

const char *pl_compat_key(const char *word)
{
    return foreign_find('s', word);
}

const char *pl_compat_component(const char *word)
{
    const char *here = foreign_find('c', word);
    return here ? here : word;
}

/* A name as all engines would write it: "batchnorm" for "BatchNorm2d". */
static void plain_name(const char *name, char plain[LONGEST])
{
    int length = 0;
    for (; (isalnum((unsigned char)*name) || *name == '_') && length < LONGEST - 1;
         name++) {
        const bool is_space = *name >= '1' && *name <= '3' && tolower(name[1]) == 'd';
        name += is_space;
        if (!is_space && *name != '_')
            plain[length++] = (char)tolower((unsigned char)*name);
    }
    plain[length] = '\0';
}

bool pl_is_same_name(const char *a, const char *b)
{
    char plain[2][LONGEST];
    plain_name(a, plain[0]);
    plain_name(b, plain[1]);
    return *plain[0] && !strcmp(plain[0], plain[1]);
}

const char *pl_compat_layer(const char *word)
{
    char plain[LONGEST];
    plain_name(word, plain);
    return foreign_find('l', plain);
}

bool pl_suggestion_is_sure(const pl_suggestion_t *suggestion)
{
    return pl_compat_advice(suggestion->wanted) || is_near(suggestion);
}

const char *pl_suggestion_text(const pl_suggestion_t *suggestion,
                               char text[PL_SUGGESTION_TEXT])
{
    const char *says = pl_compat_advice(suggestion->wanted);
    if (says)
        snprintf(text, PL_SUGGESTION_TEXT, "%s", says);
    else if (is_near(suggestion))
        snprintf(text, PL_SUGGESTION_TEXT, "did you mean \"%s\"?", suggestion->name);
    else if (suggestion->length)
        snprintf(text, PL_SUGGESTION_TEXT, "known are %s", suggestion->known);
    else
        snprintf(text, PL_SUGGESTION_TEXT, "none is known");
    return text;
}
