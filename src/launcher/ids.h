#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Host ids: 1,879,048,192 to 2,147,352,575 are Hutch's. The first 65,536 are its own (the first one, IDS_OWNER, owns the user
 * namespaces), the rest are slots of 65,536, one per sandbox. A slot is an open-file-description lock (fcntl(2), F_OFD_SETLK) on
 * one byte of IDS_FILE, whose descriptor the agent inherits: it is taken as long as the launcher or the agent lives, and
 * leaves nothing behind. */

#define IDS_FILE "/run/hutch/ids"
enum {
    IDS_FIRST = 1879048192,
    IDS_OWNER = IDS_FIRST,
    IDS_SLOT_SIZE = 65536,
    IDS_N_SLOTS = 4093,
    IDS_CODE = 1000, /* inside */
};

struct id_slot {
    int lock_fd; /* -1: an ordinary user's sandbox, whose one id is the user's */
    unsigned
        slot; /* the lowest one that was free; without a lock a small number to spread load by */
    uid_t base;
};

/* Takes a slot (root). -EUSERS when all are taken. */
int ids_take(struct id_slot *slot);
/* The ordinary user's: no lock. */
void ids_of_user(struct id_slot *slot);
void ids_release(struct id_slot *slot);

/* Writes the maps of process `pid`. Refuses a map whose outside is 0. */
int ids_write_maps(const struct id_slot *slot, pid_t pid);
