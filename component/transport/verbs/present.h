/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which RDMA devices the kernel has. Part of the core, and asked without libibverbs, which is
 * loaded only where there is a device.
 */
#ifndef REGX_VERBS_PRESENT_H
#define REGX_VERBS_PRESENT_H

#include <stdbool.h>

/* Whether there is an RDMA device of that name, which may end in ":" and a port's number. */
bool regx_verbs_owns(const char *device);

/* Why there is none that can be used; NULL: there is one. */
const char *regx_verbs_why_absent(void);

#endif
