/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: the calls of Open MPI's osc/rdma, which puts to, gets from and changes memory that its
 * peers have registered. Any thread.
 *
 * It may call from inside a completion, and there also waits for other operations by calling
 * progress: completions are called after progress has been left.
 */
#ifndef REGX_BTL_ONESIDED_H
#define REGX_BTL_ONESIDED_H

#include "btl/call.h"
#include "btl/endpoint.h"
#include "btl/module.h"

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
