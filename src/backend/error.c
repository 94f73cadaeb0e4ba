#include "backend/error.h"

typedef struct {
    const char *word;
    int exit_status;
} ErrorRow;

static const ErrorRow rows[] = {
#define X(name, word, exit_status) [HUTCH_ERROR_##name] = {word, exit_status},
    HUTCH_ERRORS(X)
#undef X
};

G_DEFINE_QUARK(hutch - error, hutch_error)

static const ErrorRow *row_of(const GError *error)
{
    gboolean ours = error && error->domain == HUTCH_ERROR && error->code >= 0 &&
                    (gsize)error->code < G_N_ELEMENTS(rows);

    return &rows[ours ? error->code : HUTCH_ERROR_IO];
}

const char *hutch_error_word(const GError *error)
{
    return row_of(error)->word;
}

int hutch_error_exit_status(const GError *error)
{
    return row_of(error)->exit_status;
}
