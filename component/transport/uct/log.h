/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Keeping UCX off stdout, which belongs to the application.
 */
#ifndef REGX_TRANSPORT_UCT_LOG_H
#define REGX_TRANSPORT_UCT_LOG_H

#include <stdbool.h>

/* From now on what UCX logs goes to stderr, one line each, led by "regx: UCX: ". Call it before
 * anything else of UCX; further calls do nothing. Any thread. */
void regx_uct_log_to_stderr(void);

/* Around a call that may be refused and is then done another way, and counted: UCX would complain
 * from every process. Calls nest. Any thread. */
void regx_uct_log_suppress(bool on);

#endif
