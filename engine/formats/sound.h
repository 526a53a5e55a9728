/* sound.h - recordings in files (WAV, FLAC and others), and their log-mel features */
#ifndef PL_FORMATS_SOUND_H
#define PL_FORMATS_SOUND_H

#include "paceline.h"

typedef struct pl_sound_header {
    int64_t frames;                              /* samples of a channel */
    int rate, channels;                          /* frames per second; 1 to 256 */
} pl_sound_header_t;

/* Reads the header.  PL_ENOTFOUND: libsndfile is not installed, or no such file;
 * PL_EFORMAT: damage, or no recording.  An error names the file. */
int pl_sound_look(const char *path, pl_sound_header_t *header, pl_error_t *err);

/* Reads frames [from, from + count) as the mean of their channels, -1 to 1, with zeros
 * where the file has none: out [count].  Memory does not depend on the file.  Errors as
 * above; PL_EFORMAT: the file ends before its header says. */
int pl_sound_read(const char *path, int64_t from, int64_t count, float *out,
                  pl_error_t *err);

/* Changes the rate of in [in_count], frames per second, from `in_rate` to `out_rate`, by
 * a sinc in a Hann window over 6 zeros on each side: out [out_count], whose first frame
 * is the first of `in`.  (J. O. Smith, "Digital Audio Resampling", the method of
 * torchaudio's resample with its default values.) */
void pl_sound_resample(const float *in, int64_t in_count, int in_rate, float *out,
                       int64_t out_count, int out_rate);

/* ---- log_mel.c ---- */

typedef struct pl_log_mel pl_log_mel_t;

typedef struct pl_log_mel_spec {
    int rate, n_fft, hop, mels;                  /* n_fft: a power of 2, 16 to 16384 */
    double f_min, f_max;                         /* Hz */
} pl_log_mel_spec_t;

/* Window and filters, which do not change; NULL: out of memory. */
pl_log_mel_t *pl_log_mel_new(const pl_log_mel_spec_t *spec, pl_error_t *err);
void pl_log_mel_free(pl_log_mel_t *mel);

/* Columns of `count` samples: 1 + count / hop. */
int64_t pl_log_mel_columns(const pl_log_mel_spec_t *spec, int64_t count);

/* out [mels, columns] = ln(max(mel power, 1e-10)), the power spectrogram of in [count]
 * with frames around each hop, reflected at both ends, in a periodic Hann window, summed
 * by triangles at even distances of the HTK mel scale, whose height is 1: the defaults of
 * torchaudio.transforms.MelSpectrogram.  count > n_fft / 2.  Any thread. */
int pl_log_mel_run(const pl_log_mel_t *mel, const float *in, int64_t count, float *out,
                   pl_error_t *err);

#endif
