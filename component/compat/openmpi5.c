/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI 5.0 and 6.0.
 */
#include <stdlib.h>

#include "compat/compat.h"

#include "ompi_config.h"

#include "ompi/runtime/mpiruntime.h"
#include "ompi/runtime/params.h"
#include "opal/mca/pmix/pmix-internal.h"

#define PATIENCE 60 /* seconds */

/* libmpi may be out of sight (compat.c). */
#pragma weak ompi_mpi_state
#pragma weak ompi_async_mpi_init

/* 4.1, whose libopen-pal has the same name as that of 6.0, has none of these: it is to load this
 * component all the same, so that it can report that it was built for another one. */
#pragma weak opal_pmix_convert_jobid
#pragma weak opal_pmix_convert_status

/* Here it also has to promise MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION, for all its puts. From others
 * osc/rdma wants only messages. */
const bool regx_compat_windows = false;

atomic_uintptr_t regx_compat_calling;

void regx_compat_receive_from(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *from,
                              mca_btl_base_tag_t tag, const void *data, size_t length)
{
    const mca_btl_active_message_callback_t *callback = &mca_btl_base_active_message_trigger[tag];
    const mca_btl_base_segment_t segment = {.seg_addr.pval = (void *)(uintptr_t)data,
                                            .seg_len = length};
    const mca_btl_base_receive_descriptor_t descriptor = {.endpoint = from,
                                                          .des_segments = &segment,
                                                          .des_segment_count = 1,
                                                          .tag = tag,
                                                          .cbdata = callback->cbdata};

    if (callback->cbfunc != NULL) {
        atomic_store_explicit(&regx_compat_calling, (uintptr_t)&descriptor, memory_order_relaxed);
        callback->cbfunc(btl, &descriptor);
        atomic_store_explicit(&regx_compat_calling, 0, memory_order_relaxed);
    }
}

void regx_compat_receive(mca_btl_base_module_t *btl, uint64_t sender, mca_btl_base_tag_t tag,
                         const void *data, size_t length)
{
    (void)sender;
    regx_compat_receive_from(btl, NULL, tag, data, length);
}

/* Gets, puts and atomics that are emulated over send, and the detection of failures (0x30 and 0x31,
 * which have a name only in a build that has it). */
bool regx_compat_answers(mca_btl_base_tag_t tag)
{
    return (tag >= MCA_BTL_TAG_BTL_BASE && tag < MCA_BTL_TAG_BTL) || tag == 0x30 || tag == 0x31;
}

/* Open MPI's macros for what is published answer in PMIx's error codes. */
int regx_compat_publish(const mca_base_component_t *component, const void *bytes, size_t length)
{
    pmix_status_t rc;

    OPAL_MODEX_SEND(rc, PMIX_GLOBAL, component, (void *)(uintptr_t)bytes, length);
    return opal_pmix_convert_status(rc);
}

/* Whether a process has published all that it will. Those of another job had before they were
 * connected, those of this one when MPI_Init returned, or before any was asked for: if the exchange
 * is asynchronous, Open MPI may wait for all at the end of MPI_Init only. */
static bool has_committed(const opal_proc_t *proc)
{
    return proc->proc_name.jobid != OPAL_PROC_MY_NAME.jobid || !opal_pmix_base_async_modex ||
           (&ompi_mpi_state != NULL && ompi_mpi_state >= OMPI_MPI_STATE_INIT_COMPLETED &&
            !ompi_async_mpi_init);
}

/* How many seconds to wait for what that process has published; 0: it is on this node if at all.
 * The one second is counted by the daemon beside that process, from when it has not found the key:
 * a slow network does not use it up. (Without it, by PMIX_IMMEDIATE, PMIx 5.0.7 does not find all
 * that was exchanged.) */
static int patience_for(const opal_proc_t *proc)
{
    static _Atomic int64_t first;
    int64_t began = 0;

    if (has_committed(proc)) {
        return OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags) ? 0 : 1;
    }
    /* What is left of the minute that this process waits for all those together of which it is not
     * known that they have committed; at least a second. */
    const int64_t now = regx_now_ns();
    if (atomic_compare_exchange_strong(&first, &began, now)) {
        began = now;
    }
    const int64_t rest = PATIENCE - (now - began) / 1000000000;
    return rest > 1 ? (int)rest : 1;
}

