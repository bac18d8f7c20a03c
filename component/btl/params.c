/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters btl_regx_*. All are strings for Open MPI, so that regx can check them itself;
 * mca-params/regx.conf documents each for administrators.
 */
#include "btl/btl.h"
#include "registration/backend.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/option.h"
#include "opal/mca/base/mca_base_var.h"

#define PREFIX "btl_regx_"
#define LARGEST_FRAME 16384u    /* what every transport takes as one frame */
#define LARGEST_FRAGMENT 65536u /* … and lends at once */

enum {
    ENABLE,
    TRANSPORT,
    RENDEZVOUS,
    BACKEND,
    CHUNK_SIZE,
    CHUNK_DEPTH,
    POOL_SIZE,
    SLOT_SIZE,
    IF_INCLUDE,
    IF_EXCLUDE,
    UCT_TLS,
    REPORT,
    PARAMETERS
};

static struct parameter {
    const char *name;
    char *value; /* Open MPI's, or the default */
    mca_base_var_info_lvl_t level;
    const char *help;
} parameters[PARAMETERS] = {
    [ENABLE] = {"enable", "auto", OPAL_INFO_LVL_2,
                "Whether regx offers itself: 1 always, 0 never, auto if the btl list names it. An "
                "administrator who wants regx for all jobs sets 1 here rather than btl, which "
                "would fail wherever the component is missing."},
    [TRANSPORT] = {"transport", "auto", OPAL_INFO_LVL_3,
                   "Which wire to use: auto, or uct (UCX: shared memory on a node, tcp between "
                   "nodes). auto is uct."},
    [RENDEZVOUS] = {"rendezvous", "auto", OPAL_INFO_LVL_2,
                    "How messages above btl_regx_eager_limit go to this process: bounce (through "
                    "pre-pinned slots of the pool), pipeline (the buffer registered and written "
                    "in chunks of btl_regx_chunk_size), direct (the whole buffer registered, one "
                    "write), or auto (bounce where both processes map the pool, that is on a "
                    "node; else pipeline). The receiver decides."},
    [BACKEND] = {"backend", "auto", OPAL_INFO_LVL_2,
                 "How registrations stay true while the application unmaps memory: none (register "
                 "and deregister per use) or auto. auto is none, since registering costs nothing "
                 "on the transports that are built."},
    [CHUNK_SIZE] = {"chunk_size", "1M", OPAL_INFO_LVL_4,
                    "Bytes registered and written at once by rendezvous=pipeline: 4K to 2M, a "
                    "multiple of the page size. K, M and G are understood."},
    [CHUNK_DEPTH] = {"chunk_depth", "4", OPAL_INFO_LVL_4,
                     "Chunks of one message in flight at once by rendezvous=pipeline: 1 to 64. A "
                     "message pins at most chunk_depth times chunk_size at each end."},
    [POOL_SIZE] = {"pool_size", "4M", OPAL_INFO_LVL_4,
                   "Bytes of bounce memory of each process, locked as far as the limit of locked "
                   "memory (ulimit -l) allows: two slots of slot_size to 1G. On a node it lies "
                   "in shared memory (/dev/shm)."},
    [SLOT_SIZE] = {"slot_size", "64K", OPAL_INFO_LVL_4,
                   "Bytes of one slot of the pool: 4K to 1M, a multiple of the page size. Also "
                   "bounds the fragments (max_send_size) of non-contiguous messages."},
    [IF_INCLUDE] = {"if_include", NULL, OPAL_INFO_LVL_3,
                    "Network devices to use, comma-separated: names (eth0) or subnets "
                    "(10.1.0.0/16). Not together with if_exclude. Default: the first device that "
                    "is up and is not the loopback."},
    [IF_EXCLUDE] = {"if_exclude", NULL, OPAL_INFO_LVL_3,
                    "Network devices not to use, comma-separated: names or subnets. Not together "
                    "with if_include."},
    [UCT_TLS] = {"uct_tls", NULL, OPAL_INFO_LVL_5,
                 "UCX transports that transport=uct may use, comma-separated: posix, sysv, tcp. "
                 "Default: all; posix before sysv on a node."},
    [REPORT] = {"report", "none", OPAL_INFO_LVL_3,
                "Counters at the end of the job: none, stderr (rank 0 prints a table of its own), "
                "or the name of a file to which each rank appends one line of JSON; %h, %r and %p "
                "in it stand for host, rank and process number. See osu-configs/report."}};

