/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/segment.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "transport/shm/mapped.h"
#include "transport/uct/component.h"
#include "transport/uct/log.h"

static const char *const known_domains[] = {"posix", "sysv"};

static regx_status_t open_domain(regx_segment_domain_t *domain, const char *name)
{
    uct_md_attr_t attr;

    domain->component = regx_uct_component(name);
    if (domain->component == NULL ||
        regx_uct_open_md(domain->component, name, &domain->md) != REGX_OK) {
        return REGX_UNREACHABLE;
    }
    if (uct_md_query(domain->md, &attr) != UCS_OK ||
        (attr.cap.flags & (UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_RKEY_PTR)) !=
            (UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_RKEY_PTR) ||
        attr.rkey_packed_size > sizeof(((regx_segment_name_t *)0)->key) - 1) {
        uct_md_close(domain->md);
        return REGX_UNREACHABLE;
    }
    domain->key_size = attr.rkey_packed_size;
    snprintf(domain->name, sizeof(domain->name), "%s", name);
    return REGX_OK;
}

regx_status_t regx_segment_domain_open(regx_segment_domain_t *domain,
                                       const regx_transport_config_t *config, size_t probe_length,
                                       regx_segment_t *segment)
{
    for (size_t i = 0; i < sizeof(known_domains) / sizeof(known_domains[0]); i++) {
        const char *name = known_domains[i];
        char reason[REGX_REASON_LENGTH];

        if (config->tls != NULL && !regx_option_listed(config->tls, name)) {
            continue;
        }
        if (open_domain(domain, name) != REGX_OK) {
            snprintf(reason, sizeof(reason), "%s: not offered by UCX", name);
        } else if (regx_segment_alloc(domain, probe_length, segment) == REGX_OK) {
            return REGX_OK;
        } else {
            regx_segment_domain_close(domain);
            snprintf(reason, sizeof(reason), "%s: no shared memory of %zu bytes", name,
                     probe_length);
        }
        regx_transport_fall_back(config, REGX_TRACE_CHOICE, reason);
    }
    return REGX_UNREACHABLE;
}

void regx_segment_domain_close(regx_segment_domain_t *domain)
{
    uct_md_close(domain->md);
}

size_t regx_segment_room(const regx_segment_domain_t *domain)
{
    uct_md_attr_t attr;

    return uct_md_query(domain->md, &attr) == UCS_OK ? attr.cap.max_alloc : SIZE_MAX;
}

regx_status_t regx_segment_alloc(regx_segment_domain_t *domain, size_t length,
                                 regx_segment_t *segment)
{
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    const uct_mem_alloc_params_t params = {
        .field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                      UCT_MEM_ALLOC_PARAM_FIELD_NAME | UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE,
        .flags = UCT_MD_MEM_ACCESS_ALL,
        .mds = {.mds = &domain->md, .count = 1},
        .name = "regx",
        .mem_type = UCS_MEMORY_TYPE_HOST};

    regx_uct_log_suppress(true);
    const ucs_status_t status = uct_mem_alloc(length, &method, 1, &params, &segment->memory);
    regx_uct_log_suppress(false);
    return status == UCS_OK ? REGX_OK : REGX_NO_MEMORY;
}

void regx_segment_free(regx_segment_t *segment)
{
    uct_mem_free(&segment->memory);
}

regx_status_t regx_segment_pack(const regx_segment_domain_t *domain, const regx_segment_t *segment,
                                regx_segment_name_t *name)
{
    memset(name, 0, sizeof(*name));
    name->base = (uintptr_t)segment->memory.address;
    name->length = segment->memory.length;
    name->size = domain->key_size;
    snprintf(name->domain, sizeof(name->domain), "%s", domain->name);
    return uct_md_mkey_pack(domain->md, segment->memory.memh, name->key) == UCS_OK ? REGX_OK
                                                                                   : REGX_FAILED;
}

regx_status_t regx_segment_map(const regx_segment_name_t *name, regx_mapping_t *mapping)
{
    void *base;

    /* The key ends in a string in some versions of UCX: there must be a zero behind it. */
    if (name->size >= sizeof(name->key) || name->key[sizeof(name->key) - 1] != 0 ||
        memchr(name->domain, '\0', sizeof(name->domain)) == NULL) {
        return REGX_INVALID;
    }
    mapping->component = regx_uct_component(name->domain);
    if (mapping->component == NULL) {
        return REGX_UNREACHABLE;
    }
    regx_uct_log_suppress(true);
    const ucs_status_t status = uct_rkey_unpack(mapping->component, name->key, &mapping->key);
    regx_uct_log_suppress(false);
    if (status != UCS_OK) {
        return REGX_UNREACHABLE;
    }
    if (uct_rkey_ptr(mapping->component, &mapping->key, name->base, &base) != UCS_OK) {
        uct_rkey_release(mapping->component, &mapping->key);
        return REGX_UNREACHABLE;
    }
    if (!regx_mapped_shared(base, name->length)) {
        uct_rkey_release(mapping->component, &mapping->key);
        return REGX_INVALID;
    }
    mapping->base = base;
    mapping->length = name->length;
    return REGX_OK;
}

void regx_segment_unmap(regx_mapping_t *mapping)
{
    uct_rkey_release(mapping->component, &mapping->key);
}
