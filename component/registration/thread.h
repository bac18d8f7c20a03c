/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How threads of our own sleep and are woken.
 */
#ifndef REGX_REGISTRATION_THREAD_H
#define REGX_REGISTRATION_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/thread.h"

/* Sleeps while the word has that value, up to so many milliseconds (0: without end); may also
 * return for no reason. Both are single system calls: no lock, no allocation. */
void regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
/* Wakes all that sleep there. Anybody, also within malloc or a hook. */
void regx_thread_wake(_Atomic uint32_t *word);

#endif
