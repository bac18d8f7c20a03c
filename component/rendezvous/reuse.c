/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/reuse.h"

#include "base/util.h"

void regx_reuse_init(regx_reuse_t *reuse)
{
    *reuse = (regx_reuse_t){.credit = REGX_REUSE_FIRST};
}

bool regx_reuse_expects(regx_reuse_t *reuse, bool known)
{
    if (known) {
        reuse->credit = (unsigned)regx_min(reuse->credit + REGX_REUSE_GAIN, REGX_REUSE_CREDIT_MAX);
        return true;
    }
    if (reuse->credit > 0) {
        reuse->credit--;
        return true;
    }
    reuse->passed = (reuse->passed + 1) % REGX_REUSE_SAMPLE;
    return reuse->passed == 0;
}
