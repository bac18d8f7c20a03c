/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI 4.1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/compat.h"

#include "ompi_config.h"

#include "ompi/mca/pml/base/base.h"
#include "opal/mca/hwloc/base/base.h"
#include "opal/mca/memory/base/base.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/memoryhooks/memory.h"
#include "opal/runtime/opal.h"
#include "opal/util/output.h"

/* libmpi may be out of sight (a host that opened it RTLD_LOCAL): then this is NULL. */
#pragma weak mca_pml_base_selected_component

struct regx_compat_inbox {
    mca_btl_base_module_t *btl;
    mca_btl_base_segment_t segment;
    mca_btl_base_descriptor_t descriptor;
};

regx_compat_inbox_t *regx_compat_inbox_new(mca_btl_base_module_t *btl)
{
    regx_compat_inbox_t *inbox = calloc(1, sizeof(*inbox));

    if (inbox != NULL) {
        inbox->btl = btl;
        inbox->descriptor.des_segments = &inbox->segment;
        inbox->descriptor.des_segment_count = 1;
    }
    return inbox;
}

void regx_compat_inbox_free(regx_compat_inbox_t *inbox)
{
    free(inbox);
}

void regx_compat_receive(regx_compat_inbox_t *inbox, mca_btl_base_tag_t tag, const void *data,
                         size_t length)
{
    const mca_btl_active_message_callback_t *callback = &mca_btl_base_active_message_trigger[tag];

    inbox->segment.seg_addr.pval = (void *)(uintptr_t)data;
    inbox->segment.seg_len = length;
    if (callback->cbfunc != NULL) {
        callback->cbfunc(inbox->btl, tag, &inbox->descriptor, callback->cbdata);
    }
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

static uint64_t number(opal_process_name_t name)
{
    return (uint64_t)name.jobid << 32 | name.vpid;
}

uint64_t regx_compat_process(const opal_proc_t *proc)
{
    return number(proc->proc_name);
}

uint64_t regx_compat_self(void)
{
    return number(OPAL_PROC_MY_NAME);
}

uint32_t regx_compat_rank(void)
{
    return OPAL_PROC_MY_NAME.vpid;
}

bool regx_compat_same_node(const opal_proc_t *proc)
{
    return OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags) || proc == opal_proc_local_get();
}

const char *regx_compat_host(void)
{
    return opal_process_info.nodename != NULL ? opal_process_info.nodename : "";
}

const char *regx_compat_version(void)
{
    return opal_version_string;
}

uint32_t regx_compat_local_processes(void)
{
    return opal_process_info.num_local_peers > 0 ? (uint32_t)opal_process_info.num_local_peers + 1
                                                 : 1;
}

uint32_t regx_compat_processes(void)
{
    const opal_process_name_t all = {OPAL_PROC_MY_NAME.jobid, OPAL_VPID_WILDCARD};
    uint32_t size = 0, *value = &size;
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_JOB_SIZE, &all, &value, OPAL_UINT32);
    return rc == OPAL_SUCCESS ? size : 0;
}

hwloc_topology_t regx_compat_topology(void)
{
    return opal_hwloc_topology;
}

const char *regx_compat_pml(void)
{
    return &mca_pml_base_selected_component == NULL
               ? ""
               : mca_pml_base_selected_component.pmlm_version.mca_component_name;
}

/* mpirun tells each process the first ranks of all applications; the ranks of one follow it. */
static uint32_t first_of_application(void)
{
    const char *list = getenv("OMPI_FIRST_RANKS");
    const uint32_t rank = regx_compat_rank();
    uint32_t found = 0;

    while (list != NULL && *list != '\0') {
        char *end;
        const unsigned long first = strtoul(list, &end, 10);

        if (first <= rank && first > found) {
            found = (uint32_t)first;
        }
        list = end != list ? end : end + 1;
    }
    return found;
}

/* Of this job; this process where nobody knows. */
static uint32_t first_of_node(void)
{
    const opal_process_name_t all = {OPAL_PROC_MY_NAME.jobid, OPAL_VPID_WILDCARD};
    uint32_t first = regx_compat_rank();
    char *peers = NULL; /* "1,3,5" */
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_LOCAL_PEERS, &all, &peers, OPAL_STRING);
    if (rc == OPAL_SUCCESS && peers != NULL) {
        first = (uint32_t)strtoul(peers, NULL, 10);
    }
    free(peers);
    return first;
}

