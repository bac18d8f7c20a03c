/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between hosts: sockets, without waiting, and without a thread but one that sleeps
 * while the process uses another transport (tcp_watch.h). Its operations are described in
 * transport.h.
 *
 * tcp has no memory that a device could protect, so a put is data in pieces, each led by the peer's
 * key (or "the pool") and an offset; the receiver checks them against its rkey table and has the
 * kernel write them there. The last piece carries the notice, which is delivered only if that piece
 * was good. A key that was taken back is never valid again, so the earlier pieces were good too.
 * What is malformed is counted, dropped, and writes nothing.
 *
 * Order: a put takes its place in the line when it is accepted. Until its last piece has been
 * handed on, send, send_zcopy and put to the same peer answer REGX_AGAIN (a put may queue up).
 * zcopy copies: it answers REGX_OK, never REGX_PENDING. put never answers REGX_DENIED. There is no
 * get.
 *
 * Threads: the sockets are used by one thread at a time. A call that finds another thread inside
 * answers REGX_AGAIN instead of waiting, so that no lock of the caller's can close a circle; a call
 * from inside deliver or done goes through. Only disconnect waits for the thread that is inside:
 * call it without a lock that deliver, broken or done take, and not from them.
 *
 * Trusted: that a peer is who it says when it connects. To be let in it has to know what this
 * process published for its peers.
 *
 * The event `broken` reports a peer that something was sent to, when its connection ends, unless it
 * may simply have left: disconnecting sends goodbye. A peer that never sent anything cannot send
 * it; its end is reported when something is sent to it. A peer that was never sent to goes
 * unnoticed.
 *
 * The device is, of those that are up, the first that if_include names, or the first that
 * if_exclude does not name: before others one that is not the loopback and has an IPv4 address.
 * Both are comma-separated lists of names and IPv4 subnets (a.b.c.d/n), as btl_tcp has them; only
 * one of them may be given. Of a device that a subnet includes, the address in that subnet is used;
 * of any other the first, which is IPv6 if the device has no IPv4 address.
 *
 * Frames keep their order as long as a connection lasts. Who disconnects and connects again may be
 * heard by the new connection before the last of the old one has been read.
 *
 * Closing waits until the kernel has taken what was accepted, or the connection has broken. A peer
 * that goes on sending afterwards may make the kernel throw away what it has not delivered.
 *
 * Where there is no descriptor left, or no memory in the kernel, a peer that connects, or what is
 * sent to one, waits until there is. Of those that connect and send nothing for 10 s, 64 are kept,
 * and none where there is no descriptor left. A peer that closes a connection instead of letting it
 * in, or does not accept it for two minutes, is tried again a few times, then it is lost. After ten
 * minutes without an answer the event `silent` reports it. After twenty, in which this process had
 * no descriptor for a peer that waits to be accepted, the connection is lost: that peer may be the
 * one that does not answer.
 */
#ifndef REGX_TRANSPORT_TCP_H
#define REGX_TRANSPORT_TCP_H

#include "transport/transport.h"

extern const regx_transport_ops_t regx_tcp_ops;

#endif
