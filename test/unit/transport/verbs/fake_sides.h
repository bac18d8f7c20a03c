/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sides on devices in memory.
 */
#ifndef REGX_TEST_FAKE_SIDES_H
#define REGX_TEST_FAKE_SIDES_H

#include "fake_device.h"
#include "sides.h"

/* Of each test: one device (fake_reset), and sides are opened with the defaults. */
int fake_sides_reset(void **state);

#endif