bool regx_compat_speaker(void)
{
    return first_of_application() == regx_compat_rank();
}

bool regx_compat_node_speaker(void)
{
    return regx_compat_speaker() || opal_process_info.my_local_rank == 0;
}

/* Waits until that process has committed what it publishes; where it is on this node and the key is
 * not among that, Open MPI 4.1.4 answers after two seconds. */
static bool is_published(uint32_t rank, const char *key)
{
    const opal_process_name_t name = {OPAL_PROC_MY_NAME.jobid, rank};
    opal_value_t *value = NULL;

    if (opal_pmix.get(&name, key, NULL, &value) != OPAL_SUCCESS || value == NULL) {
        return false;
    }
    OBJ_RELEASE(value);
    return true;
}

/* Who has a line to say publishes it, as a key. */
bool regx_compat_falls_here(const char *line)
{
    const uint32_t speakers[] = {first_of_application(), first_of_node()};
    uint8_t nothing = 0;
    int rc;

    OPAL_MODEX_SEND_STRING(rc, OPAL_PMIX_GLOBAL, (char *)(uintptr_t)line, &nothing, 1);
    for (int i = 0; i < 2 && rc == OPAL_SUCCESS && speakers[i] != regx_compat_rank(); i++) {
        if (is_published(speakers[i], line)) {
            return false;
        }
    }
    return true;
}

/* A stream of its own: Open MPI's first would put host and process number in front. */
void regx_compat_say(const char *line)
{
    static int stream = -1;

    if (stream < 0) {
        opal_output_stream_t settings;

        OBJ_CONSTRUCT(&settings, opal_output_stream_t);
        settings.lds_want_stderr = true;
        stream = opal_output_open(&settings);
        OBJ_DESTRUCT(&settings);
    }
    opal_output(stream, "regx: %s", line);
}

/* -1 where nobody asked: the framework then has no stream either. */
int regx_compat_verbose(void)
{
    const mca_base_framework_t *btl = &opal_btl_base_framework;

    return btl->framework_output >= 0 && btl->framework_verbose > 0 ? btl->framework_verbose : 0;
}

void regx_compat_trace(const char *line)
{
    opal_output(opal_btl_base_framework.framework_output, "btl:regx: %s", line);
}

static struct {
    regx_hook_report_t report;
    void *context;
} hooked;

static void released(void *base, size_t length, void *unused, bool from_malloc)
{
    (void)unused, (void)from_malloc;
    hooked.report(hooked.context, base, length);
}

/* The framework is not open unless somebody opened it; it is counted how often. Without a patcher
 * it opens all the same, and says so only by its level of support. */
static regx_status_t hooks_install(regx_hook_report_t report, void *context, char *error,
                                   size_t error_size)
{
    const int needed = OPAL_MEMORY_FREE_SUPPORT | OPAL_MEMORY_MUNMAP_SUPPORT;

    if (mca_base_framework_open(&opal_memory_base_framework, 0) != OPAL_SUCCESS) {
        snprintf(error, error_size, "Open MPI's memory framework cannot be opened");
        return REGX_DENIED;
    }
    hooked.report = report;
    hooked.context = context;
    if ((opal_mem_hooks_support_level() & needed) != needed ||
        opal_mem_hooks_register_release(released, NULL) != OPAL_SUCCESS) {
        snprintf(error, error_size,
                 "Open MPI has no memory hooks here (is its memory component patcher excluded?)");
        mca_base_framework_close(&opal_memory_base_framework);
        return REGX_DENIED;
    }
    return REGX_OK;
}

static void hooks_remove(regx_hook_report_t report, void *context)
{
    (void)report, (void)context;
    opal_mem_hooks_unregister_release(released);
    mca_base_framework_close(&opal_memory_base_framework);
}

const regx_hook_source_t regx_compat_hooks = {
    .name = "opal", .install = hooks_install, .remove = hooks_remove};
