/* tap.h - tests that are sentences: Test Anything Protocol on standard output */
#ifndef T_TAP_H
#define T_TAP_H

#include <stdbool.h>

/* Counts and prints one result; the text is the sentence that should hold.  Returns the
 * truth of it. */
#define ok(truth, ...) tap_ok((truth), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, expected, ...) \
    tap_is_int((long long)(got), (long long)(expected), __FILE__, __LINE__, __VA_ARGS__)
#define is_text(got, expected, ...) \
    tap_is_text(got, expected, __FILE__, __LINE__, __VA_ARGS__)
/* pattern is an extended regular expression. */
#define like(got, pattern, ...) tap_like(got, pattern, __FILE__, __LINE__, __VA_ARGS__)
/* |got - expected| <= tolerance * max(1, |expected|) */
#define is_near(got, expected, tolerance, ...) \
    tap_is_near(got, expected, tolerance, __FILE__, __LINE__, __VA_ARGS__)
/* Runs a test function of that name, announced. */
#define run(test) tap_run(#test, test)

bool tap_ok(bool truth, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool tap_is_int(long long got, long long expected, const char *file, int line,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
bool tap_is_text(const char *got, const char *expected, const char *file, int line,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
bool tap_like(const char *got, const char *pattern, const char *file, int line,
              const char *format, ...) __attribute__((format(printf, 5, 6)));
bool tap_is_near(double got, double expected, double tolerance, const char *file,
                 int line, const char *format, ...) __attribute__((format(printf, 6, 7)));
void tap_run(const char *name, void (*test)(void));
void tap_diag(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts `why` as a skipped test. */
void tap_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the plan; 0 when all held: the value for main() to return. */
int tap_done(void);

/* The larger of two; infinite when one is NaN, which fmax() would leave out. */
double tap_larger(double a, double b);

/* Waits for what no event tells of; false: not within 30 s. */
#define eventually(condition) \
    ({ \
        int tap_tries = 0; \
        while (!(condition) && tap_nap(&tap_tries)) \
            ; \
        tap_tries < TAP_TRIES; \
    })
enum { TAP_TRIES = 30000 };
bool tap_nap(int *tries);

/* A folder of this process's own, removed with all in it at exit; where a signal ends the
 * process, by the next one that has a folder. */
const char *tap_folder(void);
/* A file of real data below $PACELINE_TEST_DATA, or NULL when the variable is not set
 * (the caller skips); missing although it is set: a failed test and NULL. */
const char *tap_data(const char *name);

#endif
