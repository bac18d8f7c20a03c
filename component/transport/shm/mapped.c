/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/mapped.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"

/* A mapping of exactly that range, of a file that is open for reading and writing. The kernel finds it
 * by its name, however many mappings there are. */
static bool is_whole_mapping(uintptr_t start, uintptr_t end)
{
    char path[80];
    struct stat status;

    snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIxPTR "-%" PRIxPTR, start, end);
    return lstat(path, &status) == 0 &&
           (status.st_mode & (S_IRUSR | S_IWUSR)) == (S_IRUSR | S_IWUSR);
}

/* Where there is no such file it is not known. */
static bool is_inside_mapping(uintptr_t start, uintptr_t end)
{
    FILE *file = fopen("/proc/self/maps", "re");
    uintptr_t first, behind;
    char access[5];
    bool found = false;

    if (file == NULL) {
        return true;
    }
    while (!found &&
           fscanf(file, "%" SCNxPTR "-%" SCNxPTR " %4s%*[^\n]", &first, &behind, access) == 3) {
        found = first <= start && end <= behind && access[0] == 'r' && access[1] == 'w' &&
                access[3] == 's';
    }
    fclose(file);
    return found;
}

/* Where the kernel refuses that copy it is not known. */
static bool is_there(uintptr_t address)
{
    char byte;
    const struct iovec to = {&byte, 1}, from = {(void *)address, 1};

    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

bool regx_mapped_shared(const void *base, size_t length)
{
    const uintptr_t start = (uintptr_t)base;
    const size_t page = regx_page_size();

    if (start % page != 0 || length == 0 || length > UINTPTR_MAX - page ||
        start > UINTPTR_MAX - page - length) {
        return false;
    }
    return (is_whole_mapping(start, regx_align_up(start + length, page)) ||
            is_inside_mapping(start, start + length)) &&
           is_there(start + length - 1);
}
