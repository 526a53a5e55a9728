/* picture.c - headers of PNG (RFC 2083), JPEG (ITU T.81) and WebP (RFC 9649), and
 * orientations of EXIF
 *
 * No length of a file is trusted: each is compared with the bytes that are there. */
#include "formats/picture.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

static uint32_t big(const uint8_t *bytes, int count)
{
    uint32_t value = 0;
    for (int k = 0; k < count; k++)
        value = value << 8 | bytes[k];
    return value;
}

static uint32_t little(const uint8_t *bytes, int count)
{
    uint32_t value = 0;
    while (count--)
        value = value << 8 | bytes[count];
    return value;
}

/* The orientation in the first directory of EXIF's data, which are a TIFF file: tag
 * 0x0112, one short number.  1 if there is none. */
static int exif_orientation(const uint8_t *tiff, size_t size)
{
    if (size < 14 || (memcmp(tiff, "II*\0", 4) && memcmp(tiff, "MM\0*", 4)))
        return 1;
    uint32_t (*number)(const uint8_t *, int) = tiff[0] == 'I' ? little : big;
    const size_t at = number(tiff + 4, 4);
    if (at > size - 2)
        return 1;
    const uint32_t entries = number(tiff + at, 2);
    for (uint32_t k = 0; k < entries && (size_t)12 * (k + 1) <= size - at - 2; k++) {
        const uint8_t *entry = tiff + at + 2 + (size_t)12 * k;
        const uint32_t value = number(entry + 8, 2);
        if (number(entry, 2) == 0x0112)
            return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

static int truncated(const char *name, const char *kind, size_t size, pl_error_t *err)
{
    return pl_fail(err, PL_EFORMAT, "%s: truncated: the %s file ends at byte %zu", name,
                   kind, size);
}

/* Chunks of PNG: length, type, data, checksum.  The last one is IEND: without it the file
 * is truncated. */
static int png_header(const uint8_t *data, size_t size, const char *name,
                      pl_picture_header_t *header, pl_error_t *err)
{
    if (size < 33 || memcmp(data + 12, "IHDR", 4))
        return truncated(name, "PNG", size, err);
    header->width = (int)(big(data + 16, 4) & INT32_MAX);
    header->height = (int)(big(data + 20, 4) & INT32_MAX);
    for (size_t at = 8; size - at >= 12;) {
        const size_t length = big(data + at, 4);
        if (length > size - at - 12)
            break;
        if (!memcmp(data + at + 4, "eXIf", 4))
            header->orientation = exif_orientation(data + at + 8, length);
        if (!memcmp(data + at + 4, "IEND", 4))
            return PL_OK;
        at += length + 12;
    }
    return truncated(name, "PNG", size, err);
}

/* Segments of JPEG up to the frame's header: 0xff, a marker, a length with itself, data.
 * Which frames can be decoded is the library's matter. */
static int jpeg_header(const uint8_t *data, size_t size, const char *name,
                       pl_picture_header_t *header, pl_error_t *err)
{
    for (size_t at = 2; at + 4 <= size;) {
        const int marker = data[at + 1];
        if (data[at] != 0xff)
            return pl_fail(err, PL_EFORMAT, "%s: byte %zu: no marker of JPEG is here",
                           name, at);
        if (marker == 0xff) { /* filling */
            at++;
            continue;
        }
        const uint8_t *segment = data + at + 4;
        const size_t length = big(data + at + 2, 2);
        if (length < 2 || length > size - at - 2)
            break;
        if (marker == 0xe1 && length >= 8 && !memcmp(segment, "Exif\0\0", 6))
            header->orientation = exif_orientation(segment + 6, length - 8);
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8
            && marker != 0xcc && length >= 8) {
            header->height = (int)big(segment + 1, 2);
            header->width = (int)big(segment + 3, 2);
            return PL_OK;
        }
        if (marker == 0xd9 || marker == 0xda)
            break;
        at += length + 2;
    }
    return truncated(name, "JPEG", size, err);
}

/* Chunks of RIFF: type, length, data, one byte more if the length is odd. */
static int webp_header(const uint8_t *data, size_t size, const char *name,
                       pl_picture_header_t *header, pl_error_t *err)
{
    if (size < 30 || little(data + 4, 4) > size - 8)
        return truncated(name, "WebP", size, err);
    const uint8_t *first = data + 20;
    if (!memcmp(data + 12, "VP8X", 4)) {
        header->width = (int)little(first + 4, 3) + 1;
        header->height = (int)little(first + 7, 3) + 1;
        if (first[0] & 0x02)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "%s: an animation; only single pictures can be read", name);
    } else if (!memcmp(data + 12, "VP8L", 4)) {
        const uint32_t bits = little(first + 1, 4);
        header->width = (int)(bits & 0x3fff) + 1;
        header->height = (int)(bits >> 14 & 0x3fff) + 1;
    } else {
        header->width = (int)little(first + 6, 2) & 0x3fff;
        header->height = (int)little(first + 8, 2) & 0x3fff;
    }
    for (size_t at = 12; size - at >= 8;) {
        const size_t length = little(data + at + 4, 4);
        if (length > size - at - 8)
            break;
        if (!memcmp(data + at, "EXIF", 4)) {
            const uint8_t *exif = data + at + 8;
            const size_t begin = length > 6 && !memcmp(exif, "Exif\0\0", 6) ? 6 : 0;
            header->orientation = exif_orientation(exif + begin, length - begin);
        }
        at += 8 + length + length % 2;
        if (at > size)
            break;
    }
    return PL_OK;
}

int pl_picture_header(const uint8_t *data, size_t size, const char *name,
                      pl_picture_header_t *header, pl_error_t *err)
{
    int code;
    *header = (pl_picture_header_t){.orientation = 1};
    if (size >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8)) {
        header->kind = PL_PNG;
        code = png_header(data, size, name, header, err);
    } else if (size >= 4 && !memcmp(data, "\xff\xd8\xff", 3)) {
        header->kind = PL_JPEG;
        code = jpeg_header(data, size, name, header, err);
    } else if (size >= 12 && !memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4)) {
        header->kind = PL_WEBP;
        code = webp_header(data, size, name, header, err);
    } else {
        return pl_fail(err, PL_EFORMAT,
                       size ? "%s: no picture: its first bytes are not those of PNG, "
                              "JPEG or WebP"
                            : "%s: the file is empty",
                       name);
    }
    if (!code && (header->width < 1 || header->height < 1))
        code = pl_fail(err, PL_EFORMAT, "%s: a picture of %d x %d pixels", name,
                       header->width, header->height);
    return code;
}

int pl_picture_reserve(pl_picture_t *picture, int width, int height, pl_error_t *err)
{
    const size_t bytes = (size_t)width * (size_t)height * 3;
    /* Readers of a row in groups of pixels may read behind the last one. */
    const size_t room = bytes + PL_PICTURE_SLACK;
    if (room > picture->capacity) {
        pl_picture_release(picture);
        picture->pixel = pl_alloc(room);
        if (!picture->pixel)
            return pl_fail(err, PL_ENOMEM, "out of memory: a picture of %d x %d pixels",
                           width, height);
        picture->capacity = room;
    }
    picture->width = width;
    picture->height = height;
    return PL_OK;
}

void pl_picture_release(pl_picture_t *picture)
{
    pl_free(picture->pixel);
    *picture = (pl_picture_t){0};
}
