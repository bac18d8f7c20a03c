/* SPDX-License-Identifier: BSD-3-Clause */
#include "hold.h"

#include <stdatomic.h>
#include <time.h>

#include "base/thread.h"
#include "registration/monitor/uffd.h"

static _Atomic int hold, held; /* hold_t: where to stay, where the reader is */

static void stay(hold_t where)
{
    while (atomic_load(&hold) == (int)where) {
        atomic_store(&held, (int)where);
        /* Not by libc: a sanitizer that sees a thread wait maps memory for it, perhaps where the
         * test expects none. */
        regx_raw(SYS_nanosleep, (long)&(struct timespec){.tv_nsec = 1000000}, 0, 0, 0, 0);
    }
    atomic_store(&held, HOLD_NOWHERE);
}

int __real_regx_uffd_wait(const regx_uffd_t *uffd, int other, int milliseconds);
int __wrap_regx_uffd_wait(const regx_uffd_t *uffd, int other, int milliseconds);
int __wrap_regx_uffd_wait(const regx_uffd_t *uffd, int other, int milliseconds)
{
    const int ready = __real_regx_uffd_wait(uffd, other, milliseconds);

    if (ready > 0 && (ready & REGX_UFFD_EVENT) != 0) {
        stay(HOLD_BEFORE_READ);
    }
    return ready;
}

int __real_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);
int __wrap_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);
int __wrap_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES])
{
    const int count = __real_regx_uffd_read(uffd, changes);

    if (count > 0) {
        stay(HOLD_BEFORE_LOG);
    }
    return count;
}

void hold_reader(hold_t where)
{
    atomic_store(&hold, (int)where);
}

bool hold_is_held(void)
{
    const int is = atomic_load(&held);

    return is != HOLD_NOWHERE && is == atomic_load(&hold);
}
