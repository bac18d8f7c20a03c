/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The control messages of a rendezvous, byte by byte. All numbers are little-endian. Lengths and
 * offsets are in bytes; offsets count from the start of the transfer.
 *
 * The RTS is the MPI library's own. The CTS travels inside it as the registration handle and has
 * REGX_CTS_SIZE bytes; unused ones are zero:
 *
 *      0 u8  version (10)          1 u8  path of this transfer
 *      2 u16 number of grants     4 u32 receive side   8 u32 its generation
 *     12 u32 bits 1: this is not the path that was asked for; 2: each ATP is to carry a checksum;
 *            4: the chunk may be written in pieces; 8: the memory at either end may be gone;
 *            16: what is granted may be granted anew, and the send ends with ARRIVED; 32: without
 *            REVOKE
 *     16 u64 length of the transfer
 *     24 the first grants, of the kind that the path's protocol has:
 *        - SLOTS: up to 8 of { u32 slot, u32 length }, from offset 0 on. A slot is named by its
 *          offset in the receiver's pool.
 *        - CHUNK: none, or one at offset 0 { u64 length, u64 where in the keyed region it begins,
 *          24 bytes key }.
 *        - RKEYS: u64 the longest chunk that may be advertised. The number of grants is how many
 *          may be advertised at once.
 *
 * Where the kernel copies between the two, the RTS itself may carry a handle of the sender's: an
 * exposure. By it the receiver reads the whole message, and there is no CTS. It has the CTS's size;
 * unused bytes are zero:
 *
 *      0 u8  version (10)          1 u8  255
 *      4 u32 1: there is a checksum
 *      8 u64 length of the transfer
 *     16 24 bytes key           40 u64 where the message begins in what the key is of
 *     48 u64 checksum of the whole
 *
 * All others are frames with the tag REGX_TAG_CONTROL of at most 72 bytes:
 *
 *      0 u8  version (10)          1 u8  type
 *      2 u16 number of grants     4 u32 addressee (a receive or a send side)   8 u32 its generation
 *
 *   from the sender to the receiver
 *     12 u32 send side            16 u32 its generation
 *     READY      (sender ready) nothing more: the send side exists and can be granted more
 *     ATP_SLOT   (ack to put)  20 u32 slot   24 u64 offset  32 u64 length: the slot is full
 *     ATP_CHUNK  (ack to put)  20 u32 zero   24 u64 offset  32 u64 length: the chunk, or its next
 *                piece, was written; pieces follow one another from the chunk's offset on
 *                40 u64 checksum of these bytes (checksum.h). Both may be without it, and may then
 *                come as immediate data instead (immediate.h)
 *     NACK       20 u32 why    24 u64 offset  32 u64 length
 *                - Of a chunk that was granted: it, or all of it behind its last piece, was not
 *                  written. Grant slots for it.
 *                - Of what was to be advertised: nothing from the offset on will be, and the length
 *                  is all that is left.
 *                - why 0: not just now; 1: permanently, for this peer; 2: the memory at either end
 *                  may be gone.
 *     RKEY       20 u32 length 24 u64 offset  32 u64 where in the keyed region it begins
 *                40 24 bytes key              64 u64 checksum of these bytes, which may be missing:
 *                they can be read until ATS. Chunks are advertised in their order
 *     DIFFERS    nothing more: answers ARRIVED, if what is to be compared differs
 *   from the receiver to the sender
 *     CTS_SLOTS  (clear to send) 12 u32 zero    16 u64 offset
 *                24 up to 4 of { u32 slot, u32 length }, from the offset on
 *     CTS_CHUNK  (clear to send) 12 u32 length  16 u64 offset
 *                24 u64 where in the keyed region it begins      32 24 bytes key
 *     ATS        (ack to send) 12 u32 0: what was advertised has been read; 1: it was not, treat it
 *                as not acknowledged; 2: likewise, and the memory at either end may be gone
 *                16 u64 offset      24 u64 length
 *     REVOKE     12 u32 zero  16 u64 zero: begin no chunk that was granted, but NACK it
 *     RESUME     12 u32 zero  16 u64 offset: all that was granted is acknowledged; what was
 *                written from the offset on does not count, and is to be granted anew
 *     ARRIVED    12 u32 zero  16 u64 offset: all has arrived, and the send may end. With 24 u64
 *                checksum, of what lies from the offset on: it may end if it is the same there
 *
 * A key names a region, which may be larger than what is granted: the registration that serves a
 * chunk may have been made for more. A grant gives the right to write its range once. An RKEY gives
 * the right to read its range until ATS. Not every wire enforces that: it may take a write to, or a
 * read of, the rest of the region, or a later one while the region is kept. With backend `none` a
 * key dies with its chunk; with a cache it lives while the region is registered. A peer's memory
 * safety rests on its peers' regx, as with RDMA everywhere. What was registered only to be read
 * cannot be written by any key.
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
#define REGX_CONTROL_VERSION 10
#endif
#define REGX_CONTROL_MAX 72 /* bytes; all but RKEY have 56 at most, which any transport carries */
#define REGX_CTS_SIZE 88
#define REGX_CTS_SLOTS 8
#define REGX_CTS_RKEYS 64
#define REGX_MESSAGE_SLOTS 4

