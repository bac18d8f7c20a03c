/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The messages of a rendezvous. They travel as the structures below: all ranks run the same build,
 * and connecting ends with one line where versions differ. Lengths and offsets are in bytes;
 * offsets count from the start of the transfer.
 *
 * The RTS is ob1's own header. The receiver answers with the CTS (regx_cts_t), which ob1 carries as
 * the registration handle in its PUT header. Where the receiver may read the whole message, the RTS
 * carries a handle of the sender's, an exposure (regx_exposure_t). If the receiver reads it, there is
 * no CTS. All others (regx_control_t) are frames with the tag REGX_TAG_CONTROL.
 *
 *   from the sender to the receiver
 *     READY      (sender ready) the send side exists and can be granted more
 *     ATP_SLOT   (ack to put) the slot is full
 *     ATP_CHUNK  (ack to put) the chunk, or its next part, was written; parts follow one another
 *                from the chunk's offset on. Both may come as immediate data instead, see below
 *     NACK       a chunk that was granted, or all of it behind its last part, was not written. Grant
 *                slots for it
 *     DIFFERS    answers ARRIVED, if what is to be compared differs
 *   from the receiver to the sender
 *     CTS_SLOTS  (clear to send) slots, from the offset on
 *     CTS_CHUNK  (clear to send) a chunk
 *     REVOKE     NACK each chunk that was granted and is not begun
 *     RESUME     all that was granted is acknowledged; what was written from the offset on does not
 *                count, and is to be granted anew
 *     ARRIVED    all has arrived, and the send may end. With a checksum, of what lies from the
 *                offset on: it may end if it is the same there
 *
 * A key names a region, which may be larger than what is granted: the registration that serves a
 * chunk may have been made for more. A grant gives the right to write its range once. An exposure gives
 * the right to read its range until the message ends. Not every wire enforces that: it may take a write to,
 * or a read of, the rest of the region, or a later one while the region is kept. With backend `none` a
 * key dies with its chunk; with a cache it lives while the region is registered. A peer's memory
 * safety rests on its peers' regx, as with RDMA everywhere. What was registered only to be read
 * cannot be written by any key.
 */
#ifndef REGX_RENDEZVOUS_CONTROL_H
#define REGX_RENDEZVOUS_CONTROL_H

#include "base/handle_table.h"
#include "transport/transport.h"

#define REGX_TAG_CONTROL 0x28 /* of the tags that Open MPI keeps for BTLs, one that none uses */
#ifndef REGX_CONTROL_VERSION  /* a test builds another */
#define REGX_CONTROL_VERSION 19
#endif
#define REGX_CONTROL_MAX 80 /* bytes of a frame */
#define REGX_CTS_SIZE 88
#define REGX_CTS_SLOTS 8
#define REGX_MESSAGE_SLOTS 4

typedef enum regx_control_type {
    REGX_CONTROL_READY = 1,
    REGX_CONTROL_ATP_SLOT,
    REGX_CONTROL_ATP_CHUNK,
    REGX_CONTROL_NACK,
    REGX_CONTROL_DIFFERS,
    REGX_CONTROL_CTS_SLOTS,
    REGX_CONTROL_CTS_CHUNK,
    REGX_CONTROL_REVOKE,
    REGX_CONTROL_ARRIVED,
    REGX_CONTROL_RESUME
} regx_control_type_t;

typedef struct regx_slot_grant {
    uint32_t slot; /* its offset in the receiver's pool */
    uint32_t length;
} regx_slot_grant_t;

/* What the first grants of a CTS are. It is not sent: the path tells it. */
typedef enum regx_grants { REGX_GRANTS_SLOTS, REGX_GRANTS_CHUNK } regx_grants_t;

/* Bits of a CTS. */
enum {
    REGX_CTS_VERIFY = 1,     /* each ATP is to carry a checksum */
    REGX_CTS_SPLITTABLE = 2, /* the chunk may be written in parts, with an ATP for each */
    REGX_CTS_SUSPECT = 4,    /* the memory at either end may be gone */
    REGX_CTS_REVOCABLE = 8   /* what is granted may be granted anew; the send ends with ARRIVED */
};

typedef struct regx_cts {
    uint8_t version;
    uint8_t path; /* regx_path_t */
    uint8_t bits;
    uint8_t count; /* slots; chunks: 1 */
    regx_handle_t recv;
    uint8_t why; /* it goes by that path: regx_why_t */
    uint8_t unused[3];
    uint64_t length; /* of the transfer */
    union {
        regx_slot_grant_t slots[REGX_CTS_SLOTS]; /* from offset 0 on */
        struct {                                 /* one at offset 0 */
            uint64_t chunk_length;
            uint64_t chunk_start; /* from the start of the region that the key names */
            regx_key_t key;
        };
    };
} regx_cts_t;

_Static_assert(sizeof(regx_cts_t) == REGX_CTS_SIZE, "it is the handle");

#define REGX_EXPOSURE 255u /* in the place of a CTS's path */

