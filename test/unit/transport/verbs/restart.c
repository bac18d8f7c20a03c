/* SPDX-License-Identifier: BSD-3-Clause */
#include "restart.h"

regx_verbs_settings_t restart_settings = REGX_VERBS_DEFAULTS;

int restart_setup(void **state)
{
    fake_sides_reset(state);
    fake.fault.status = IBV_WC_RETRY_EXC_ERR;
    restart_settings.restart_limit = 600;
    side_settings = &restart_settings;
    return 0;
}

uint64_t restart_count(const side_t *side, int counter)
{
    return atomic_load(&side->counters.transport[counter]);
}

void restart_exchange(void)
{
    const unsigned heard[] = {one.delivered, two.delivered};

    side_send(&one, 1, 1, 100);
    side_send(&two, 1, 1, 100);
    side_await(&one.delivered, heard[0] + 1);
    side_await(&two.delivered, heard[1] + 1);
}

void restart_close(void)
{
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&one);
    side_close(&two);
}
