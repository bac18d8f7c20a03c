/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "rendezvous/careful.h"

#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef ssize_t (*regx_vm_copy_t)(pid_t pid, const struct iovec *local, unsigned long local_count,
                                  const struct iovec *remote, unsigned long remote_count,
                                  unsigned long flags);

/* How many bytes at `buffer`, at most `left`, lie in its page. */
static size_t rest_of_page(const char *buffer, size_t left)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t rest = page - (uintptr_t)buffer % page;

    return rest < left ? rest : left;
}

/* The process's own memory, as if it were another's. */
static bool copy(regx_vm_copy_t vm_copy, char *own, char *buffer, size_t length)
{
    bool whole = true;

    while (length > 0) {
        const struct iovec local = {own, length};
        const struct iovec remote = {buffer, length};
        const ssize_t n = vm_copy(getpid(), &local, 1, &remote, 1, 0);
        size_t gone = n > 0 ? (size_t)n : 0;

        if (n <= 0) {
            gone = rest_of_page(buffer, length);
            whole = false;
        }
        own += gone;
        buffer += gone;
        length -= gone;
    }
    return whole;
}

bool regx_careful_read(void *to, const void *buffer, size_t length)
{
    memset(to, 0, length);
    return copy(process_vm_readv, to, (char *)(uintptr_t)buffer, length);
}

bool regx_careful_write(void *buffer, const void *from, size_t length)
{
    return copy(process_vm_writev, (char *)(uintptr_t)from, buffer, length);
}
