/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters btl_regx_*. All are strings for Open MPI, so that regx can check them itself;
 * mca-params/regx.conf documents each for administrators.
 */
#include "config.h"

#include "btl/params.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memlock.h"

#define POOL_MOST_BY_DEFAULT (8u << 20)

static struct parameter {
    const char *name;
    char *value; /* Open MPI's, or the default */
    mca_base_var_info_lvl_t level;
    const char *help;
} parameters[REGX_PARAMS] = {
    [REGX_PARAM_ENABLE] =
        {"enable", "auto", OPAL_INFO_LVL_2,
         "Whether regx offers itself: 1 always, 0 never, auto if the btl list names it. An "
         "administrator who wants regx for all jobs sets 1 here rather than btl, which would fail "
         "wherever the component is missing."},
    [REGX_PARAM_TRANSPORT] =
        {"transport", "auto", OPAL_INFO_LVL_3,
         "Which wire to use: uct (UCX: shared memory on a node, tcp between nodes), verbs (an RDMA "
         "device, also on a node; where it was built with rdma-core), or auto, which is uct."},
    [REGX_PARAM_RENDEZVOUS] =
        {"rendezvous", "auto", OPAL_INFO_LVL_2,
         "How messages above btl_regx_eager_limit go to this process: bounce (through pre-pinned "
         "slots of the pool), pipeline (the buffer registered and written in chunks of "
         "btl_regx_chunk_size), direct (the whole buffer registered, one write), read (the "
         "receiver reads what the sender registers in chunks of btl_regx_chunk_size; not over "
         "tcp), together (on a node: the sender has the kernel copy one half, the receiver the "
         "other), or auto (on a node bounce, pipeline or together, whichever was fastest when they "
         "were last tried, on the job's own messages of that size; else pipeline, but a buffer "
         "that is registered already, of up to btl_regx_chunk_depth chunks, at once). The receiver "
         "decides."},
    [REGX_PARAM_BACKEND] =
        {"backend", "auto", OPAL_INFO_LVL_2,
         "How registrations stay true while the application gives memory back: none (nothing is "
         "kept: each transfer registers and deregisters), hooks (libc's functions report what they "
         "unmap, see btl_regx_hooks; blind to raw system calls), notifier (the kernel reports it, "
         "by userfaultfd; keeps private anonymous memory only, see btl_regx_notifier_check), "
         "hooks+notifier (both), odp (on-demand paging: nothing is pinned, the device follows the "
         "mapping; with btl_regx_transport verbs on devices that can, see btl_regx_odp_prefetch), "
         "retain (malloc never gives memory back; only for programs that "
         "map no memory themselves), or auto: none where registering costs nothing, else notifier "
         "where it passes its self-test, else none. mpi_leave_pinned=0 means none unless a value "
         "is given here. A backend that does not work here is an error; auto never is."},
    [REGX_PARAM_CHUNK_SIZE] =
        {"chunk_size", "1M", OPAL_INFO_LVL_4,
         "Bytes registered and written at once by rendezvous=pipeline, or read by rendezvous=read "
         "and together: 4K to 2M, a multiple of the page size. K, M and G are understood."},
    [REGX_PARAM_CHUNK_DEPTH] =
        {"chunk_depth", "4", OPAL_INFO_LVL_4,
         "Chunks of one message in flight at once by rendezvous=pipeline and read, and of the half "
         "that the receiver reads by together: 1 to 64. A message pins at most chunk_depth times "
         "chunk_size at the receiver; at the sender of "
         "pipeline over verbs a little more, since a chunk counts there until it is acknowledged."},
    [REGX_PARAM_POOL_SIZE] =
        {"pool_size", "auto", OPAL_INFO_LVL_4,
         "Bytes of bounce memory of each process, locked as far as the limit of locked memory "
         "(ulimit -l) allows: two slots of slot_size to 1G, a multiple of the page size, or auto: "
         "8M, but at most half of that limit. On a node it lies in shared memory (/dev/shm). "
         "Divided among the ports that are used."},
    [REGX_PARAM_SLOT_SIZE] =
        {"slot_size", "128K", OPAL_INFO_LVL_4,
         "Bytes of one slot of the pool: 4K to 1M, a multiple of the page size. Also bounds the "
         "fragments (max_send_size) of non-contiguous messages."},
    [REGX_PARAM_CACHE_BYTES] =
        {"cache_bytes", "auto", OPAL_INFO_LVL_4,
         "Bytes that kept registrations may cover, in use or not, with any btl_regx_backend but "
         "none: from a page to 65536G (K, M and G are understood), unlimited (until a registration "
         "fails), or auto: a quarter of the node's memory divided by the job's processes on it, "
         "but (with any backend but odp, which locks nothing) at most half of what the limit of "
         "locked memory (ulimit -l) leaves beside btl_regx_pool_size."},
    [REGX_PARAM_CACHE_COUNT] =
        {"cache_count", "16384", OPAL_INFO_LVL_4,
         "Registrations kept at most, with any btl_regx_backend but none: 1 to 1048576, or "
         "unlimited (as many as the cache has room for)."},
    [REGX_PARAM_ADMIT] =
        {"admit", "second", OPAL_INFO_LVL_5,
         "When the registration of a buffer is kept at the cost of others, once "
         "btl_regx_cache_bytes or btl_regx_cache_count is used up: first (at its first use), or "
         "second (at its second; so a buffer that is used only once pushes out nothing)."},
    [REGX_PARAM_INUSE] =
        {"inuse", "warn", OPAL_INFO_LVL_4,
         "What to do about a buffer that the application unmaps or replaces while MPI still uses "
         "it, which is an error of the application: the transfer is finished and counted "
         "(inuse_changes) in any case; ignore, warn (one line per process) or abort the job. Seen "
         "with any btl_regx_backend but none, odp and retain."},
    [REGX_PARAM_HOOKS] =
        {"hooks", "opal", OPAL_INFO_LVL_5,
         "Who reports to btl_regx_backend hooks and hooks+notifier: opal (Open MPI's memory hooks; "
         "removed at MPI_Finalize), or ucm (UCX's, of 1.15 or later, with btl_regx_transport uct; "
         "they stay in the process). Both patch libc's functions."},
    [REGX_PARAM_NOTIFIER_CHECK] =
        {"notifier_check", "always", OPAL_INFO_LVL_6,
         "When btl_regx_backend notifier and hooks+notifier ask the kernel, before a kept "
         "registration is used, whether a change is under way that was not yet reported: always (a "
         "system call per use), scan (two; also sees shmat(SHM_REMAP) over private memory; Linux "
         "6.7), threads (only if MPI was initialized with MPI_THREAD_MULTIPLE; for programs whose "
         "other threads unmap nothing), never (for programs whose threads do not take over "
         "addresses that others are just unmapping)."},
    [REGX_PARAM_ODP_PREFETCH] =
        {"odp_prefetch", "advise", OPAL_INFO_LVL_6,
         "How btl_regx_backend odp brings pages in before the device needs them: advise (the "
         "device is asked to look them up, while other chunks travel; where rdma-core or the "
         "device cannot, as touch), touch (the process has the kernel map them, which the device "
         "then finds mapped; Linux 5.14, else as none), or none (the device finds out)."},
    [REGX_PARAM_IF_INCLUDE] =
        {"if_include", NULL, OPAL_INFO_LVL_3,
         "Network devices to use, comma-separated: names (eth0) or subnets (10.1.0.0/16), of which "
         "the first that is up is used; with transport verbs RDMA devices or their ports (mlx5_0, "
         "mlx5_0:2), of which all are used. Not together with if_exclude. Default: the first "
         "device that is up and is not the loopback; with verbs all active ports that are nearest "
         "to the process."},
    [REGX_PARAM_IF_EXCLUDE] =
        {"if_exclude", NULL, OPAL_INFO_LVL_3,
         "Network devices not to use, comma-separated: as if_include. Not together with "
         "if_include."},
    [REGX_PARAM_UCT_TLS] =
        {"uct_tls", NULL, OPAL_INFO_LVL_5,
         "UCX transports that transport=uct may use, comma-separated: posix, sysv, tcp. Default: "
         "all; posix before sysv on a node."},
    [REGX_PARAM_VERBS_GID_INDEX] =
        {"verbs_gid_index", "auto", OPAL_INFO_LVL_5,
         "Which entry of the port's GID table names this process to its peers, with "
         "btl_regx_transport verbs: 0 to 255, or auto (RoCE v2 before v1, an IPv4 address before "
         "others; 0 on InfiniBand)."},
    [REGX_PARAM_VERBS_PKEY] =
        {"verbs_pkey", "auto", OPAL_INFO_LVL_5,
         "Partition key, with btl_regx_transport verbs: 0x0001 to 0xffff (the highest bit, full "
         "membership, does not matter), or auto, the first of the port's table."},
    [REGX_PARAM_VERBS_SERVICE_LEVEL] =
        {"verbs_service_level", "0", OPAL_INFO_LVL_5,
         "Service level of all packets, with btl_regx_transport verbs: 0 to 15. On RoCE it chooses "
         "the priority, which lossless networks need."},
    [REGX_PARAM_VERBS_TRAFFIC_CLASS] =
        {"verbs_traffic_class", "0", OPAL_INFO_LVL_5,
         "Traffic class of all packets with a global header, that is DSCP and ECN on RoCE v2, with "
         "btl_regx_transport verbs: 0 to 255."},
    [REGX_PARAM_VERBS_TIMEOUT] =
        {"verbs_timeout", "18", OPAL_INFO_LVL_6,
         "After how long a packet counts as lost, with btl_regx_transport verbs: 4.096 us times 2 "
         "to the power of this; 1 to 31. 18 is a second."},
    [REGX_PARAM_VERBS_RETRY_COUNT] =
        {"verbs_retry_count", "6", OPAL_INFO_LVL_6,
         "How often a lost packet is sent again before its peer counts as lost, with "
         "btl_regx_transport verbs: 0 to 7. Soft-RoCE takes 7 for without end."},
    [REGX_PARAM_VERBS_RNR_RETRY] =
        {"verbs_rnr_retry", "7", OPAL_INFO_LVL_6,
         "How often a message is offered again to a process that has no free receive buffer, with "
         "btl_regx_transport verbs: 0 to 6, or 7, without end."},
    [REGX_PARAM_VERBS_MTU] =
        {"verbs_mtu", "auto", OPAL_INFO_LVL_5,
         "Bytes of a packet's payload, with btl_regx_transport verbs: 256, 512, 1024, 2048 or "
         "4096, or auto, what the port has. Two processes use the smaller one of theirs."},
    [REGX_PARAM_VERIFY] =
        {"verify", "0", OPAL_INFO_LVL_5,
         "1: sender and receiver compare a checksum of every slot and chunk of messages above "
         "btl_regx_eager_limit, and one that differs ends the job. It is enough that one of the "
         "two asks for it. For finding out whether a program changes buffers while MPI has them, "
         "or whether a btl_regx_backend misses what it does to its memory. 0: not."},
    [REGX_PARAM_REPORT] = {
        "report", "none", OPAL_INFO_LVL_3,
        "Counters at the end of the job: none, stderr (rank 0 prints a table of its own), or the "
        "name of a file to which each rank appends one line of JSON; %h, %r and %p in it stand for "
        "host, rank and process number. See osu-configs/report."}};

