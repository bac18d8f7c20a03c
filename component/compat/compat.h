/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What differs between the versions of Open MPI, behind one set of names. Each version has a file
 * beside this header; configure takes the one it builds for. Only btl/ uses it.
 */
#ifndef REGX_COMPAT_COMPAT_H
#define REGX_COMPAT_COMPAT_H

#include "opal_config.h"

#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"
#include "opal/util/proc.h"

#include "registration/monitor/monitor.h"

/* Without threads: an address in the frame that calls Open MPI from inside progress; 0: none does. */
extern __attribute__((visibility("hidden"))) atomic_uintptr_t regx_compat_calling;

/* Calls who listens to `tag` with a frame that arrived; the data is valid during the call. `from`
 * is only needed where regx_compat_answers says so. (Nobody reads `sender`: with it the other arguments
 * stay in the registers in which the transport passed them.) */
void regx_compat_receive(mca_btl_base_module_t *btl, uint64_t sender, mca_btl_base_tag_t tag,
                         const void *data, size_t length);
void regx_compat_receive_from(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *from,
                              mca_btl_base_tag_t tag, const void *data, size_t length);

/* Whether a tag below MCA_BTL_TAG_PML is Open MPI's own for all BTLs, and who listens to it may
 * answer to the endpoint that a frame came from; others are of one BTL. */
bool regx_compat_answers(mca_btl_base_tag_t tag);

/* Publishes bytes for all processes that may ever connect; fetches those of one. Both answer an
 * OPAL error code; the fetched bytes are freed by the caller. Of a process that publishes nothing
 * the answer may take a second or two, or a minute where MPI_Init has not yet waited for all. */
int regx_compat_publish(const mca_base_component_t *component, const void *bytes, size_t length);
int regx_compat_fetch(const mca_base_component_t *component, opal_proc_t *proc, void **bytes,
                      size_t *length);

/* The number of a process, unique among all that can be connected. */
uint64_t regx_compat_process(const opal_proc_t *proc);
uint64_t regx_compat_self(void);
/* That process. NULL: Open MPI does not know it. */
opal_proc_t *regx_compat_proc(uint64_t process);
uint32_t regx_compat_rank(void); /* in its job */

bool regx_compat_same_node(const opal_proc_t *proc); /* as Open MPI knows it */
const char *regx_compat_host(void);

/* Whether a BTL with puts, gets and atomic operations can have windows (osc/rdma). */
extern const bool regx_compat_windows;

/* Processes of this job on this node, this one counted; and of this job in all, 0 if Open MPI does
 * not know. */
uint32_t regx_compat_local_processes(void);
uint32_t regx_compat_processes(void);

/* The PML that was selected; "" if none was, or none can be seen from here. */
const char *regx_compat_pml(void);
/* Whether mpirun was told that it is to be ob1; before it is selected, too. */
bool regx_compat_takes_ob1(void);

/* Whether this process prints warnings for its application. One process per application of the
 * mpirun line does, so that a mistake on the command line is reported once. */
bool regx_compat_prints(void);

/* Whether this process has to print a line that other processes may also have to print. false: the
 * process that prints for the application, or the first of this node or job, prints the same one. Only
 * before addresses are exchanged. May wait for those processes. The caller must publish something for
 * `component` in any case, since other processes wait for it. */
bool regx_compat_has_to_print(const mca_base_component_t *component, const char *line);

/* Prints one line to the user, by opal_output. */
void regx_compat_output(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a problem that only some processes may have: the first of this node and application that has
 * a line of that kind (a word) prints it, with the host's name. Waits for nobody. */
void regx_compat_output_for_node(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The level of --mca btl_base_verbose, 0 if none was given, and one line to that stream. */
int regx_compat_verbose(void);
void regx_compat_trace(const char *line);

/* Open MPI's memory hooks, which patch libc's functions while they are installed. */
extern const regx_hook_source_t regx_compat_hooks;

/* ---- what compat.c asks of the file of a version ---- */

/* The ranks of this job on this node, as in "1,3,5"; the caller frees them. false: not known,
 * and there may be nothing to free. */
bool regx_version_local_peers(char **peers);

/* Publishes a key for all processes, with nothing behind it. At most 511 characters. */
bool regx_version_publish_key(const char *key);

/* Whether that process of this job published that key. Waits until it has published something for
 * `component`, which each process that uses the component does, or for some seconds. */
bool regx_version_key_published(const mca_base_component_t *component, uint32_t rank,
                                const char *key);

#endif
