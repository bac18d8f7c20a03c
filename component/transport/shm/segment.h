/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory on a node that other processes can map: a file without a name in /dev/shm ("posix"), or a
 * segment of System V ("sysv").
 *
 * It is gone when the last process that maps it ends, also after SIGKILL: the file has no name, and
 * a segment of System V is marked to be removed as soon as it is attached. (A process that is
 * killed before that, within some microseconds, leaves this one.) A file is mapped through its
 * owner's descriptor in /proc. Calls are made by one thread at a time.
 */
#ifndef REGX_TRANSPORT_SEGMENT_H
#define REGX_TRANSPORT_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/shm/file.h"
#include "transport/transport.h"

typedef enum regx_segment_kind { REGX_SEGMENT_POSIX = 1, REGX_SEGMENT_SYSV } regx_segment_kind_t;

typedef struct regx_segment_domain { /* how this process allocates */
    regx_segment_kind_t kind;
    const char *name; /* "posix" or "sysv" */
} regx_segment_domain_t;

/* How a segment is named to other processes; sent as it is. */
typedef struct regx_segment_name {
    uint64_t length;
    regx_shm_file_t file; /* of a segment that is a file */
    int32_t pid;          /* the owner's */
    int32_t id;           /* of one of System V */
    uint32_t kind;
    uint32_t zero;
} regx_segment_name_t;

typedef struct regx_segment { /* memory that this process allocated */
    char *base;
    regx_segment_name_t name;
} regx_segment_t;

typedef struct regx_shm_mapping { /* another process's segment, mapped here */
    char *base;
    size_t length;
    regx_segment_kind_t kind;
} regx_shm_mapping_t;

/* Opens the first of posix and sysv that gives `probe_length` bytes, which are returned in
 * `segment`. What is refused is tallied among the fallbacks. REGX_UNREACHABLE: none. */
regx_status_t regx_segment_domain_open(regx_segment_domain_t *domain,
                                       const regx_transport_config_t *config, size_t probe_length,
                                       regx_segment_t *segment);

/* The other kind, for what finds no room in the first. */
const regx_segment_domain_t *regx_segment_other(const regx_segment_domain_t *domain);

/* Bytes that are free for all processes now, or SIZE_MAX: not known. */
size_t regx_segment_room(const regx_segment_domain_t *domain);

/* `length` bytes of zeroed memory, in whole pages. Of a file all is set aside at once, or a process
 * that touched it later could be ended by SIGBUS; each page is cleared when it is first touched.
 * REGX_NO_MEMORY; REGX_DENIED: neighbours could not open this process's file. */
regx_status_t regx_segment_alloc(const regx_segment_domain_t *domain, size_t length,
                                 regx_segment_t *segment);
void regx_segment_free(regx_segment_t *segment);

/* Maps what another process named. REGX_INVALID: malformed name, or what it names is not that long.
 * REGX_DENIED: what has that number here is something else, since the owner is in another name
 * space or has closed its file. REGX_UNREACHABLE: it cannot be mapped from here (its owner may not
 * be looked into or is gone, no descriptor left). */
regx_status_t regx_segment_map(const regx_segment_name_t *name, regx_shm_mapping_t *mapping);
void regx_segment_unmap(regx_shm_mapping_t *mapping);

#endif
