#pragma once

#include <glib.h>
#include <poll.h>

#include "backend/agent_client.h"
#include "wire/frame.h"

/* The connection of an AgentClient: frames into and out of two buffers. For agent_client.c alone.
 *
 * `out` holds what the agent has not taken yet: a whole START with its script, or one frame of
 * input (new input is read only when it is empty), so it is bounded by those. `in` holds at least
 * one whole frame; frames are decoded in place and stay valid until the next agent_socket_ready().
 */
typedef struct {
    int fd;
    GByteArray *out;
    gsize out_sent;
    gboolean out_broken; /* the agent reads no more; what it said before is still to be read */
    guint8 *in;
    gsize in_start, in_end;
    gboolean greeted, in_ended;
    guint64 heard_ms; /* when something last came; the user may count other signs of life too */
} AgentConnection;

/* `fd` is borrowed. */
void agent_connection_init(AgentConnection *connection, int fd);
void agent_connection_clear(AgentConnection *connection);

/* Puts a frame into `out`; sends of `out` what the socket takes now. A broken connection is no
 * error here: the agent may have said why before, which is still to be read. */
void agent_put_frame(AgentConnection *connection, enum frame_type type, const void *payload,
                     gsize size);
void agent_send_some(AgentConnection *connection);
gboolean agent_wants_to_send(const AgentConnection *connection);

/* The next whole frame behind HELLO, which is checked here. FALSE without an error: more has to
 * come first. */
gboolean agent_next_frame(AgentConnection *connection, struct frame *frame, GError **error);

/* What to poll(2) the socket for (its descriptor is -1 when there is nothing: a socket that has
 * hung up would be reported for ever), and what to do when it was reported. */
struct pollfd agent_socket_pollfd(const AgentConnection *connection, gboolean receive);
gboolean agent_socket_ready(AgentConnection *connection, const struct pollfd *polled,
                            GError **error);

/* Sets HUTCH_ERROR_AGENT, "the sandbox's agent SENTENCE", and returns FALSE; the same for what is
 * against the protocol. */
gboolean agent_error(GError **error, const char *sentence);
gboolean agent_broke_rule(GError **error);
