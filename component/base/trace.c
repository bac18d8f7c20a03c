/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/trace.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE 1001

void regx_trace(const regx_trace_t *trace, int level, const char *format, ...)
{
    char line[LINE];
    va_list arguments;

    if (regx_traces(trace, level)) {
        va_start(arguments, format);
        vsnprintf(line, sizeof(line), format, arguments);
        va_end(arguments);
        trace->write(line);
    }
}
