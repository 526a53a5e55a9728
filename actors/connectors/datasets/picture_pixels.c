/* picture_pixels.c - resizing, cutting, turning and colouring of pictures
 *
 * Results are bytes, which the next function reads faster than floats. */
#include "actors/connectors/datasets/picture_pixels.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

static void swap(pl_picture_work_t *work)
{
    const pl_picture_t picture = work->picture;
    work->picture = work->spare;
    work->spare = picture;
}

/* A pixel of a result is a weighted mean of pixels of the source around its place: a
 * triangle as wide as the pixel, or two pixels of the source. */
typedef struct taps {
    int first, count;
    float weight[];
} taps_t;

static size_t taps_size(double scale)
{
    const size_t count = (size_t)(2 * fmax(scale, 1)) + 3;
    return sizeof(taps_t) + count * sizeof(float);
}

static void taps_make(taps_t *taps, double at, double scale, int size)
{
    const double reach = fmax(scale, 1);
    const int first = (int)fmax(0, ceil(at - reach - 0.5)),
              last = (int)fmin(size - 1, floor(at + reach - 0.5));
    double sum = 0;
    taps->first = first > size - 1 ? size - 1 : first;
    taps->count = last < taps->first ? 1 : last - taps->first + 1;
    for (int k = 0; k < taps->count; k++) {
        const double far = fabs(taps->first + k + 0.5 - at) / reach;
        taps->weight[k] = far < 1 ? (float)(1 - far) : 0;
        sum += (double)taps->weight[k];
    }
    for (int k = 0; k < taps->count; k++)
        taps->weight[k] = sum > 0 ? (float)((double)taps->weight[k] / sum) : k == 0;
}

#define LANES 16

static uint8_t to_byte(float value)
{
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5f);
}

/* Resizes a part of a picture: first rows, whose pixels lie side by side, so that all
 * lanes of the processor work, then columns of the fewer rows that are left. */
int pl_picture_resize(pl_picture_work_t *work, pl_picture_box_t box, int width,
                      int height, pl_error_t *err)
{
    const pl_picture_t *from = &work->picture;
    pl_picture_t *to = &work->spare;
    const double x_scale = box.width / width, y_scale = box.height / height;
    const size_t x_taps = taps_size(x_scale), y_taps = taps_size(y_scale);
    const size_t numbers = ((size_t)from->width * 3 + LANES - 1) / LANES * LANES,
                 bytes = numbers * sizeof(float) + (size_t)width * x_taps + y_taps;
    int code = pl_picture_reserve(to, width, height, err);
    if (!code && bytes > work->row_size) {
        pl_free(work->row);
        work->row_size = 0;
        work->row = pl_alloc(bytes);
        if (!work->row)
            return pl_no_memory(err);
        work->row_size = bytes;
    }
    char *columns = (char *)(work->row + numbers);
    taps_t *down = (taps_t *)(columns + (size_t)width * x_taps);
    for (int x = 0; !code && x < width; x++)
        taps_make((taps_t *)(columns + (size_t)x * x_taps), box.x + (x + 0.5) * x_scale,
                  x_scale, from->width);
    const size_t stride = (size_t)from->width * 3;
    for (int y = 0; !code && y < height; y++) {
        float *row = work->row;
        uint8_t *out = to->pixel + (size_t)y * (size_t)width * 3;
        taps_make(down, box.y + (y + 0.5) * y_scale, y_scale, from->height);
        memset(row, 0, numbers * sizeof *row);
        for (int k = 0; k < down->count; k++) {
            const uint8_t *pixel = from->pixel + (size_t)(down->first + k) * stride;
            const float weight = down->weight[k];
            for (size_t i = 0; i < numbers; i += LANES) /* the room is that large */
                for (int lane = 0; lane < LANES; lane++)
                    row[i + (size_t)lane] += weight * (float)pixel[i + (size_t)lane];
        }
        for (int x = 0; x < width; x++, out += 3) {
            const taps_t *taps = (const taps_t *)(columns + (size_t)x * x_taps);
            const float *pixel = row + (size_t)taps->first * 3;
            float red = 0, green = 0, blue = 0;
            for (int k = 0; k < taps->count; k++, pixel += 3) {
                red += taps->weight[k] * pixel[0];
                green += taps->weight[k] * pixel[1];
                blue += taps->weight[k] * pixel[2];
            }
            out[0] = to_byte(red), out[1] = to_byte(green), out[2] = to_byte(blue);
        }
    }
    if (!code)
        swap(work);
    return code;
}

/* Cuts width x height pixels at (x, y), which may lie outside; there is black. */
int pl_picture_crop(pl_picture_work_t *work, int x, int y, int width, int height,
                    pl_error_t *err)
{
    const pl_picture_t *from = &work->picture;
    const int code = pl_picture_reserve(&work->spare, width, height, err);
    if (code)
        return code;
    const int left = x < 0 ? -x : 0,
              right = x + width > from->width ? from->width - x : width;
    for (int row = 0; row < height; row++) {
        uint8_t *to = work->spare.pixel + (size_t)row * (size_t)width * 3;
        const bool inside = y + row >= 0 && y + row < from->height && left < right;
        if (!inside || left > 0 || right < width)
            memset(to, 0, (size_t)width * 3);
        if (inside)
            memcpy(to + 3 * left,
                   from->pixel
                       + ((size_t)(y + row) * (size_t)from->width + (size_t)(x + left))
                             * 3,
                   (size_t)(right - left) * 3);
    }
    swap(work);
    return PL_OK;
}

