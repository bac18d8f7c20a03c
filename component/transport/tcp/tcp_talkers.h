/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The peers that said hello over tcp and not yet goodbye: if their connection ends, they died. One
 * thread at a time.
 */
#ifndef REGX_TRANSPORT_TCP_TALKERS_H
#define REGX_TRANSPORT_TCP_TALKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define REGX_TCP_TALKERS_MAX 65536

typedef struct regx_tcp_talkers {
    uint64_t *ids;
    size_t count;
    size_t room;
} regx_tcp_talkers_t;

/* A hello came. REGX_INVALID: too many, or no memory. */
regx_status_t regx_tcp_talkers_add(regx_tcp_talkers_t *talkers, uint64_t peer);
/* A goodbye came, or the peer is gone. REGX_INVALID: it is none of them. */
regx_status_t regx_tcp_talkers_remove(regx_tcp_talkers_t *talkers, uint64_t peer);
bool regx_tcp_talkers_has(const regx_tcp_talkers_t *talkers, uint64_t peer);
void regx_tcp_talkers_fini(regx_tcp_talkers_t *talkers);

#endif
