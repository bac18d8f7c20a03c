/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/uct/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log_def.h>

static atomic_int suppressed;

/* Everything that UCX's own level lets through (warnings and errors, unless the user asked for
 * more). One write per message, so that lines of several ranks do not mix. */
static ucs_log_func_rc_t to_stderr(const char *file, unsigned line, const char *function,
                                   ucs_log_level_t level,
                                   const ucs_log_component_config_t *component, const char *format,
                                   va_list arguments)
{
    static const char lead[] = "regx: UCX: ";
    char text[1024];
    size_t length = sizeof(lead) - 1;

    (void)file, (void)line, (void)function, (void)level, (void)component;
    if (atomic_load_explicit(&suppressed, memory_order_relaxed) > 0) {
        return UCS_LOG_FUNC_RC_STOP;
    }
    memcpy(text, lead, sizeof(lead));
    vsnprintf(text + length, sizeof(text) - length - 1, format, arguments);
    for (length = 0; text[length] != '\0'; length++) {
        if (text[length] == '\n') {
            text[length] = ' ';
        }
    }
    text[length] = '\n';
    fwrite(text, 1, length + 1, stderr);
    return UCS_LOG_FUNC_RC_STOP;
}

void regx_uct_log_suppress(bool on)
{
    atomic_fetch_add_explicit(&suppressed, on ? 1 : -1, memory_order_relaxed);
}

void regx_uct_log_to_stderr(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&done)) {
        ucs_log_push_handler(to_stderr);
    }
}