void regx_params_register(const mca_base_component_t *component)
{
    for (int i = 0; i < PARAMETERS; i++) {
        mca_base_component_var_register(component, parameters[i].name, parameters[i].help,
                                        MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, parameters[i].level,
                                        MCA_BASE_VAR_SCOPE_READONLY, &parameters[i].value);
    }
}

static const char *value_of(int parameter)
{
    const char *value = parameters[parameter].value;

    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* A value that Open MPI keeps; NULL if there is none. */
static const void *stored(const char *project, const char *framework, const char *component,
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

bool regx_params_asked(bool *named)
{
    mca_base_var_source_t source;
    const char *const *list = stored("opal", "btl", NULL, NULL, &source);
    const char *enable = value_of(ENABLE);

    *named = list != NULL && *list != NULL && regx_option_listed(*list, "regx");
    if (enable == NULL || strcmp(enable, "auto") == 0) {
        return *named;
    }
    return strcmp(enable, "0") != 0; /* what is neither 0 nor 1 is refused when it is read */
}

static bool refuse(const char *error)
{
    if (regx_compat_speaker()) {
        regx_compat_say(error);
    }
    return false;
}

static bool read_choices(regx_params_t *params)
{
    char error[REGX_OPTION_ERROR];
    const char *enable = value_of(ENABLE);
    const char *transport = value_of(TRANSPORT);
    const char *rendezvous = value_of(RENDEZVOUS);
    const char *backend = value_of(BACKEND);

    if (enable != NULL && !regx_option_listed("auto,0,1", enable)) {
        regx_option_refuse(PREFIX "enable", enable, "auto, 0, 1", error);
        return refuse(error);
    }
    params->transport = "uct";
    if (transport != NULL && !regx_option_listed("auto,uct", transport)) {
        regx_option_refuse(PREFIX "transport", transport, "auto, uct", error);
        return refuse(error);
    }
    params->strategy = regx_strategy_find(rendezvous != NULL ? rendezvous : "auto");
    if (params->strategy == NULL) {
        regx_option_refuse(PREFIX "rendezvous", rendezvous, regx_strategy_names, error);
        return refuse(error);
    }
    params->backend = &regx_backend_none;
    params->backend_reason = "not needed";
    if (backend != NULL && strcmp(backend, "none") == 0) {
        params->backend_reason = "asked for";
    } else if (backend != NULL && strcmp(backend, "auto") != 0) {
        regx_option_refuse(PREFIX "backend", backend, "auto, none", error);
        return refuse(error);
    }
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
            regx_option_refuse(PREFIX "uct_tls", element, "posix, sysv, tcp, comma-separated",
                               error);
            return refuse(error);
        }
        list += length + (list[length] == ',');
    }
    return true;
}

static bool read_number(int parameter, const regx_option_range_t *range, size_t *value)
{
    char name[64], error[REGX_OPTION_ERROR];
    uint64_t number;
    const char *text = value_of(parameter);

    snprintf(name, sizeof(name), PREFIX "%s", parameters[parameter].name);
    if (!regx_option_number(name, text != NULL ? text : "", range, &number, error)) {
        return refuse(error);
    }
    *value = number;
    return true;
}

static bool read_numbers(regx_params_t *params)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const regx_option_range_t chunk = {page, REGX_CHUNK_MAX, page, true};
    const regx_option_range_t depth = {1, REGX_CHUNK_DEPTH_MAX, 1, false};
    const regx_option_range_t slot = {page, 1u << 20, page, true};
    size_t chunk_depth;

    if (!read_number(CHUNK_SIZE, &chunk, &params->chunk_size) ||
        !read_number(CHUNK_DEPTH, &depth, &chunk_depth) ||
        !read_number(SLOT_SIZE, &slot, &params->slot_size)) {
        return false;
    }
    const regx_option_range_t pool = {2 * params->slot_size, 1u << 30, page, true};
    params->chunk_depth = (unsigned)chunk_depth;
    return read_number(POOL_SIZE, &pool, &params->pool_size);
}

