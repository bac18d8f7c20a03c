/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The user's buffer, of which a part may have been unmapped while a transfer used it. That is the
 * application's error, and must not end in a crash.
 */
#ifndef REGX_RENDEZVOUS_BUFFER_H
#define REGX_RENDEZVOUS_BUFFER_H

#include "rendezvous/rendezvous.h"

/* Copies by the kernel (process_vm_readv and writev of this process), which says where there is no
 * memory. Slow; used only after a chunk has failed, and for receives that may be revoked. What the
 * kernel refuses and the program brings in at its own load or store (base/fault.h) is copied by
 * memcpy, so the program's handler of SIGSEGV may run in here. What nobody brings in is left out, and
 * the answer is false (but see regx_fault_may_touch of a process without /proc); what was not read is
 * zero. Any thread, no lock held.
 *
 * Where the copy is refused, the kernel is asked to bring the page in, which is then copied by memcpy: a
 * filter of system calls may have refused it, or the kernel could not pin the other side. Where it
 * refuses even that, nothing is copied: the process could be ended. */
bool regx_buffer_read(void *to, const void *buffer, size_t length);
bool regx_buffer_write(void *buffer, const void *from, size_t length);

/* Whether the kernel can store to all of the range: not where the program itself brings in pages at its
 * own stores. Brings in what is not there. */
bool regx_buffer_is_writable(const char *base, size_t length);

#define REGX_BUFFER_LACKS 160u /* bytes of text */

/* Why a copy from the range, or to it (stores), was refused, as words after "is": what
 * regx_fault_lacks says, or which system calls this process is refused, so that nobody knows, or
 * else "not accessible". */
const char *regx_buffer_lacks(const void *base, size_t length, bool stores,
                              char text[REGX_BUFFER_LACKS]);

/* The checksum by which both ends of a transfer compare what was sent with what arrived
 * (btl_regx_verify). Against stale, torn and misplaced bytes, not against a forger. The memory is
 * there. */
uint64_t regx_buffer_checksum(const void *data, size_t length);

/* A proof that two processes have the same bytes (revoke.c): the checksum of the blocks' checksums.
 * false: memory is gone, and there is none. */
bool regx_buffer_prove(const char *base, uint64_t length, uint64_t *sum);

typedef enum regx_end { REGX_SENDER, REGX_RECEIVER } regx_end_t;

/* Tallies in `fallbacks`, by end and reason, that memory was not registered. `status` is what
 * regx_region_acquire answered for `length` bytes at `base`, and not REGX_OK, `refused` the region
 * that it was given. No lock is held.
 *
 * For want of room in the process's own share of what may be pinned: that is noted when it happens.
 * Else the reason is found out afterwards, by the limit of locked memory, and by what is mapped
 * there now. That takes reading /proc, as long as a message may take. So only the first refusals
 * are looked into; of later ones only the device's answer is tallied. */
void regx_buffer_refused(regx_rndv_t *rndv, regx_end_t end, regx_status_t status,
                         const regx_region_t *refused, const void *base, size_t length);

/* Gives up a use of a registration. failed: perhaps its memory was unmapped, which is looked for
 * while it still counts as in use. */
void regx_buffer_release(regx_rndv_t *rndv, regx_region_t *region, bool failed);

#endif
