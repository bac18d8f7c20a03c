/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions on demand: see transport.h, whose on_demand and prefetch these are.
 */
#ifndef REGX_VERBS_ON_DEMAND_H
#define REGX_VERBS_ON_DEMAND_H

#include "transport/verbs/verbs.h"

regx_status_t regx_verbs_on_demand(regx_transport_t *transport, char *error, size_t error_size);
regx_status_t regx_verbs_prefetch(regx_transport_t *transport, const regx_mr_t *mr,
                                  const void *base, size_t length);
/* As ibv_reg_mr. May return the implicit region, which stays. */
struct ibv_mr *regx_on_demand_reg(regx_verbs_t *verbs, void *base, size_t length, int flags);
void regx_on_demand_close(regx_verbs_t *verbs);

#endif