typedef enum regx_control_type {
    REGX_CONTROL_READY = 1,
    REGX_CONTROL_ATP_SLOT,
    REGX_CONTROL_ATP_CHUNK,
    REGX_CONTROL_NACK,
    REGX_CONTROL_RKEY,
    REGX_CONTROL_DIFFERS,
    REGX_CONTROL_CTS_SLOTS,
    REGX_CONTROL_CTS_CHUNK,
    REGX_CONTROL_ATS,
    REGX_CONTROL_REVOKE,
    REGX_CONTROL_ARRIVED,
    REGX_CONTROL_RESUME
} regx_control_type_t;

typedef struct regx_slot_grant {
    uint32_t slot; /* its offset in the receiver's pool */
    uint32_t length;
} regx_slot_grant_t;

/* The kind of a CTS's first grants. Not in its bytes: the protocol of its path implies it. */
typedef enum regx_grants {
    REGX_GRANTS_SLOTS,
    REGX_GRANTS_CHUNK,
    REGX_GRANTS_RKEYS /* that the sender may advertise so many chunks: the receiver reads */
} regx_grants_t;

typedef struct regx_cts {
    regx_path_t path;
    regx_grants_t grants;
    regx_handle_t recv;
    bool fallback;   /* not the path that was asked for */
    bool verify;     /* each ATP is to carry a checksum */
    bool pieces;     /* the chunk may be written in pieces */
    bool suspect;    /* the memory at either end may be gone */
    bool revocable;  /* what is granted may be granted anew, and the send ends with ARRIVED */
    bool optimistic; /* likewise, without REVOKE */
    uint64_t length;
    unsigned slot_count; /* SLOTS */
    regx_slot_grant_t slots[REGX_CTS_SLOTS];
    unsigned rkeys;        /* RKEYS: how many chunks may be advertised at once */
    uint64_t rkey_max;     /* RKEYS: the longest of them */
    uint64_t chunk_length; /* CHUNK; 0: none is granted yet */
    uint64_t chunk_start;  /* CHUNK: from the start of the region that the key names */
    regx_key_t key;        /* CHUNK */
} regx_cts_t;

/* Sent with an RTS: the whole message can be read. */
typedef struct regx_exposure {
    uint64_t length;
    regx_key_t key;
    uint64_t start; /* where it begins in what the key is of */
    bool has_checksum;
    uint64_t checksum; /* valid if has_checksum */
} regx_exposure_t;

typedef struct regx_control {
    regx_control_type_t type;
    regx_handle_t to;
    regx_handle_t from; /* from the sender only */
    bool anonymous;     /* ATP: came by immediate data, which has no `from` */
    uint64_t offset;
    uint64_t length;     /* of a CTS_CHUNK or RKEY, at most 32 bits */
    uint32_t slot;       /* ATP_SLOT */
    bool unread;         /* ATS: it was not read */
    bool permanent;      /* NACK */
    bool failed;         /* NACK that is not permanent; ATS of what is unread */
    bool has_checksum;   /* ATP, RKEY, ARRIVED */
    uint64_t checksum;   /* valid if has_checksum */
    unsigned slot_count; /* CTS_SLOTS */
    union {
        regx_slot_grant_t slots[REGX_MESSAGE_SLOTS]; /* CTS_SLOTS */
        struct {                                     /* CTS_CHUNK, RKEY */
            uint64_t start;                          /* in the region that the key names */
            regx_key_t key;
        };
    };
} regx_control_t;

/* Whether a message of this type goes from the sender to the receiver. */
static inline bool regx_control_from_sender(regx_control_type_t type)
{
    return type <= REGX_CONTROL_DIFFERS;
}

void regx_cts_pack(const regx_cts_t *cts, uint8_t bytes[REGX_CTS_SIZE]);
/* The number of its path, which may be none. By the path's protocol the caller knows the grants. */
unsigned regx_cts_path(const uint8_t bytes[REGX_CTS_SIZE]);
/* false: malformed. Checks the form only. Whether handles, slots and lengths make sense is checked
 * by the addressee against its state. */
bool regx_cts_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_grants_t grants, regx_cts_t *cts);

void regx_exposure_pack(const regx_exposure_t *exposure, uint8_t bytes[REGX_CTS_SIZE]);
/* false: malformed, likewise. */
bool regx_exposure_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_exposure_t *exposure);
/* Whether a handle that this process packed is an exposure, rather than a CTS. */
bool regx_exposure_is(const uint8_t bytes[REGX_CTS_SIZE]);

/* Returns the message's length: at most REGX_NOTICE_MAX for an ATP, else at most REGX_CONTROL_MAX.
 * There must be so much room at `bytes`. */
size_t regx_control_pack(const regx_control_t *control, uint8_t *bytes);
/* false: malformed, likewise. */
bool regx_control_unpack(const void *bytes, size_t length, regx_control_t *control);

#endif
