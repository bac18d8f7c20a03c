/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomic operations on memory of this process, by its processor: one such operation excludes any
 * other on the same bytes, also the program's own atomic ones. Numbers are of 4 or 8 bytes, and lie
 * at a multiple of their size. Of 4 bytes the lower half of an argument counts, and the upper half
 * of a result is zero.
 *
 * Only operations are here that come out alike for signed and unsigned numbers. Any thread.
 */
#ifndef REGX_ONESIDED_ATOMIC_H
#define REGX_ONESIDED_ATOMIC_H

#include <stddef.h>
#include <stdint.h>

typedef enum regx_atomic_op {
    REGX_ATOMIC_ADD,
    REGX_ATOMIC_AND,
    REGX_ATOMIC_OR,
    REGX_ATOMIC_XOR,
    REGX_ATOMIC_SWAP,
    REGX_ATOMIC_OPS
} regx_atomic_op_t;

/* Does it, and returns what was there before. */
uint64_t regx_atomic_fetch(void *at, regx_atomic_op_t op, size_t size, uint64_t operand);

/* Writes `value` if what is there is `compare`. Returns what was there before. */
uint64_t regx_atomic_compare_swap(void *at, size_t size, uint64_t compare, uint64_t value);

#endif
