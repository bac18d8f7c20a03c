/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What tests of the notifier need beyond watch.h: the other thread's window, held open.
 */
#ifndef REGX_REGISTRATION_NOTIFIER_H
#define REGX_REGISTRATION_NOTIFIER_H

#include "registration/watch.h"

/* Where the reader stays, once there is an event, until it is told to go on. */
typedef enum regx_hold {
    REGX_HOLD_NOWHERE,
    REGX_HOLD_BEFORE_READ, /* whoever made the change still waits for us in the kernel */
    REGX_HOLD_BEFORE_LOG   /* whoever made the change goes on; it is not yet in the log */
} regx_hold_t;

/* `watch` is a notifier. */
void regx_notifier_hold_for_test(regx_watch_t *watch, regx_hold_t where);
/* Whether the reader stands there. */
bool regx_notifier_held_for_test(const regx_watch_t *watch);

#endif