void pl_picture_mirror(pl_picture_t *picture, bool upside_down)
{
    const size_t width = (size_t)picture->width, height = (size_t)picture->height;
    const size_t columns = upside_down ? width : width / 2,
                 rows = upside_down ? height / 2 : height;
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < columns; x++) {
            uint8_t *a = picture->pixel + (y * width + x) * 3,
                    *b = upside_down ? picture->pixel + ((height - 1 - y) * width + x) * 3
                                     : picture->pixel + (y * width + width - 1 - x) * 3,
                    kept[3];
            memcpy(kept, a, 3);
            memcpy(a, b, 3);
            memcpy(b, kept, 3);
        }
}

/* Rotates about the middle, with the mean of four neighbours; outside is black. */
int pl_picture_rotate(pl_picture_work_t *work, double degrees, pl_error_t *err)
{
    const pl_picture_t *from = &work->picture;
    const int width = from->width, height = from->height,
              code = pl_picture_reserve(&work->spare, width, height, err);
    if (code)
        return code;
    const float c = cosf((float)(degrees * M_PI / 180)),
                s = sinf((float)(degrees * M_PI / 180)), mid_x = (float)(width - 1) / 2,
                mid_y = (float)(height - 1) / 2;
    uint8_t *out = work->spare.pixel;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, out += 3) {
            const float dx = (float)x - mid_x, dy = (float)y - mid_y,
                        fx = mid_x + c * dx + s * dy, fy = mid_y - s * dx + c * dy;
            const int left = (int)floorf(fx), top = (int)floorf(fy);
            float sum[3] = {0};
            for (int k = 0; k < 4; k++) {
                const int nx = left + k % 2, ny = top + k / 2;
                const float weight = (1 - fabsf(fx - (float)nx))
                                     * (1 - fabsf(fy - (float)ny));
                if (nx < 0 || ny < 0 || nx >= width || ny >= height)
                    continue;
                const uint8_t *pixel = from->pixel
                                       + ((size_t)ny * (size_t)width + (size_t)nx) * 3;
                for (int channel = 0; channel < 3; channel++)
                    sum[channel] += weight * (float)pixel[channel];
            }
            for (int channel = 0; channel < 3; channel++)
                out[channel] = to_byte(sum[channel]);
        }
    swap(work);
    return PL_OK;
}

/* Grey of ITU-R BT.601. */
static const float grey_of[3] = {0.299f, 0.587f, 0.114f};

/* Brightness, contrast, saturation and hue in one pass: each is linear in the colours.
 * Hue turns the colours about the axis of greys. */
void pl_picture_recolor(pl_picture_t *picture, const double factor[3], double turn)
{
    const size_t pixels = (size_t)picture->width * (size_t)picture->height;
    uint64_t sum[3] = {0};
    for (size_t k = 0; k < pixels; k++)
        for (int channel = 0; channel < 3; channel++)
            sum[channel] += picture->pixel[3 * k + (size_t)channel];
    float mean = 0, matrix[3][3];
    for (int channel = 0; channel < 3; channel++)
        mean += grey_of[channel] * (float)sum[channel] / (float)pixels;
    const float bright = (float)factor[0], contrast = (float)factor[1],
                saturation = (float)factor[2], c = cosf((float)(2 * M_PI * turn)),
                s = sinf((float)(2 * M_PI * turn)), third = 1.0f / 3, root = sqrtf(third),
                offset = (1 - contrast) * bright * mean;
    for (int i = 0; i < 3; i++) {
        float turned[3]; /* row i of the rotation of hues */
        for (int j = 0; j < 3; j++)
            turned[j] = (i == j ? c : 0) + third * (1 - c)
                        + (i == j ? 0 : (j == (i + 1) % 3 ? -root : root) * s);
        for (int j = 0; j < 3; j++)
            matrix[i][j] = bright * contrast
                           * (saturation * turned[j] + (1 - saturation) * grey_of[j]);
    }
    for (size_t k = 0; k < pixels; k++) {
        uint8_t *pixel = picture->pixel + 3 * k;
        const float red = pixel[0], green = pixel[1], blue = pixel[2];
        for (int i = 0; i < 3; i++)
            pixel[i] = to_byte(matrix[i][0] * red + matrix[i][1] * green
                               + matrix[i][2] * blue + offset);
    }
}

/* Paints a rectangle whose middle is anywhere in the picture. */
void pl_picture_cut_out(pl_picture_t *picture, int width, int height, double at_x,
                        double at_y, uint8_t value)
{
    const int x = (int)(at_x * picture->width) - width / 2,
              y = (int)(at_y * picture->height) - height / 2;
    const int left = x < 0 ? 0 : x,
              right = x + width > picture->width ? picture->width : x + width;
    for (int row = y < 0 ? 0 : y; row < y + height && row < picture->height; row++)
        if (right > left)
            memset(picture->pixel
                       + ((size_t)row * (size_t)picture->width + (size_t)left) * 3,
                   value, (size_t)(right - left) * 3);
}

void pl_picture_work_release(pl_picture_work_t *work)
{
    pl_picture_release(&work->picture);
    pl_picture_release(&work->spare);
    pl_free(work->row);
    *work = (pl_picture_work_t){0};
}
