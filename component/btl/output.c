/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/output.h"

#include <stdio.h>

#include "compat/compat.h"

void regx_output_once_per_node(const char *line)
{
    char with_host[4608]; /* room for a line that names a file */

    if (regx_compat_prints()) {
        regx_compat_output(line);
    } else if (regx_compat_prints_for_node()) {
        snprintf(with_host, sizeof(with_host), "%s, on %s", line, regx_compat_host());
        regx_compat_output(with_host);
    }
}
