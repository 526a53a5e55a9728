/* pictures_rig.c - pictures that a test makes itself: PNG by zlib, JPEG and WebP by the
 * libraries that read them, where those are installed */
#include "pictures_rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "files.h"
#include "tap.h"

static void put_big(uint8_t *to, size_t value)
{
    for (int k = 0; k < 4; k++)
        to[k] = (uint8_t)(value >> (24 - 8 * k));
}

/* Appends a chunk; -> the new size. */
static size_t chunk(uint8_t *png, size_t size, const char *type, const void *data,
                    size_t length)
{
    put_big(png + size, length);
    memcpy(png + size + 4, type, 4);
    if (length)
        memcpy(png + size + 8, data, length);
    put_big(png + size + 8 + length, crc32(0, png + size + 4, (unsigned)(length + 4)));
    return size + 12 + length;
}

uint8_t *png_make(int width, int height, const uint8_t *pixel, int orientation,
                  size_t *size)
{
    const size_t row = (size_t)width * 3, raw = (row + 1) * (size_t)height;
    uLongf packed = compressBound(raw);
    uint8_t *rows = malloc(raw), *data = malloc(packed), *png = malloc(packed + 200);
    uint8_t header[13] = {[8] = 8, [9] = 2}; /* 8 bits, colours */
    const uint8_t exif[] = {'I',
                            'I',
                            '*',
                            0,
                            8,
                            0,
                            0,
                            0,
                            1,
                            0,
                            0x12,
                            0x01,
                            3,
                            0,
                            1,
                            0,
                            0,
                            0,
                            (uint8_t)orientation,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0,
                            0};
    put_big(header, (size_t)width);
    put_big(header + 4, (size_t)height);
    for (int y = 0; y < height; y++) {
        rows[(size_t)y * (row + 1)] = 0;
        memcpy(rows + (size_t)y * (row + 1) + 1, pixel + (size_t)y * row, row);
    }
    compress2(data, &packed, rows, raw, 6);
    memcpy(png, "\x89PNG\r\n\x1a\n", 8);
    *size = chunk(png, 8, "IHDR", header, sizeof header);
    if (orientation)
        *size = chunk(png, *size, "eXIf", exif, sizeof exif);
    *size = chunk(png, *size, "IDAT", data, packed);
    *size = chunk(png, *size, "IEND", NULL, 0);
    free(rows);
    free(data);
    return png;
}

static void *function_of(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, name) : NULL;
}

uint8_t *jpeg_make(int width, int height, const uint8_t *pixel, size_t *size)
{
    const char *file = "libturbojpeg.so.0";
    void *(*create)(void);
    int (*compress)(void *, const uint8_t *, int, int, int, int, uint8_t **,
                    unsigned long *, int, int, int);
    int (*destroy)(void *);
    *(void **)&create = function_of(file, "tjInitCompress");
    *(void **)&compress = function_of(file, "tjCompress2");
    *(void **)&destroy = function_of(file, "tjDestroy");
    if (!create || !compress || !destroy)
        return NULL;
    void *handle = create();
    uint8_t *data = NULL, *copy;
    unsigned long length = 0;
    if (compress(handle, pixel, width, 3 * width, height, 0, &data, &length, 0, 95, 0))
        abort();
    copy = malloc(length);
    memcpy(copy, data, length);
    *size = length;
    void (*release)(uint8_t *);
    *(void **)&release = function_of(file, "tjFree");
    release(data);
    destroy(handle);
    return copy;
}

uint8_t *webp_make(int width, int height, const uint8_t *pixel, size_t *size)
{
    size_t (*encode)(const uint8_t *, int, int, int, uint8_t **);
    void (*release)(void *);
    uint8_t *data = NULL, *copy;
    *(void **)&encode = function_of("libwebp.so.7", "WebPEncodeLosslessRGB");
    *(void **)&release = function_of("libwebp.so.7", "WebPFree");
    if (!encode || !release)
        return NULL;
    *size = encode(pixel, width, height, 3 * width, &data);
    copy = malloc(*size);
    memcpy(copy, data, *size);
    release(data);
    return copy;
}

const char *bytes_put(const char *name, const void *data, size_t size)
{
    char folder[512];
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%s/%.*s", tap_folder(), (int)(slash - name),
                 name);
        mkdir(folder, 0777);
    }
    return file_put(name, data, size);
}

const char *picture_put(const char *name, int width, int height, const uint8_t *pixel)
{
    size_t size = 0;
    const char *dot = strrchr(name, '.');
    uint8_t *data = !strcmp(dot, ".png")   ? png_make(width, height, pixel, 0, &size)
                    : !strcmp(dot, ".jpg") ? jpeg_make(width, height, pixel, &size)
                                           : webp_make(width, height, pixel, &size);
    const char *path = data ? bytes_put(name, data, size) : NULL;
    free(data);
    return path;
}

const char *picture_put_plain(const char *name, int width, int height, uint32_t color)
{
    const size_t pixels = (size_t)width * (size_t)height;
    uint8_t *pixel = malloc(pixels * 3);
    for (size_t k = 0; k < pixels; k++)
        for (int channel = 0; channel < 3; channel++)
            pixel[3 * k + (size_t)channel] = (uint8_t)(color >> (16 - 8 * channel));
    const char *path = picture_put(name, width, height, pixel);
    free(pixel);
    return path;
}
