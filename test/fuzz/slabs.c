/* SPDX-License-Identifier: BSD-3-Clause */
#include "slabs.h"

#include <time.h>

#include "base/util.h"
#include "fuzz.h"
#include "transport/shm/shm_internal.h"

/* ---- segments, as segment.h has them ---- */

static struct {
    char *base;
    size_t length;
    bool taken;
} slabs[SLABS]; /* kept from input to input: what they cost is to clear them */
static int mappings;

size_t slab_take(size_t length)
{
    size_t i = 0;

    while (i < SLABS && (slabs[i].taken || (slabs[i].base != NULL && slabs[i].length != length))) {
        i++;
    }
    if (i < SLABS && slabs[i].base == NULL) {
        fuzz_check(posix_memalign((void **)&slabs[i].base, 4096, length) == 0);
        slabs[i].length = length;
        memset(slabs[i].base, 0, length);
    }
    if (i < SLABS) {
        slabs[i].taken = true;
        memset(slabs[i].base, 0, regx_min(length, sizeof(regx_shm_main_t)));
    }
    return i;
}

void slab_give_back(size_t i)
{
    slabs[i].taken = false;
}

char *slab_base(size_t i)
{
    return slabs[i].base;
}

int slab_mappings(void)
{
    return mappings;
}

void slab_name(size_t i, regx_segment_name_t *name)
{
    memset(name, 0, sizeof(*name));
    name->length = slabs[i].length;
    name->id = (int32_t)i;
}

regx_status_t regx_segment_domain_open(regx_segment_domain_t *domain,
                                       const regx_transport_config_t *config, size_t probe_length,
                                       regx_segment_t *segment)
{
    (void)config;
    memset(domain, 0, sizeof(*domain));
    return regx_segment_alloc(domain, probe_length, segment);
}

const regx_segment_domain_t *regx_segment_other(const regx_segment_domain_t *domain)
{
    return domain;
}

size_t regx_segment_room(const regx_segment_domain_t *domain)
{
    (void)domain;
    return 0; /* so mailboxes are short */
}

regx_status_t regx_segment_alloc(const regx_segment_domain_t *domain, size_t length,
                                 regx_segment_t *segment)
{
    const size_t i = slab_take(length);

    (void)domain;
    if (i == SLABS) {
        return REGX_NO_MEMORY;
    }
    segment->base = slabs[i].base;
    slab_name(i, &segment->name);
    return REGX_OK;
}

void regx_segment_free(regx_segment_t *segment)
{
    slab_give_back((size_t)segment->name.id);
}

regx_status_t regx_segment_map(const regx_segment_name_t *name, regx_shm_mapping_t *mapping)
{
    const size_t i = (uint32_t)name->id;

    if (i >= SLABS || slabs[i].base == NULL) {
        return REGX_UNREACHABLE;
    }
    mapping->base = slabs[i].base;
    mapping->length = slabs[i].length;
    mappings++;
    return REGX_OK;
}

void regx_segment_unmap(regx_shm_mapping_t *mapping)
{
    (void)mapping;
    mappings--;
}

/* ---- the kernel, as vm.h has it ---- */

regx_status_t regx_vm_check(regx_vm_peer_t *peer, char *reason, size_t reason_size)
{
    (void)reason_size;
    reason[0] = '\0';
    peer->state = peer->pid == PEER_PID ? REGX_VM_ALLOWED : REGX_VM_DENIED;
    return peer->state == REGX_VM_ALLOWED ? REGX_OK : REGX_DENIED;
}

regx_status_t regx_vm_copy(regx_vm_peer_t *peer, regx_vm_direction_t direction, void *local,
                           uint64_t remote, size_t length, size_t *copied)
{
    (void)peer;
    if (remote % 7 == 6) { /* it is not there */
        *copied = 0;
        return REGX_FAILED;
    }
    if (direction == REGX_VM_READ) {
        memset(local, 0x5a, length);
    }
    *copied = length;
    return REGX_OK;
}

bool regx_vm_gone(const regx_vm_peer_t *peer)
{
    (void)peer;
    return true;
}

/* Nobody is there to wait for. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)wanted, (void)left;
    return 0;
}
