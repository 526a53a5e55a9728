/* sounds.c - tests of the data set "sounds" */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/connectors/datasets/datasets.h"
#include "base/log.h"
#include "dataset_rig.h"
#include "formats/sound.h"
#include "pictures_rig.h"
#include "tap.h"

enum { RATE = 16000, COUNT = 3200 };

static const char *folder(const char *name)
{
    static char path[8][512];
    static int slot;
    slot = (slot + 1) % 8;
    snprintf(path[slot], sizeof path[slot], "%s/%s", tap_folder(), name);
    return path[slot];
}

static const char *folder_option(const char *name)
{
    static char text[600];
    snprintf(text, sizeof text, "{\"path\": \"%s\"}", folder(name));
    return text;
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int k = 0; k < 4; k++)
        at[k] = (uint8_t)(value >> 8 * k);
}

/* Writes a WAV file of float32 with `channels` equal channels. */
static void wav_put(const char *name, const float *wave, int frames, int channels,
                    int rate)
{
    const size_t bytes = (size_t)frames * (size_t)channels * 4;
    uint8_t *file = calloc(1, 44 + bytes);
    memcpy(file, "RIFF", 4);
    put32(file + 4, (uint32_t)(36 + bytes));
    memcpy(file + 8, "WAVEfmt ", 8);
    put32(file + 16, 16);
    put32(file + 20, 3u | (uint32_t)channels << 16);        /* IEEE float */
    put32(file + 24, (uint32_t)rate);
    put32(file + 28, (uint32_t)(rate * channels * 4));
    put32(file + 32, (uint32_t)(channels * 4) | 32u << 16);
    memcpy(file + 36, "data", 4);
    put32(file + 40, (uint32_t)bytes);
    for (int k = 0; k < frames * channels; k++)
        memcpy(file + 44 + 4 * k, &wave[k / channels], 4);
    bytes_put(name, file, 44 + bytes);
    free(file);
}

/* The wave of make_log_mel.py. */
static const float *tone(void)
{
    static float wave[COUNT];
    for (int n = 0; n < COUNT; n++)
        wave[n] = (float)(0.5 * sin(2 * M_PI * 440 * n / RATE)
                          + 0.25 * (n * 7919 % 1000 / 1000.0 - 0.5));
    return wave;
}

static void features_are_those_of_pytorch(void)
{
    static const struct {
        int column, mel;
        double value;
    } known[] = {
        {0, 0, 3.847864},   {0, 5, 5.830953},    {0, 8, 7.081421},    {0, 20, 0.264798},
        {0, 39, 1.104802},  {1, 0, 1.476083},    {1, 5, 3.391223},    {1, 8, 6.231150},
        {1, 20, -0.662482}, {1, 39, 1.035923},   {10, 0, -2.516577},  {10, 5, -2.350208},
        {10, 8, 6.054807},  {10, 20, -0.552149}, {10, 39, 1.054545},  {19, 0, 1.445973},
        {19, 5, 3.422984},  {19, 8, 6.257140},   {19, 20, -0.041724}, {19, 39, 1.056860},
        {20, 0, 3.840131},  {20, 5, 5.809764},   {20, 8, 6.983746},   {20, 20, 1.419987},
        {20, 39, 1.044256},
    };
    const pl_log_mel_spec_t spec = {RATE, 512, 160, 40, 0, RATE / 2};
    static float out[40 * 21];
    pl_error_t err = {0};
    pl_log_mel_t *mel = pl_log_mel_new(&spec, &err);
    is_int(pl_log_mel_columns(&spec, COUNT), 21, "a column for each hop, and one more");
    is_int(pl_log_mel_run(mel, tone(), COUNT, out, &err), PL_OK, "computed");
    double worst = 0;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        worst = fmax(worst,
                     fabs(out[known[k].mel * 21 + known[k].column] - known[k].value));
    ok(worst < 1e-4, "the largest difference is %g", worst);
    pl_log_mel_free(mel);
}

