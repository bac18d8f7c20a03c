/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier's reader, held where an event has come: the window between a change and its entry in
 * the log, kept open. For programs that are linked with
 * --wrap=regx_uffd_wait,--wrap=regx_uffd_read.
 */
#pragma once

#include <stdbool.h>

/* Where the reader stays, once there is an event, until it is told to go on. */
typedef enum hold {
    HOLD_NOWHERE,
    HOLD_BEFORE_READ, /* the thread that made the change still waits in the kernel */
    HOLD_BEFORE_LOG   /* that thread goes on; the change is not yet in the log */
} hold_t;

void hold_reader(hold_t where);
/* Whether the reader stands there. */
bool hold_is_held(void);
