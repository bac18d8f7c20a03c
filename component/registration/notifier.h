/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the notifier offers beyond watch.h: to hooks+notifier (both.c), and to tests.
 */
#ifndef REGX_REGISTRATION_NOTIFIER_H
#define REGX_REGISTRATION_NOTIFIER_H

#include "registration/watch.h"

/* As regx_watch_notifier, without its self-test: for both.c, which tests the two together. */
regx_status_t regx_notifier_start(const regx_watch_config_t *config, regx_watch_t **watch,
                                  char *error, size_t error_size);

/* No longer watches that range: its change, which the caller knows of, then waits for no reader.
 * To be called BEFORE the caller logs the change, and that before the change: so a region made
 * meanwhile is either killed by that entry, or its cover() arms the range again. Takes no lock,
 * allocates nothing: may be called inside malloc. */
void regx_notifier_release(regx_watch_t *watch, uintptr_t start, uintptr_t end);

/* Changes that the kernel has told of so far, whether anybody was interested or not. */
uint64_t regx_notifier_events(const regx_watch_t *watch);

/* For tests: where the reader stays until it is told to go on. */
typedef enum {
    REGX_HOLD_NOWHERE,
    REGX_HOLD_BEFORE_READ, /* an event is there, and who made it still waits in the kernel */
    REGX_HOLD_BEFORE_LOG   /* it was read, who made it goes on, and it is not yet in the log */
} regx_hold_t;
void regx_notifier_hold_for_test(regx_watch_t *watch, regx_hold_t where);
/* Whether the reader stands there now. */
bool regx_notifier_held(const regx_watch_t *watch);

#endif
