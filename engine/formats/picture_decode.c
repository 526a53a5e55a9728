/* picture_decode.c - pictures decoded by libspng, TurboJPEG and libwebp
 *
 * A library is opened by the first picture that needs it, and stays open.  The functions
 * and numbers below are of the stable interfaces of libspng 0.7, TurboJPEG 1.4 to 2.1 and
 * libwebp 1. */
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/symbols.h"
#include "formats/picture.h"

enum {
    SPNG_NO_MEMORY = 2,                                     /* SPNG_EMEM */
    SPNG_RGB8 = 4,                                          /* SPNG_FMT_RGB8 */
    JPEG_RGB = 0,                                           /* TJPF_RGB */
    JPEG_LIMIT_SCANS = 32768,                               /* TJFLAG_LIMITSCANS */
};

/* Texts and profiles of a PNG may be large and are not read. */
#define PNG_CHUNK_MAX ((size_t)64 << 20)

static struct {
    void *(*create)(int flags);
    void (*destroy)(void *context);
    int (*set_buffer)(void *context, const void *data, size_t size);
    int (*set_limits)(void *context, size_t chunk, size_t cache);
    int (*decode)(void *context, void *out, size_t size, int format, int flags);
    const char *(*error)(int code);
} png;

static struct {
    void *(*create)(void);
    int (*destroy)(void *handle);
    int (*decode)(void *handle, const unsigned char *data, unsigned long size,
                  unsigned char *out, int width, int pitch, int height, int format,
                  int flags);
    char *(*error)(void *handle);
    int (*is_fatal)(void *handle);
} jpeg;

static struct {
    uint8_t *(*decode)(const uint8_t *data, size_t size, uint8_t *out, size_t out_size,
                       int stride);
} webp;

typedef struct picture_library {
    const char *file, *package, *format;
    pl_symbol_t needed[6];
    bool is_open;
} picture_library_t;

static picture_library_t libraries[] = {
    [PL_PNG] = {"libspng.so.0",
                "libspng0",
                "PNG",
                {{"spng_ctx_new", &png.create},
                 {"spng_ctx_free", &png.destroy},
                 {"spng_set_png_buffer", &png.set_buffer},
                 {"spng_set_chunk_limits", &png.set_limits},
                 {"spng_decode_image", &png.decode},
                 {"spng_strerror", &png.error}}},
    [PL_JPEG] = {"libturbojpeg.so.0",
                 "libturbojpeg0",
                 "JPEG",
                 {{"tjInitDecompress", &jpeg.create},
                  {"tjDestroy", &jpeg.destroy},
                  {"tjDecompress2", &jpeg.decode},
                  {"tjGetErrorStr2", &jpeg.error},
                  {"tjGetErrorCode", &jpeg.is_fatal}}},
    [PL_WEBP] = {"libwebp.so.7",
                 "libwebp7",
                 "WebP",
                 {{"WebPDecodeRGBInto", &webp.decode}}},
};

static pthread_once_t opened[sizeof libraries / sizeof *libraries] = {PTHREAD_ONCE_INIT,
                                                                      PTHREAD_ONCE_INIT,
                                                                      PTHREAD_ONCE_INIT};

static void library_open(picture_library_t *library)
{
    size_t count = 0;
    while (count < sizeof library->needed / sizeof *library->needed
           && library->needed[count].name)
        count++;
    library->is_open = pl_symbols_open(library->file, library->needed, count);
}

static void open_png(void)
{
    library_open(&libraries[PL_PNG]);
}

static void open_jpeg(void)
{
    library_open(&libraries[PL_JPEG]);
}

static void open_webp(void)
{
    library_open(&libraries[PL_WEBP]);
}

static int png_decode(const uint8_t *data, size_t size, const char *name,
                      const pl_picture_t *out, pl_error_t *err)
{
    void *context = png.create(0);
    if (!context)
        return pl_no_memory(err);
    const size_t bytes = (size_t)out->width * (size_t)out->height * 3;
    int code = png.set_limits(context, PNG_CHUNK_MAX, PNG_CHUNK_MAX);
    code = code ? code : png.set_buffer(context, data, size);
    code = code ? code : png.decode(context, out->pixel, bytes, SPNG_RGB8, 0);
    png.destroy(context);
    if (code == SPNG_NO_MEMORY)
        return pl_no_memory(err);
    return code ? pl_fail(err, PL_EFORMAT, "%s: the PNG data are damaged (%s)", name,
                          png.error(code))
                : PL_OK;
}

