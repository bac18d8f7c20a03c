/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One step of everything, as described in transport.h.
 */
#ifndef REGX_VERBS_PROGRESS_H
#define REGX_VERBS_PROGRESS_H

#include "transport/verbs/verbs.h"

int regx_verbs_progress(regx_transport_t *transport);

#endif
