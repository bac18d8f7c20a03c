/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_sides.h"

#include <unistd.h>

int fake_sides_reset(void **state)
{
    (void)state;
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all tests */
    fake_reset();
    side_settings = NULL;
    side_ports[0] = side_ports[1] = NULL;
    return 0;
}
