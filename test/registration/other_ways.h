/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ways to change memory that pass by libc's functions of the program. Each answers whether this
 * kernel has it; memory is changed once it has returned.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* By IORING_OP_MADVISE, which a thread of the kernel's does for this process. */
bool other_ring_madvise(void *address, size_t length, int advice);
/* By process_madvise, of this process itself. */
bool other_process_madvise(void *address, size_t length, int advice);
/* By the munmap of another libc, as a library in a link-map namespace of its own has it (dlmopen). */
bool other_libc_munmap(void *address, size_t length);
