/* fuzz_frame.c - any bytes as a frame: the codec, and the line of the stream, which must
 * be JSON */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first two bytes choose the line's room, so that it is cut anywhere. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t capacity = PL_LINE_MIN + (data[0] | (size_t)data[1] << 8) % 8192;
    pl_bytes_t frame = {data + 2, size - 2};
    pl_stamp_t stamp = {.seq = size, .time = INT64_MAX, .rank = -1};
    pl_body_t body;
    pl_error_t error, err;
    uint64_t transfer;
    bool is_frame = pl_frame_decode(frame, &body, &error, &err) == PL_OK;
    bool is_plain = pl_frame_decode_foreign(frame, &body, &error, NULL, &err) == PL_OK;
    bool is_foreign = pl_frame_decode_foreign(frame, &body, &error, &transfer, &err)
                      == PL_OK;
    if (is_foreign && is_plain != !transfer)
        abort();
    char *line = malloc(capacity);
    size_t length = pl_message_json(frame, &stamp, 7, line, capacity);
    json_t *json = length ? json_loadb(line, length, 0, NULL) : NULL;
    if ((is_frame && !length) || (length && !json) || length >= capacity)
        abort();
    json_decref(json);
    free(line);
    return 0;
}
