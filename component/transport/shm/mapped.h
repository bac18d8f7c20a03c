/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is mapped at an address. UCX maps a neighbour's segment by a key of the neighbour's, and says
 * where a neighbour's address is then by adding a difference. So it has to be checked that memory like a
 * segment's is there. Which segment is not known: the neighbour could as well have given the key of
 * another.
 */
#ifndef REGX_TRANSPORT_MAPPED_H
#define REGX_TRANSPORT_MAPPED_H

#include <stdbool.h>
#include <stddef.h>

/* Whether [base, base + length) begins on a page, is a whole mapping of a file that is open for reading
 * and writing, or lies inside one mapping of shared memory that may be read and written, and is there to
 * its last byte: the file may be shorter than its mapping. It cannot be known that it stays so. Any thread; two system calls, or as many as /proc/self/maps is long. */
bool regx_mapped_shared(const void *base, size_t length);

#endif
