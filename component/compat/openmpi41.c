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

void regx_compat_receive(mca_btl_base_module_t *btl, mca_btl_base_tag_t tag, const void *data,
                         size_t length)
{
    const mca_btl_active_message_callback_t *callback = &mca_btl_base_active_message_trigger[tag];
    mca_btl_base_segment_t segment = {.seg_addr.pval = (void *)(uintptr_t)data, .seg_len = length};
    mca_btl_base_descriptor_t descriptor = {.des_segments = &segment, .des_segment_count = 1};

    if (callback->cbfunc != NULL) {
        callback->cbfunc(btl, tag, &descriptor, callback->cbdata);
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

/* mpirun tells each process the first ranks of all applications. */
bool regx_compat_speaker(void)
{
    const char *first = getenv("OMPI_FIRST_RANKS");
    const uint32_t rank = regx_compat_rank();

    while (first != NULL && *first != '\0') {
        char *end;

        if (strtoul(first, &end, 10) == rank && end != first) {
            return true;
        }
        first = end != first ? end : end + 1;
    }
    return rank == 0;
}

bool regx_compat_node_speaker(void)
{
    return regx_compat_speaker() || opal_process_info.my_local_rank == 0;
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
