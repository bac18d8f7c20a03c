/* SPDX-License-Identifier: BSD-3-Clause
 *
 * System calls as all but x86 make them, by libc, which sets errno: within the program's free() its own
 * is to stay.
 */
#include "../unit.h"

#include <sys/syscall.h>

#undef __x86_64__
#include "base/thread.h"

UNIT_TEST(the_programs_errno_stays)
{
    const long self = getpid();

    errno = ENOTTY;
    assert_int_equal(regx_raw(SYS_close, -1, 0, 0, 0, 0), -EBADF);
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(regx_raw(SYS_getpid, 0, 0, 0, 0, 0), self);
    assert_int_equal(errno, ENOTTY);
}
