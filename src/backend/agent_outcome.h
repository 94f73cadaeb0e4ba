#pragma once

#include "backend/agent_client.h"
#include "wire/frame.h"

/* Reads ENDED and ERROR frames, whose sender is not trusted. 0, or -EPROTO when they break a rule
 * of wire/protocol.h. */
int agent_outcome_read(const struct frame *frame, AgentOutcome *outcome);
int agent_refusal_read(const struct frame *frame, AgentRefusal *refusal);
