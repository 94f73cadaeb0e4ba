#pragma once

#include <glib.h>
#include <stdint.h>

/* How figures read in the sentences of this room. */

/* "17 bytes", "1.5 KiB", "64 GiB"; the caller owns it. */
char *text_of_size(uint64_t bytes);
