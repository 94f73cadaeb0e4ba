#include "backend/agent_outcome.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "wire/field.h"

const char *agent_reason_word(AgentReason reason)
{
    static const char *const words[] = {
#define X(name, word) [AGENT_REASON_##name] = word,
        AGENT_REASONS(X)
#undef X
    };
    return words[reason];
}

static const struct {
    AgentHit hit;
    const char *word;
} hit_words[] = {
#define X(name, bit, word) {AGENT_HIT_##name, word},
    AGENT_HITS(X)
#undef X
};

const char *agent_hit_word(AgentHit hit)
{
    for (gsize i = 0; i < G_N_ELEMENTS(hit_words); i++) {
        if (hit_words[i].hit == hit)
            return hit_words[i].word;
    }
    return NULL;
}

/* A text field of ENDED as one of a list of words; the words of later versions are passed over. */
static int read_reason(const struct field *field, AgentReason *reason)
{
    char word[32];
    int result = field_copy_text(field, word, sizeof word);
    if (result < 0)
        return result;
#define X(name, text)                                                                              \
    if (g_str_equal(word, text))                                                                   \
        *reason = AGENT_REASON_##name;
    AGENT_REASONS(X)
#undef X
    return *reason == AGENT_REASON_NONE
               ? -EPROTO
               : 0; /* an end that we cannot name must not pass for a plain one */
}

static int read_hit(const struct field *field, guint *hits)
{
    char word[32];
    int result = field_copy_text(field, word, sizeof word);
    for (gsize i = 0; result >= 0 && i < G_N_ELEMENTS(hit_words); i++) {
        if (g_str_equal(word, hit_words[i].word))
            *hits |= hit_words[i].hit;
    }
    return result;
}

typedef struct {
    guint64 exit_code, signal, left_running;
    gboolean has_signal;
} RawEnd;

static int read_ended_field(const struct field *field, AgentOutcome *outcome, RawEnd *end)
{
    const struct {
        const char *key;
        guint64 *value;
        gboolean *present;
    } numbers[] = {
        {"exit_code", &end->exit_code, &outcome->exited},
        {"signal", &end->signal, &end->has_signal},
        {"left_running", &end->left_running, NULL},
        {"stdout_bytes", &outcome->written_bytes[AGENT_STDOUT], NULL},
        {"stderr_bytes", &outcome->written_bytes[AGENT_STDERR], NULL},
        {"stdout_dropped_bytes", &outcome->dropped_bytes[AGENT_STDOUT], NULL},
        {"stderr_dropped_bytes", &outcome->dropped_bytes[AGENT_STDERR], NULL},
        {"wall_ms", &outcome->wall_ms, NULL},
        {"cpu_ms", &outcome->cpu_ms, NULL},
        {"peak_memory_bytes", &outcome->peak_memory_bytes, &outcome->has_peak_memory},
    };
    if (field_is(field, "reason"))
        return read_reason(field, &outcome->reason);
    if (field_is(field, "limits_hit"))
        return read_hit(field, &outcome->hits);
    for (gsize i = 0; i < G_N_ELEMENTS(numbers); i++) {
        if (field_is(field, numbers[i].key)) {
            if (numbers[i].present)
                *numbers[i].present = TRUE;
            return field_u64(field, numbers[i].value);
        }
    }
    return 0; /* of a later version */
}

int agent_outcome_read(const struct frame *frame, AgentOutcome *outcome)
{
    enum { EXIT_CODE_MAX = 255, SIGNAL_MAX = 64 };
    struct field_reader reader;
    struct field field;
    RawEnd end = {0};
    int result, bad = 0;
    memset(outcome, 0, sizeof *outcome);
    field_reader_init(&reader, frame->payload, frame->size);
    while ((result = field_next(&reader, &field)) > 0)
        bad |= read_ended_field(&field, outcome, &end);
    outcome->left_running = end.left_running != 0;
    if (!outcome->exited && !end.has_signal && outcome->left_running) {
        end.signal =
            SIGKILL; /* was sent, and will take the program as soon as the kernel lets go of it */
        end.has_signal = TRUE;
    }
    if (result < 0 || bad < 0 || outcome->exited == end.has_signal)
        return -EPROTO;
    if (end.exit_code > EXIT_CODE_MAX ||
        (end.has_signal && (end.signal == 0 || end.signal > SIGNAL_MAX)))
        return -EPROTO;
    outcome->exit_code = (int)end.exit_code;
    outcome->signal = (int)end.signal;
    return 0;
}

int agent_refusal_read(const struct frame *frame, AgentRefusal *refusal)
{
    struct field_reader reader;
    struct field field;
    guint64 number = 0;
    int result, bad = 0;
    memset(refusal, 0, sizeof *refusal);
    field_reader_init(&reader, frame->payload, frame->size);
    while ((result = field_next(&reader, &field)) > 0) {
        if (field_is(&field, "step"))
            bad |= field_copy_text(&field, refusal->step, sizeof refusal->step);
        else if (field_is(&field, "message"))
            bad |= field_copy_text(&field, refusal->message, sizeof refusal->message);
        else if (field_is(&field, "errno"))
            bad |= field_u64(&field, &number);
    }
    if (result < 0 || bad < 0 || number > G_MAXINT16)
        return -EPROTO;
    if (refusal->step[0] == '\0')
        g_strlcpy(refusal->step, "start", sizeof refusal->step);
    refusal->error_number = (int)number;
    return 0;
}
