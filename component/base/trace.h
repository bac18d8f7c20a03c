/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tracing: what was chosen and why, for the user who asks for it. In a job the lines go to Open
 * MPI's verbose stream of the btl framework (--mca btl_base_verbose LEVEL), never to stdout.
 *
 * The level and the writer are in a structure that btl/ owns and hands down by pointer, since each
 * plugin holds its own copy of base's code, which has no state. NULL is a valid trace: off.
 *
 * Not for the path of every eager message. Any thread.
 */
#ifndef REGX_BASE_TRACE_H
#define REGX_BASE_TRACE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The level from which on a line is shown. */
enum {
    REGX_TRACE_CHOICE = 10,     /* at the start: what this process uses, and why */
    REGX_TRACE_CONNECTION = 20, /* each connection, and its end */
    REGX_TRACE_PATH = 40 /* each large message's path; each fallback of one with its reason */
};

typedef struct regx_trace {
    int level; /* lines of this level and below are shown; 0: none */
    /* Shows one line, which has no newline at its end. Never NULL where level is above 0. */
    void (*write)(const char *line);
} regx_trace_t;

/* Whether lines of that level are shown. */
static inline bool regx_traces(const regx_trace_t *trace, int level)
{
    return __builtin_expect(trace != NULL && trace->level >= level, 0);
}

#define REGX_TRACE_LINE 1001

/* Shows one line. */
__attribute__((format(printf, 2, 3))) static inline void regx_trace_line(const regx_trace_t *trace,
                                                                         const char *format, ...)
{
    char line[REGX_TRACE_LINE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    trace->write(line);
}

/* Shows one line if lines of that level are shown: a printf format, and its arguments, which are
 * evaluated only then. A line that is longer than 1000 bytes is cut. */
#define regx_trace(trace, level, ...)                                                              \
    do {                                                                                           \
        if (regx_traces(trace, level)) {                                                           \
            regx_trace_line(trace, __VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)

#endif
