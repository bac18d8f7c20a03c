/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies from and to a user's buffer that may have been unmapped, in part, while a transfer used
 * it: the application's error, which must not end in a crash. The kernel copies, through a pipe,
 * and says where there is no memory. (process_vm_* on oneself would be quicker, but may be refused,
 * and refuses what the processor can reach, such as a device's memory.) Slow; for what a chunk
 * could not carry alone.
 */
#ifndef REGX_RENDEZVOUS_CAREFUL_H
#define REGX_RENDEZVOUS_CAREFUL_H

#include <stdbool.h>
#include <stddef.h>

/* Both leave out pages that are not there; false: there were such. What was not read is zero.
 * Without descriptors for a pipe the copy is an ordinary one. */
bool regx_careful_read(void *to, const void *buffer, size_t length);
bool regx_careful_write(void *buffer, const void *from, size_t length);

#endif
