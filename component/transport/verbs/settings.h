/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set of transport=verbs: each field is a parameter btl_regx_verbs_NAME.
 */
#ifndef REGX_VERBS_SETTINGS_H
#define REGX_VERBS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct regx_verbs_settings {
    int gid_index;         /* -1: RoCE v2 before v1, routable before link-local */
    uint16_t pkey;         /* the partition's key; 0: the first of the port's table */
    uint8_t service_level; /* 0 to 15 */
    uint8_t traffic_class;
    uint8_t timeout;     /* until a packet counts as lost: 4.096 us * 2^timeout, 1 to 31 */
    uint8_t retry_count; /* of lost packets, 0 to 7; Soft-RoCE takes 7 for "without end" */
    uint8_t rnr_retry;   /* at a receiver without a free buffer, 0 to 7; 7: without end */
    uint16_t mtu;        /* bytes: 256, 512, 1024, 2048 or 4096; 0: the port's */
    bool any_subnet;     /* peers are also reached in other subnets: the fabric has routers */
    uint32_t srq_depth;  /* receive buffers for all peers, of 8.25 KiB; 0: see verbs.c */
    uint32_t sq_depth;   /* work requests of one peer under way, 8 to 1024; 0: 64 */
} regx_verbs_settings_t;

#define REGX_VERBS_DEFAULTS                                                                        \
    {                                                                                              \
        .gid_index = -1, .timeout = 18, .retry_count = 6, .rnr_retry = 7                           \
    }

#endif
