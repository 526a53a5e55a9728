/* nearest.c - the name somebody may have meant */
#include "base/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 48

static int least(int a, int b)
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
            row[0][j] = least(row[1][j - 1] + !is_same_letter(a[i - 1], b[j - 1]),
                              least(row[1][j], row[0][j - 1]) + 1);
            if (i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2])
                && is_same_letter(a[i - 2], b[j - 1]))
                row[0][j] = least(row[0][j], row[2][j - 2] + 1);
        }
    }
    return row[0][columns];
}

void pl_nearest_init(pl_nearest_t *nearest, const char *wanted)
{
    *nearest = (pl_nearest_t){.wanted = wanted, .distance = INT_MAX};
}

static void list_name(pl_nearest_t *nearest, const char *name)
{
    static const char more[] = "…";
    const char *comma = nearest->length ? ", " : "";
    size_t capacity = sizeof nearest->known - sizeof more - 2,
           length = strlen(comma) + strlen(name);
    if (nearest->full)
        return;
    nearest->full = nearest->length + length > capacity;
    nearest->length += (size_t)sprintf(nearest->known + nearest->length, "%s%s", comma,
                                       nearest->full ? more : name);
}

/* As "16" begins "16-mixed": who leaves the rest out means the first that has one. */
static bool is_begun_by(const char *name, const char *wanted)
{
    const size_t length = strlen(wanted);
    return length && !strncmp(name, wanted, length) && name[length] == '-';
}

void pl_nearest_offer(pl_nearest_t *nearest, const char *name)
{
    int distance = is_begun_by(name, nearest->wanted)
                       ? 1
                       : pl_edit_distance(nearest->wanted, name);
    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->name = name;
    }
    list_name(nearest, name);
}

/* As many edits as a slip of the fingers makes in a word of that length. */
static bool is_near(const pl_nearest_t *nearest)
{
    return nearest->name && nearest->distance <= 1 + (int)strlen(nearest->wanted) / 4;
}

const char *pl_nearest(const char *word, const char *const names[])
{
    pl_nearest_t nearest;
    if (!word || !names)
        return NULL;
    pl_nearest_init(&nearest, word);
    for (int k = 0; names[k]; k++)
        pl_nearest_offer(&nearest, names[k]);
    return is_near(&nearest) ? nearest.name : NULL;
}

/* Of the entry of foreign.def that has this kind and name; NULL: there is none. */
static const char *foreign_find(char kind, const char *word)
{
    static const struct {
        char kind;
        const char *name, *says;
    } names[] = {
#define PL_FOREIGN(name, says) {'f', #name, says},
#define PL_SYNONYM(name, key) {'s', #name, key},
#define PL_COMPONENT(name, here) {'c', #name, here},
#include "base/foreign.def"
#undef PL_FOREIGN
#undef PL_SYNONYM
#undef PL_COMPONENT
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (names[k].kind == kind && !strcmp(names[k].name, word))
            return names[k].says;
    return NULL;
}

const char *pl_foreign(const char *word)
{
    return foreign_find('f', word);
}

const char *pl_synonym(const char *word)
{
    return foreign_find('s', word);
}

const char *pl_component_here(const char *word)
{
    const char *here = foreign_find('c', word);
    return here ? here : word;
}

bool pl_nearest_is_sure(const pl_nearest_t *nearest)
{
    return pl_foreign(nearest->wanted) || is_near(nearest);
}

const char *pl_nearest_text(const pl_nearest_t *nearest, char text[PL_NEAREST_TEXT])
{
    const char *says = pl_foreign(nearest->wanted);
    if (says)
        snprintf(text, PL_NEAREST_TEXT, "%s", says);
    else if (is_near(nearest))
        snprintf(text, PL_NEAREST_TEXT, "did you mean \"%s\"?", nearest->name);
    else if (nearest->length)
        snprintf(text, PL_NEAREST_TEXT, "known are %s", nearest->known);
    else
        snprintf(text, PL_NEAREST_TEXT, "none is known");
    return text;
}
