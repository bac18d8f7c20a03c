/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory for a file that is to be mapped.
 */
#ifndef REGX_TRANSPORT_RESERVE_H
#define REGX_TRANSPORT_RESERVE_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the file so long, with all its pages: later nobody who touches them is ended by
 * SIGBUS for lack of memory. The kernel clears a page when it is first touched. false: there is not so
 * much. Any thread. */
bool regx_reserve(int file, size_t length);

#endif
