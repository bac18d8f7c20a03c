/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/atomic.h"

#include <assert.h>
#include <stdbool.h>

static uint64_t fetch_8(uint64_t *at, regx_atomic_op_t op, uint64_t operand)
{
    switch (op) {
    case REGX_ATOMIC_ADD:
        return __atomic_fetch_add(at, operand, __ATOMIC_SEQ_CST);
    case REGX_ATOMIC_AND:
        return __atomic_fetch_and(at, operand, __ATOMIC_SEQ_CST);
    case REGX_ATOMIC_OR:
        return __atomic_fetch_or(at, operand, __ATOMIC_SEQ_CST);
    case REGX_ATOMIC_XOR:
        return __atomic_fetch_xor(at, operand, __ATOMIC_SEQ_CST);
    default:
        assert(op == REGX_ATOMIC_SWAP);
        return __atomic_exchange_n(at, operand, __ATOMIC_SEQ_CST);
    }
}

static uint32_t fetch_4(uint32_t *at, regx_atomic_op_t op, uint32_t operand)
{
    switch (op) {
    case REGX_ATOMIC_ADD:
        return __atomic_fetch_add(at, operand, __ATOMIC_SEQ_CST);
    case REGX_ATOMIC_AND:
        return __atomic_fetch_and(at, operand, __ATOMIC_SEQ_CST);
    case REGX_ATOMIC_OR:
        return __atomic_fetch_or(at, operand, __ATOMIC_SEQ_CST);
    case REGX_ATOMIC_XOR:
        return __atomic_fetch_xor(at, operand, __ATOMIC_SEQ_CST);
    default:
        assert(op == REGX_ATOMIC_SWAP);
        return __atomic_exchange_n(at, operand, __ATOMIC_SEQ_CST);
    }
}

uint64_t regx_atomic_fetch(void *at, regx_atomic_op_t op, size_t size, uint64_t operand)
{
    assert((uintptr_t)at % size == 0);
    return size == sizeof(uint64_t) ? fetch_8(at, op, operand) : fetch_4(at, op, (uint32_t)operand);
}

uint64_t regx_atomic_compare_swap(void *at, size_t size, uint64_t compare, uint64_t value)
{
    assert((uintptr_t)at % size == 0);
    if (size == sizeof(uint64_t)) {
        uint64_t seen = compare;

        __atomic_compare_exchange_n((uint64_t *)at, &seen, value, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
        return seen;
    }
    uint32_t seen = (uint32_t)compare;

    __atomic_compare_exchange_n((uint32_t *)at, &seen, (uint32_t)value, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return seen;
}
