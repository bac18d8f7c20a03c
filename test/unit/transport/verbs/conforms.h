/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The conformance suite over verbs.
 */
#ifndef REGX_TEST_CONFORMS_H
#define REGX_TEST_CONFORMS_H

/* `reset`: before each case; or NULL. Returns what main is to return. */
int conforms(const char *name, void (*reset)(void));

#endif
