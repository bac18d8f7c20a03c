/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/tcp/tcp_talkers.h"

#include <stdlib.h>

static size_t find(const regx_tcp_talkers_t *talkers, uint64_t peer)
{
    size_t at = 0;

    while (at < talkers->count && talkers->ids[at] != peer) {
        at++;
    }
    return at;
}

bool regx_tcp_talkers_has(const regx_tcp_talkers_t *talkers, uint64_t peer)
{
    return find(talkers, peer) < talkers->count;
}

regx_status_t regx_tcp_talkers_add(regx_tcp_talkers_t *talkers, uint64_t peer)
{
    if (regx_tcp_talkers_has(talkers, peer)) {
        return REGX_OK;
    }
    if (talkers->count == talkers->room) {
        const size_t room = talkers->room == 0 ? 16 : talkers->room * 2;
        uint64_t *ids =
            room > REGX_TCP_TALKERS_MAX ? NULL : realloc(talkers->ids, room * sizeof(*ids));

        if (ids == NULL) {
            return REGX_INVALID;
        }
        talkers->ids = ids;
        talkers->room = room;
    }
    talkers->ids[talkers->count++] = peer;
    return REGX_OK;
}

regx_status_t regx_tcp_talkers_remove(regx_tcp_talkers_t *talkers, uint64_t peer)
{
    const size_t at = find(talkers, peer);

    if (at == talkers->count) {
        return REGX_INVALID;
    }
    talkers->ids[at] = talkers->ids[--talkers->count];
    return REGX_OK;
}

void regx_tcp_talkers_fini(regx_tcp_talkers_t *talkers)
{
    free(talkers->ids);
}
