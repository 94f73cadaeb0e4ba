#include "wire/frame.h"

#include <errno.h>

void frame_put_u64(uint8_t out[8], uint64_t value)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

uint64_t frame_get_u64(const uint8_t in[8])
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

void frame_encode_header(uint8_t out[FRAME_HEADER_BYTES], enum frame_type type, size_t size)
{
    frame_put_u64(out, (uint64_t)size | (uint64_t)type << 32);
}

ssize_t frame_decode(const uint8_t *data, size_t size, struct frame *frame)
{
    if (size < FRAME_HEADER_BYTES)
        return 0;
    uint64_t header = frame_get_u64(data);
    size_t payload = (size_t)(header & 0xffffffffu);
    unsigned type = (unsigned)(header >> 32 & 0xff);
    if (header >> 40 != 0 || payload > FRAME_PAYLOAD_MAX || type == 0 || type > FRAME_TYPE_MAX)
        return -EPROTO;
    if (size - FRAME_HEADER_BYTES < payload)
        return 0;
    *frame = (struct frame){
        .type = (enum frame_type)type, .payload = data + FRAME_HEADER_BYTES, .size = payload};
    return (ssize_t)(FRAME_HEADER_BYTES + payload);
}
