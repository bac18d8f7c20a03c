/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One line to the user, once.
 */
#ifndef REGX_BTL_SAY_H
#define REGX_BTL_SAY_H

/* A line about what may be wrong on this node alone. It is said once on each node; by the first
 * process of the application as it is, by the others with the name of the host. */
void regx_say_of_node(const char *line);

#endif
