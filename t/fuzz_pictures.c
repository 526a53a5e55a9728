/* fuzz_pictures.c - any bytes as a picture, which passes all stages if it is one */
#include <stdint.h>
#include <stdlib.h>

#include "actors/connectors/datasets/pictures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char list[] = "[\"random_resized_crop 9x7\", \"rotate\", \"color\", "
                               "\"flip\", \"random_crop 8 padding=1\", \"cutout 3\"]";
    pl_picture_header_t header;
    pl_picture_work_t work = {0};
    pl_picture_stages_t stages;
    pl_error_t err;
    int place;
    if (pl_picture_header(data, size, "fuzz", &header, &err))
        return 0;
    if (header.width < 1 || header.height < 1 || header.orientation < 1
        || header.orientation > 8)
        abort();
    if ((int64_t)header.width * header.height > 1 << 18)
        return 0;
    const pl_picture_draw_t draw = {.key = size, .is_random = true};
    const bool turned = pl_picture_is_turned(&header);
    const int width = turned ? header.height : header.width,
              height = turned ? header.width : header.height;
    pl_picture_stages_read(&stages, list, &place, &err);
    if (pl_picture_decode(data, size, "fuzz", &header,
                          pl_picture_stages_shrink(&stages, &draw, width, height),
                          &work.picture, &work.spare, &err)
            == PL_OK
        && (pl_picture_stages_run(&stages, &draw, width, height, &work, &err)
            || work.picture.width != 8 || work.picture.height != 8))
        abort();
    pl_picture_work_release(&work);
    return 0;
}
