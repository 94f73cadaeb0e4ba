#pragma once

#include <glib.h>

/* Whether the JavaScript source can only be an ES module: it has an import or export
 * declaration, import.meta, or await outside of all functions (and nothing of CommonJS beside
 * it). A reader of tokens, no parser: in doubt FALSE, which leaves the source to the
 * interpreter's own judgement. Linear in the size, constant memory. */
gboolean javascript_is_module(const char *source, gsize size);
