/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The strategy auto: a path for each receive, counted by reason in `decisions`. The receiver
 * decides for itself, so the two ends of a pair cannot disagree.
 */
#ifndef REGX_RENDEZVOUS_AUTO_H
#define REGX_RENDEZVOUS_AUTO_H

#include "rendezvous/recv.h"

void regx_auto_init(regx_rndv_t *rndv);

/* A candidate's path. */
regx_path_t regx_auto_path(regx_auto_wire_t wire, unsigned candidate);

#endif
