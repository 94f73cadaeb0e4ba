#include "wire/field.h"

#include <errno.h>
#include <string.h>

#include "wire/frame.h"

static bool key_is_valid(const char *key, size_t size)
{
    if (size == 0 || size > FIELD_KEY_MAX)
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = key[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'))
            return false;
    }
    return true;
}

void field_writer_init(struct field_writer *writer, void *buffer, size_t capacity)
{
    *writer = (struct field_writer){.buffer = buffer, .capacity = capacity};
}

void field_put(struct field_writer *writer, const char *key, const void *value, size_t size)
{
    size_t key_size = strlen(key);
    if (writer->failed || !key_is_valid(key, key_size) || size > FRAME_PAYLOAD_MAX ||
        writer->capacity - writer->size < 1 + key_size + 4 + size) {
        writer->failed = true;
        return;
    }
    uint8_t *at = writer->buffer + writer->size;
    *at++ = (uint8_t)key_size;
    memcpy(at, key, key_size);
    at += key_size;
    for (int i = 0; i < 4; i++)
        *at++ = (uint8_t)(size >> (8 * i));
    if (size > 0)
        memcpy(at, value, size);
    writer->size += 1 + key_size + 4 + size;
}

void field_put_text(struct field_writer *writer, const char *key, const char *text)
{
    field_put(writer, key, text, strlen(text));
}

void field_put_u64(struct field_writer *writer, const char *key, uint64_t value)
{
    uint8_t bytes[8];
    frame_put_u64(bytes, value);
    field_put(writer, key, bytes, sizeof(bytes));
}

void field_reader_init(struct field_reader *reader, const void *data, size_t size)
{
    *reader = (struct field_reader){.data = data, .size = size};
}

int field_next(struct field_reader *reader, struct field *field)
{
    size_t left = reader->size - reader->at;
    if (left == 0)
        return 0;
    const uint8_t *at = reader->data + reader->at;
    size_t key_size = at[0];
    if (left < 1 + key_size + 4 || !key_is_valid((const char *)at + 1, key_size))
        return -EPROTO;
    memcpy(field->key, at + 1, key_size);
    field->key[key_size] = '\0';
    at += 1 + key_size;
    size_t size = 0;
    for (int i = 0; i < 4; i++)
        size |= (size_t)at[i] << (8 * i);
    if (left - (1 + key_size + 4) < size)
        return -EPROTO;
    field->value = at + 4;
    field->size = size;
    reader->at += 1 + key_size + 4 + size;
    return 1;
}

int field_u64(const struct field *field, uint64_t *value)
{
    if (field->size != 8)
        return -EPROTO;
    *value = frame_get_u64(field->value);
    return 0;
}

int field_copy_text(const struct field *field, char *out, size_t capacity)
{
    if (memchr(field->value, '\0', field->size))
        return -EPROTO;
    if (field->size >= capacity)
        return -E2BIG;
    memcpy(out, field->value, field->size);
    out[field->size] = '\0';
    return 0;
}

bool field_is(const struct field *field, const char *key)
{
    return strcmp(field->key, key) == 0;
}
