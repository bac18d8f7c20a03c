/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that the program itself brings in. A system call that copies fails with EFAULT where a load
 * or store of the program would succeed after a detour: a collector or pager protects pages and opens
 * them in its handler of SIGSEGV or SIGBUS, or fills them by userfaultfd, whose faults in user mode
 * alone it may have asked for. Where the kernel's copy is refused, these functions say whether the
 * processor's may be made in its place. Where it may not, the process would be ended by a signal.
 *
 * Handlers that only report a crash do not count: Open MPI's, UCX's, Fortran's, Python's and the
 * sanitizers'.
 *
 * Any thread, holding no lock that the program's handler, or a library that is being loaded, could
 * want. What reads /proc is for what was refused, not for each message.
 */
#ifndef REGX_BASE_FAULT_H
#define REGX_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/* Notes which handlers only report: those of libraries that are loaded now. Takes the loader's lock, so it is
 * called while MPI starts, before anything is asked; no message may wait for that lock, which is held while a
 * library's constructor runs, perhaps in MPI_Recv. */
void regx_fault_note_reporters(void);

/* Whether the program has a handler of that signal, SIGSEGV or SIGBUS, that does not only report: some
 * of its memory may have to be brought in, though a page that a device or a peer reaches seems to be
 * there. A system call, whatever the handler. */
bool regx_fault_has_handler(int signal);
/* The same for an access by this thread: nor is the signal blocked. */
bool regx_fault_is_handled(int signal);

/* Whether a load of the byte at `address`, or a store to it, is made good by the program if the
 * kernel has refused to copy it. `length`: bytes that are to be copied from there on; lowered to
 * those for which the answer holds, which are one at least. Where /proc cannot be read the answer is also
 * true behind a file's end and of a guard page: a process that handles neither then ends. */
bool regx_fault_may_touch(const void *address, bool stores, size_t *length);

/* Has the kernel bring in the pages of these bytes (at least one) as loads or stores would. Returns 0, or
 * the error (of Linux before 5.14: EINVAL). */
int regx_fault_bring_in(const void *base, size_t length, bool stores);

/* Whether a store to the last byte before `end` finds memory there, or the program brings it in. Changes no
 * byte: where the program has sender and receiver share the buffer, what is stored there would be sent. A
 * system call. true if the kernel does not tell (before Linux 5.14). */
bool regx_fault_has_end(const char *end);

/* Why a system call cannot load from the range, or store to it, as far as its mappings tell: "not
 * mapped", "not readable", "not writable"; NULL: they allow it, or /proc cannot be read. */
const char *regx_fault_lacks(const void *base, size_t length, bool stores);

#endif
