/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the device reports apart from completions.
 */
#ifndef REGX_VERBS_EVENTS_H
#define REGX_VERBS_EVENTS_H

#include "transport/verbs/verbs.h"

/* Heeds what was reported, a bounded amount. A system call, which does not block. */
void regx_verbs_look(regx_verbs_t *verbs);

#endif
