/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/lost.h"

#include <stdio.h>

/* At the end of the job Open MPI hears nothing more, and only the line is left. */
static void end_job(regx_module_t *module, regx_endpoint_t *endpoint, const char *line)
{
    regx_compat_output(line);
    if (module->error != NULL) {
        module->error(&module->super, MCA_BTL_ERROR_FLAGS_FATAL,
                      endpoint != NULL ? endpoint->proc : NULL, NULL);
    }
}

static const char *host_of(const regx_endpoint_t *endpoint)
{
    return endpoint != NULL ? opal_get_proc_hostname(endpoint->proc) : "an unknown host";
}

void regx_module_lost(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                      const char *direction, const char *why)
{
    char line[256];

    snprintf(line, sizeof(line), "%zu bytes %s rank %u on %s are lost: %s", size, direction,
             (unsigned)endpoint->peer.id, host_of(endpoint), why);
    end_job(module, endpoint, line);
}

void regx_lost_connection(void *context, uint64_t peer, const char *what)
{
    regx_module_t *module = context;
    regx_endpoint_t *endpoint = regx_endpoint_find(module, peer);
    char line[256];

    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u: connection lost (%s)%s",
               (unsigned)peer, what, module->error != NULL ? "" : " while the job ends");
    if (endpoint != NULL) {
        endpoint->lost = true;
    }
    if (module->error != NULL) { /* once the job ends, peers may leave before this process */
        snprintf(line, sizeof(line), "connection to rank %u on %s lost (%s)", (unsigned)peer,
                 host_of(endpoint), what);
        end_job(module, endpoint, line);
    }
}

void regx_no_answer(void *context, uint64_t peer)
{
    const char *host = host_of(regx_endpoint_find(context, peer));
    char line[384];

    snprintf(line, sizeof(line),
             "rank %u on %s has not answered for ten minutes; still trying. Either it computes "
             "without calling MPI, or the network does not connect the ports that are used "
             "(btl_regx_if_include)",
             (unsigned)peer, host);
    regx_compat_output(line);
}

void regx_lost_data(void *context, const regx_peer_t *peer, const char *what)
{
    regx_module_t *module = context;
    regx_endpoint_t *endpoint = regx_endpoint_find(module, peer->id);
    char line[384];

    snprintf(line, sizeof(line), "from rank %u on %s: %s", (unsigned)peer->id, host_of(endpoint),
             what);
    end_job(module, endpoint, line);
}
