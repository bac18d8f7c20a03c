/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/module.h"

#include <assert.h>
#include <stdlib.h>

/* The endpoint of that peer, if there is one already. Open MPI asks once for each peer, so there can be one
 * only if regx has made some unasked; otherwise nothing is searched. */
static regx_endpoint_t *known_locked(regx_module_t *module, uint64_t peer)
{
    return module->endpoints.unasked ? regx_endpoint_find(module, peer) : NULL;
}

static bool is_of_other_job(uint64_t peer)
{
    return peer >> 32 != regx_compat_self() >> 32;
}

regx_endpoint_t *regx_endpoint_new(regx_module_t *module, opal_proc_t *proc)
{
    const uint64_t peer = regx_compat_process(proc);

    regx_lock(&module->lock);
    regx_endpoint_t *other = known_locked(module, peer);
    regx_unlock(&module->lock);
    if (other != NULL) {
        return other;
    }
    regx_endpoint_t *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return NULL;
    }
    endpoint->proc = proc;
    endpoint->peer.id = peer;
    endpoint->apart = is_of_other_job(peer);
    if (!regx_address_connect(module, proc, &endpoint->peer)) {
        free(endpoint);
        return NULL;
    }
    regx_onesided_add(module->onesided, &endpoint->onesided, endpoint->peer.conn);
    /* Progress walks the list without the lock: an endpoint is complete before it can be seen. */
    regx_lock(&module->lock);
    other = known_locked(module, peer);
    if (other != NULL) { /* another thread has added it meanwhile: progress deletes this one */
        regx_endpoint_leave(module, endpoint);
    }
    endpoint->next = module->endpoints.first;
    if (endpoint->next != NULL) {
        endpoint->next->previous = endpoint;
    }
    module->endpoints.first = endpoint;
    module->endpoints.count++;
    module->endpoints.high = (unsigned)regx_max(module->endpoints.high, module->endpoints.count);
    regx_unlock(&module->lock);
    return other != NULL ? other : endpoint;
}

regx_endpoint_t *regx_endpoint_new_unasked(regx_module_t *module, uint64_t peer)
{
    opal_proc_t *proc = regx_compat_proc(peer);

    regx_lock(&module->lock);
    module->endpoints.unasked = true; /* before it connects: another thread may do so, too */
    regx_unlock(&module->lock);
    return proc != NULL ? regx_endpoint_new(module, proc) : NULL;
}

void regx_endpoint_leave(regx_module_t *module, regx_endpoint_t *endpoint)
{
    assert(endpoint->state == REGX_ENDPOINT_OPEN);
    endpoint->state = REGX_ENDPOINT_LEAVING;
    atomic_fetch_add(&module->due.leaving, 1);
}

static void remove_one(regx_module_t *module, regx_endpoint_t *endpoint)
{
    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u: connection over %s ends",
               (unsigned)endpoint->peer.id, module->transport->ops->name);
    regx_rndv_forget(module->rndv, &endpoint->peer);
    regx_onesided_forget(module->onesided, &endpoint->onesided);
    regx_fail_queued(module, endpoint);
    module->transport->ops->disconnect(endpoint->peer.conn);
    assert(!regx_endpoint_is_blocked(endpoint) && endpoint->zcopy_bytes == 0);
    regx_lock(&module->lock);
    assert(module->endpoints.count > 0);
    if (endpoint->previous != NULL) {
        endpoint->previous->next = endpoint->next;
    } else {
        module->endpoints.first = endpoint->next;
    }
    if (endpoint->next != NULL) {
        endpoint->next->previous = endpoint->previous;
    }
    module->endpoints.count--;
    regx_unlock(&module->lock);
    free(endpoint);
}

bool regx_endpoint_has_reader(const regx_endpoint_t *endpoint)
{
    regx_conn_t *conn = endpoint->peer.conn;

    return (regx_endpoint_is_blocked(endpoint) || endpoint->zcopy_bytes > 0) &&
           conn->transport->ops->reachable(conn);
}