void regx_params_register(const mca_base_component_t *component)
{
    for (int i = 0; i < REGX_PARAMS; i++) {
        mca_base_component_var_register(component, parameters[i].name, parameters[i].help,
                                        MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, parameters[i].level,
                                        MCA_BASE_VAR_SCOPE_READONLY, &parameters[i].value);
    }
}

const char *regx_param_text(regx_param_t param)
{
    const char *value = parameters[param].value;

    return value == NULL || value[0] == '\0' ? NULL : value;
}

const void *regx_param_stored(const char *project, const char *framework, const char *component,
                              const char *variable, mca_base_var_source_t *source)
{
    const void *value = NULL;
    const int index = mca_base_var_find(project, framework, component, variable);

    *source = MCA_BASE_VAR_SOURCE_DEFAULT;
    if (index >= 0) {
        mca_base_var_get_value(index, &value, source, NULL);
    }
    return value;
}

bool regx_param_refuse(const char *error)
{
    char line[512];

    if (regx_compat_falls_here(error)) {
        if (!regx_compat_speaker()) {
            snprintf(line, sizeof(line), "%s; at rank %u on %s", error, regx_compat_rank(),
                     regx_compat_host());
            error = line;
        }
        regx_compat_say(error);
    }
    return false;
}

static void full_name(regx_param_t param, char *name, size_t size)
{
    snprintf(name, size, REGX_PREFIX "%s", parameters[param].name);
}

