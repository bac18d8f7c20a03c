/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `retain`: malloc is set never to give memory back, so that what it once gave stays
 * mapped where it was, and registrations of it stay true. Nothing reports changes.
 *
 * Guarantees: memory that glibc's malloc, in any thread, hands out after this start is neither
 * unmapped nor emptied by free, realloc or a thread's end.
 * Is blind to everything else. Stale data follows from changing (munmap, mremap, madvise, …)
 * memory that the program mapped itself, from malloc_trim, from shrinking the heap by brk, and from
 * giving back blocks that are mappings of their own: those of 128 KiB and more from before this
 * start, and those of more than 64 MiB that other threads get where there were other threads
 * already (MPI libraries have some). Refused where malloc is not glibc's; another allocator that
 * hides inside the program is not noticed.
 * Costs: the process keeps the most memory it ever had in malloc'ed blocks, and what of it was
 * registered stays pinned after free within the cache's budget; no free of a large block lowers
 * either. The heap grows by 64 MiB of address space at a time. The settings outlive MPI_Finalize:
 * glibc has no call to read what they were before.
 */
#include "registration/monitor/monitor.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

/* A thread's arena consists of heaps of this size, on 64-bit systems; one that is empty goes back
 * to the kernel unless that leaves less than M_TOP_PAD. */
#define HEAP_SIZE (64 << 20)

enum { BLOCK = 512 << 10 }; /* of the self-test */

/* Bytes that glibc's malloc has handed out. Its counts are ints, and go round. */
static unsigned handed_out(struct mallinfo (*count)(void))
{
    const struct mallinfo now = count();

    return (unsigned)now.uordblks + (unsigned)now.hblkhd;
}

/* Other allocators have a mallopt that succeeds, too, and does nothing. Where malloc is from
 * cannot be told by its address, which may be the program's; so see whose counts grow. */
static bool malloc_is_libcs(void)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    struct mallinfo (*count)(void) = NULL;
    bool grown = false;

    if (libc == NULL) {
        return false;
    }
    count = (struct mallinfo(*)(void))dlsym(libc, "mallinfo");
    if (count != NULL) {
        const unsigned before = handed_out(count);
        void *volatile block = malloc(BLOCK);

        grown = handed_out(count) - before - BLOCK / 2 < BLOCK; /* others may allocate and free */
        free(block);
    }
    dlclose(libc);
    return grown;
}

static regx_status_t retain_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                  regx_error_t error)
{
    (void)config;
    if (!malloc_is_libcs()) {
        return regx_refuse(error, REGX_DENIED, "this program's malloc is not glibc's");
    }
    /* One arena for all threads to come; those that threads already have are kept by the pad. */
    if (mallopt(M_ARENA_MAX, 1) != 1 || mallopt(M_TOP_PAD, HEAP_SIZE) != 1 ||
        mallopt(M_TRIM_THRESHOLD, -1) != 1 || mallopt(M_MMAP_MAX, 0) != 1) {
        return regx_refuse(error, REGX_INVALID, "glibc's mallopt refuses");
    }
    *monitor = calloc(1, sizeof(**monitor));
    if (*monitor == NULL || ((*monitor)->log = regx_inval_log_open()) == NULL) {
        free(*monitor);
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    (*monitor)->stop = regx_monitor_free;
    return REGX_OK;
}

const regx_backend_t regx_backend_retain = {.name = "retain", .start = retain_start};
