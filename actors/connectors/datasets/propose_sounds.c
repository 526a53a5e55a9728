/* propose_sounds.c - a run for a folder of recordings: length, rate, features, model
 *
 * A small convolutional network over the logarithm of the power by pitch and time.  What
 * a sound is depends on its pitch, but seldom on the instant: so the last layer before
 * the classes takes means over time alone, and keeps bands of pitch apart. */
#include <math.h>
#include <stdlib.h>

#include "actors/connectors/datasets/propose_parts.h"
#include "base/json_path.h"
#include "formats/sound.h"

/* Headers that are looked at; frames per second: more than speech needs cost time. */
enum { LOOKED_AT = 64, RATE_MIN = 1000, RATE_MAX = 16000, BANDS = 8 };

/* What the recordings have in common. */
typedef struct look {
    double seconds;                                   /* median of the lengths */
    int rate;                                         /* the highest, frames per second */
    int looked, damaged;                              /* recordings */
} recordings_look_t;

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Looks at recordings at even distances.  PL_EFORMAT: all of them are damaged. */
static int look_at_sounds(const pl_file_list_t *list, recordings_look_t *look,
                          pl_error_t *err)
{
    const int count = list->count < LOOKED_AT ? (int)list->count : LOOKED_AT;
    double length[LOOKED_AT];
    int good = 0, code = PL_OK;
    *look = (recordings_look_t){.looked = count};
    for (int k = 0; k < count; k++) {
        pl_sound_header_t header;
        code = pl_sound_look(list->path[list->count * k / count], &header, err);
        if (code == PL_EFORMAT) {
            look->damaged++;
            continue;
        }
        if (code)
            return code;
        length[good++] = (double)header.frames / header.rate;
        look->rate = header.rate > look->rate ? header.rate : look->rate;
    }
    if (good == 0)
        return code;
    qsort(length, (size_t)good, sizeof *length, by_number);
    look->seconds = length[good / 2];
    return PL_OK;
}

static json_t *propose_layers(void)
{
    json_t *layers = json_pack("[s]", "batch_norm");
    char text[32];
    for (int width = 16; width <= 64; width *= 2) {
        snprintf(text, sizeof text, "conv %d 3 same", width);
        layers = pl_json_append(layers, json_string(text));
        layers = pl_json_append(layers, json_string("batch_norm"));
        layers = pl_json_append(layers, json_string("relu"));
        if (width < 64)
            layers = pl_json_append(layers, json_string("pool 2"));
    }
    snprintf(text, sizeof text, "adaptive_pool %dx1", BANDS);
    layers = pl_json_append(layers, json_string(text));
    layers = pl_json_append(layers, json_string("flatten"));
    layers = pl_json_append(layers, json_string("dropout 0.2"));
    return pl_json_append(layers, json_string("linear auto"));
}

int propose_sounds(proposal_t *p, const class_folder_t *folder, pl_error_t *err)
{
    recordings_look_t look;
    int n_fft = 16;
    const int code = look_at_sounds(&folder->list, &look, err);
    if (code)
        return code;
    /* Spectra of at least 25 ms each 10 ms are usual for speech. */
    const int rate = look.rate > RATE_MAX   ? RATE_MAX
                     : look.rate < RATE_MIN ? RATE_MIN
                                            : look.rate;
    const double seconds = look.seconds < 0.25 ? 0.25
                           : look.seconds > 10 ? 10
                                               : ceil(look.seconds * 20) / 20;
    while (n_fft < rate / 40)
        n_fft *= 2;
    propose_reason(p, PROPOSE_SOURCE_KEY(folder, "seconds"),
                   "Half of the recordings last %.2f s or less; of a longer one each "
                   "epoch sees another part.",
                   look.seconds);
    propose_reason(p, PROPOSE_SOURCE_KEY(folder, "rate"),
                   "The recordings have up to %d frames per second; %d are used.",
                   look.rate, rate);
    propose_reason(p, PROPOSE_SOURCE_KEY(folder, "features"),
                   "The network gets the logarithm of the power by pitch and time.");
    if (look.damaged)
        propose_reason(p, PROPOSE_SOURCE_KEY(folder, "damaged"),
                       "Of %d recordings %d cannot be read: such are named in the log, "
                       "counted and skipped.",
                       look.looked, look.damaged);
    propose_class_folder(p, folder, &pl_sound_files,
                         json_pack("{s:s, s:f, s:i, s:s, s:i, s:i, s:i, s:s}", "name",
                                   "sounds", "seconds", seconds, "rate", rate, "features",
                                   "log_mel", "n_fft", n_fft, "hop", rate / 100, "mels",
                                   rate < RATE_MAX ? 40 : 64, "damaged",
                                   look.damaged ? "skip" : "error"));
    propose_set(p, "module",
                json_pack("{s:s, s:o}", "name", "layers", "layers", propose_layers()));
    propose_reason(p, "module.layers",
                   "A small convolutional network. It takes the mean over time of %d "
                   "bands of pitch, so high and low tones differ for it.",
                   BANDS);
    return PL_OK;
}
