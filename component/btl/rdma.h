/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Large messages: Open MPI's calls of its put and get protocols (rdma.c says how they become a
 * rendezvous).
 * Any thread.
 */
#ifndef REGX_BTL_RDMA_H
#define REGX_BTL_RDMA_H

#include "btl/endpoint.h"
#include "btl/module.h"

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

#endif
