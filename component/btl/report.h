/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REGX_BTL_REPORT_H
#define REGX_BTL_REPORT_H

#include "btl/component.h"

/* Writes the report that the user asked for, if any, while the modules are still open. */
void regx_report(regx_component_t *component);

#endif
