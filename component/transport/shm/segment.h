/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory on a node that other processes can map: allocated, named and mapped by UCT.
 *
 * The only place that knows UCT's memory domains (posix, then sysv). Memory and what stands for
 * it in the file system or kernel are gone when the last process that maps it ends, also after
 * SIGKILL (UCT removes the names at once). Calls are made by one thread at a time.
 */
#ifndef REGX_TRANSPORT_SEGMENT_H
#define REGX_TRANSPORT_SEGMENT_H

#include <stddef.h>
#include <stdint.h>
#include <uct/api/uct.h>

#include "base/status.h"
#include "transport/transport.h"

#define REGX_SEGMENT_NAME_MAX 160 /* bytes of a packed name */

typedef struct regx_segment_domain { /* how this process allocates */
    uct_component_h component;
    uct_md_h md;
    size_t key_size;
    char name[16]; /* "posix" or "sysv" */
} regx_segment_domain_t;

typedef struct regx_segment { /* memory that this process allocated */
    uct_allocated_memory_t memory;
} regx_segment_t;

/* How a segment is named to other processes; sent as it is. */
typedef struct regx_segment_name {
    uint64_t base; /* in the owner */
    uint64_t length;
    uint64_t size; /* of key */
    char domain[16];
    uint8_t key[REGX_SEGMENT_NAME_MAX - 40];
} regx_segment_name_t;

typedef struct regx_mapping { /* another process's segment, mapped here */
    uct_component_h component;
    uct_rkey_bundle_t key;
    char *base;
    size_t length;
} regx_mapping_t;

/* Opens the first of posix and sysv that config->tls allows and that gives `probe_length` bytes,
 * which are returned in `segment`. What is refused is tallied among the fallbacks.
 * REGX_UNREACHABLE: none. */
regx_status_t regx_segment_domain_open(regx_segment_domain_t *domain,
                                       const regx_transport_config_t *config, size_t probe_length,
                                       regx_segment_t *segment);
void regx_segment_domain_close(regx_segment_domain_t *domain);

/* Bytes that are free for all processes now, or SIZE_MAX: UCX does not know. */
size_t regx_segment_room(const regx_segment_domain_t *domain);

/* `length` bytes of zeroed memory. REGX_NO_MEMORY. */
regx_status_t regx_segment_alloc(regx_segment_domain_t *domain, size_t length,
                                 regx_segment_t *segment);
void regx_segment_free(regx_segment_t *segment);
static inline char *regx_segment_base(const regx_segment_t *segment)
{
    return segment->memory.address;
}

regx_status_t regx_segment_pack(const regx_segment_domain_t *domain, const regx_segment_t *segment,
                                regx_segment_name_t *name);

/* Maps what another process packed. REGX_INVALID: malformed name, or no shared memory is where it
 * says. REGX_UNREACHABLE: it cannot be mapped from here (another name space, no descriptor left, its
 * owner gone). */
regx_status_t regx_segment_map(const regx_segment_name_t *name, regx_mapping_t *mapping);
void regx_segment_unmap(regx_mapping_t *mapping);

#endif
