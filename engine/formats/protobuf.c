/* protobuf.c - messages of Protocol Buffers, written field by field */
#include "formats/protobuf.h"

#include <string.h>

#include "base/alloc.h"

enum { VARINT = 0, FIXED_64 = 1, LENGTH = 2, FIXED_32 = 5 };

static void put(pl_proto_t *message, const void *data, size_t size)
{
    size_t needed = message->size + size;
    if (message->failed || !size)
        return;
    if (needed > message->capacity) {
        uint8_t *larger = pl_resize(message->data, 2 * needed);
        if (!larger) {
            message->failed = true;
            return;
        }
        message->data = larger;
        message->capacity = 2 * needed;
    }
    memcpy(message->data + message->size, data, size);
    message->size = needed;
}

static void put_varint(pl_proto_t *message, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    do {
        bytes[count] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
        count++;
    } while (value);
    put(message, bytes, count);
}

static void put_key(pl_proto_t *message, int field, unsigned wire)
{
    put_varint(message, (uint64_t)field << 3 | wire);
}

static void put_fixed(pl_proto_t *message, uint64_t bits, size_t size)
{
    uint8_t bytes[8];
    for (size_t k = 0; k < size; k++)
        bytes[k] = (uint8_t)(bits >> 8 * k);
    put(message, bytes, size);
}

static void put_double(pl_proto_t *message, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(message, bits, sizeof bits);
}

void pl_proto_int(pl_proto_t *message, int field, uint64_t value)
{
    put_key(message, field, VARINT);
    put_varint(message, value);
}

void pl_proto_float(pl_proto_t *message, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(message, field, FIXED_32);
    put_fixed(message, bits, sizeof bits);
}

void pl_proto_double(pl_proto_t *message, int field, double value)
{
    put_key(message, field, FIXED_64);
    put_double(message, value);
}

void pl_proto_bytes(pl_proto_t *message, int field, const void *data, size_t size)
{
    put_key(message, field, LENGTH);
    put_varint(message, size);
    put(message, data, size);
}

void pl_proto_text(pl_proto_t *message, int field, const char *text)
{
    pl_proto_bytes(message, field, text, strlen(text));
}

void pl_proto_doubles(pl_proto_t *message, int field, const double *value, size_t count)
{
    put_key(message, field, LENGTH);
    put_varint(message, count * sizeof *value);
    for (size_t k = 0; k < count; k++)
        put_double(message, value[k]);
}

void pl_proto_message(pl_proto_t *message, int field, pl_proto_t *inner)
{
    message->failed |= inner->failed;
    pl_proto_bytes(message, field, inner->data, inner->size);
    pl_proto_release(inner);
}

void pl_proto_release(pl_proto_t *message)
{
    pl_free(message->data);
    *message = (pl_proto_t){.failed = message->failed};
}
