#pragma once

/* Brings up the loopback of the calling process's network namespace: its only interface. 0 or -errno. */
int net_loopback_up(void);
