/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Other BTLs beside regx. One of lower exclusivity carries no message of a peer that regx has, but
 * if it has puts, gets and atomics Open MPI still counts it in, for one-sided communication
 * (bml/r2): it takes the largest of their min_rdma_pipeline_size for the size from which a message
 * goes by rendezvous, and that of 4.1's vader is larger than any message. All would go in
 * fragments.
 */
#ifndef REGX_BTL_OTHER_BTLS_H
#define REGX_BTL_OTHER_BTLS_H

#include "compat/compat.h"

/* Tells the user, once, which other BTL keeps Open MPI from a rendezvous by this one. To be called
 * once all BTLs are open, where this process has a peer on its node. */
void regx_warn_of_other_btls(const mca_btl_base_module_t *btl);

#endif
