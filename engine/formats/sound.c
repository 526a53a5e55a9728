/* sound.c - recordings in files, read by libsndfile
 *
 * libsndfile is opened by the first recording and stays open; functions and numbers below
 * are of its stable interface.  It reads WAV, FLAC, Ogg and AIFF.  Frames are read in
 * small pieces, so a file with a false header cannot fill the memory. */
#include "formats/sound.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/symbols.h"

#define SNDFILE_FILE "libsndfile.so.1"

enum { MODE_READ = 0x10, FROM_BEGIN = 0, CHANNELS_MAX = 256, PIECE = 4096 };

typedef struct sound_info {                                 /* SF_INFO */
    int64_t frames;
    int rate, channels, format, sections, seekable;
} sound_info_t;

static struct {
    void *(*open)(const char *path, int mode, sound_info_t *info);
    int (*close)(void *file);
    int64_t (*seek)(void *file, int64_t frames, int whence);
    int64_t (*read)(void *file, float *out, int64_t frames);
    const char *(*error)(void *file);
    bool is_open;
} lib;

static void library_open(void)
{
    const pl_symbol_t needed[] = {{"sf_open", &lib.open},
                                  {"sf_close", &lib.close},
                                  {"sf_seek", &lib.seek},
                                  {"sf_readf_float", &lib.read},
                                  {"sf_strerror", &lib.error}};
    lib.is_open = pl_symbols_open(SNDFILE_FILE, needed, sizeof needed / sizeof *needed);
}

/* A WAV file that is shorter than its header says, of which libsndfile says nothing.  A
 * size of 0 or 0xffffffff was written before the end was known. */
static bool is_cut(const char *path)
{
    uint8_t begin[8] = {0};
    FILE *file = fopen(path, "re");
    const bool is_riff = file && fread(begin, 1, sizeof begin, file) == sizeof begin
                         && !memcmp(begin, "RIFF", 4) && fseeko(file, 0, SEEK_END) == 0;
    const off_t size = is_riff ? ftello(file) : 0;
    const uint32_t says = (uint32_t)begin[4] | (uint32_t)begin[5] << 8
                          | (uint32_t)begin[6] << 16 | (uint32_t)begin[7] << 24;
    if (file)
        fclose(file);
    return is_riff && says && says != UINT32_MAX && size < (off_t)says + 8;
}

/* Opens a recording; *file is to be closed by lib.close(). */
static int sound_open(const char *path, void **file, pl_sound_header_t *header,
                      pl_error_t *err)
{
    static pthread_once_t opened = PTHREAD_ONCE_INIT;
    sound_info_t info = {0};
    pthread_once(&opened, library_open);
    if (access(path, R_OK) != 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    if (!lib.is_open)
        return pl_fail(err, PL_ENOTFOUND,
                       "%s is a recording, and " SNDFILE_FILE
                       " is not installed: apt-get install libsndfile1",
                       path);
    if (!(*file = lib.open(path, MODE_READ, &info)))
        return pl_fail(err, PL_EFORMAT, "%s: it cannot be read as a recording: %s", path,
                       lib.error(NULL));
    if (info.frames < 1 || info.rate < 1 || info.channels < 1
        || info.channels > CHANNELS_MAX) {
        lib.close(*file);
        return pl_fail(err, PL_EFORMAT,
                       "%s: %lld frames of %d channels at %d Hz; at least 1 frame and 1 "
                       "to %d channels are possible",
                       path, (long long)info.frames, info.channels, info.rate,
                       CHANNELS_MAX);
    }
    if (is_cut(path)) {
        lib.close(*file);
        return pl_fail(err, PL_EFORMAT,
                       "%s: the file is damaged: it is shorter than its header says",
                       path);
    }
    *header = (pl_sound_header_t){info.frames, info.rate, info.channels};
    return PL_OK;
}

int pl_sound_look(const char *path, pl_sound_header_t *header, pl_error_t *err)
{
    void *file;
    const int code = sound_open(path, &file, header, err);
    if (!code)
        lib.close(file);
    return code;
}

int pl_sound_read(const char *path, int64_t from, int64_t count, float *out,
                  pl_error_t *err)
{
    void *file;
    pl_sound_header_t header;
    int code = sound_open(path, &file, &header, err);
    if (code)
        return code;
    const int channels = header.channels;
    const int64_t there = header.frames > from ? header.frames - from : 0,
                  wanted = there < count ? there : count;
    float *piece = pl_alloc_array((size_t)PIECE * (size_t)channels, sizeof *piece);
    memset(out, 0, (size_t)count * sizeof *out);
    if (!piece)
        code = pl_no_memory(err);
    else if (from > 0 && wanted > 0 && lib.seek(file, from, FROM_BEGIN) != from)
        code = pl_fail(err, PL_EFORMAT, "%s: frame %lld cannot be found: %s", path,
                       (long long)from, lib.error(file));
    for (int64_t at = 0; at < wanted && !code;) {
        const int64_t size = wanted - at < PIECE ? wanted - at : PIECE,
                      got = lib.read(file, piece, size);
        for (int64_t i = 0; i < got * channels; i++)
            out[at + i / channels] += piece[i] / (float)channels;
        if (got < size)
            code = pl_fail(err, PL_EFORMAT,
                           "%s: the file is damaged: it ends at frame %lld, but its "
                           "header says %lld",
                           path, (long long)(from + at + got), (long long)header.frames);
        at += got;
    }
    for (int64_t i = 0; i < wanted && !code; i++)
        if (!isfinite(out[i]))
            code = pl_fail(err, PL_EFORMAT, "%s: frame %lld is not a finite number", path,
                           (long long)(from + i));
    pl_free(piece);
    lib.close(file);
    return code;
}

void pl_sound_resample(const float *in, int64_t in_count, int in_rate, float *out,
                       int64_t out_count, int out_rate)
{
    const double zeros = 6, step = (double)in_rate / out_rate,
                 cutoff = 0.99 * (step > 1 ? 1 / step : 1), reach = zeros / cutoff;
    for (int64_t n = 0; n < out_count; n++) {
        const double centre = (double)n * step;
        const int64_t first = (int64_t)ceil(centre - reach),
                      last = (int64_t)floor(centre + reach);
        double sum = 0;
        for (int64_t k = first < 0 ? 0 : first; k <= last && k < in_count; k++) {
            const double t = ((double)k - centre) * cutoff, angle = M_PI * t,
                         window = cos(angle / zeros / 2);
            sum += in[k] * window * window * (t == 0 ? 1 : sin(angle) / angle);
        }
        out[n] = (float)(sum * cutoff);
    }
}
