#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Field lists: the payload of control frames. A field is u8 key length (1..63), the key (a-z, 0-9, '_'), u32 value length,
 * the value (raw bytes). Keys may repeat (argv, env); their order is kept. */

enum { FIELD_KEY_MAX = 63 };

/* Builds a list in a buffer of the caller's. Once a field does not fit, or a key is not valid, `failed` stays true and
 * nothing more is added: check it once, at the end. */
struct field_writer {
    uint8_t *buffer;
    size_t capacity;
    size_t size;
    bool failed;
};

void field_writer_init(struct field_writer *writer, void *buffer, size_t capacity);
void field_put(struct field_writer *writer, const char *key, const void *value, size_t size);
void field_put_text(struct field_writer *writer, const char *key, const char *text);
void field_put_u64(struct field_writer *writer, const char *key, uint64_t value);

struct field {
    char key[FIELD_KEY_MAX + 1];
    const uint8_t *value; /* borrowed */
    size_t size;
};

/* Walks a list. field_next() returns 1 with the next field, 0 at the end, -EPROTO when the bytes are no list. */
struct field_reader {
    const uint8_t *data;
    size_t size;
    size_t at;
};

void field_reader_init(struct field_reader *reader, const void *data, size_t size);
int field_next(struct field_reader *reader, struct field *field);

/* The value as a number (eight bytes) or as text without NUL inside; -EPROTO when it is not that.
 * field_copy_text() writes at most `capacity` bytes including the NUL; -E2BIG when it does not fit. */
int field_u64(const struct field *field, uint64_t *value);
int field_copy_text(const struct field *field, char *out, size_t capacity);
bool field_is(const struct field *field, const char *key);
