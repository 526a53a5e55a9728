/* log_mel.c - the logarithm of the power of a recording, by time and by pitch
 *
 * Frames are transformed by a Fourier transform of radix 2 (Cooley and Tukey, 1965) in
 * double precision: one frame costs less than a convolution over it, and the values agree
 * with other programs to the precision of float32. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formats/sound.h"

struct pl_log_mel {
    pl_log_mel_spec_t spec;
    double *window;                              /* [n_fft] */
    double *turn;                                /* [n_fft / 2, 2] cosines and sines */
    double *edge;                                /* [mels + 2] Hz, of the triangles */
};

static double hertz_of(double mel)
{
    return 700 * (pow(10, mel / 2595) - 1);
}

static double mel_of(double hertz)
{
    return 2595 * log10(1 + hertz / 700);
}

pl_log_mel_t *pl_log_mel_new(const pl_log_mel_spec_t *spec, pl_error_t *err)
{
    const size_t size = (size_t)spec->n_fft, mels = (size_t)spec->mels;
    const double low = mel_of(spec->f_min), high = mel_of(spec->f_max);
    pl_log_mel_t *mel = pl_alloc(sizeof *mel);
    if (!mel) {
        pl_no_memory(err);
        return NULL;
    }
    *mel = (pl_log_mel_t){.spec = *spec,
                          .window = pl_alloc_array(size, sizeof *mel->window),
                          .turn = pl_alloc_array(size, sizeof *mel->turn),
                          .edge = pl_alloc_array(mels + 2, sizeof *mel->edge)};
    if (!mel->window || !mel->turn || !mel->edge) {
        pl_log_mel_free(mel);
        pl_no_memory(err);
        return NULL;
    }
    for (size_t k = 0; k < size; k++) {
        const double angle = 2 * M_PI * (double)k / (double)size;
        mel->window[k] = 0.5 - 0.5 * cos(angle);
        if (k < size / 2) {
            mel->turn[2 * k] = cos(angle);
            mel->turn[2 * k + 1] = -sin(angle);
        }
    }
    for (size_t k = 0; k < mels + 2; k++)
        mel->edge[k] = hertz_of(low + (high - low) * (double)k / (double)(mels + 1));
    return mel;
}

void pl_log_mel_free(pl_log_mel_t *mel)
{
    if (!mel)
        return;
    pl_free(mel->window);
    pl_free(mel->turn);
    pl_free(mel->edge);
    pl_free(mel);
}

int64_t pl_log_mel_columns(const pl_log_mel_spec_t *spec, int64_t count)
{
    return 1 + count / spec->hop;
}

/* The Fourier transform of z [n, 2] in place; n is a power of 2. */
static void transform(const double *turn, double *z, size_t n)
{
    for (size_t i = 1, j = 0; i < n; i++) {
        size_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        for (size_t part = 0; i < j && part < 2; part++) {
            const double other = z[2 * i + part];
            z[2 * i + part] = z[2 * j + part];
            z[2 * j + part] = other;
        }
    }
    for (size_t half = 1; half < n; half *= 2)
        for (size_t block = 0; block < n; block += 2 * half)
            for (size_t k = 0; k < half; k++) {
                const double *w = turn + 2 * (k * (n / 2 / half));
                double *a = z + 2 * (block + k), *b = a + 2 * half;
                const double re = w[0] * b[0] - w[1] * b[1],
                             im = w[0] * b[1] + w[1] * b[0];
                b[0] = a[0] - re;
                b[1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }
}

int pl_log_mel_run(const pl_log_mel_t *mel, const float *in, int64_t count, float *out,
                   pl_error_t *err)
{
    const pl_log_mel_spec_t *spec = &mel->spec;
    const int64_t size = spec->n_fft, columns = pl_log_mel_columns(spec, count);
    const double bin = (double)spec->rate / (double)size;
    double *z = pl_alloc_array(2 * (size_t)size, sizeof *z);
    if (!z)
        return pl_no_memory(err);
    for (int64_t column = 0; column < columns; column++) {
        for (int64_t k = 0; k < size; k++) {
            int64_t at = llabs(column * spec->hop + k - size / 2);
            at = at < count ? at : 2 * (count - 1) - at;
            z[2 * k] = mel->window[k] * (double)in[at];
            z[2 * k + 1] = 0;
        }
        transform(mel->turn, z, (size_t)size);
        for (int64_t k = 0; k <= size / 2; k++)
            z[k] = z[2 * k] * z[2 * k] + z[2 * k + 1] * z[2 * k + 1];
        for (int m = 0; m < spec->mels; m++) {
            const double *edge = mel->edge + m;
            const int64_t last = (int64_t)fmin(floor(edge[2] / bin), (double)(size / 2));
            double sum = 0;
            for (int64_t k = (int64_t)ceil(edge[0] / bin); k <= last; k++) {
                const double hertz = (double)k * bin,
                             rise = (hertz - edge[0]) / (edge[1] - edge[0]),
                             fall = (edge[2] - hertz) / (edge[2] - edge[1]);
                sum += z[k] * fmax(0, fmin(rise, fall));
            }
            out[m * columns + column] = (float)log(fmax(sum, 1e-10));
        }
    }
    pl_free(z);
    return PL_OK;
}