bool regx_param_word(regx_param_t param, const char *const *words, unsigned count, unsigned *which)
{
    char name[64], allowed[128] = "", error[REGX_OPTION_ERROR];
    const char *text = regx_param_text(param);

    for (unsigned i = 0; i < count; i++) {
        if (text != NULL && strcmp(text, words[i]) == 0) {
            *which = i;
            return true;
        }
        snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "%s%s",
                 i > 0 ? ", " : "", words[i]);
    }
    full_name(param, name, sizeof(name));
    regx_option_refuse(name, text != NULL ? text : "", allowed, error);
    return regx_param_refuse(error);
}

bool regx_param_is(regx_param_t param, const char *word)
{
    const char *text = regx_param_text(param);

    return text != NULL && strcmp(text, word) == 0;
}

bool regx_param_number(regx_param_t param, const regx_option_range_t *range, uint64_t *value)
{
    char name[64], error[REGX_OPTION_ERROR];
    const char *text = regx_param_text(param);

    full_name(param, name, sizeof(name));
    return regx_option_number(name, text != NULL ? text : "", range, value, error) ||
           regx_param_refuse(error);
}

bool regx_params_asked(bool *named)
{
    mca_base_var_source_t source;
    const char *const *list = regx_param_stored("opal", "btl", NULL, NULL, &source);
    const char *enable = regx_param_text(REGX_PARAM_ENABLE);

    *named = list != NULL && *list != NULL && regx_option_listed(*list, "regx");
    if (enable == NULL || strcmp(enable, "auto") == 0) {
        return *named;
    }
    return strcmp(enable, "0") != 0; /* what is neither 0 nor 1 is refused when it is read */
}

