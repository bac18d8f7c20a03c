/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REGX_RENDEZVOUS_TOGETHER_H
#define REGX_RENDEZVOUS_TOGETHER_H

#include "rendezvous/proto.h"

extern const regx_protocol_t regx_protocol_together;

#endif
