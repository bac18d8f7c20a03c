/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The oracle: a transport whose memory domain registers with io_uring. Such a registration is what
 * one with a network adapter is: the pages behind the addresses are pinned for long
 * (FOLL_LONGTERM), and the "device" reads and writes those pages, whatever the addresses have come
 * to mean since. So a registration that went stale is seen to be: what is sent are old bytes, what
 * is received does not arrive. No adapter and no privilege is needed.
 *
 * Of the transport's operations there are reg and dereg only; transfers are this header's. Any
 * thread may call. What should not happen ends the process with a line on stderr.
 * After fork the child may not use it.
 */
#ifndef REGX_TEST_ORACLE_H
#define REGX_TEST_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

enum { ORACLE_BUFFERS_PER_RING = 16384 }; /* the kernel's limit */
#define ORACLE_LARGEST ((size_t)1 << 30)  /* bytes of one registration, the kernel's limit */

typedef struct oracle oracle_t;

/* With room for that many registrations at once; the next one answers REGX_NO_MEMORY. NULL: there
 * is no io_uring here, and `why` says so in a line. */
oracle_t *oracle_open(unsigned buffers, char *why, size_t why_size);
/* Every registration must be gone. */
void oracle_close(oracle_t *oracle);

/* For a registry. REGX_NO_MEMORY: table full or over the limit of locked memory; REGX_DENIED:
 * memory that cannot be registered. */
regx_transport_t *oracle_transport(oracle_t *oracle);

unsigned oracle_registered(const oracle_t *oracle);    /* now */
uint64_t oracle_registrations(const oracle_t *oracle); /* ever */

/* The `nth` registration from now (1: the next), and that one alone, answers `status`. */
void oracle_refuse(oracle_t *oracle, unsigned nth, regx_status_t status);

/* Copies to `to` what the device sends for the `length` bytes from address `from` on, which the
 * registration covers. */
void oracle_send(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length, void *to);
/* The device receives `data` for the `length` bytes from address `to` on. */
void oracle_receive(oracle_t *oracle, const regx_mr_t *mr, void *to, size_t length,
                    const void *data);
/* As oracle_send, compared at once with what the application has there: the number of bytes that
 * are the same before the first that differs. */
size_t oracle_compare(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length);

/* A receive that is under way: the device holds the pages until it ends. At most 64 KiB. */
typedef struct oracle_flight oracle_flight_t;
oracle_flight_t *oracle_receive_start(oracle_t *oracle, const regx_mr_t *mr, void *to,
                                      size_t length);
void oracle_receive_end(oracle_flight_t *flight, const void *data);

/* Bytes that this process has pinned by any means, as the kernel counts them. */
uint64_t oracle_pinned(void);

#endif
