/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The protocol of the paths pipeline and direct.
 */
#ifndef REGX_RENDEZVOUS_PUT_H
#define REGX_RENDEZVOUS_PUT_H

#include "rendezvous/proto.h"

extern const regx_protocol_t regx_protocol_put;

#endif
