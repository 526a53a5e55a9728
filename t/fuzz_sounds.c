/* fuzz_sounds.c - any bytes as a recording, whose features are computed if it is one
 *
 * libsndfile reads files, so the bytes are one in memory alone. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/sound.h"
#include "fuzz_must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { COUNT = 400, OTHER = 300, MELS = 5 };
    const pl_log_mel_spec_t spec = {
        .rate = 8000, .n_fft = 64, .hop = 40, .mels = MELS, .f_max = 4000};
    float wave[COUNT], other[OTHER], mels[MELS * (1 + OTHER / 40)];
    char path[64];
    pl_sound_header_t header;
    pl_error_t err = {0};
    const int fd = memfd_create("fuzz.wav", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int code = pl_sound_look(path, &header, &err);
    must(code || (header.frames > 0 && header.rate > 0 && header.channels > 0));
    if (!code)
        code = pl_sound_read(path, header.frames / 2, COUNT, wave, &err);
    for (int k = 0; k < COUNT && !code; k++)
        must(isfinite(wave[k]));
    if (!code) {
        pl_log_mel_t *mel = pl_log_mel_new(&spec, &err);
        pl_sound_resample(wave, COUNT, 8000, other, OTHER, 6000);
        must(mel && pl_log_mel_columns(&spec, OTHER) <= 1 + OTHER / 40);
        must(pl_log_mel_run(mel, other, OTHER, mels, &err) == PL_OK);
        pl_log_mel_free(mel);
    } else {
        must_be_a_sentence(&err);
    }
    close(fd);
    return 0;
}
