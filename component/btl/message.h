/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Eager messages and fragments, sent: Open MPI's calls, with the contract of each
 * (opal/mca/btl/btl.h). What finds no room waits at its endpoint, and goes in order. Any thread.
 */
#ifndef REGX_BTL_MESSAGE_H
#define REGX_BTL_MESSAGE_H

#include "btl/endpoint.h"
#include "btl/module.h"

mca_btl_base_descriptor_t *regx_alloc(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                                      uint8_t order, size_t size, uint32_t flags);
int regx_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *regx_prepare_src(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                                            struct opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags);
int regx_send(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
              mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);
int regx_sendi(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
               struct opal_convertor_t *convertor, void *header, size_t header_size,
               size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
               mca_btl_base_descriptor_t **descriptor);

/* Sends what waits, endpoint by endpoint; returns how many fragments went. From progress only. */
int regx_send_queued(regx_module_t *module);
/* Takes what waits at this endpoint and reports it as unreachable. From progress only. */
void regx_fail_queued(regx_module_t *module, regx_endpoint_t *endpoint);

#endif
