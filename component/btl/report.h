/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REGX_BTL_REPORT_H
#define REGX_BTL_REPORT_H

#include "btl/component.h"

/* What auto found, as btl_regx_auto_choice takes it, in `text`; "none". The modules are open. */
const char *regx_report_auto_choice(const regx_component_t *component, char text[REGX_AUTO_CHOICE]);

/* Writes the report that the user asked for, if any, while the modules are still open. */
void regx_report(regx_component_t *component);

#endif
