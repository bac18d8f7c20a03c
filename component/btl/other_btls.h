/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Other BTLs beside regx. To one of higher exclusivity regx leaves the peers that both reach. But
 * if regx had puts, gets and atomics, Open MPI would still count it in and call its progress first;
 * and osc/rdma might take it for windows. So it then offers no atomics.
 *
 * One of lower exclusivity carries no message of a peer that regx has, but
 * if it has puts, gets and atomics Open MPI still counts it in, for one-sided communication
 * (bml/r2): it takes the largest of their min_rdma_pipeline_size for the size from which a message
 * goes by rendezvous, and that of 4.1's vader is larger than any message. All would go in
 * fragments.
 */
#ifndef REGX_BTL_OTHER_BTLS_H
#define REGX_BTL_OTHER_BTLS_H

#include <stdbool.h>

#include "compat/compat.h"

/* Whether regx is to have windows: no BTL of the job but self has a higher exclusivity, and
 * osc/rdma would use it; or the user has set btl_regx_flags, which then say all that there is. The
 * BTLs of a job need not be the same on all its nodes (vader is not used by a process that is alone
 * on its node), but the answer has to be: so those count that may be used, with what the parameters
 * say of them. To be called when the component is opened: later, Open MPI has dropped some. */
bool regx_may_have_windows(const mca_btl_base_module_t *btl);

/* Whether the job has a BTL beside this that may lead to a process of this node, or of another. */
bool regx_other_btl_leads(bool same_node);

/* Warns the user, once, which other BTL keeps Open MPI from a rendezvous by this one. To be called
 * once all BTLs are open, where this process has a peer on its node. */
void regx_warn_of_other_btls(const mca_btl_base_module_t *btl);

#endif