static void folders_are_classes(void)
{
    wav_put("animals/cat/a.wav", tone(), COUNT, 1, RATE);
    wav_put("animals/dog/b.wav", tone(), COUNT, 2, RATE);
    bytes_put("animals/dog/notes.txt", "no recording", 12);
    rig_t rig = rig_open(&pl_sounds_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"seconds\": 0.2, \"mels\": 40}",
                         folder("animals"));
    is_int(rig.code, PL_OK, "opened: %s", rig.err.text);
    ok(rig.info.samples == 2 && has_field(&rig, 0, "x", PL_F32, "1,40,21")
           && has_field(&rig, 1, "y", PL_I64, ""),
       "samples and fields");
    like(rig.info.data_info, "\"class_names\": .\"cat\",\"dog\".", "names of classes");
    is_int(rig_read(&rig, INDEX(0, 1)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    const int64_t *y = rig.field[1];
    ok(y[0] == 0 && y[1] == 1, "classes");
    is_near(x[8 * 21 + 10], 6.054807, 1e-4, "log-mel features");
    is_near(x[40 * 21 + 8 * 21 + 10], 6.054807, 1e-4, "of the mean of two channels, too");
    rig_close(&rig);
}

static void a_sample_is_a_part_of_its_length(void)
{
    float wave[400];
    for (int n = 0; n < 400; n++)
        wave[n] = (float)n / 1000;
    wav_put("parts/a/long.wav", wave, 400, 1, 1000);
    wav_put("parts/b/short.wav", wave, 30, 1, 1000);
    const char *options = "{\"path\": \"%s\", \"seconds\": 0.1, \"rate\": 1000, "
                          "\"features\": \"wave\"}";
    char text[700];
    snprintf(text, sizeof text, options, folder("parts"));
    rig_t rig = rig_open(&pl_sounds_dataset, PL_VALIDATE, "%s", text);
    is_int(rig_read(&rig, INDEX(0, 1)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    is_near(x[0], 0.150, 1e-6, "of a long recording the middle");
    is_near(x[99], 0.249, 1e-6, "up to its length");
    is_near(x[129], 0.029, 1e-6, "all of a short one");
    is_near(x[130], 0, 0, "and zeros behind it");
    rig_close(&rig);
    rig = rig_open(&pl_sounds_dataset, PL_TRAIN, "%s", text);
    float first[3];
    for (int epoch = 0; epoch < 3; epoch++) {
        rig_read_epoch(&rig, (uint64_t)(epoch % 2), INDEX(0));
        x = rig.field[0];
        first[epoch] = x[0];
        is_near(x[99] - x[0], 0.099, 1e-6, "in training a part that is whole");
    }
    ok(first[0] != first[1], "another one in each epoch");
    ok(first[0] == first[2], "and the same in the same epoch");
    rig_close(&rig);
}

static void other_rates_are_converted(void)
{
    float wave[1600];
    for (int n = 0; n < 1600; n++)
        wave[n] = (float)sin(2 * M_PI * 200 * n / 8000);
    wav_put("rates/a/a.wav", wave, 1600, 1, 8000);
    rig_t rig = rig_open(&pl_sounds_dataset, PL_VALIDATE,
                         "{\"path\": \"%s\", \"seconds\": 0.2, \"features\": \"wave\"}",
                         folder("rates"));
    is_int(rig_read(&rig, INDEX(0)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    double worst = 0;
    for (int n = 100; n < 3100; n++)
        worst = fmax(worst, fabs(x[n] - sin(2 * M_PI * 200 * n / 16000)));
    ok(worst < 0.01, "a tone stays this tone: %g", worst);
    rig_close(&rig);
}

/* Writes a FLAC file of 16 bits by libsndfile. */
static void flac_put(const char *name, const float *wave, int frames, int rate)
{
    struct {
        int64_t frames;
        int rate, channels, format, sections, seekable;
    } info = {.rate = rate, .channels = 1, .format = 0x170002};  /* SF_FORMAT_FLAC, 16 */
    void *library = dlopen("libsndfile.so.1", RTLD_NOW), *found[3];
    void *(*open)(const char *, int, void *);
    int64_t (*write)(void *, const float *, int64_t);
    int (*close)(void *);
    found[0] = dlsym(library, "sf_open");
    found[1] = dlsym(library, "sf_writef_float");
    found[2] = dlsym(library, "sf_close");
    memcpy(&open, &found[0], sizeof open);
    memcpy(&write, &found[1], sizeof write);
    memcpy(&close, &found[2], sizeof close);
    void *file = open(bytes_put(name, "", 0), 0x20, &info);  /* SFM_WRITE */
    ok(file && write(file, wave, frames) == frames, "%s is written", name);
    if (file)
        close(file);
}

static void flac_is_read(void)
{
    flac_put("flac/a/a.flac", tone(), COUNT, RATE);
    rig_t rig = rig_open(&pl_sounds_dataset, PL_VALIDATE,
                         "{\"path\": \"%s\", \"seconds\": 0.2, \"features\": \"wave\"}",
                         folder("flac"));
    is_int(rig_read(&rig, INDEX(0)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    double worst = 0;
    for (int n = 0; n < COUNT; n++)
        worst = fmax(worst, fabs(x[n] - tone()[n]));
    ok(worst < 2.0 / 32768, "to the last of 16 bits: %g", worst);
    rig_close(&rig);
}

static char logged[2000];

static void hook(pl_log_level_t at, int rank, const char *actor, const char *text,
                 void *user)
{
    (void)at, (void)rank, (void)user;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s: %s\n", actor,
             text);
}

static void damaged_recordings_are_skipped_and_counted_on_request(void)
{
    float wave[64] = {NAN};
    wav_put("skip/a/1.wav", tone(), COUNT, 1, RATE);
    bytes_put("skip/a/0.wav", "nothing", 7);
    wav_put("skip/b/2.wav", wave, 64, 1, RATE);
    pl_log_hook(hook, PL_LOG_WARNING, NULL);
    rig_t rig = rig_open(&pl_sounds_dataset, PL_TRAIN,
                         "{\"path\": \"%s\", \"damaged\": \"skip\", \"seconds\": 0.2, "
                         "\"features\": \"wave\"}",
                         folder("skip"));
    is_int(rig.code, PL_OK, "opened, although the first is damaged: %s", rig.err.text);
    is_int(rig_read(&rig, INDEX(0, 1, 2, 0)), PL_OK, "read: %s", rig.err.text);
    const float *x = rig.field[0];
    const int64_t *y = rig.field[1];
    ok(y[0] == -100 && y[1] == 0 && y[2] == -100, "they have no class");
    ok(x[0] == 0 && x[COUNT] == tone()[0] && x[(size_t)2 * COUNT] == 0, "and zeros");
    like(logged,
         "data set sounds: .*a/0.wav: it cannot be read as a recording.*1 skipped so "
         "far.*b/2.wav: frame 0 is not a finite number.*2 skipped so far",
         "the log names and counts them");
    ok(!strstr(logged, "(3"), "once");
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    rig_close(&rig);
}

static void folders_of_training_and_test_are_found(void)
{
    wav_put("parts2/train/a/1.wav", tone(), COUNT, 1, RATE);
    wav_put("parts2/train/b/1.wav", tone(), COUNT, 1, RATE);
    wav_put("parts2/test/b/2.wav", tone(), COUNT, 1, RATE);
    rig_t rig = rig_open(&pl_sounds_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                         folder("parts2"));
    is_int(rig.info.samples, 2, "of training: %s", rig.err.text);
    rig_t test = rig_open_told(&pl_sounds_dataset, PL_TEST, rig.info.data_info,
                               folder_option("parts2"));
    is_int(test.info.samples, 1, "of the test: %s", test.err.text);
    is_int(rig_read(&test, INDEX(0)), PL_OK, "read");
    is_int(*(const int64_t *)test.field[1], 1, "with the classes of training");
    rig_close(&test);
    rig_close(&rig);
}

static void what_is_damaged_is_named(void)
{
    wav_put("bad/a/good.wav", tone(), COUNT, 1, RATE);
    bytes_put("bad/b/noise.wav", "this is no recording at all", 27);
    rig_t rig = rig_open(&pl_sounds_dataset, PL_TRAIN, "{\"path\": \"%s\"}",
                         folder("bad"));
    is_int(rig_read(&rig, INDEX(1)), PL_EFORMAT, "a file that is none");
    like(rig.err.text, "bad/b/noise.wav: it cannot be read as a recording", "by name");
    rig_close(&rig);
    wav_put("cut/a/a.wav", tone(), COUNT, 1, RATE);
    is_int(truncate(folder("cut/a/a.wav"), 44 + COUNT * 2), 0, "cut");
    rig = rig_open(&pl_sounds_dataset, PL_TRAIN, "{\"path\": \"%s\"}", folder("cut"));
    is_int(rig_read(&rig, INDEX(0)), PL_EFORMAT, "a file that was cut");
    like(rig.err.text, "cut/a/a.wav: the file is damaged: it is shorter than its header",
         "by its header");
    rig_close(&rig);
    float wave[64] = {NAN};
    wav_put("nan/a/a.wav", wave, 64, 1, RATE);
    rig = rig_open(&pl_sounds_dataset, PL_TRAIN, "{\"path\": \"%s\"}", folder("nan"));
    is_int(rig_read(&rig, INDEX(0)), PL_EFORMAT, "numbers that are none");
    like(rig.err.text, "nan/a/a.wav: frame 0 is not a finite number", "by their place");
    rig_close(&rig);
    wav_put("few/a/notes.txt", wave, 1, 1, RATE);
    refused(rig_open(&pl_sounds_dataset, PL_TRAIN, "{\"path\": \"%s\"}", folder("few")),
            PL_EFORMAT, "there is no recording of this class .\\.wav, \\.flac",
            "a class without recordings");
    pl_error_t err = {0};
    pl_sound_header_t header;
    is_int(pl_sound_look(folder("none.wav"), &header, &err), PL_ENOTFOUND, "no file");
}

static void options_are_checked(void)
{
    static const struct {
        const char *options, *option, *text;
    } wrong[] = {{"\"n_fft\": 500", "n_fft", "power of 2"},
                 {"\"seconds\": 0.005", "seconds", "at least 257 are needed"},
                 {"\"f_max\": 9000", "f_max", "0 to 8000 Hz"},
                 {"\"f_min\": 500, \"f_max\": 400", "f_min", "must rise"}};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        rig_t rig = rig_open(&pl_sounds_dataset, PL_TRAIN, "{\"path\": \"%s\", %s}",
                             folder("none"), wrong[k].options);
        pl_error_t err = {0};
        const char *option = pl_sounds_dataset.check(rig.self, &err);
        is_text(option ? option : "", wrong[k].option, "the option is named");
        like(err.text, wrong[k].text, "with the reason");
        rig_close(&rig);
    }
}

int main(void)
{
    void *library = dlopen("libsndfile.so.1", RTLD_NOW);
    run(features_are_those_of_pytorch);
    if (library) {
        run(folders_are_classes);
        run(a_sample_is_a_part_of_its_length);
        run(other_rates_are_converted);
        run(flac_is_read);
        run(folders_of_training_and_test_are_found);
        run(what_is_damaged_is_named);
        run(damaged_recordings_are_skipped_and_counted_on_request);
    }
    run(options_are_checked);
    return tap_done();
}
