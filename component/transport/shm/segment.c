/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/file.h"

const char *regx_segment_kind_name(regx_segment_kind_t kind)
{
    return kind == REGX_SEGMENT_SYSV ? "sysv" : "posix";
}

/* ---- a file in /dev/shm ---- */

/* Whether neighbours may open this process's descriptors: as a rule, unless it has privileges that they
 * have not, or its program may not be read. */
bool regx_segment_shows_descriptors(void)
{
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 && access(REGX_PROC "fd", X_OK) == 0;
}

/* Of one without a name neighbours open this process's descriptor. Of one with a name nobody needs that, but
 * only this process's mapping keeps the lock: no child has it. */
static regx_status_t alloc_file(bool named, size_t length, regx_segment_t *segment)
{
    regx_shm_file_t *name = &segment->name.file;
    void *base = NULL;

    if (!named && !regx_segment_shows_descriptors()) {
        return REGX_DENIED;
    }
    const int file = regx_descriptor_move(open(
        REGX_SHM_FOLDER, O_TMPFILE | (named ? 0 : O_EXCL) | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file < 0) {
        return REGX_NO_MEMORY;
    }
    if (regx_shm_file_reserve(file, length) && regx_shm_file_name(file, name)) {
        base = regx_shm_file_map(file, length);
    }
    if (named && base != NULL &&
        (madvise(base, length, MADV_DONTFORK) != 0 || !regx_shm_file_publish(file, name))) {
        munmap(base, length);
        base = NULL;
    }
    if (named || base == NULL) {
        name->descriptor = 0; /* of no use to others */
        close(file);
    }
    segment->base = base;
    return base != NULL ? REGX_OK : REGX_NO_MEMORY;
}

/* ---- System V ---- */

void *regx_segment_attach(int id, int flags)
{
    void *base = shmat(id, NULL, flags);

    return base == (void *)-1 ? NULL : base; /* NOLINT(performance-no-int-to-ptr) */
}

/* Asked by the number of no segment: where no filter refuses the call, that is invalid. */
int regx_segment_make_sysv(size_t length, int flags)
{
    return shmctl(-1, IPC_RMID, NULL) == 0 || errno == EINVAL
               ? shmget(IPC_PRIVATE, length, IPC_CREAT | flags)
               : -1;
}

/* ---- both ---- */

regx_status_t regx_segment_alloc(regx_segment_kind_t kind, size_t length, regx_segment_t *segment)
{
    length = regx_align_up(length, regx_page_size());
    *segment = (regx_segment_t){.name = {.length = length, .thread = gettid(), .kind = kind}};
    if (kind != REGX_SEGMENT_SYSV) {
        return alloc_file(kind == REGX_SEGMENT_NAMED, length, segment);
    }
    const int id = regx_segment_make_sysv(length, SHM_NORESERVE | S_IRUSR | S_IWUSR);
    if (id < 0) {
        return REGX_NO_MEMORY;
    }
    /* Linux still attaches a segment that is marked to be removed, as long as a process has it. Marked
     * before one has it, it would be gone at once. */
    segment->base = regx_segment_attach(id, 0);
    shmctl(id, IPC_RMID, NULL);
    segment->name.id = id;
    return segment->base != NULL ? REGX_OK : REGX_NO_MEMORY;
}

void regx_segment_free(regx_segment_t *segment)
{
    if (segment->name.kind == REGX_SEGMENT_POSIX) {
        munmap(segment->base, segment->name.length);
        regx_shm_file_close(&segment->name.file);
    } else if (segment->name.kind == REGX_SEGMENT_NAMED) {
        regx_shm_file_unlink(&segment->name.file);
        munmap(segment->base, segment->name.length);
    } else {
        shmdt(segment->base);
    }
}

regx_status_t regx_segment_open(const regx_transport_config_t *config, regx_segment_kind_t kind,
                                size_t length, size_t most, regx_segment_t *segment)
{
    const bool fits = length <= most;
    const regx_status_t status = fits ? regx_segment_alloc(kind, length, segment) : REGX_NO_MEMORY;
    const char *name = regx_segment_kind_name(kind);
    char reason[REGX_REASON_LENGTH + 16]; /* for a length of 20 digits, which is cut */

    if (status == REGX_OK) {
        return REGX_OK;
    }
    if (status == REGX_DENIED) {
        snprintf(reason, sizeof(reason), "%s: this process is not dumpable", name);
    } else {
        snprintf(reason, sizeof(reason), "%s: no shared memory of %zu bytes%s", name, length,
                 fits ? "" : " within its part");
    }
    regx_transport_fall_back(config, REGX_TRACE_CHOICE, reason);
    return status;
}

size_t regx_segment_room(regx_segment_kind_t kind)
{
    size_t addresses = SIZE_MAX;
    struct statvfs status;
    struct rlimit limit;
    char line[64] = "";

    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        regx_read_line(REGX_PROC "statm", line, sizeof(line));
        const size_t taken = strtoul(line, NULL, 10) * regx_page_size();
        addresses = limit.rlim_cur - regx_min(limit.rlim_cur, taken);
    }
    /* A tmpfs without a limit reports that it has no blocks. */
    if (kind == REGX_SEGMENT_SYSV || statvfs(REGX_SHM_FOLDER, &status) != 0 ||
        status.f_blocks == 0) {
        return addresses;
    }
    return regx_min(addresses, (size_t)status.f_bavail * status.f_frsize);
}

regx_status_t regx_segment_map(const regx_segment_name_t *name, regx_shm_mapping_t *mapping)
{
    regx_status_t status = REGX_INVALID;
    regx_file_t file = {.fd = -1};
    struct shmid_ds state;
    void *base = NULL;

    if (name->length == 0 || name->length > PTRDIFF_MAX || name->thread <= 0 ||
        name->file.descriptor < 0 || name->id < 0) {
        return REGX_INVALID;
    }
    /* The owner may make a file shorter later, and end this process so: it is trusted as far as the
     * kernel trusts a process of the same user. */
    if (name->kind == REGX_SEGMENT_SYSV) {
        base = regx_segment_attach(name->id, 0); /* first: from then on it stays the same one */
        if (base == NULL) {
            status = REGX_UNREACHABLE;
        } else if (shmctl(name->id, IPC_STAT, &state) == 0 && state.shm_segsz >= name->length) {
            status = REGX_OK;
        } else {
            shmdt(base);
        }
    } else if (name->kind == REGX_SEGMENT_POSIX || name->kind == REGX_SEGMENT_NAMED) {
        status = regx_shm_file_map_other(name->thread, &name->file, name->length, false, &base,
                                         name->kind == REGX_SEGMENT_NAMED ? &file : NULL);
    }
    if (status == REGX_OK) {
        madvise(base, name->length, MADV_DONTDUMP); /* a core of this process has its own memory */
    }
    *mapping = (regx_shm_mapping_t){base, name->length, (regx_segment_kind_t)name->kind, file};
    return status;
}

void regx_segment_unmap(regx_shm_mapping_t *mapping)
{
    if (mapping->kind != REGX_SEGMENT_SYSV) {
        munmap(mapping->base, mapping->length);
        regx_file_close(&mapping->file);
    } else {
        shmdt(mapping->base);
    }
}
