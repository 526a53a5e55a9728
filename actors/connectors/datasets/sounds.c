/* sounds.c - recordings of classes: WAV and FLAC in folders, or in a table of paths
 *
 * A recording is read when a batch needs it, on the data threads, so memory does not
 * limit their number.  Of a long one only the part that a sample has is read.  All
 * samples have one length and one rate: training takes a part anywhere, as a function of
 * seed, epoch and sample; other stages take the middle. */
#include <math.h>
#include <string.h>

#include "actors/connectors/datasets/class_files.h"
#include "actors/connectors/datasets/datasets.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "formats/sound.h"

enum { FEATURES_LOG_MEL, FEATURES_WAVE };
enum { SAMPLES_MAX = 1 << 26 };

typedef struct sounds {
    pl_class_files_t files;
    int features;
    int64_t rate, n_fft, hop, mels, ignore_index;
    double seconds, f_min, f_max;
    int64_t count, columns;                            /* of a sample: frames; features */
    pl_log_mel_t *mel;
} sounds_t;

static const pl_option_t sounds_options[] = {
    PL_CLASS_FILES_OPTIONS(sounds_t, files, "recordings"),
    PL_FLOAT(sounds_t, seconds, "1", "0.001..3600",
             "length of a sample; of a longer recording training takes a part anywhere, "
             "other stages the middle; a shorter one is followed by zeros"),
    PL_INT(sounds_t, rate, "16000", "1000..384000",
           "frames per second of a sample; recordings of other rates are converted"),
    PL_WORD(sounds_t, features, "\"log_mel\"", "log_mel|wave",
            "\"x\": log_mel: [1, mels, columns], the logarithm of the power by pitch and "
            "time; wave: [1, frames], -1 to 1"),
    PL_INT(sounds_t, n_fft, "512", "16..16384", "frames of a spectrum, a power of 2"),
    PL_INT(sounds_t, hop, "160", "1..65536", "frames from one spectrum to the next"),
    PL_INT(sounds_t, mels, "64", "1..1024",
           "pitches, at even distances of the mel scale"),
    PL_FLOAT(sounds_t, f_min, "0", "0..192000", "Hz of the lowest pitch"),
    PL_FLOAT(sounds_t, f_max, "0", "0..192000",
             "Hz of the highest pitch; 0: half of the rate"),
    PL_INT(sounds_t, ignore_index, "-100", PL_LABELS, PL_IGNORE_HELP),
    PL_OPTIONS_END,
};

static const char *sounds_check(const void *self, pl_error_t *err)
{
    const sounds_t *s = self;
    const double count = s->seconds * (double)s->rate, high = (double)s->rate / 2;
    if (s->n_fft & (s->n_fft - 1)) {
        pl_fail(err, PL_EINVAL, "it is a power of 2, such as 256, 512 or 1024");
        return "n_fft";
    }
    if (count < 1 || count > SAMPLES_MAX
        || (s->features == FEATURES_LOG_MEL && count <= (double)s->n_fft / 2)) {
        pl_fail(err, PL_EINVAL,
                "it makes %.0f frames of a sample; at least %lld are needed, and at most "
                "%d are possible",
                count, s->features == FEATURES_LOG_MEL ? (long long)s->n_fft / 2 + 1 : 1,
                SAMPLES_MAX);
        return "seconds";
    }
    if (s->f_max > high || s->f_min >= (s->f_max > 0 ? s->f_max : high)) {
        pl_fail(err, PL_EINVAL,
                "f_min to f_max must rise and lie in 0 to %g Hz, half of the rate", high);
        return s->f_max > high ? "f_max" : "f_min";
    }
    return NULL;
}

