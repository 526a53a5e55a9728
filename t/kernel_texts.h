/* kernel_texts.h - the kernels of a text that the core of the GPUs has printed, one by
 * one
 *
 * Plans repeat each other: of the kernels of all operator cases a third are different.
 * A program that compiles many texts takes each kernel once. */
#ifndef T_KERNEL_TEXTS_H
#define T_KERNEL_TEXTS_H

#include <stdio.h>

typedef struct kernel_text {
    char *name;
    char *text;                           /* without its title, and with @ for its name */
} kernel_text_t;

typedef struct kernel_texts {
    char *head;                                            /* what all need before them */
    kernel_text_t *kernel;
    int count;
} kernel_texts_t;

/* -> 0, or -1: out of memory. */
int kernel_texts_split(kernel_texts_t *texts, const char *text);
void kernel_texts_release(kernel_texts_t *texts);

/* Writes a kernel under a name. */
void kernel_text_write(FILE *file, const char *text, const char *name);

#endif
