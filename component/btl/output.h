/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Warnings to the user, each printed once.
 */
#ifndef REGX_BTL_OUTPUT_H
#define REGX_BTL_OUTPUT_H

/* Prints a warning about a problem that may exist on this node only. It appears once per node: the
 * first process of the application prints it unchanged, the first process of every other node adds
 * the host name. */
void regx_output_once_per_node(const char *line);

#endif
