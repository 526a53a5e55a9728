/* picture.h - pictures of PNG, JPEG and WebP files as bytes of red, green and blue
 *
 * Headers are read here, without a library: so the size of a picture is known before
 * anything is allocated for it.  The libraries that decode are opened when a picture
 * needs them, as libzstd is: neither a build nor other pictures need them. */
#ifndef PL_FORMATS_PICTURE_H
#define PL_FORMATS_PICTURE_H

#include "paceline.h"

typedef enum pl_picture_kind { PL_PNG, PL_JPEG, PL_WEBP } pl_picture_kind_t;

typedef struct pl_picture_header {
    pl_picture_kind_t kind;
    int width, height; /* pixels of the file */
    int orientation;   /* of EXIF, 1 to 8: how the file is to be turned and
                                        mirrored; 1: not at all */
} pl_picture_header_t;

/* The sides change places when the picture is turned. */
static inline bool pl_picture_is_turned(const pl_picture_header_t *header)
{
    return header->orientation >= 5;
}

/* Reads the header of a file in memory.  PL_EFORMAT, PL_EUNSUPPORTED (animations) name
 * `name`. */
int pl_picture_header(const uint8_t *data, size_t size, const char *name,
                      pl_picture_header_t *header, pl_error_t *err);

/* Bytes behind the last pixel that may be read. */
#define PL_PICTURE_SLACK 64

/* All zero: empty. */
typedef struct pl_picture {
    int width, height;
    uint8_t *pixel;  /* [height, width, 3] */
    size_t capacity; /* bytes */
} pl_picture_t;

/* Sets the size and makes room for the pixels, which are undefined.  PL_ENOMEM. */
int pl_picture_reserve(pl_picture_t *picture, int width, int height, pl_error_t *err);
void pl_picture_release(pl_picture_t *picture);

/* Decodes a picture whose header was read, and turns it as EXIF says; *picture and *spare
 * are reused.  shrink: 1, 2, 4 or 8; a JPEG becomes smaller by that factor, rounded up,
 * while it is decoded.  Alpha is left out.  PL_EFORMAT: damaged; PL_ENOTFOUND: the error
 * names the library that is missing and its package. */
int pl_picture_decode(const uint8_t *data, size_t size, const char *name,
                      const pl_picture_header_t *header, int shrink,
                      pl_picture_t *picture, pl_picture_t *spare, pl_error_t *err);

#endif
