/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is the same source in all versions, compiled against each one's headers.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compat/compat.h"

#include "ompi_config.h"

#include "ompi/mca/pml/base/base.h"
#include "opal/mca/memory/base/base.h"
#include "opal/memoryhooks/memory.h"
#include "opal/util/output.h"

/* libmpi may be out of sight (a host that opened it RTLD_LOCAL): then this is NULL. */
#pragma weak mca_pml_base_selected_component

static uint64_t number(opal_process_name_t name)
{
    return (uint64_t)name.jobid << 32 | name.vpid;
}

uint64_t regx_compat_process(const opal_proc_t *proc)
{
    return number(proc->proc_name);
}

opal_proc_t *regx_compat_proc(uint64_t process)
{
    return opal_proc_for_name(
        (opal_process_name_t){.jobid = (uint32_t)(process >> 32), .vpid = (uint32_t)process});
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

uint32_t regx_compat_local_processes(void)
{
    return opal_process_info.num_local_peers > 0 ? (uint32_t)opal_process_info.num_local_peers + 1
                                                 : 1;
}

const char *regx_compat_pml(void)
{
    return &mca_pml_base_selected_component == NULL
               ? ""
               : mca_pml_base_selected_component.pmlm_version.mca_component_name;
}

/* Open MPI no longer knows the parameter when it opens BTLs. */
bool regx_compat_takes_ob1(void)
{
    const char *pml = getenv("OMPI_MCA_pml");

    return pml != NULL && strcmp(pml, "ob1") == 0;
}

/* mpirun gives each process how many ranks each application has, in the order of the ranks. (Its
 * OMPI_FIRST_RANKS would be simpler, but is wrong in 5.0.) */
static uint32_t first_of_application(void)
{
    const char *list = getenv("OMPI_APP_CTX_NUM_PROCS");
    const uint32_t rank = regx_compat_rank();
    uint32_t first = 0;
    char *end;

    while (list != NULL && *list != '\0') {
        const unsigned long ranks = strtoul(list, &end, 10);

        if (end == list || rank - first < ranks) {
            break;
        }
        first += (uint32_t)ranks;
        list = end;
    }
    return first <= rank ? first : 0;
}

bool regx_compat_prints(void)
{
    return first_of_application() == regx_compat_rank();
}

/* A process that has a line to print publishes it, as a key. The process of its own node is asked
 * first, so that of each node one at the most asks a process of another node. The first of a further
 * application asks the job's first, which waits for nobody. */
bool regx_compat_has_to_print(const mca_base_component_t *component, const char *line)
{
    const uint32_t application = first_of_application(), self = regx_compat_rank();
    char *peers;
    const bool known = regx_version_local_peers(&peers);
    /* The first of this job on this node; this process where that is not known. */
    const uint32_t node = known ? (uint32_t)strtoul(peers, NULL, 10) : self;

    free(peers);
    if (!regx_version_publish_key(line) || self == 0) {
        return true;
    }
    if (application == self) {
        return !regx_version_key_published(component, 0, line);
    }
    if (node != self && node != application && regx_version_key_published(component, node, line)) {
        return false;
    }
    return !regx_version_key_published(component, application, line);
}

/* By a stream of its own: Open MPI's first would put host and process number in front. Opened for
 * each line: one that is kept would not outlive an MPI session. */
static void print(const char *format, va_list arguments, const char *end, const char *host)
{
    opal_output_stream_t settings;
    char line[4608]; /* room for one that names a file */

    OBJ_CONSTRUCT(&settings, opal_output_stream_t);
    settings.lds_want_stderr = true;
    const int stream = opal_output_open(&settings);
    OBJ_DESTRUCT(&settings);
    vsnprintf(line, sizeof(line), format, arguments);
    /* What a user wrote stays one line, and moves no terminal's cursor. */
    for (char *at = line; *at != '\0'; at++) {
        *at = iscntrl((unsigned char)*at) ? '?' : *at;
    }
    opal_output(stream, "regx: %s%s%s", line, end, host);
    opal_output_close(stream);
}

void regx_compat_output(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print(format, arguments, "", "");
    va_end(arguments);
}

/* One process alone can make a file in the folder that the job has on this node, and Open MPI removes. */
void regx_compat_output_for_node(const char *kind, const char *format, ...)
{
    const char *folder = opal_process_info.job_session_dir;
    char name[4096];
    va_list arguments;

    snprintf(name, sizeof(name), "%s/regx-%s-%u", folder != NULL ? folder : "/dev/null", kind,
             (unsigned)first_of_application());
    va_start(arguments, format);
    if (mknod(name, S_IFREG, 0) == 0 || (errno != EEXIST && opal_process_info.my_local_rank == 0)) {
        print(format, arguments, ", on ", regx_compat_host());
    }
    va_end(arguments);
}

/* -1 where it was not asked for: the framework then has no stream either. */
int regx_compat_verbose(void)
{
    const mca_base_framework_t *btl = &opal_btl_base_framework;

    return btl->framework_output >= 0 && btl->framework_verbose > 0 ? btl->framework_verbose : 0;
}

void regx_compat_trace(const char *line)
{
    opal_output(opal_btl_base_framework.framework_output, "btl:regx: %s", line);
}

static regx_hook_report_t report;

/* Of System V segments alone, whose size it may not find out, Open MPI says that malloc cannot have
 * made the call. */
static void released(void *base, size_t length, void *unused, bool from_malloc)
{
    (void)unused;
    report(base, length, from_malloc);
}

/* The framework is not open unless another component opened it; it is counted how often. Without a
 * patcher it opens all the same, and shows it only by its level of support. */
static regx_status_t hooks_install(regx_hook_report_t reporter, regx_error_t error)
{
    const int needed = OPAL_MEMORY_FREE_SUPPORT | OPAL_MEMORY_MUNMAP_SUPPORT;

    if (mca_base_framework_open(&opal_memory_base_framework, 0) != OPAL_SUCCESS) {
        return regx_refuse(error, REGX_DENIED, "Open MPI's memory framework cannot be opened");
    }
    report = reporter;
    if ((opal_mem_hooks_support_level() & needed) != needed ||
        opal_mem_hooks_register_release(released, NULL) != OPAL_SUCCESS) {
        mca_base_framework_close(&opal_memory_base_framework);
        return regx_refuse(
            error, REGX_DENIED,
            "Open MPI has no memory hooks here (is its memory component patcher excluded?)");
    }
    return REGX_OK;
}

static void hooks_remove(void)
{
    opal_mem_hooks_unregister_release(released);
    mca_base_framework_close(&opal_memory_base_framework);
}

const regx_hook_source_t regx_compat_hooks = {.install = hooks_install, .remove = hooks_remove};
