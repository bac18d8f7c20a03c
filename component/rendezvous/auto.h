/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef REGX_RENDEZVOUS_AUTO_H
#define REGX_RENDEZVOUS_AUTO_H

#include "rendezvous/recv.h"

/* The strategy auto: a path for each receive, counted by reason in `decisions`. */
regx_path_t regx_auto_choose(regx_rndv_t *rndv, regx_rndv_recv_t *recv);

#endif
