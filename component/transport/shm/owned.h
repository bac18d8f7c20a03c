/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owned memory: memory for the user's buffers that this library allocates (MPI_Alloc_mem), so that
 * processes of the node can map it. A copy to or from it by another process is then done in user
 * space (owned_view.h), where the kernel would copy otherwise.
 *
 * It is allocated in segments, each a memfd. A segment's pages are there from the start, and its
 * size is sealed: whoever maps it cannot meet a page that is not there. A table in the main segment
 * names the segments: a peer opens them by /proc, which the kernel allows if it allows
 * process_vm_readv.
 *
 * A segment is kept until close; what is freed serves later allocations. So the table only grows,
 * and what a peer has mapped stays valid. Blocks that the user has not freed when the transport
 * closes stay mapped, as memory from malloc would.
 *
 * A child of fork does not have this memory (MADV_DONTFORK). If it had, it would share it: each
 * would see what the other writes. It dies instead if it touches a buffer there.
 *
 * That the program maps something else in place of it is not noticed: peers go on with the file.
 * The program may not do that, as with memory from malloc.
 *
 * The functions may be called by any thread. The lock is a leaf.
 */
#ifndef REGX_TRANSPORT_OWNED_H
#define REGX_TRANSPORT_OWNED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "transport/shm/file.h"
#include "transport/transport.h"

#define REGX_OWNED_SEGMENTS 32u /* of a process; each takes a file descriptor */
/* Bytes of a block, at least: in a shorter one lies no message that is long enough for a rendezvous
 * with the default eager limit. */
#define REGX_OWNED_MIN (16u << 10)

/* How a segment is named to peers. */
typedef struct regx_owned_name {
    uint64_t base; /* in the owner */
    uint64_t length;
    regx_shm_file_t file;
} regx_owned_name_t;

/* In the main segment. A name is written before it is counted, and never again. */
typedef struct regx_owned_shared {
    _Alignas(64) _Atomic uint32_t count;
    regx_owned_name_t names[REGX_OWNED_SEGMENTS];
} regx_owned_shared_t;

typedef struct regx_owned_block regx_owned_block_t;

typedef struct regx_owned {
    regx_lock_t lock; /* of what follows */
    const regx_transport_config_t *config;
    regx_owned_shared_t *shared;                  /* only written: peers map it, too */
    uint32_t count;                               /* of segments */
    regx_owned_name_t names[REGX_OWNED_SEGMENTS]; /* peers cannot write these */
    size_t bytes;                                 /* of all segments */
    regx_owned_block_t *blocks;                   /* of all segments, free or not */
} regx_owned_t;

/* shared: zeroed. config->owned_size bounds the bytes of all segments. Allocates nothing. */
void regx_owned_init(regx_owned_t *owned, regx_owned_shared_t *shared,
                     const regx_transport_config_t *config);
/* Unmaps the segments in which nothing is allocated any more, and closes the files. */
void regx_owned_fini(regx_owned_t *owned);

/* `length` bytes, not initialised, on a page. NULL: the user takes other memory. Why is tallied
 * among the fallbacks, if the block is not just too short. */
void *regx_owned_allocate(regx_owned_t *owned, size_t length);
/* memory: as allocate gave it. Its bytes are not touched. */
void regx_owned_free(regx_owned_t *owned, const void *memory);

#endif