static bool read_choices(regx_params_t *params)
{
    static const char *const enable[] = {"auto", "0", "1"};
    static const char *const transport[] = {"auto", "uct", "verbs"}; /* the last may be left out */
    static const char *const verify[] = {"0", "1"};
    const char *rendezvous = regx_param_text(REGX_PARAM_RENDEZVOUS);
    char error[REGX_OPTION_ERROR];
    unsigned which;

    if (!regx_param_word(REGX_PARAM_ENABLE, enable, 3, &which) ||
        !regx_param_word(REGX_PARAM_TRANSPORT, transport, REGX_HAVE_VERBS ? 3 : 2, &which)) {
        return false;
    }
    params->transport = transport[which];
    params->strategy = regx_strategy_find(rendezvous != NULL ? rendezvous : "");
    if (params->strategy == NULL) {
        regx_option_refuse(REGX_PREFIX "rendezvous", rendezvous != NULL ? rendezvous : "",
                           regx_strategy_names, error);
        return regx_param_refuse(error);
    }
    if (!regx_param_word(REGX_PARAM_VERIFY, verify, 2, &which)) {
        return false;
    }
    params->verify = which == 1;
    return true;
}

/* Each element of the list must be known. */
static bool check_tls(const char *list)
{
    char error[REGX_OPTION_ERROR], element[32];

    while (list != NULL && *list != '\0') {
        const size_t length = strcspn(list, ",");

        snprintf(element, sizeof(element), "%.*s", (int)length, list);
        if (!regx_option_listed("posix,sysv,tcp", element)) {
            regx_option_refuse(REGX_PREFIX "uct_tls", element, "posix, sysv, tcp, comma-separated",
                               error);
            return regx_param_refuse(error);
        }
        list += length + (list[length] == ',');
    }
    return true;
}