/* Sent with an RTS: the whole message can be read. */
typedef struct regx_exposure {
    uint8_t version;
    uint8_t path; /* REGX_EXPOSURE */
    uint8_t has_checksum;
    uint8_t unused[5];
    uint64_t length;
    uint64_t start;    /* where it begins in what the key is of */
    uint64_t checksum; /* valid if it has one */
    regx_key_t key;
} regx_exposure_t;

_Static_assert(sizeof(regx_exposure_t) <= REGX_CTS_SIZE, "it goes in the place of a CTS");

/* Bits of a message. */
enum {
    REGX_CONTROL_CHECKSUM = 1,  /* ATP, ARRIVED: it has one */
    REGX_CONTROL_PERMANENT = 2, /* NACK: so is all that follows, for this peer */
    REGX_CONTROL_FAILED = 4,    /* NACK: the memory at either end may be gone */
    /* ATP: came by immediate data, which has no `from`; not on the wire. */
    REGX_CONTROL_ANONYMOUS = 8
};

/* Its first bytes travel, as far as the type has fields. */
typedef struct regx_control {
    uint8_t version;
    uint8_t type; /* regx_control_type_t */
    uint8_t bits;
    uint8_t slot_count; /* CTS_SLOTS */
    regx_handle_t to;
    uint32_t slot; /* ATP_SLOT */
    uint64_t offset;
    union {
        regx_slot_grant_t slots[REGX_MESSAGE_SLOTS]; /* CTS_SLOTS */
        struct {
            uint64_t length;
            regx_handle_t from; /* from the sender only */
            uint64_t checksum;
            uint64_t start; /* CTS_CHUNK: in the region that the key names */
            regx_key_t key;
        };
    };
} regx_control_t;

_Static_assert(sizeof(regx_control_t) == REGX_CONTROL_MAX, "no gaps");
_Static_assert(offsetof(regx_control_t, start) <= REGX_NOTICE_MAX, "an ATP can follow a put");

/* ATP in 24 bits, for wires that notify a write by immediate data: one request and one packet less
 * than with a notice. It names what was granted, and the receiver knows the rest. So it is only for
 * what was written as it was granted, and where no checksum is wanted. The send side's handle is
 * not in it: a receiver that has more to grant must have had that before.
 *
 *     23     1: it is an ATP
 *     22     0: of a slot, 1: of a chunk
 *     17-21  the lowest bits of the receive side's generation
 *      0-16  slot: its offset in the pool by 4 KiB; chunk: the receive side's index (0-9), and which
 *            chunk, by its offset (10-16)
 *
 * What does not fit goes by notice. A receive is not closed while honest peers write what it
 * granted, so those bits only have to tell apart what should not come at all. dispatch.c finds what it
 * names. */
#define REGX_IMMEDIATE_ATP (1u << 23)
#define REGX_IMMEDIATE_CHUNK (1u << 22)
#define REGX_IMMEDIATE_GENERATION_BITS 5u
#define REGX_IMMEDIATE_WHAT_BITS 17u
#define REGX_IMMEDIATE_SLOT_UNIT 4096u /* slots are whole pages */
#define REGX_IMMEDIATE_RECV_BITS 10u
#define REGX_IMMEDIATE_CHUNK_BITS 7u

static inline uint32_t regx_immediate_low(uint32_t value, unsigned bits)
{
    return value & ((1u << bits) - 1);
}

/* That of an ATP; 0: it does not fit. `chunk_size`: the length of the first chunk that was granted. */
uint32_t regx_immediate_pack(const regx_control_t *atp, uint64_t chunk_size);

/* Whether a message of this type goes from the sender to the receiver. */
static inline bool regx_control_from_sender(uint8_t type)
{
    return type <= REGX_CONTROL_DIFFERS;
}

/* Takes a CTS apart. false: malformed. Checks the form only. Whether handles, slots and lengths
 * make sense is checked by the addressee against its state. */
bool regx_cts_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_grants_t grants, regx_cts_t *cts);
/* false: malformed, as above. */
bool regx_exposure_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_exposure_t *exposure);

/* Returns the message's length: at most REGX_NOTICE_MAX for an ATP, else at most REGX_CONTROL_MAX.
 * There must be so much room at `bytes`. */
size_t regx_control_pack(const regx_control_t *control, uint8_t *bytes);
/* false: malformed, as above. */
bool regx_control_unpack(const void *bytes, size_t length, regx_control_t *control);

/* ---- to a peer, by its connection. Any thread; the engine's lock may be held, since no send
 * waits. ---- */

/* The backlog of control messages, which found no room. They go before any other of their owner. */
typedef struct regx_outbox {
    unsigned count, room;
    regx_control_t *messages; /* the owner's; in their order */
} regx_outbox_t;

/* Sends the message, or keeps it in the outbox, which has room. */
void regx_control_post(regx_conn_t *conn, regx_outbox_t *outbox, const regx_control_t *control);
/* Sends what the outbox holds. REGX_OK: it is empty now; else as the transport's send answers:
 * REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_control_flush(regx_conn_t *conn, regx_outbox_t *outbox);

#endif
