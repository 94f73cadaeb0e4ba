#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/field.h"

/* A list of fields: values stay inside the input, and a list that can be read is written as the
 * same bytes. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct field_reader reader;
    struct field_writer writer;
    struct field field;
    char text[64];
    uint64_t number;
    int more;
    uint8_t *copy = malloc(size + 1);
    check(copy != NULL);
    field_writer_init(&writer, copy, size);
    field_reader_init(&reader, data, size);
    while ((more = field_next(&reader, &field)) > 0) {
        check(field.value >= data && field.size <= size && field.value + field.size <= data + size);
        check(strlen(field.key) >= 1 && strlen(field.key) <= FIELD_KEY_MAX);
        check((field_u64(&field, &number) == 0) == (field.size == 8));
        if (field_copy_text(&field, text, sizeof(text)) == 0)
            check(strlen(text) == field.size && memcmp(text, field.value, field.size) == 0);
        field_put(&writer, field.key, field.value, field.size);
    }
    if (more == 0)
        check(!writer.failed && writer.size == size && memcmp(copy, data, size) == 0);
    free(copy);
    return 0;
}
