/* SPDX-License-Identifier: BSD-3-Clause
 *
 * In place of oracle.c where liburing is not there: it cannot be opened, so nothing else is called.
 */
#include "oracle.h"

#include <stdio.h>

oracle_t *oracle_open(unsigned buffers, char *why, size_t why_size)
{
    (void)buffers;
    snprintf(why, why_size, "liburing was not there when regx was configured");
    return NULL;
}

void oracle_close(oracle_t *oracle)
{
    (void)oracle;
}

regx_transport_t *oracle_transport(oracle_t *oracle)
{
    (void)oracle;
    return NULL;
}

void oracle_read(oracle_t *oracle)
{
    (void)oracle;
}

unsigned oracle_registered(const oracle_t *oracle)
{
    (void)oracle;
    return 0;
}

void oracle_send(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length, void *to)
{
    (void)oracle, (void)mr, (void)from, (void)length, (void)to;
}

void oracle_receive(oracle_t *oracle, const regx_mr_t *mr, void *to, size_t length,
                    const void *data)
{
    (void)oracle, (void)mr, (void)to, (void)length, (void)data;
}

size_t oracle_compare(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length)
{
    (void)oracle, (void)mr, (void)from, (void)length;
    return 0;
}

oracle_flight_t *oracle_receive_start(oracle_t *oracle, const regx_mr_t *mr, void *to,
                                      size_t length)
{
    (void)oracle, (void)mr, (void)to, (void)length;
    return NULL;
}

void oracle_receive_end(oracle_flight_t *flight, const void *data)
{
    (void)flight, (void)data;
}

uint64_t oracle_pinned(void)
{
    return 0;
}
