/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Fault-safe copies from and to a user's buffer of which a part may have been unmapped while a
 * transfer used it. That is the application's error, and must not end in a crash. The kernel
 * copies, through a pipe, and says where there is no memory. Slow; used only after a chunk has
 * failed, and for receives that may be revoked.
 *
 * A process without descriptors for a pipe has the kernel copy by process_vm_readv on itself. That
 * may be forbidden, and it refuses what the processor can reach, such as a device's memory: so what
 * it does not copy, but is mapped, is copied by memcpy.
 */
#ifndef REGX_RENDEZVOUS_SAFE_COPY_H
#define REGX_RENDEZVOUS_SAFE_COPY_H

#include <stdbool.h>
#include <stddef.h>

/* Both leave out pages that are not there, and then answer false. What was not read is zero.
 * Any thread. */
bool regx_safe_read(void *to, const void *buffer, size_t length);
bool regx_safe_write(void *buffer, const void *from, size_t length);

#endif