/* Warnings of libjpeg after which the picture is whole. */
static bool is_harmless(const char *warning)
{
    static const char *const harmless[] = {"extraneous bytes", "JFIF revision", "Adobe"};
    for (size_t k = 0; k < sizeof harmless / sizeof *harmless; k++)
        if (strstr(warning, harmless[k]))
            return true;
    return false;
}

static int jpeg_decode(const uint8_t *data, size_t size, const char *name,
                       const pl_picture_t *out, pl_error_t *err)
{
    void *handle = jpeg.create();
    if (!handle)
        return pl_no_memory(err);
    int code = jpeg.decode(handle, data, (unsigned long)size, out->pixel, out->width,
                           3 * out->width, out->height, JPEG_RGB, JPEG_LIMIT_SCANS);
    const char *text = code ? jpeg.error(handle) : "";
    if (code && (jpeg.is_fatal(handle) || !is_harmless(text)))
        code = pl_fail(err, PL_EFORMAT, "%s: the JPEG data are damaged (%s)", name, text);
    else
        code = PL_OK;
    jpeg.destroy(handle);
    return code;
}

static int webp_decode(const uint8_t *data, size_t size, const char *name,
                       const pl_picture_t *out, pl_error_t *err)
{
    const size_t bytes = (size_t)out->width * (size_t)out->height * 3;
    if (!webp.decode(data, size, out->pixel, bytes, 3 * out->width))
        return pl_fail(err, PL_EFORMAT, "%s: the WebP data are damaged", name);
    return PL_OK;
}

/* Turns and mirrors *from into *to: EXIF 2.3, tag Orientation. */
static int orient(int orientation, const pl_picture_t *from, pl_picture_t *to,
                  pl_error_t *err)
{
    const bool turned = orientation >= 5;
    const int width = turned ? from->height : from->width,
              height = turned ? from->width : from->height;
    /* The row 0 of the file is at the right or bottom; its column 0 likewise. */
    static const struct {
        bool x, y;
    } mirrored[] = {[2] = {1, 0}, [3] = {1, 1}, [4] = {0, 1}, [5] = {0, 0},
                    [6] = {0, 1}, [7] = {1, 1}, [8] = {1, 0}};
    int code = pl_picture_reserve(to, width, height, err);
    for (int y = 0; !code && y < height; y++)
        for (int x = 0; x < width; x++) {
            const int column = turned ? y : x, row = turned ? x : y;
            const int from_x = mirrored[orientation].x ? from->width - 1 - column
                                                       : column,
                      from_y = mirrored[orientation].y ? from->height - 1 - row : row;
            memcpy(to->pixel + ((size_t)y * (size_t)width + (size_t)x) * 3,
                   from->pixel
                       + ((size_t)from_y * (size_t)from->width + (size_t)from_x) * 3,
                   3);
        }
    return code;
}

int pl_picture_decode(const uint8_t *data, size_t size, const char *name,
                      const pl_picture_header_t *header, int shrink,
                      pl_picture_t *picture, pl_picture_t *spare, pl_error_t *err)
{
    static void (*const opens[])(void) = {open_png, open_jpeg, open_webp};
    static int (*const decodes[])(const uint8_t *, size_t, const char *,
                                  const pl_picture_t *,
                                  pl_error_t *) = {png_decode, jpeg_decode, webp_decode};
    const picture_library_t *library = &libraries[header->kind];
    pthread_once(&opened[header->kind], opens[header->kind]);
    if (!library->is_open)
        return pl_fail(err, PL_ENOTFOUND,
                       "%s is a %s picture, and %s is not installed: apt-get install %s",
                       name, library->format, library->file, library->package);
    const int factor = header->kind == PL_JPEG ? shrink : 1;
    pl_picture_t *out = header->orientation > 1 ? spare : picture;
    int code = pl_picture_reserve(out, (header->width + factor - 1) / factor,
                                  (header->height + factor - 1) / factor, err);
    if (!code)
        code = decodes[header->kind](data, size, name, out, err);
    if (!code && header->orientation > 1)
        code = orient(header->orientation, spare, picture, err);
    return code;
}
