/* pictures_rig.h - pictures that a test makes itself */
#ifndef T_PICTURES_RIG_H
#define T_PICTURES_RIG_H

#include "paceline.h"

/* Writes a picture below tap_folder() and makes its folders; name "cats/a.png" decides on
 * the format.  pixel: [height, width, 3].  -> its path, until the next call of the same
 * slot of 8; NULL: the library that writes the format is not installed. */
const char *picture_put(const char *name, int width, int height, const uint8_t *pixel);

/* The same in one colour, 0xrrggbb. */
const char *picture_put_plain(const char *name, int width, int height, uint32_t color);

/* The bytes of a PNG file, from malloc(): with an orientation of EXIF  [0: none]. */
uint8_t *png_make(int width, int height, const uint8_t *pixel, int orientation,
                  size_t *size);

/* The bytes of a JPEG or lossless WebP file, from malloc(); NULL as for picture_put(). */
uint8_t *jpeg_make(int width, int height, const uint8_t *pixel, size_t *size);
uint8_t *webp_make(int width, int height, const uint8_t *pixel, size_t *size);

/* Writes bytes as a file below tap_folder(), and makes its folders; -> its path,
 * likewise. */
const char *bytes_put(const char *name, const void *data, size_t size);

#endif
