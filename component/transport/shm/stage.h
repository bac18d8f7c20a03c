/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stages: the sender copies a message to shared memory, and the receiver takes from there what is
 * ready. Two cores copy in user space, one behind the other, and no CTS is needed for it.
 *
 * It is for messages whose data the program writes before they are sent, and reads afterwards. The
 * buffer's cache lines are then in the sender's core. A single copy by the kernel fetches them from
 * there, and the program's next write has to fetch them back. By a stage each process copies memory
 * of its own, and only the stage's lines change cores. Seen on an Intel Xeon, one message of 64 KiB
 * each way at a time, written and read: 16 us, by the kernel 22, through slots of the pool 20.
 *
 * A stage is a part of the sender's main segment. The key of what is exposed (transport.h) names
 * it, with the number of its use. The receiver asks for it in the stage's cell, if it wants the
 * message so: nothing is copied in vain. A receiver that has taken REGX_STAGE_ROW messages of a
 * size in a row says in its own main segment that it will go on so (`awaited`), and the sender
 * begins at once.
 *
 * Each side copies in progress, at most REGX_STAGE_STEP bytes to a stage before it takes what the
 * peer has copied. The sender goes first where both have something to copy: in an exchange both
 * fill a step of their stages, then both empty the peer's. If nothing comes the kernel copies the
 * rest from the sender's buffer, so the receiver does not wait for a sender that computes. The
 * sender frees the stage when the MPI ends the exposure, after the receiver's FIN. If another
 * thread copies to it at that moment, because the receiver gave it up, that copy is waited for: at
 * most 64 KiB. From then on the program may write to its buffer, or free it.
 *
 * A few stages are used in turn: processors remember some dozens of pages (mailbox.h). Their memory
 * is brought in at the start, that of the others at their first use: page by page, the first
 * messages would pay much more for it, and `auto` judges by these.
 *
 * stage and unstage may be called by any thread; all others are called by progress, or by
 * disconnect, which never run at the same time. The lists are under the transport's lock.
 */
#ifndef REGX_TRANSPORT_STAGE_H
#define REGX_TRANSPORT_STAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "transport/transport.h"

#define REGX_STAGES 8u              /* of one process */
#define REGX_STAGES_WARM 4u         /* of these, as a rule: what moves stays in the caches */
#define REGX_STAGE_STEP (64u << 10) /* bytes copied to a stage in one call of progress */
#define REGX_STAGE_BYTES (REGX_STAGES * REGX_STAGE_SIZE)
#define REGX_STAGE_ROW 4u
#define REGX_STAGE_LOOKS 1024u /* at a stage to which nothing comes, before the kernel copies */

struct regx_shm;
struct regx_shm_conn;

/* In the sender's main segment. */
typedef struct regx_stage_cell {
    _Alignas(64) _Atomic uint64_t ready; /* the sender's: number of the use << 32 | bytes there */
    _Alignas(64) _Atomic uint32_t asked; /* the receiver's: the number of the use that it takes */
} regx_stage_cell_t;

typedef struct regx_stage_shared {
    regx_stage_cell_t cells[REGX_STAGES];
    /* The owner's, as a receiver: bit n is for messages of 2^n to 2^(n+1)-1 bytes. */
    _Alignas(64) _Atomic uint32_t awaited;
} regx_stage_shared_t;

/* The sender's side of a stage. */
typedef struct regx_stage {
    enum {
        REGX_STAGE_FREE,
        REGX_STAGE_QUEUED, /* not all is copied; perhaps nobody asks for it */
        REGX_STAGE_COPIED
    } state;
    uint32_t number; /* of its use */
    bool awaited;    /* to be copied before the receiver asks */
    const char *from;
    size_t length;
    size_t copied;           /* by progress alone, without the lock */
    struct regx_stage *next; /* of those that are QUEUED */
} regx_stage_t;

typedef struct regx_stages {
    regx_stage_t stages[REGX_STAGES];
    unsigned next;         /* to be used */
    regx_stage_t *first;   /* QUEUED, oldest first */
    regx_stage_t *copying; /* progress copies to it now, without the lock */
    void **taking;         /* gets, named by their scratch, oldest first */
    unsigned looks;        /* at them since something was taken of the oldest */
    uint32_t brought_in;   /* bit per stage: its pages are mapped; progress's */
    /* Messages of a size taken in a row, up to REGX_STAGE_ROW; written under the lock. */
    _Atomic uint8_t row[32];
} regx_stages_t;

/* Brings the stages' memory in, as far as there is memory: only those that are used as
 * a rule. */
void regx_stages_init(struct regx_shm *shm);
/* Likewise the peer's, of which it exists already. */
void regx_stages_attach_locked(const struct regx_shm_conn *conn);

/* ---- the sender: as transport.h's stage and unstage say ---- */

bool regx_shm_stage(regx_conn_t *conn, const void *base, size_t length, regx_key_t *key);
void regx_shm_unstage(regx_transport_t *transport, const regx_key_t *key);

/* ---- the receiver ---- */

/* Enters whether a get is one from a stage. */
void regx_stage_note(struct regx_shm *shm, const regx_get_t *get);
/* Takes the message from the stage that the get's key names. REGX_PENDING; REGX_AGAIN: it names
 * none. The connection is attached, and its peer may be copied from. */
regx_status_t regx_stage_take(struct regx_shm_conn *conn, regx_get_t *get);
/* Ends all gets of the connection from stages: they have failed. */
void regx_stage_drop(struct regx_shm_conn *conn);

/* Copies what there is to copy, each way, one message at most. Returns how many events there
 * were. */
int regx_stage_progress(struct regx_shm *shm);

#endif
