/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/file.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

#define PART ((size_t)2 << 20) /* bytes of one call: a huge page */

bool regx_shm_file_fits(size_t length)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && length <= limit.rlim_cur;
}

static bool set_length(int descriptor, size_t length)
{
    return regx_shm_file_fits(length) && ftruncate(descriptor, (off_t)length) == 0;
}

/* In parts: up to Linux 6.1 a signal undoes what an interrupted call did, and with a profiler's
 * timer one for all would not end. */
bool regx_shm_file_reserve(int descriptor, size_t length)
{
    size_t done = 0;

    /* The length first: by it older kernels decide whether a page may be a huge one. */
    if (!set_length(descriptor, length)) {
        return false;
    }
    while (done < length) {
        const size_t part = regx_min(length - done, PART);

        if (fallocate(descriptor, 0, (off_t)done, (off_t)part) == 0) {
            done += part;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool regx_shm_file_name(int descriptor, regx_shm_file_t *file)
{
    struct stat status;

    if (fstat(descriptor, &status) != 0) {
        return false;
    }
    *file = (regx_shm_file_t){
        .device = status.st_dev, .inode = status.st_ino, .descriptor = descriptor};
    return true;
}

void *regx_shm_file_map(int descriptor, size_t length)
{
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);

    return base == MAP_FAILED ? NULL : base;
}

int regx_shm_file_make(size_t length, bool reserve, regx_shm_file_t *name, void **base)
{
    /* Not to be executed: with vm.memfd_noexec = 2, Linux 6.3 and some after refuse a file that does not
     * say so. Kernels before do not know the flag, and newer ones then set it themselves. */
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int file = memfd_create("regx", flags | MFD_NOEXEC_SEAL);

    if (file < 0 && errno == EINVAL) {
        file = memfd_create("regx", flags);
    }
    file = regx_descriptor_move(file);
    if (file < 0) {
        return -1;
    }
    if ((reserve ? regx_shm_file_reserve : set_length)(file, length) &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
        regx_shm_file_name(file, name) && (*base = regx_shm_file_map(file, length)) != NULL) {
        if (madvise(*base, length, MADV_DONTFORK) == 0) {
            return file;
        }
        munmap(*base, length);
    }
    close(file);
    return -1;
}

void regx_shm_bring_in(const void *memory, size_t needed, size_t *brought_in, int advice)
{
    if (needed > *brought_in) {
        const uintptr_t page = regx_page_size(), base = (uintptr_t)memory;
        const uintptr_t from = (base + *brought_in) & ~(page - 1);
        const uintptr_t to = regx_align_up(base + needed, page);

        madvise((void *)from, to - from, advice);
        *brought_in = to - base;
    }
}

static bool is_same_file(const struct stat *status, const regx_shm_file_t *file)
{
    return status->st_dev == file->device && status->st_ino == file->inode;
}

void regx_shm_file_close(const regx_shm_file_t *file)
{
    struct stat status;

    if (fstat(file->descriptor, &status) == 0 && is_same_file(&status, file)) {
        close(file->descriptor);
    }
}

static bool is_sealed(int descriptor)
{
    const int seals = fcntl(descriptor, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

/* ---- files with a name ---- */

#define PREFIX "regx."
/* Not a range, whose letters differ from one locale to another. */
#define DIGIT "[0123456789abcdef]"
#define FOUR_DIGITS DIGIT DIGIT DIGIT DIGIT

static void path_of(const regx_shm_file_t *file, char path[64])
{
    snprintf(path, 64, REGX_SHM_FOLDER "/" PREFIX "%016llx", (unsigned long long)file->name);
}

regx_status_t regx_shm_file_map_other(int32_t pid, const regx_shm_file_t *file, size_t length,
                                      bool sealed, void **base, regx_file_t *kept)
{
    const bool named = file->name != 0;
    struct stat state;
    char path[64];

    if (named) {
        path_of(file, path);
    } else {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, file->descriptor);
        /* Where the program has put a file of its own, that is not opened: a FIFO's reader would find that
         * it had a writer, a device might start, and this process would lose its locks (fcntl) on it. */
        if (stat(path, &state) == 0 && !is_same_file(&state, file)) {
            return REGX_DENIED;
        }
    }
    const int descriptor = regx_descriptor_move(
        open(path, O_RDWR | O_CLOEXEC | (named ? O_NOFOLLOW : O_NONBLOCK | O_NOCTTY)));
    regx_status_t status = REGX_OK;

    if (descriptor < 0) {
        return REGX_UNREACHABLE;
    }
    if (fstat(descriptor, &state) != 0 || !is_same_file(&state, file)) {
        status = REGX_DENIED;
    } else if (state.st_size < 0 || (uint64_t)state.st_size < length ||
               (sealed && !is_sealed(descriptor))) {
        status = REGX_INVALID;
    } else if ((*base = regx_shm_file_map(descriptor, length)) == NULL) {
        status = REGX_UNREACHABLE;
    }
    if (status == REGX_OK && kept != NULL) {
        *kept = regx_file_of(descriptor);
    } else {
        close(descriptor);
    }
    return status;
}

/* Locked before it has the name: who finds one that is not locked may remove it. By the descriptor alone,
 * which needs no /proc, from Linux 6.10 on. */
bool regx_shm_file_publish(int descriptor, regx_shm_file_t *file)
{
    char path[64], own[64];

    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 ||
        getrandom(&file->name, sizeof(file->name), 0) != sizeof(file->name) || file->name == 0) {
        return false;
    }
    path_of(file, path);
    snprintf(own, sizeof(own), REGX_PROC "fd/%d", descriptor);
    return linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 ||
           linkat(descriptor, "", AT_FDCWD, path, AT_EMPTY_PATH) == 0;
}

void regx_shm_file_unlink(const regx_shm_file_t *file)
{
    char path[64];

    path_of(file, path);
    unlink(path);
}

bool regx_shm_file_is_left(const regx_file_t *kept)
{
    if (flock(kept->fd, LOCK_SH | LOCK_NB) != 0) {
        return false;
    }
    flock(kept->fd, LOCK_UN);
    return true;
}

/* As path_of makes them: a program may have files of its own that begin so. */
void regx_shm_files_clean(void)
{
    static const char names[] =
        REGX_SHM_FOLDER "/" PREFIX FOUR_DIGITS FOUR_DIGITS FOUR_DIGITS FOUR_DIGITS;
    glob_t found = {0};
    struct stat status;

    glob(names, GLOB_NOSORT, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

        if (descriptor >= 0) {
            if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                status.st_uid == geteuid() && flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
                unlink(path);
            }
            close(descriptor);
        }
    }
    globfree(&found);
}
