/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Verbs conforms to transport.h.
 */
#include "conforms.h"

#include <stddef.h>

int main(void)
{
    return conforms("verbs", NULL);
}
