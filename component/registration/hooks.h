/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The one place where hooks arrive. For the watches that listen to them: hooks.c, both.c.
 */
#ifndef REGX_REGISTRATION_HOOKS_H
#define REGX_REGISTRATION_HOOKS_H

#include "registration/watch.h"

/* Whole pages, in the thread that changes them, perhaps inside malloc. */
typedef void (*regx_hooks_listener_t)(void *context, uintptr_t start, uintptr_t end);

/* One listener at a time. Answers as the source's install; REGX_DENIED too where there is no
 * source. */
regx_status_t regx_hooks_begin(const regx_hook_source_t *source, regx_hooks_listener_t listener,
                               void *context, char *error, size_t error_size);
/* When it returns, no thread is in the listener, and none will be. */
void regx_hooks_end(const regx_hook_source_t *source);

/* UCX's ucm, where regx was built with its header (hooks_ucm.c); else NULL. */
extern const regx_hook_source_t *const regx_hooks_ucm;

#endif