/* Half of what may be locked is left to registrations. */
static uint64_t default_pool(uint64_t least, uint64_t page)
{
    const uint64_t half = regx_memlock_limit() / 2 & ~(page - 1);
    const uint64_t size = half < POOL_MOST_BY_DEFAULT ? half : POOL_MOST_BY_DEFAULT;

    return size > least ? size : least;
}

static bool read_pool_size(regx_params_t *params, uint64_t page)
{
    const uint64_t least = 2 * params->slot_size;
    const regx_option_range_t range = {least, 1u << 30, page, true, "auto"};
    uint64_t size = default_pool(least, page);

    if (!regx_param_is(REGX_PARAM_POOL_SIZE, "auto") &&
        !regx_param_number(REGX_PARAM_POOL_SIZE, &range, &size)) {
        return false;
    }
    params->pool_size = size;
    params->pool_wanted = size;
    params->pool_given = !regx_param_is(REGX_PARAM_POOL_SIZE, "auto");
    if (regx_param_is(REGX_PARAM_POOL_SIZE, "auto") && size < POOL_MOST_BY_DEFAULT) {
        params->pool_wanted = POOL_MOST_BY_DEFAULT;
    }
    return true;
}

static bool read_numbers(regx_params_t *params)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const regx_option_range_t chunk = {page, REGX_CHUNK_MAX, page, true, NULL};
    const regx_option_range_t depth = {1, REGX_CHUNK_DEPTH_MAX, 1, false, NULL};
    const regx_option_range_t slot = {page, 1u << 20, page, true, NULL};
    uint64_t chunk_size, chunk_depth, slot_size;

    if (!regx_param_number(REGX_PARAM_CHUNK_SIZE, &chunk, &chunk_size) ||
        !regx_param_number(REGX_PARAM_CHUNK_DEPTH, &depth, &chunk_depth) ||
        !regx_param_number(REGX_PARAM_SLOT_SIZE, &slot, &slot_size)) {
        return false;
    }
    params->chunk_size = chunk_size;
    params->chunk_depth = (unsigned)chunk_depth;
    params->slot_size = slot_size;
    return read_pool_size(params, page);
}

bool regx_params_read(regx_params_t *params, mca_btl_base_module_t *btl)
{
    const char *report = regx_param_text(REGX_PARAM_REPORT);

    params->if_include = regx_param_text(REGX_PARAM_IF_INCLUDE);
    params->if_exclude = regx_param_text(REGX_PARAM_IF_EXCLUDE);
    params->uct_tls = regx_param_text(REGX_PARAM_UCT_TLS);
    /* Open MPI frees its values before it finalizes the module that writes the report. */
    params->report[0] = '\0';
    if (report != NULL && strcmp(report, "none") != 0) {
        if (strlen(report) >= sizeof(params->report)) {
            return regx_param_refuse(REGX_PREFIX "report is too long; allowed: 1023 characters");
        }
        strcpy(params->report, report);
    }
    if (params->if_include != NULL && params->if_exclude != NULL) {
        return regx_param_refuse(REGX_PREFIX "if_include and " REGX_PREFIX
                                             "if_exclude are both given; allowed: one");
    }
    return check_tls(params->uct_tls) && read_choices(params) && read_numbers(params) &&
           regx_params_read_registration(params) && regx_params_read_verbs(&params->verbs) &&
           regx_params_check_inherited(params, btl);
}