/* Waits that many seconds for what has not come to this node. Without a bound PMIx would wait for
 * ever for a key that a process on another node does not publish. (If another request for the same
 * process is under way from this node already, PMIx gives both its outcome.) */
static pmix_status_t get(const opal_process_name_t *name, const char *key, int patience,
                         pmix_value_t **value)
{
    pmix_info_t how;
    pmix_proc_t process;

    *value = NULL;
    OPAL_PMIX_CONVERT_NAME(&process, name);
    if (patience > 0) {
        PMIX_INFO_LOAD(&how, PMIX_TIMEOUT, &patience, PMIX_INT);
    } else {
        PMIX_INFO_LOAD(&how, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
    }
    const pmix_status_t rc = PMIx_Get(&process, key, &how, 1, value);
    PMIX_INFO_DESTRUCT(&how);
    return rc == PMIX_SUCCESS && *value == NULL ? PMIX_ERR_NOT_FOUND : rc;
}

static pmix_status_t get_of(const opal_process_name_t *name, const mca_base_component_t *component,
                            int patience, pmix_value_t **value)
{
    char *key = mca_base_component_to_string(component);

    *value = NULL;
    if (key == NULL) {
        return PMIX_ERR_NOMEM;
    }
    const pmix_status_t rc = get(name, key, patience, value);
    free(key);
    return rc;
}

int regx_compat_fetch(const mca_base_component_t *component, opal_proc_t *proc, void **bytes,
                      size_t *length)
{
    /* The last one that had published nothing: each module asks for it, and each time could take a
     * second. */
    static _Atomic uint64_t without = UINT64_MAX;
    const uint64_t process = (uint64_t)proc->proc_name.jobid << 32 | proc->proc_name.vpid;
    pmix_value_t *value;

    *bytes = NULL;
    *length = 0;
    if (atomic_load(&without) == process) {
        return OPAL_ERR_NOT_FOUND;
    }
    const bool final = has_committed(proc);
    const pmix_status_t rc = get_of(&proc->proc_name, component, patience_for(proc), &value);

    if (rc != PMIX_SUCCESS && final) {
        atomic_store(&without, process);
    }
    if (rc == PMIX_SUCCESS && value->type == PMIX_BYTE_OBJECT) {
        *bytes = value->data.bo.bytes;
        *length = value->data.bo.size;
        value->data.bo.bytes = NULL; /* the caller's now */
    }
    if (value != NULL) {
        PMIX_VALUE_RELEASE(value);
    }
    return opal_pmix_convert_status(rc);
}

uint32_t regx_compat_processes(void)
{
    return opal_process_info.num_procs;
}

bool regx_version_local_peers(char **peers)
{
    const opal_process_name_t all = {OPAL_PROC_MY_NAME.jobid, OPAL_VPID_WILDCARD};
    pmix_status_t rc;

    *peers = NULL;
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, PMIX_LOCAL_PEERS, &all, peers, PMIX_STRING);
    return rc == PMIX_SUCCESS && *peers != NULL;
}

bool regx_version_publish_key(const char *key)
{
    uint8_t nothing = 0;
    pmix_status_t rc;

    OPAL_MODEX_SEND_STRING(rc, PMIX_GLOBAL, key, &nothing, 1);
    return rc == PMIX_SUCCESS;
}

/* What a process has published it commits all at once. */
bool regx_version_key_published(const mca_base_component_t *component, uint32_t rank,
                                const char *key)
{
    const opal_process_name_t name = {OPAL_PROC_MY_NAME.jobid, rank};
    const int until_committed = 10, after = 1; /* a daemon of PRRTE looks every two seconds */
    pmix_value_t *value;
    pmix_status_t rc = get_of(&name, component, until_committed, &value);

    if (rc == PMIX_SUCCESS) {
        PMIX_VALUE_RELEASE(value);
        rc = get(&name, key, after, &value);
    }
    if (value != NULL) {
        PMIX_VALUE_RELEASE(value);
    }
    return rc == PMIX_SUCCESS;
}
