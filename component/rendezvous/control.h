/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The control messages of a rendezvous, byte by byte. All numbers are little-endian; lengths and
 * offsets are in bytes, offsets from the start of the transfer.
 *
 * The RTS is the MPI library's own. The CTS travels inside it as the registration handle and has
 * REGX_CTS_SIZE bytes; unused ones are zero:
 *
 *      0 u8  version (5)          1 u8  path (strategy) of this transfer
 *      2 u16 number of grants     4 u32 landing        8 u32 its generation
 *     12 u32 bits 1: this is not the path that was asked for; 2: WRITTEN and DONE are to carry a
 *            checksum; 4: the chunk may be written in pieces
 *     16 u64 length of the transfer
 *     24 the first grants: slots (bounce): up to 8 of { u32 slot, u32 length }, from offset 0 on;
 *                          a slot is named by its offset in the receiver's pool
 *                          a chunk (pipeline, direct): u64 length, u64 where in the keyed region
 *                          it begins, 24 bytes key; at offset 0 of the transfer
 *                          nothing yet (read): u64 the most that may be exposed as one chunk; the
 *                          number of grants is that of chunks that may be exposed at once
 *                          both (together): a chunk, and behind its key the u64; what is behind
 *                          the chunk is to be exposed, in as many chunks at once
 *
 * All others are frames with the tag REGX_TAG_CONTROL of at most 72 bytes:
 *
 *      0 u8  version (5)          1 u8  type
 *      2 u16 number of grants     4 u32 addressee (a landing or a source)   8 u32 its generation
 *
 *   from the source to the landing
 *     12 u32 source               16 u32 its generation
 *     START    nothing more: the source exists; it can be granted more
 *     WRITTEN  20 u32 slot        24 u64 offset   32 u64 length: the slot is full
 *     DONE     20 u32 zero        24 u64 offset   32 u64 length: the chunk, or its next piece, was
 *              written: pieces follow one another from the chunk's offset on
 *              40 u64 checksum of these bytes (checksum.h); both may be without it, and may
 *              then come as immediate data instead (immediate.h)
 *     REFUSED  20 u32 why         24 u64 offset   32 u64 length: the chunk, or all of it behind
 *                                 its last piece, was not written; grant slots for it; 0: it
 *                                 cannot be just now; 1: nor can any that follows; 2: as if there
 *                                 were no memory, at either end. Of what was to be exposed: nothing
 *                                 from the offset on will be exposed, and the length is all that is
 *                                 left; 1: nor will any other memory be
 *     EXPOSED  20 u32 length      24 u64 offset   32 u64 where in the keyed region it begins
 *              40 24 bytes key    64 u64 checksum of these bytes, which may be missing: they can
 *                                 be read until GOT. Chunks are exposed in their order
 *   from the landing to the source
 *     SLOTS    12 u32 zero        16 u64 offset
 *              24 up to 4 of { u32 slot, u32 length }, from the offset on
 *     CHUNK    12 u32 length      16 u64 offset
 *              24 u64 where in the keyed region it begins      32 24 bytes key
 *     GOT      12 u32 0: what was exposed has been read; 1: it was not, grant it as refused; 2:
 *              likewise, as if there were no memory, at either end
 *              16 u64 offset      24 u64 length
 *
 * A key names a region, which may be larger than what is granted: the registration that serves a
 * chunk may have been made for more. A grant gives the right to write its range once, an exposure
 * the right to read its range until GOT; that the wire would take a write to, or a read of, the
 * rest of the region, or a later one while the region is kept, is not enforced by every wire: with
 * backend `none` a key dies with its chunk, with a cache it lives while the region is registered,
 * and a peer's memory safety rests on its peers' regx, as with RDMA everywhere. What was registered
 * only to be read cannot be written by any key.
 */
#ifndef REGX_RENDEZVOUS_CONTROL_H
#define REGX_RENDEZVOUS_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/handle_table.h"
#include "transport/transport.h"

#define REGX_TAG_CONTROL 0x28 /* of the tags that Open MPI keeps for BTLs, one that none uses */
#ifndef REGX_CONTROL_VERSION  /* a test builds another */
#define REGX_CONTROL_VERSION 5
#endif
#define REGX_CONTROL_MAX 72 /* of all but EXPOSED 56, what any transport carries at once */
#define REGX_CTS_SIZE 88
#define REGX_CTS_SLOTS 8
#define REGX_CTS_EXPOSURES 64
#define REGX_MESSAGE_SLOTS 4

typedef enum regx_control_type {
    REGX_CONTROL_START = 1,
    REGX_CONTROL_WRITTEN,
    REGX_CONTROL_DONE,
    REGX_CONTROL_REFUSED,
    REGX_CONTROL_EXPOSED,
    REGX_CONTROL_SLOTS,
    REGX_CONTROL_CHUNK,
    REGX_CONTROL_GOT
} regx_control_type_t;

typedef struct regx_slot_grant {
    uint32_t slot; /* its offset in the receiver's pool */
    uint32_t length;
} regx_slot_grant_t;

typedef struct regx_cts {
    regx_path_t path; /* REGX_PATH_bounce, _pipeline, _direct, _read or _together */
    regx_handle_t landing;
    bool fallback; /* not the path that was asked for */
    bool verify;   /* notices are to carry a checksum */
    bool pieces;   /* the chunk may be written in pieces */
    uint64_t length;
    unsigned slot_count;
    regx_slot_grant_t slots[REGX_CTS_SLOTS];
    unsigned exposures;    /* read, together: as many chunks may be exposed at once … */
    uint64_t exposed_most; /* … and none be longer than this */
    uint64_t chunk_length; /* 0: no chunk granted yet */
    uint64_t chunk_start;  /* from the start of the region that the key names */
    regx_key_t key;
} regx_cts_t;

typedef struct regx_control {
    regx_control_type_t type;
    regx_handle_t to;
    regx_handle_t from; /* from a source only */
    bool anonymous;     /* WRITTEN, DONE: came by immediate data, which does not tell `from` */
    uint64_t offset;
    uint64_t length;     /* of a CHUNK or EXPOSED, at most 32 bits */
    uint32_t slot;       /* WRITTEN */
    bool unread;         /* GOT: it is not so */
    bool for_ever;       /* REFUSED */
    bool failed;         /* REFUSED, and not for ever; GOT, and unread */
    bool has_checksum;   /* WRITTEN, DONE, EXPOSED */
    uint64_t checksum;   /* if it has one */
    unsigned slot_count; /* SLOTS */
    union {
        regx_slot_grant_t slots[REGX_MESSAGE_SLOTS]; /* SLOTS */
        struct {                                     /* CHUNK, EXPOSED */
            uint64_t start;                          /* in the region that the key names */
            regx_key_t key;
        };
    };
} regx_control_t;

/* Whether the source exposes, and the landing gets. */
static inline bool regx_path_reads(regx_path_t path)
{
    return path == REGX_PATH_read || path == REGX_PATH_together;
}

void regx_cts_pack(const regx_cts_t *cts, uint8_t bytes[REGX_CTS_SIZE]);
/* false: malformed. Checks the form; whether names, slots and lengths make sense is checked
 * against the state by who is addressed. */
bool regx_cts_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_cts_t *cts);

/* Returns the message's length: at most REGX_NOTICE_MAX if it is WRITTEN or DONE, else at most
 * REGX_CONTROL_MAX; so much room must be at `bytes`. */
size_t regx_control_pack(const regx_control_t *control, uint8_t *bytes);
bool regx_control_unpack(const void *bytes, size_t length, regx_control_t *control);

#endif
