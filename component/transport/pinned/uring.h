/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the device is made of: an io_uring with a table of registered buffers. The kernel pins the
 * pages of a registered buffer for long (FOLL_LONGTERM), counts them against the limit of locked
 * memory, and transfers to and from these pages, whatever the addresses have come to mean since.
 * So a registration that has gone stale is as wrong as over an adapter.
 *
 * System calls are made directly, so that the component needs no library. regx_uring_set may be
 * called by any thread, for one slot by one at a time; regx_uring_copy by one thread at a time.
 *
 * Of the kernels: a ring has a table without buffers from Linux 5.19 on; up to 7.2 a buffer has
 * 1 GiB at most; on 6.1 what was unpinned is charged for about a second more. Replacing a slot does
 * not wait for requests, though unregistering the table does on 6.1 and 6.12.
 */
#ifndef REGX_PINNED_URING_H
#define REGX_PINNED_URING_H

#include "base/file.h"
#include "transport/transport.h"

#define REGX_URING_PIN_MAX ((uint64_t)1 << 30) /* bytes of a buffer */

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#ifdef IORING_RSRC_REGISTER_SPARSE
#define REGX_HAVE_PINNED 1
#else
#define REGX_HAVE_PINNED 0 /* the kernel's headers are older than Linux 5.19 */
#endif

typedef struct regx_uring {
    regx_file_t file;
    void *rings;                  /* mapped: both of them */
    struct io_uring_sqe *request; /* mapped: the one that there is */
    size_t rings_size;
    _Atomic uint32_t *submitted; /* the tail of the submission ring */
    _Atomic uint32_t *results_head, *results_tail;
    const struct io_uring_cqe *results;
    uint32_t result_mask;
} regx_uring_t;

/* A ring with a table of so many slots. REGX_UNREACHABLE: `error` has the reason. */
regx_status_t regx_uring_open(regx_uring_t *uring, uint32_t slots, regx_error_t error);
void regx_uring_close(regx_uring_t *uring);

/* Pins memory as that slot, which is empty. NULL: empties it; its pages are given back once no
 * request uses them. 0, or a negated errno. */
int regx_uring_set(const regx_uring_t *uring, uint32_t slot, const void *base, size_t length);

/* Copies `length` bytes between the slot's pages, at the place that `address` had when they were
 * pinned, and the file. to_file: from the pages to the file. Returns when that is done, which takes
 * as long as a copy by the processor, or as another thread is pinning. false: it has failed. */
bool regx_uring_copy(const regx_uring_t *uring, bool to_file, uint32_t slot, uint64_t address,
                     uint32_t length, int file, uint64_t offset);

#endif
