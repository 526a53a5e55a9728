/* protobuf.h - messages of Protocol Buffers, written field by field
 *
 * The wire format alone, as https://protobuf.dev/programming-guides/encoding/ has it:
 * enough for the event files that TensorBoard reads, without a library for them.  A lack
 * of memory sticks: fields after it do nothing, and the user looks at `failed` once. */
#ifndef PL_FORMATS_PROTOBUF_H
#define PL_FORMATS_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_proto {
    uint8_t *data;                                          /* [size] */
    size_t size, capacity;
    bool failed;                                            /* no memory */
} pl_proto_t;

void pl_proto_int(pl_proto_t *message, int field, uint64_t value);
void pl_proto_float(pl_proto_t *message, int field, float value);
void pl_proto_double(pl_proto_t *message, int field, double value);
void pl_proto_bytes(pl_proto_t *message, int field, const void *data, size_t size);
void pl_proto_text(pl_proto_t *message, int field, const char *text);
/* `count` numbers as one packed field. */
void pl_proto_doubles(pl_proto_t *message, int field, const double *value, size_t count);
/* A message inside another; the inner one is released. */
void pl_proto_message(pl_proto_t *message, int field, pl_proto_t *inner);

void pl_proto_release(pl_proto_t *message);

#endif
