#include "cli/steps.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "cli/text.h"

enum { STEPS_MAX = 32 };

static struct {
    const char *fault; /* the step's name alone */
    guint64 begun_us, last_us;
    SandboxStep steps[STEPS_MAX];
    guint n_steps;
} record;

void steps_begin(const char *fault)
{
    record.begun_us = record.last_us = clock_monotonic_us();
    record.n_steps = 0;
    record.fault = fault && g_str_has_prefix(fault, "hutch@") ? fault + strlen("hutch@") : NULL;
}

void step_done(const char *name)
{
    guint64 now_us = clock_monotonic_us();
    if (record.n_steps < STEPS_MAX)
        record.steps[record.n_steps++] = (SandboxStep){"hutch", name, now_us - record.last_us};
    record.last_us = now_us;
    if (record.fault && g_str_equal(record.fault, name))
        raise(SIGKILL);
}

static void print_row(const SandboxStep *step)
{
    say("%-9s %-20s %8" G_GUINT64_FORMAT " us", step->who, step->name, step->us);
}

void steps_print(const SandboxStep *sandbox_steps, gsize n_sandbox_steps)
{
    for (guint i = 0; i < record.n_steps; i++) {
        print_row(&record.steps[i]);
        if (g_str_equal(record.steps[i].name, "create")) {
            for (gsize k = 0; k < n_sandbox_steps; k++)
                print_row(&sandbox_steps[k]);
        }
    }
    print_row(&(SandboxStep){"hutch", "total", record.last_us - record.begun_us});
}
