/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The one place where hooks arrive. For the monitors that listen to them: hooks.c,
 * hooks_notifier.c.
 */
#ifndef REGX_REGISTRATION_HOOKS_H
#define REGX_REGISTRATION_HOOKS_H

#include "registration/monitor.h"

/* Whole pages, in the thread that changes them, perhaps inside malloc. */
typedef void (*regx_hooks_listener_t)(void *context, uintptr_t start, uintptr_t end);

/* Installs hooks and tests them; nobody listens yet. To be called once in a process: Open MPI's
 * cannot be installed a second time. REGX_DENIED, also where there is no source; REGX_INVALID: they
 * are deaf; REGX_NO_MEMORY. */
regx_status_t regx_hooks_begin(const regx_hook_source_t *source, char *error, size_t error_size);
/* From now on these reports go there; NULL: nowhere. When it returns, no thread is in the listener
 * that was there before. */
void regx_hooks_listen(regx_hooks_listener_t listener, void *context);
/* Nobody listens any more, and the hooks are removed. */
void regx_hooks_end(const regx_hook_source_t *source);

/* UCX's ucm, where regx was built with its header; else NULL. */
extern const regx_hook_source_t *const regx_hooks_ucm;

#endif
