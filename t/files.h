/* files.h - what tests of file formats share: files, damage, lack of memory */
#ifndef T_FILES_H
#define T_FILES_H

#include "paceline.h"

/* Writes a file into tap_folder(); -> its path, until the next call of the same slot of
 * 8. */
const char *file_put(const char *name, const void *data, size_t size);
const char *file_put_text(const char *name, const char *text);
/* The same, compressed. */
const char *file_put_gzip(const char *name, const void *data, size_t size);
/* All of a file and a NUL behind it, from malloc(); NULL when it is not there. */
uint8_t *file_get(const char *path, size_t *size);
/* A file that lies beside the tests, "data/numpy.npy". */
const char *file_of_tests(const char *name);
/* How many entries a directory has. */
int files_in(const char *directory);

/* A reader under test: of a file in memory, exactly as large as it is.  0 or an error
 * code. */
typedef int (*reader_t)(const uint8_t *data, size_t size, pl_error_t *err);

/* Feeds every truncation, and every byte changed in several ways: each must give an error
 * with text, or be read. Truncations must fail unless `prefixes_are_valid`. */
void survives_damage(reader_t reader, const uint8_t *data, size_t size,
                     bool prefixes_are_valid);

/* Makes the first, the second, … allocation fail until `attempt` succeeds; each failure
 * must be PL_ENOMEM and leave nothing behind. */
void survives_lack_of_memory(int (*attempt)(pl_error_t *err));

#endif
