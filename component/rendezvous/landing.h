/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Landing pages: memory of this process into which a peer writes, and whose pages are then moved
 * under the user's address in place of being copied (path remap; one of the proposals in
 * osu-configs/debate.md).
 *
 * A landing is two areas of private anonymous memory of the same size. The peer writes into one of
 * them, at the place in its page that the user's address has. The other is the spare: it has no
 * pages. To deliver, the user's old pages are moved to the spare, and the written pages to the
 * user; then what is left in both areas is given back to the kernel. Only whole pages of the message
 * are moved. Its first and last bytes, which share a page with something else, are copied.
 *
 * Why no byte is ever wrong:
 *   - What is moved are whole pages of the message. The MPI forbids the program to touch them until
 *     the receive is complete. So no other bytes are in them, and it does no harm that for a
 *     moment the user's address has no page.
 *   - The rest of an edge page is never touched: a thread that writes there loses nothing.
 *   - Pages are moved by userfaultfd's UFFDIO_MOVE (Linux 6.8). The mappings keep all their
 *     attributes, and their number stays the same. The kernel itself refuses a page that is not
 *     this process's alone: shared with a child since a fork, pinned by a device, of a file or of
 *     hugetlb; and a mapping that is locked or protected otherwise than a landing.
 *   - Wherever a move stops, the bytes behind it are still in the landing and are copied. Which of
 *     the two happened to a page makes no difference to its content.
 *   - A landing's page that reads as zeros behind such a stop is not copied. Either it was moved: Linux 6.18
 *     may move more pages than it reports, where it has migrated one of them meanwhile. Or zeros were
 *     written: the user's page is a hole then, and reads as zeros.
 *   - Registrations of these pages are of the old ones from then on. `changes` is called before the
 *     first move, so that no cache uses one again, and once more behind the last, for what was
 *     registered between the two.
 *   - Between processes nothing is disclosed: a peer can write to the part of a landing that it was
 *     granted, and read nothing.
 *
 * The user's range is registered with userfaultfd (in write-protect mode, and nothing is ever
 * protected) only while pages are moved. Memory that another userfaultfd has is copied to.
 *
 * Bounded: a fixed number of landings. A chunk that gets none goes another way.
 *
 * Any thread may call. Nothing is opened before regx_landings_refusal is called for the first time.
 * The lock is a leaf and held for a few instructions or one question to the kernel, but when the
 * landings are opened.
 */
#ifndef REGX_RENDEZVOUS_LANDING_H
#define REGX_RENDEZVOUS_LANDING_H

#include "registration/monitor/uffd.h"
#include "rendezvous/rendezvous.h"

#define REGX_LANDINGS_MAX 64u /* of one engine */

typedef struct regx_landing {
    regx_mr_t mr;              /* for who has got it */
    char *memory;              /* what is written into; behind it the spare, as long */
    struct regx_landing *next; /* that is free */
} regx_landing_t;

typedef struct regx_landings {
    const regx_rndv_config_t *config; /* a landing is as large as a chunk */
    regx_counters_t *counters;
    unsigned count; /* of landings */
    size_t page;
    /* Of all that follows. But what was opened stays and is read without it, and a landing that was
     * got is its owner's until it is put back. */
    regx_lock_t lock;
    const char *refusal; /* why they cannot be opened; NULL: they are, or nobody tried */
    regx_file_t uffd;
    regx_maps_t maps;
    char *areas; /* of all landings; NULL: they are not open */
    regx_landing_t all[REGX_LANDINGS_MAX];
    regx_landing_t *free;
} regx_landings_t;

/* Opens nothing. */
void regx_landings_init(regx_landings_t *landings, const regx_rndv_config_t *config,
                        regx_counters_t *counters);
/* All landings are free. */
void regx_landings_fini(regx_landings_t *landings);

/* Why pages cannot be moved to that buffer, for `fallbacks`; NULL: they can, as far as is known.
 * Costs as much as asking the kernel for its mapping. */
const char *regx_landings_refusal(regx_landings_t *landings, const void *base, size_t length);

/* How many bytes that go to `to` a landing takes. */
static inline size_t regx_landing_room(const regx_landings_t *landings, const void *to)
{
    return landings->config->chunk_size - (uintptr_t)to % landings->page;
}

/* Where in a landing the bytes are to be written that go to `to`. */
static inline char *regx_landing_at(const regx_landings_t *landings, const regx_landing_t *landing,
                                    const void *to)
{
    return landing->memory + (uintptr_t)to % landings->page;
}

/* A landing into which `length` bytes are to be written that go to `to`. NULL: none is free. */
regx_landing_t *regx_landing_get(regx_landings_t *landings, const void *to, size_t length);
/* No peer writes into it any more. */
void regx_landing_put(regx_landings_t *landings, regx_landing_t *landing);

/* Brings the bytes that were written to the user. They are there when it returns, in any case: what
 * could not be moved was copied. NULL, or why something that might have been moved was not, for
 * `fallbacks`. Counts pages and bytes. */
const char *regx_landing_deliver(regx_landings_t *landings, regx_landing_t *landing, void *to,
                                 size_t length);

#endif
