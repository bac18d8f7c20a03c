/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What Open MPI has of memory that is registered with it. It ships the first REGX_CTS_SIZE bytes to
 * peers, by value: of a receive side its CTS, of what a sender exposes all there is, of a window
 * its name.
 */
#ifndef REGX_BTL_HANDLE_H
#define REGX_BTL_HANDLE_H

#include <stdint.h>

#include "onesided/wire.h"
#include "rendezvous/control.h"

struct mca_btl_base_registration_handle_t {
    uint8_t bytes[REGX_CTS_SIZE];
};

_Static_assert(REGX_ONESIDED_NAME_SIZE <= REGX_CTS_SIZE, "a handle has room for a window's name");

#endif
