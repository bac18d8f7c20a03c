/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The checksum by which both ends of a transfer compare what was sent with what arrived
 * (btl_regx_verify): XXH64 with seed 0, the same number on any machine. Against stale, torn and
 * misplaced bytes, not against a forger.
 */
#ifndef REGX_RENDEZVOUS_CHECKSUM_H
#define REGX_RENDEZVOUS_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t regx_checksum(const void *data, size_t length);

#endif
