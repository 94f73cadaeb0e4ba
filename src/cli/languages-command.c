/* `hutch languages`: what can run here. The versions come from the programs themselves, each
 * started in one sandbox, one after another; when there is no sandbox to be had the list is printed
 * without them. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backend/agent_client.h"
#include "backend/backend.h"
#include "cli/commands.h"
#include "cli/program.h"
#include "cli/result.h"
#include "cli/streams.h"
#include "cli/text.h"
#include "kernels/languages.h"

enum {
    VERSION_TIMEOUT_MS = 20 * 1000,
    VERSION_GRACE_MS = 500,
    VERSION_OUTPUT_BYTES = 64 * 1024,
};

/* The first line that is not empty of what the program said, on either stream; NULL when there is
 * none. */
static char *first_line(const KeptStreams *kept)
{
    for (AgentStream stream = AGENT_STDOUT; stream < N_AGENT_STREAMS; stream++) {
        g_autoptr(GString) text = kept_streams_text(kept, stream);
        g_auto(GStrv) lines = g_strsplit(text->str, "\n", -1);
        for (char **line = lines; *line; line++) {
            if (*g_strstrip(*line))
                return g_strdup(*line);
        }
    }
    return NULL;
}

/* NULL without an error: the program has no version to tell. */
static char *ask_version(AgentClient *client, const Language *language, GError **error)
{
    g_autofree char *id = program_new_id();
    g_autoptr(GPtrArray) env = program_environment(language, NULL);
    AgentRequest request = {
        .id = id,
        .argv = language->version,
        .env = (const char *const *)env->pdata,
        .cwd = "/workspace",
        .timeout_ms = VERSION_TIMEOUT_MS,
        .grace_ms = VERSION_GRACE_MS,
        .output_bytes = VERSION_OUTPUT_BYTES,
        .sole = TRUE,
    };
    AgentRefusal refusal;
    AgentOutcome outcome;
    GError *failed = NULL;
    if (!agent_client_start(client, &request, &refusal, &failed)) {
        if (refusal.step[0])
            g_error_free(failed); /* this one cannot be started; the agent is well */
        else
            g_propagate_error(error, failed);
        return NULL;
    }
    KeptStreams kept;
    kept_streams_init(&kept);
    AgentRelay relay = {.sink = &kept_sink, .stdin_fd = -1, .wish_fd = -1, .user = &kept};
    gboolean ended = agent_client_relay(client, &relay, &outcome, error);
    char *version = ended && outcome.exited && outcome.exit_code == 0 ? first_line(&kept) : NULL;
    kept_streams_clear(&kept);
    return version;
}

/* `versions` gets the version of each language at its place, NULL where there is none. */
static gboolean ask_versions(const Options *options, const gboolean *present, GPtrArray *versions,
                             GError **error)
{
    g_autoptr(Sandbox) sandbox = sandbox_create(&options->sandbox, error);
    if (!sandbox || !sandbox_confirm(sandbox, error))
        return FALSE;
    g_autoptr(AgentClient) client = agent_client_new(sandbox_agent_fd(sandbox));
    const Language *const *all = languages_all();
    for (guint i = 0; all[i]; i++) {
        GError *failed = NULL;
        if (present[i] && all[i]->version)
            versions->pdata[i] = ask_version(client, all[i], &failed);
        if (failed) {
            g_propagate_error(error, failed);
            return FALSE;
        }
    }
    return TRUE;
}

static json_t *list_json(const char *const *list)
{
    json_t *array = json_array();
    for (; list && *list; list++)
        json_array_append_new(array, result_text(*list));
    return array;
}

static json_t *language_json(const Language *language, gboolean present, const char *version)
{
    json_t *object = json_object();
    json_object_set_new(object, "name", result_text(language->name));
    json_object_set_new(object, "aliases", list_json(language->aliases));
    json_object_set_new(object, "extensions", list_json(language->extensions));
    json_object_set_new(object, "program", result_text(language->program));
    json_object_set_new(object, "package", result_text(language->package));
    json_object_set_new(object, "present", json_boolean(present));
    json_object_set_new(object, "version", result_text(version));
    return object;
}

/* TRUE when the reader of stdout has left before all was written. */
static gboolean print_json(const gboolean *present, GPtrArray *versions, const char *note,
                           GError **error)
{
    const Language *const *all = languages_all();
    json_t *list = json_array();
    for (guint i = 0; all[i]; i++)
        json_array_append_new(list, language_json(all[i], present[i], versions->pdata[i]));
    json_t *object = json_object();
    json_object_set_new(object, "languages", list);
    json_object_set_new(object, "note", result_text(note));
    gboolean gone = FALSE;
    result_print_json(object, &gone, error);
    json_decref(object);
    return gone;
}

static void print_table(const gboolean *present, GPtrArray *versions)
{
    const Language *const *all = languages_all();
    for (guint i = 0; all[i]; i++) {
        if (present[i]) {
            g_autofree char *version =
                text_escape(versions->pdata[i] ? versions->pdata[i] : "present");
            printf("%-14s %s\n", all[i]->name, version);
        } else {
            printf("%-14s absent; install the package %s\n", all[i]->name, all[i]->package);
        }
    }
}

int command_languages(const Options *options, GError **error)
{
    const Language *const *all = languages_all();
    guint n = 0;
    while (all[n])
        n++;
    g_autofree gboolean *present = g_new0(gboolean, n);
    g_autoptr(GPtrArray) versions = g_ptr_array_new_with_free_func(g_free);
    g_ptr_array_set_size(versions, (int)n);
    gboolean any = FALSE;
    for (guint i = 0; i < n; i++) {
        g_autofree char *path = language_find(all[i]);
        present[i] = path != NULL;
        any |= present[i];
    }
    g_autoptr(GError) failed = NULL;
    g_autofree char *note = NULL;
    if (any && !ask_versions(options, present, versions, &failed))
        note = g_strdup_printf("versions could not be asked for: %s", failed->message);
    if (options->json) {
        return print_json(present, versions, note, error) ? EXIT_SIGNAL_BASE + SIGPIPE : 0;
    }
    print_table(present, versions);
    if (note)
        say("%s", note);
    return 0;
}
