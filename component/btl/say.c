/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/say.h"

#include <stdio.h>

#include "compat/compat.h"

void regx_say_of_node(const char *line)
{
    char with_host[4608]; /* room for a line that names a file */

    if (regx_compat_speaker()) {
        regx_compat_say(line);
    } else if (regx_compat_node_speaker()) {
        snprintf(with_host, sizeof(with_host), "%s, on %s", line, regx_compat_host());
        regx_compat_say(with_host);
    }
}
