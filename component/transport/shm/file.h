/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A file without a name that other processes of the node map: they open it by its descriptor in
 * /proc.
 *
 * A number does not say which file: programs close descriptors that they do not know and open
 * others under the same numbers, and in another name space a process number is another process. So
 * a file is known by its device and inode as well, and these are looked at before it is mapped or
 * closed.
 *
 * Any thread may call.
 */
#ifndef REGX_TRANSPORT_FILE_H
#define REGX_TRANSPORT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* How a process names a file of its own to others; sent as it is. */
typedef struct regx_shm_file {
    uint64_t device, inode;
    int32_t descriptor; /* of the owner */
    uint32_t zero;
} regx_shm_file_t;

/* Makes the file so long, with all its pages: later nobody who touches them is ended by
 * SIGBUS for lack of memory. The kernel clears a page when it is first touched. false: there is not
 * so much. */
bool regx_shm_file_reserve(int descriptor, size_t length);
/* The name of an open file. false: the kernel does not name it. */
bool regx_shm_file_name(int descriptor, regx_shm_file_t *file);
/* Maps the first `length` bytes of an open file. NULL: refused. */
void *regx_shm_file_map(int descriptor, size_t length);
/* Closes what was opened under that name, unless the program did. */
void regx_shm_file_close(const regx_shm_file_t *file);

/* Maps the first `length` bytes of another process's file. sealed: it must be one that cannot be
 * made shorter. REGX_UNREACHABLE: it cannot be opened or mapped; REGX_DENIED: another file has its
 * number; REGX_INVALID: it is shorter, or not sealed. */
regx_status_t regx_shm_file_map_other(int32_t pid, const regx_shm_file_t *file, size_t length,
                                      bool sealed, void **base);

#endif