/* Reads the part of a recording that the sample has: wave [count]. */
static int wave_read(const sounds_t *s, const pl_read_request_t *request, int64_t sample,
                     float *wave, pl_error_t *err)
{
    const char *path = s->files.list.path[sample];
    pl_sound_header_t header;
    int code = pl_sound_look(path, &header, err);
    if (code)
        return code;
    const int64_t needed = (s->count * header.rate + s->rate - 1) / s->rate,
                  spare = header.frames > needed ? header.frames - needed : 0;
    const uint64_t key = pl_mix(pl_mix(request->seed, request->epoch),
                                pl_hash_text("sounds"));
    const int64_t from =
        request->stage == PL_TRAIN
            ? (int64_t)(pl_random_u64(key, (uint64_t)sample) % (uint64_t)(spare + 1))
            : spare / 2;
    if (header.rate == s->rate)
        return pl_sound_read(path, from, s->count, wave, err);
    float *other = needed <= SAMPLES_MAX ? pl_alloc_array((size_t)needed, sizeof *other)
                                         : NULL;
    if (!other)
        return needed <= SAMPLES_MAX
                   ? pl_no_memory(err)
                   : pl_fail(err, PL_EFORMAT,
                             "%s: %d Hz, so a sample has more than %d frames", path,
                             header.rate, SAMPLES_MAX);
    code = pl_sound_read(path, from, needed, other, err);
    if (!code)
        pl_sound_resample(other, needed, header.rate, wave, s->count, (int)s->rate);
    pl_free(other);
    return code;
}

static int sounds_read(const void *self, const pl_read_request_t *request,
                       void *const field[], pl_error_t *err)
{
    const sounds_t *s = self;
    float *wave = pl_alloc_array((size_t)s->count, sizeof *wave);
    int code = wave ? PL_OK : pl_no_memory(err);
    for (int i = 0; i < request->count && !code; i++) {
        const int64_t sample = request->index[i];
        const size_t size = (size_t)(s->mel ? s->mels * s->columns : s->count);
        float *x = (float *)field[0] + (size_t)i * size;
        pl_error_t why = {0};
        int64_t label;
        int read = wave_read(s, request, sample, s->mel ? wave : x, &why);
        if (!read && s->mel)
            read = pl_log_mel_run(s->mel, wave, s->count, x, &why);
        code = pl_class_files_answer(&s->files, sample, read, &why, &label, err);
        if (read)
            memset(x, 0, size * sizeof *x);
        if (!code && s->files.has_target)
            ((int64_t *)field[1])[i] = label < 0 ? s->ignore_index : label;
    }
    pl_free(wave);
    return code;
}

static int describe(const sounds_t *s, pl_data_info_t *info, pl_error_t *err)
{
    const pl_shape_t shape = s->mel ? PL_SHAPE(1, s->mels, s->columns)
                                    : PL_SHAPE(1, s->count);
    pl_data_info_t found = {.samples = s->files.list.count, .same_samples = true};
    found.data_info = pl_class_files_data_info(&s->files, &shape);
    if (!found.data_info)
        return pl_no_memory(err);
    pl_dataset_field(&found, "x", PL_F32, shape);
    if (s->files.has_target)
        pl_dataset_field(&found, "y", PL_I64, (pl_shape_t){0});
    *info = found;
    return PL_OK;
}

static int sounds_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                       pl_error_t *err)
{
    sounds_t *s = self;
    pl_error_t why = {0};
    pl_sound_header_t header;
    s->count = llround(s->seconds * (double)s->rate);
    int code = pl_class_files_open(&s->files, &pl_sound_files, request, err);
    /* A missing library is known at once; damage is found when the sample is read. */
    if (!code && s->files.list.count
        && pl_sound_look(s->files.list.path[0], &header, &why) == PL_ENOTFOUND)
        code = pl_fail(err, PL_ENOTFOUND, "%s", why.text);
    const pl_log_mel_spec_t spec = {.rate = (int)s->rate,
                                    .n_fft = (int)s->n_fft,
                                    .hop = (int)s->hop,
                                    .mels = (int)s->mels,
                                    .f_min = s->f_min,
                                    .f_max = s->f_max > 0 ? s->f_max
                                                          : (double)s->rate / 2};
    s->columns = pl_log_mel_columns(&spec, s->count);
    if (!code && s->features == FEATURES_LOG_MEL
        && !(s->mel = pl_log_mel_new(&spec, err)))
        code = PL_ENOMEM;
    return code ? code : describe(s, info, err);
}

static void sounds_close(void *self)
{
    sounds_t *s = self;
    pl_class_files_close(&s->files);
    pl_log_mel_free(s->mel);
    s->mel = NULL;
}

const pl_dataset_ops_t pl_sounds_dataset = {
    .name = "sounds",
    .help = "recordings of classes: WAV and FLAC in folders, or by a table of paths",
    .size = sizeof(sounds_t),
    .options = sounds_options,
    .check = sounds_check,
    .open = sounds_open,
    .read = sounds_read,
    .close = sounds_close,
};
