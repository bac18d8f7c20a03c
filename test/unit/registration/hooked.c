/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooked.h"

#include <sys/syscall.h>

hooked_t hooked;

static void hooked_tell(unsigned kind, const void *base, size_t length)
{
    const regx_hook_report_t report = atomic_load(&hooked.report);

    if (report == NULL || (hooked.faults & kind) != 0) {
        return;
    }
    report((void *)(uintptr_t)base, length, true);
}

int munmap(void *base, size_t length)
{
    hooked_tell(DEAF_MUNMAP, base, length);
    return (int)syscall(SYS_munmap, base, length);
}

void *mremap(void *base, size_t length, size_t new_length, int flags, ...)
{
    va_list rest;

    va_start(rest, flags);
    void *onto = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void *) : NULL;
    va_end(rest);
    hooked_tell(DEAF_MREMAP, base, length);
    return (void *)syscall(SYS_mremap, base, length, new_length, flags, onto);
}

int madvise(void *base, size_t length, int advice)
{
    hooked_tell(DEAF_MADVISE, base, length);
    return (int)syscall(SYS_madvise, base, length, advice);
}

void *mmap(void *base, size_t length, int protection, int flags, int file, off_t offset)
{
    if ((flags & MAP_FIXED) != 0) {
        hooked_tell(DEAF_MMAP, base, length);
    }
    return (void *)syscall(SYS_mmap, base, length, protection, flags, file, offset);
}

static regx_status_t hooked_install(regx_hook_report_t report, regx_error_t error)
{
    if (hooked.refuse) {
        snprintf(error, REGX_ERROR, "the fake source refuses");
        return REGX_DENIED;
    }
    atomic_store(&hooked.report, report);
    hooked.installed++;
    return REGX_OK;
}

static void hooked_remove(void)
{
    assert_true(atomic_load(&hooked.report) != NULL);
    atomic_store(&hooked.report, NULL);
    hooked.removed++;
}

const regx_hook_source_t hooked_source = {.install = hooked_install, .remove = hooked_remove};

int hooked_reset(void **state)
{
    hooked.faults = 0;
    hooked.refuse = false;
    hooked.installed = hooked.removed = 0;
    return 0;
}
