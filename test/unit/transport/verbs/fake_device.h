/* SPDX-License-Identifier: BSD-3-Clause
 *
 * RDMA devices in memory, for tests without hardware. A program that is linked with fake_device.c
 * has these functions in place of libibverbs' own. All its transports share one fabric: reliable
 * and unreliable-datagram queue pairs, shared receive queues, RDMA WRITE and READ.
 *
 * Work is done when any completion queue is polled, never while it is posted. A SEND to a receiver
 * without a buffer waits, as with rnr_retry 7. By a port that is down it fails, as with Soft-RoCE. A
 * queue pair that is driven to error flushes its requests and reports that it takes no more receives.
 * The number of a queue pair that was destroyed is given to the next one, as devices may do.
 */
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>

#define FAKE_DEVICES 40
#define FAKE_PKEYS 3

typedef struct fake_port { /* a device has one port, numbered 1 */
    uint8_t link_layer;    /* IBV_LINK_LAYER_ETHERNET or IBV_LINK_LAYER_INFINIBAND */
    uint8_t port_flags;    /* of ibv_port_attr, such as IBV_QPF_GRH_REQUIRED */
    bool down;
    int open_error; /* of ibv_open_device; 0: none */
    bool without_gid;
    uint16_t lid;
    uint32_t gid_type;
    uint8_t gid[16];
    uint8_t worse[16];  /* another that comes first in the table, if it is not zero */
    uint32_t gid_index; /* of the first in the table */
    bool without_interface, interface_down; /* of `worse` */
    uint16_t pkeys[FAKE_PKEYS];
    uint32_t netmask;        /* of its network device's IPv4 address */
    uint32_t inline_max;     /* bytes that a device grants */
    uint32_t inline_refused; /* asking for more than so many makes ibv_create_qp fail; 0: never */
    uint32_t depth;          /* requests of a queue pair; 0: 4096 */
    uint32_t message_max;    /* bytes of one request; 0: 2 GiB */
    bool message_untold;     /* the port tells 0 of it */
    unsigned reliable_max;   /* RC queue pairs that it has at once; 0: any number */
    unsigned reliable;       /* that there are */
    bool drops_receives;     /* when a queue pair is destroyed, as mlx5 does */
    int srq_error;           /* of ibv_create_srq; 0: none. Then none may hold any receives */
    struct {
        enum ibv_wc_status received, datagram_received, datagram_sent; /* of what completes */
        int receive_post, datagram_receive_post, datagram_post;        /* errors of posting */
        int making;                                                    /* an RC queue pair */
        bool poll;
        bool flushes;     /* every failure is reported as what comes behind one, as by Soft-RoCE */
        unsigned stalled; /* polls in which RC requests do not move */
    } faults;
    unsigned refused;                         /* queue pairs, by `making` */
    struct ibv_ah_attr route, datagram_route; /* that were given last */
    uint16_t datagram_pkey_index;
    uint32_t vendor; /* 0xffffff: Soft-RoCE, where the kernel is asked to post */
} fake_port_t;

typedef struct fake {
    fake_port_t ports[FAKE_DEVICES];
    int count;
    struct ibv_qp_attr begins, receives,
        sends;           /* what the last RC queue pair was told on its way */
    unsigned datagrams;  /* sent on the UD queue pairs */
    uint8_t undefined;   /* what their room has before an IPv4 header */
    bool drop_datagrams; /* all of them are lost */
    uint32_t lose,
        twice;          /* of the datagrams, by number: bit n%32 means that n is lost, or doubled */
    int register_error; /* of ibv_reg_mr; 0: none */
    bool relaxed_only;  /* keys without relaxed ordering are refused */
    unsigned strict, relaxed;          /* keys that were given */
    int route_error;                   /* of ibv_create_ah; 0: none */
    int connect_error;                 /* of ibv_modify_qp, where it needs a route; 0: none */
    unsigned routes;                   /* that were asked for while there was one of these errors */
    _Atomic unsigned strays;           /* uses of a descriptor that is not the device's any more */
    unsigned routes_made, routes_left; /* of datagrams; and those that are not given back */
} fake_t;

extern fake_t fake;

/* One RoCE v2 port fake0:1 at 10.77.0.1, with inline data of up to 1 KiB. */
void fake_reset(void);
/* Adds a port like the first, at 10.77.<network>.<host>; returns it. */
fake_port_t *fake_add(uint8_t network, uint8_t host);
/* Makes it one of InfiniBand, with that subnet prefix. */
void fake_make_infiniband(fake_port_t *port, uint8_t subnet);
/* Receives that a shared receive queue holds now. */
uint32_t fake_srq_length(const struct ibv_srq *srq);
