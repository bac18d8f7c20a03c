/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Large messages: Open MPI's calls of its put and get protocols (rdma.c says how they become a
 * rendezvous). Any thread.
 */
#ifndef REGX_BTL_RDMA_H
#define REGX_BTL_RDMA_H

#include "btl/module.h"
#include "onesided/wire.h"
#include "rendezvous/control.h"

mca_btl_base_registration_handle_t *regx_register_mem(mca_btl_base_module_t *btl,
                                                      regx_endpoint_t *endpoint, void *base,
                                                      size_t size, uint32_t flags);
int regx_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle);
int regx_put(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint, void *local_address,
             uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
             mca_btl_base_rdma_completion_fn_t callback, void *context, void *data);
int regx_get(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint, void *local_address,
             uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
             mca_btl_base_rdma_completion_fn_t callback, void *context, void *data);

/* Frees what is kept for large messages to come. */
void regx_rdma_records_free(regx_module_t *module);

/* What Open MPI has of memory that is registered with it. It ships the first REGX_CTS_SIZE bytes to
 * peers, by value: of a receive side its CTS, of what a sender exposes all there is, of a window
 * its name.
 */
struct mca_btl_base_registration_handle_t {
    uint8_t bytes[REGX_CTS_SIZE];
};

_Static_assert(REGX_ONESIDED_NAME_SIZE <= REGX_CTS_SIZE, "a handle has room for a window's name");

/* A put, a get or an atomic operation requested by Open MPI, with its completion callback. */
typedef struct regx_call {
    mca_btl_base_module_t *btl;
    regx_endpoint_t *endpoint; /* NULL: some of this process's own memory (osc/rdma) */
    void *local_address;
    size_t size; /* bytes; 0: an atomic operation */
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t callback;
    void *context, *data;
} regx_call_t;

/* Calls Open MPI's completion callback. To be called exactly once. */
static inline void regx_call_complete(const regx_call_t *call, int status)
{
    call->callback(call->btl, call->endpoint, call->local_address, call->local_handle,
                   call->context, call->data, status);
}

/* ---- window.c ---- */

/* Windows: the calls of Open MPI's osc/rdma, which puts to, gets from and changes memory that its
 * peers have registered. Any thread.
 *
 * It may call from inside a completion, and there also waits for other operations by calling
 * progress: completions are called after progress has been left.
 */

/* Says in a module's face what it does for windows, and puts its atomic operations there; or that
 * it does nothing, if it may not. Once per module, after the parameters. */
void regx_onesided_declare(mca_btl_base_module_t *face, bool may);

/* Memory that all peers may reach. NULL: no memory, or too many windows. */
mca_btl_base_registration_handle_t *regx_window_register(regx_module_t *module, void *base,
                                                         size_t size);
void regx_window_deregister(regx_module_t *module, mca_btl_base_registration_handle_t *handle);

/* Whether a put or get is of a window, and not ob1's. NULL: osc/rdma's, of this process's
 * memory. */
bool regx_is_of_window(const mca_btl_base_registration_handle_t *remote_handle);

/* As btl.h has them. OPAL_SUCCESS: the callback tells the end, and may have been called already;
 * OPAL_ERR_OUT_OF_RESOURCE: try again. */
int regx_window_put(const regx_call_t *call, uint64_t remote_address,
                    const mca_btl_base_registration_handle_t *remote_handle);
int regx_window_get(const regx_call_t *call, uint64_t remote_address,
                    const mca_btl_base_registration_handle_t *remote_handle);

#endif
