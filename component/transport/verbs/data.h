/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What callers send, write and read: operations of transport.h (frame.c, put.c, get.c, fetch.c),
 * and the lines of puts and gets.
 */
#ifndef REGX_VERBS_DATA_H
#define REGX_VERBS_DATA_H

#include "transport/verbs/ep.h"

regx_status_t regx_verbs_send(regx_conn_t *conn, uint8_t tag, const void *header,
                              size_t header_length, regx_pack_t pack, void *pack_context,
                              size_t payload_length);
regx_status_t regx_verbs_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy);
regx_status_t regx_verbs_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_verbs_accepts(regx_conn_t *conn, bool puts);
regx_status_t regx_verbs_get(regx_conn_t *conn, regx_get_t *get);
regx_status_t regx_verbs_fetch(regx_conn_t *conn, regx_fetch_t *fetch);

/* Post what is in line, as far as there is room; of puts a bounded amount. The endpoint is ready.
 */
void regx_put_take_turn(regx_ep_t *ep);
void regx_get_take_turn(regx_ep_t *ep);
/* Whether the first put in line is silent, and a part of it was posted. */
bool regx_put_is_in_part(const regx_ep_t *ep);

#endif
