/* kernel_texts.c - the kernels of a text that the core of the GPUs has printed */
#include "kernel_texts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char title[] = "\n/* ---- ";

/* The text up to `end` with @ for a name, which no digit follows. */
static char *text_unnamed(const char *text, const char *end, const char *name)
{
    const size_t length = strlen(name);
    char *unnamed = malloc((size_t)(end - text) + 1), *to = unnamed;
    while (unnamed && text < end) {
        if (!strncmp(text, name, length) && !isdigit((unsigned char)text[length])) {
            *to++ = '@';
            text += length;
        } else {
            *to++ = *text++;
        }
    }
    if (unnamed)
        *to = '\0';
    return unnamed;
}

int kernel_texts_split(kernel_texts_t *texts, const char *text)
{
    const char *at = strstr(text, title), *end = text + strlen(text);
    *texts = (kernel_texts_t){.head = strndup(text, (size_t)((at ? at : end) - text))};
    while (texts->head && at) {
        const char *name = at + sizeof title - 1, *body = strchr(name, '\n'),
                   *next = strstr(name, title);
        kernel_text_t *grown = realloc(texts->kernel,
                                       (size_t)(texts->count + 1) * sizeof *grown);
        if (!grown)
            break;
        texts->kernel = grown;
        kernel_text_t *kernel = &grown[texts->count++];
        kernel->name = strndup(name, strcspn(name, ": \n"));
        kernel->text = kernel->name ? text_unnamed(body ? body : end, next ? next : end,
                                                   kernel->name)
                                    : NULL;
        if (!kernel->text)
            break;
        at = next;
    }
    return texts->head && !at ? 0 : -1;
}

void kernel_texts_release(kernel_texts_t *texts)
{
    for (int k = 0; k < texts->count; k++) {
        free(texts->kernel[k].name);
        free(texts->kernel[k].text);
    }
    free(texts->kernel);
    free(texts->head);
    *texts = (kernel_texts_t){0};
}

void kernel_text_write(FILE *file, const char *text, const char *name)
{
    for (; *text; text++)
        if (*text == '@')
            fputs(name, file);
        else
            fputc(*text, file);
}
