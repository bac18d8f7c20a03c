/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging buffers: the owner of a message copies it into shared memory, and its receiver out of that.
 * cico.c draws the life of an offer.
 */
#ifndef REGX_TRANSPORT_SHM_CICO_H
#define REGX_TRANSPORT_SHM_CICO_H

#include "base/list.h"
#include "transport/shm/shared_copy.h"

#define REGX_CICO_BUFFERS 32u /* of one process, at most; of a message up to REGX_CICO_ROW */
#define REGX_CICO_FIRST 4u    /* with which it begins; a main segment in a file has no others */
#define REGX_CICO_GROWTH 2u   /* messages of a stream for each buffer more */
#define REGX_CICO_SIZE (128u << 10) /* bytes of one */
#define REGX_CICO_ROW 8u            /* of one message, at most */
#define REGX_CICO_OFFERS 64u        /* messages of one process that may be asked for, at once */
#define REGX_CICO_MAX (1u << 30)    /* bytes of one */
#define REGX_CICO_STEP (64u << 10)  /* bytes copied to a buffer in one call of progress */
#define REGX_CICO_STANDING 4u /* messages of a size asked for, before a standing request for it */
#define REGX_CICO_LOOKS 1024u /* at an offer of which nothing comes, before the kernel copies */

/* The state of an offer at the sender. From OFFERED to ASKED it is in `queue`. */
typedef enum regx_cico_state {
    REGX_CICO_FREE,
    REGX_CICO_OFFERED, /* the receiver may ask for it; nothing is copied before */
    REGX_CICO_AHEAD,   /* it is copied before the receiver asks, by its standing request */
    REGX_CICO_ASKED,   /* it is copied, since the receiver has asked */
    REGX_CICO_COPIED   /* all of it is in the staging buffer, or was; or the kernel copies it */
} regx_cico_state_t;

/* Who reads the sender's memory. Both must not at once: a handler of the program's, called by the
 * sender's access, may have opened pages that it has yet to fill, and the kernel would copy them. */
typedef enum regx_cico_reader {
    REGX_CICO_NOBODY,
    REGX_CICO_SENDER, /* it copies in, a step */
    REGX_CICO_KERNEL  /* for the receiver, from now on: the sender leaves the message alone */
} regx_cico_reader_t;

/* Staging buffers of one message: so many, from that one on. */
typedef struct regx_cico_row {
    uint16_t first;
    uint16_t count; /* 0: it has none */
} regx_cico_row_t;

/* An offer, in the sender's main segment. Its number counts the uses of the cell. */
typedef struct regx_cico_cell {
    _Alignas(64) _Atomic uint64_t copied_in; /* the sender's: number << 32 | bytes copied in */
    _Atomic uint64_t
        reader; /* either's: number << 32 | regx_cico_reader_t, claimed by an exchange */
    _Atomic regx_cico_row_t row;              /* the sender's; valid if some bytes are copied in */
    _Alignas(64) _Atomic uint64_t copied_out; /* the receiver's: number << 32 | bytes copied out;
                                                 with 0 bytes it asks for the message */
} regx_cico_cell_t;

typedef struct regx_cico_shared {
    regx_cico_cell_t cells[REGX_CICO_OFFERS];
    /* Standing requests of the owner, as a receiver: bit n is for messages of 2^n to 2^(n+1)-1
     * bytes. */
    _Alignas(64) _Atomic uint32_t standing;
    _Alignas(64) _Atomic uint32_t requests; /* of its receivers, so far */
} regx_cico_shared_t;

/* The sender's side of an offer. */
typedef struct regx_cico_offer {
    regx_cico_state_t state;
    regx_link_t queued;
    uint32_t number; /* of the cell's use */
    bool past;       /* to be written past the caches (regx_copy_past_caches) */
    regx_cico_row_t row;
    const char *from;
    size_t length;
    size_t copied; /* by progress alone, without the lock */
} regx_cico_offer_t;

typedef struct regx_cico {
    /* As the sender. */
    regx_cico_offer_t offers[REGX_CICO_OFFERS];
    unsigned next_offer;  /* to be used, if it is free; counts on */
    unsigned buffers_max; /* that it has */
    unsigned buffers;     /* that are in use by now */
    uint32_t used;        /* of these, a bit for each: they have a message */
    unsigned occupied;    /* how many bits that are */
    unsigned going_round; /* messages that are longer than their buffers */
    unsigned next_buffer; /* to be used, if it is free */
    unsigned messages;    /* that had a buffer since the last growth */
    regx_link_t queue;    /* offers, oldest first */
    unsigned queue_length;
    uint32_t requests_seen;
    bool due;                             /* an offer of the queue is AHEAD or ASKED */
    regx_cico_offer_t *copying;           /* progress copies it now, without the lock */
    uint32_t sizes_not_taken;             /* of which a message was copied ahead, and not taken */
    size_t brought_in[REGX_CICO_BUFFERS]; /* bytes of each that are mapped; progress's */
    /* As the receiver. */
    regx_link_t gets;    /* oldest first */
    unsigned looks;      /* at them since something was taken of the oldest */
    int64_t looks_since; /* when the first of these was */
    int64_t part_at; /* when the last part of a message was taken; 0: none since one has ended */
    /* By size: messages taken in a row, up to REGX_CICO_STANDING; written under the lock. */
    _Atomic uint8_t in_a_row[32];
} regx_cico_t;

/* The sender, as transport.h's stage and unstage say. Any thread. */
bool regx_shm_stage(regx_conn_t *conn, const void *base, size_t length, regx_key_t *key);
void regx_shm_unstage(regx_transport_t *transport, const regx_key_t *key);
/* The receiver. Enters whether a get is a staged one; ask enters its own. */
void regx_cico_note(regx_shm_t *shm, const regx_get_t *get);
/* Asks for the message that the get's key names, to be copied to a staging buffer. REGX_PENDING;
 * REGX_AGAIN: it names none. The connection is attached, and its peer may be copied from. */
regx_status_t regx_cico_ask_locked(regx_shm_conn_t *conn, regx_get_t *get);
/* Claims the message that the get's key names for the kernel's copy, for good. false: the sender copies
 * a step of it to a staging buffer now. */
bool regx_cico_claim_for_kernel(const regx_get_t *get);
/* Copies what there is to copy, each way, one message at most. Returns how many events there
 * were. */
int regx_cico_progress(regx_shm_t *shm);

#endif
