/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI 4.1.
 */

#include <stdlib.h>

#include "compat/compat.h"

#include "opal/mca/pmix/pmix.h"

/* 6.0, whose libopen-pal has the same name, has none of these: it is to load this component all the
 * same, so that it can report that it was built for another one. */
#pragma weak opal_pmix
#pragma weak opal_value_t_class
#pragma weak opal_value_unload

const bool regx_compat_windows = true;

atomic_uintptr_t regx_compat_calling;

void regx_compat_receive(mca_btl_base_module_t *btl, uint64_t sender, mca_btl_base_tag_t tag,
                         const void *data, size_t length)
{
    const mca_btl_active_message_callback_t *callback = &mca_btl_base_active_message_trigger[tag];
    mca_btl_base_segment_t segment = {.seg_addr.pval = (void *)(uintptr_t)data, .seg_len = length};
    mca_btl_base_descriptor_t descriptor; /* who listens reads its segments only */

    (void)sender;
    descriptor.des_segments = &segment;
    descriptor.des_segment_count = 1;
    if (callback->cbfunc != NULL) {
        atomic_store_explicit(&regx_compat_calling, (uintptr_t)&descriptor, memory_order_relaxed);
        callback->cbfunc(btl, tag, &descriptor, callback->cbdata);
        atomic_store_explicit(&regx_compat_calling, 0, memory_order_relaxed);
    }
}

void regx_compat_receive_from(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *from,
                              mca_btl_base_tag_t tag, const void *data, size_t length)
{
    (void)from;
    regx_compat_receive(btl, 0, tag, data, length);
}

bool regx_compat_answers(mca_btl_base_tag_t tag)
{
    (void)tag;
    return false;
}

int regx_compat_publish(const mca_base_component_t *component, const void *bytes, size_t length)
{
    int rc;

    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, component, (void *)(uintptr_t)bytes, (int32_t)length);
    return rc;
}

int regx_compat_fetch(const mca_base_component_t *component, opal_proc_t *proc, void **bytes,
                      size_t *length)
{
    int32_t size = 0;
    int rc;

    OPAL_MODEX_RECV(rc, component, &proc->proc_name, (uint8_t **)bytes, &size);
    *length = (size_t)size;
    return rc;
}

uint32_t regx_compat_processes(void)
{
    const opal_process_name_t all = {OPAL_PROC_MY_NAME.jobid, OPAL_VPID_WILDCARD};
    uint32_t size = 0, *value = &size;
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_JOB_SIZE, &all, &value, OPAL_UINT32);
    return rc == OPAL_SUCCESS ? size : 0;
}

bool regx_version_local_peers(char **peers)
{
    const opal_process_name_t all = {OPAL_PROC_MY_NAME.jobid, OPAL_VPID_WILDCARD};
    int rc;

    *peers = NULL;
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_LOCAL_PEERS, &all, peers, OPAL_STRING);
    return rc == OPAL_SUCCESS && *peers != NULL;
}

bool regx_version_publish_key(const char *key)
{
    uint8_t nothing = 0;
    int rc;

    OPAL_MODEX_SEND_STRING(rc, OPAL_PMIX_GLOBAL, (char *)(uintptr_t)key, &nothing, 1);
    return rc == OPAL_SUCCESS;
}

/* What a process has published it commits all at once, its addresses among it. Of one on this node
 * that has not committed yet, or has no such key, Open MPI 4.1.4 answers after two seconds that there
 * is none. So it is asked for ten seconds, which all pass if that process has no regx. */
bool regx_version_key_published(const mca_base_component_t *component, uint32_t rank,
                                const char *key)
{
    const opal_process_name_t name = {OPAL_PROC_MY_NAME.jobid, rank};
    opal_value_t *value = NULL;
    uint8_t *addresses = NULL;
    int32_t length;
    int rc = OPAL_ERROR;

    for (unsigned tries = 0; rc != OPAL_SUCCESS && tries < 5; tries++) {
        OPAL_MODEX_RECV(rc, component, &name, &addresses, &length);
    }
    free(addresses);
    if (rc != OPAL_SUCCESS || opal_pmix.get(&name, key, NULL, &value) != OPAL_SUCCESS ||
        value == NULL) {
        return false;
    }
    OBJ_RELEASE(value);
    return true;
}
