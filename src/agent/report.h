#pragma once

#include "agent/execution.h"

/* The control frames that an execution sends to its client (wire/protocol.h has their fields). They
 * go into the connection's buffer, which has room for them when connection_room() is not 0, and for
 * one answer to each request of the client at any time. */

/* ERROR bad_request: START broke a rule. `field` is empty when it is not about one field; `rule`
 * follows the field's name in a sentence. */
void report_refusal(struct execution *execution, const char *field, const char *rule);

/* ERROR failed: execution->failure. */
void report_failure(struct execution *execution);

void report_started(struct execution *execution);
void report_credit(struct execution *execution, size_t bytes);
void report_gap(struct execution *execution);

/* ENDED: the whole outcome. */
void report_ended(struct execution *execution);