void regx_endpoints_delete_leaving(regx_module_t *module)
{
    regx_endpoint_t *endpoint = module->endpoints.first, *next;

    for (; endpoint != NULL; endpoint = next) {
        next = endpoint->next;
        if (endpoint->state == REGX_ENDPOINT_LEAVING && !regx_endpoint_has_reader(endpoint)) {
            remove_one(module, endpoint);
            atomic_fetch_sub(&module->due.leaving, 1);
        }
    }
}

void regx_endpoints_delete_all(regx_module_t *module)
{
    while (module->endpoints.first != NULL) {
        remove_one(module, module->endpoints.first);
    }
}

static regx_endpoint_t *find(const regx_module_t *module, uint64_t peer,
                             regx_endpoint_state_t state)
{
    regx_endpoint_t *endpoint = module->endpoints.first;

    while (endpoint != NULL && (endpoint->peer.id != peer || endpoint->state != state)) {
        endpoint = endpoint->next;
    }
    return endpoint;
}

regx_endpoint_t *regx_endpoint_find(regx_module_t *module, uint64_t peer)
{
    return find(module, peer, REGX_ENDPOINT_OPEN);
}

/* ---- what is lost ---- */

void regx_module_end_job(regx_module_t *module, opal_proc_t *proc)
{
    /* Read once: another thread may end the module. */
    const mca_btl_base_module_error_cb_fn_t error = module->error;

    if (error != NULL) {
        const uintptr_t outer = regx_callback_begin();

        error(&module->super, MCA_BTL_ERROR_FLAGS_FATAL, proc, NULL);
        regx_callback_end(outer);
    }
}

static const char *host_of(const regx_endpoint_t *endpoint)
{
    return endpoint != NULL ? opal_get_proc_hostname(endpoint->proc) : "an unknown host";
}

void regx_module_lost(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                      const char *direction, const char *why)
{
    const regx_transport_ops_t *ops = endpoint->peer.conn->transport->ops;

    /* A transport that looks at lives reports the end of a process, perhaps only after this. */
    if (endpoint->apart &&
        (endpoint->lost || (ops->look != NULL && !ops->reachable(endpoint->peer.conn)))) {
        regx_lost_connection(module, endpoint->peer.id, true, why);
        return;
    }
    regx_compat_output("%zu bytes %s rank %u on %s are lost: %s", size, direction,
                       (unsigned)endpoint->peer.id, host_of(endpoint), why);
    regx_module_end_job(module, NULL);
}

void regx_lost_connection(void *context, uint64_t peer, bool ended, const char *what)
{
    regx_module_t *module = context;
    regx_endpoint_t *endpoint = regx_endpoint_find(module, peer);
    const bool given_up = endpoint == NULL && find(module, peer, REGX_ENDPOINT_LEAVING) != NULL;

    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u: connection lost (%s)%s",
               (unsigned)peer, what, module->error != NULL ? "" : " while the job ends");
    const bool said = endpoint != NULL && endpoint->apart && endpoint->lost;
    if (endpoint != NULL) {
        endpoint->lost = true;
    }
    /* Once the job ends, or Open MPI has disconnected from them, peers may leave before this
     * process. */
    if (module->error == NULL || given_up || said) {
        return;
    }
    regx_compat_output("connection to rank %u%s on %s lost (%s)", (unsigned)peer,
                       is_of_other_job(peer) ? " of another job" : "", host_of(endpoint), what);
    /* The end of another job's process does not end this job. One that lives would be waited for. */
    if (!ended || !is_of_other_job(peer)) {
        regx_module_end_job(module, endpoint != NULL ? endpoint->proc : NULL);
    }
}

void regx_no_answer(void *context, uint64_t peer)
{
    regx_compat_output(
        "rank %u on %s has not answered for ten minutes; still trying. Either it computes "
        "without calling MPI, or the network does not connect the ports that are used "
        "(btl_regx_if_include)",
        (unsigned)peer, host_of(regx_endpoint_find(context, peer)));
}

void regx_lost_data(void *context, const regx_peer_t *peer, const char *what, bool may_be_longer)
{
    regx_module_t *module = context;
    regx_endpoint_t *endpoint = regx_endpoint_find(module, peer->id);

    regx_compat_output("from rank %u on %s: %s", (unsigned)peer->id, host_of(endpoint), what);
    if (!may_be_longer) {
        regx_module_end_job(module, NULL);
    }
}
