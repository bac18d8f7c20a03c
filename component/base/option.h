/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading what a user wrote as the value of a parameter. Open MPI's own integers read "4Q" as 4;
 * here a value is right as a whole or refused, and the refusal says what is allowed.
 */
#ifndef REGX_BASE_OPTION_H
#define REGX_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGX_OPTION_ERROR 256 /* room for a refusal */

typedef struct regx_option_range {
    uint64_t min, max;
    uint64_t step;     /* the value is a multiple of this */
    bool size;         /* in bytes, with K, M or G; else a plain number */
    bool hexadecimal;  /* may be written as 0x1f, and the refusal shows the range so */
    const char *words; /* what else is allowed, for the refusal; NULL: nothing */
} regx_option_range_t;

/* Reads a number, or a size in bytes. false: `error` holds one line, "name=text is ...; allowed:
 * ...". */
bool regx_option_number(const char *name, const char *text, const regx_option_range_t *range,
                        uint64_t *value, char error[REGX_OPTION_ERROR]);

/* Writes bytes as a person would: 65536 as 64K, 65537 as it is. */
void regx_option_show_size(uint64_t bytes, char *text, size_t length);

/* The line for a value that is none of those allowed (comma-separated). */
void regx_option_refuse(const char *name, const char *text, const char *allowed,
                        char error[REGX_OPTION_ERROR]);

/* Whether a comma-separated list has this element. */
bool regx_option_listed(const char *list, const char *element);

#endif
