/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that other processes of the node map: segments (segment.c), and the files that some of them
 * are (file.c).
 *
 * A segment is one of System V ("sysv"), or where there is none a file without a name in /dev/shm
 * ("posix"). It is gone when the last process that maps it ends, also after SIGKILL: a segment of
 * System V is marked to be removed as soon as it is attached, and the file has no name. (A process
 * that is killed before that, within some microseconds, leaves its segment behind.)
 *
 * One of System V is attached by its number, for which it does not matter what its owner has become:
 * the owner's first thread may have ended, /proc may be hidden, processes may be numbered otherwise,
 * no descriptor may be left. Nor does it count against what /dev/shm may hold. The same user and the same
 * IPC namespace are all that is needed, when it is attached. A number may be used again: so what
 * was attached is checked by its length, and by a random cookie that lies in it.
 *
 * Others open a file by its owner's descriptor in /proc. A number does not say which file: programs
 * close descriptors that they do not know and open others under the same numbers, and in another
 * PID namespace a process number is another process. So a file is known by its device and inode as
 * well, and these are looked at before it is mapped or closed.
 *
 * Where a process is alone in its IPC namespace, as in a container for each rank, or where System V
 * refuses and neighbours may not open its descriptors, its file has a random name in /dev/shm until
 * the neighbours of the start have opened it, and a lock (flock) that is the mapping's: it ends with
 * the process, whatever becomes of descriptors. By that neighbours see whether it lives, and who starts
 * later removes names that were left.
 */
#ifndef REGX_TRANSPORT_SHM_SEGMENT_H
#define REGX_TRANSPORT_SHM_SEGMENT_H

#include "base/file.h"
#include "transport/transport.h"

#define REGX_SHM_FOLDER "/dev/shm"

/* ---- files and their pages (file.c); any thread ---- */

/* How a process names a file of its own to others; sent as it is. */
typedef struct regx_shm_file {
    uint64_t device, inode;
    uint64_t name;      /* of one that has a name in /dev/shm; else 0 */
    int32_t descriptor; /* of the owner */
    uint32_t zero;
} regx_shm_file_t;

/* Whether this process may write a file of that length: beyond its limit it would get a signal. */
bool regx_shm_file_fits(size_t length);
/* Makes the file so long, with all its pages: later a process that touches them is not ended by
 * SIGBUS for lack of memory. The kernel clears a page when it is first touched. false: there is not
 * so much. */
bool regx_shm_file_reserve(int descriptor, size_t length);
/* The name of an open file. false: the kernel does not name it. */
bool regx_shm_file_name(int descriptor, regx_shm_file_t *file);
/* Maps the first `length` bytes of an open file. NULL: refused. */
void *regx_shm_file_map(int descriptor, size_t length);
/* A file in memory of that length, which cannot be changed, mapped where no child has it. reserve: with
 * all its pages; else they are taken when they are first touched. The descriptor; -1: there is none. */
int regx_shm_file_make(size_t length, bool reserve, regx_shm_file_t *name, void **base);
/* Closes what was opened under that name, unless the program did. */
void regx_shm_file_close(const regx_shm_file_t *file);

/* Maps the first `length` bytes of another process's file, by its name, if it has one, else by the
 * descriptor of that process. sealed: it must be one that cannot be made shorter. REGX_UNREACHABLE: it
 * cannot be opened or mapped; REGX_DENIED: another file has its number; REGX_INVALID: it is shorter, or not
 * sealed. kept: NULL, or where it is left open. */
regx_status_t regx_shm_file_map_other(int32_t pid, const regx_shm_file_t *file, size_t length,
                                      bool sealed, void **base, regx_file_t *kept);

/* Files of names that nobody guesses, which the kernel knows to be their owner's as long as that maps
 * them. Gives an open file without a name one; false: refused. */
bool regx_shm_file_publish(int descriptor, regx_shm_file_t *file);
void regx_shm_file_unlink(const regx_shm_file_t *file);
/* Whether nobody has the file who published it. `kept`: open, as regx_shm_file_map_other leaves it. */
bool regx_shm_file_is_left(const regx_file_t *kept);
/* Removes what processes that were killed have left of such names. */
void regx_shm_files_clean(void);

/* Brings in the pages of `memory` up to `needed` bytes, by one call: a fault for each takes several
 * times as long. Up to `brought_in`, which is moved on, they are there. advice: MADV_POPULATE_READ or
 * MADV_POPULATE_WRITE. Best effort. */
void regx_shm_bring_in(const void *memory, size_t needed, size_t *brought_in, int advice);

/* ---- segments (segment.c); any thread ---- */

typedef enum regx_segment_kind {
    REGX_SEGMENT_SYSV = 1,
    REGX_SEGMENT_POSIX,
    REGX_SEGMENT_NAMED /* a file with a name */
} regx_segment_kind_t;

/* How a segment is named to other processes; sent as it is. */
typedef struct regx_segment_name {
    uint64_t length;
    regx_shm_file_t file; /* of a segment that is a file */
    int32_t id;           /* of one of System V */
    int32_t thread;       /* of a file: who made it. The process's first thread may have ended. */
    uint32_t kind;
    uint32_t zero;
} regx_segment_name_t;

typedef struct regx_segment { /* memory that this process allocated */
    char *base;
    regx_segment_name_t name;
} regx_segment_t;

typedef struct regx_shm_mapping { /* another process's segment, mapped here */
    char *base;
    size_t length;
    regx_segment_kind_t kind;
    regx_file_t file; /* NAMED: open */
} regx_shm_mapping_t;

const char *regx_segment_kind_name(regx_segment_kind_t kind);

/* Whether neighbours may open this process's descriptors in /proc, and so its files without a name. */
bool regx_segment_shows_descriptors(void);

/* The number of a new segment of System V. -1: it is refused, or could not be marked to be removed: it
 * would stay when all processes have ended. */
int regx_segment_make_sysv(size_t length, int flags);
/* Attaches it; flags: as of shmat. NULL: refused. */
void *regx_segment_attach(int id, int flags);

/* Bytes that are free for all processes now, and for which this process has addresses (ulimit -v), or
 * SIZE_MAX: not known. */
size_t regx_segment_room(regx_segment_kind_t kind);

/* `length` bytes of zeroed memory, in whole pages. Of a file all is set aside at once, or a process
 * that touched it later could be ended by SIGBUS; each page is cleared when it is first touched. Of
 * System V a page is taken when it is first touched. REGX_NO_MEMORY; REGX_DENIED: neighbours could
 * not open this process's file. */
regx_status_t regx_segment_alloc(regx_segment_kind_t kind, size_t length, regx_segment_t *segment);
/* The same, if that is not more than this process may take. What is refused is tallied among the
 * fallbacks. */
regx_status_t regx_segment_open(const regx_transport_config_t *config, regx_segment_kind_t kind,
                                size_t length, size_t most, regx_segment_t *segment);
void regx_segment_free(regx_segment_t *segment);

/* Maps what another process named. REGX_INVALID: malformed name, or what it names is not that long.
 * REGX_DENIED: what has that number here is another file, since the owner has closed its own.
 * REGX_UNREACHABLE: it cannot be mapped from here (another user's, or gone; of a file: its owner may
 * not be looked into, no descriptor left). What is mapped may still be another segment, which has
 * got its number. */
regx_status_t regx_segment_map(const regx_segment_name_t *name, regx_shm_mapping_t *mapping);
void regx_segment_unmap(regx_shm_mapping_t *mapping);

#endif