/* What Open MPI registers for every BTL keeps its meaning or is refused by name. */
static bool check_inherited(regx_module_t *module)
{
    mca_btl_base_module_t *btl = &module->super;
    const size_t slot = module->params.slot_size;
    const size_t bounded = slot < LARGEST_FRAGMENT ? slot : LARGEST_FRAGMENT;
    const size_t most = bounded > LARGEST_FRAME ? bounded : LARGEST_FRAME;
    mca_base_var_source_t source;
    char error[REGX_OPTION_ERROR];

    stored("opal", "btl", "regx", "eager_limit", &source);
    if (source == MCA_BASE_VAR_SOURCE_DEFAULT && btl->btl_eager_limit > most) {
        btl->btl_eager_limit = most;
    }
    if (btl->btl_eager_limit < 256 || btl->btl_eager_limit > most) {
        snprintf(error, sizeof(error), PREFIX "eager_limit=%zu; allowed: 256 to %zu",
                 btl->btl_eager_limit, most);
        return refuse(error);
    }
    if (btl->btl_rndv_eager_limit > btl->btl_eager_limit) {
        snprintf(error, sizeof(error),
                 PREFIX "rndv_eager_limit=%zu; allowed: 0 to " PREFIX "eager_limit (%zu)",
                 btl->btl_rndv_eager_limit, btl->btl_eager_limit);
        return refuse(error);
    }
    stored("opal", "btl", "regx", "max_send_size", &source);
    if (source == MCA_BASE_VAR_SOURCE_DEFAULT && btl->btl_max_send_size > most) {
        btl->btl_max_send_size = most;
    }
    if (btl->btl_max_send_size < 1024 || btl->btl_max_send_size > most) {
        snprintf(error, sizeof(error), PREFIX "max_send_size=%zu; allowed: 1024 to %zu",
                 btl->btl_max_send_size, most);
        return refuse(error);
    }
    /* Open MPI raises this to the eager limit, and counts the header into the one and not into the
     * other: a message just below the limit would go as a lone fragment. */
    stored("opal", "btl", "regx", "min_rdma_pipeline_size", &source);
    if (source == MCA_BASE_VAR_SOURCE_DEFAULT) {
        btl->btl_min_rdma_pipeline_size = 0;
    }
    stored("opal", "btl", "regx", "put_limit", &source);
    if (source != MCA_BASE_VAR_SOURCE_DEFAULT) {
        snprintf(error, sizeof(error),
                 PREFIX "put_limit=%zu: Open MPI puts each message at once and heeds no limit; "
                        "use " PREFIX "chunk_size",
                 btl->btl_put_limit);
        return refuse(error);
    }
    return true;
}

bool regx_params_read(regx_module_t *module)
{
    regx_params_t *params = &module->params;
    const char *report = value_of(REPORT);

    params->if_include = value_of(IF_INCLUDE);
    params->if_exclude = value_of(IF_EXCLUDE);
    params->uct_tls = value_of(UCT_TLS);
    /* Open MPI frees its values before it finalizes the module that writes the report. */
    params->report[0] = '\0';
    if (report != NULL && strcmp(report, "none") != 0) {
        if (strlen(report) >= sizeof(params->report)) {
            return refuse(PREFIX "report is too long; allowed: 1023 characters");
        }
        strcpy(params->report, report);
    }
    if (params->if_include != NULL && params->if_exclude != NULL) {
        return refuse(PREFIX "if_include and " PREFIX "if_exclude are both given; allowed: one");
    }
    return check_tls(params->uct_tls) && read_choices(params) && read_numbers(params) &&
           check_inherited(module);
}
