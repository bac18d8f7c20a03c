/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: what a neighbour says of one, which need not be true, and what is there. And whose memory
 * it is that the kernel copies.
 */
#include "../../process.h"
#include "../pair.h"

#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>

#include "transport/shm/segment.h"
#include "transport/shm/vm.h"

enum { PAGES = 16 };

typedef struct stage {
    regx_segment_kind_t kind;
    regx_segment_t segment;
    size_t page, length;
} stage_t;

static const regx_segment_kind_t kinds[] = {REGX_SEGMENT_SYSV, REGX_SEGMENT_POSIX,
                                            REGX_SEGMENT_NAMED};

static stage_t open_stage(regx_segment_kind_t kind)
{
    stage_t stage = {.kind = kind, .page = regx_page_size(), .length = PAGES * regx_page_size()};

    assert_int_equal(regx_segment_alloc(kind, stage.length, &stage.segment), REGX_OK);
    assert_int_equal(stage.segment.name.length, stage.length);
    return stage;
}

static void close_stage(stage_t *stage)
{
    regx_segment_free(&stage->segment);
}

/* A test of a file without a name. */
#define FILE_TEST(name)                                                                            \
    UNIT_TEST_WITH(name, NULL, stage_t, stage, open_stage(REGX_SEGMENT_POSIX), close_stage(&stage))

static void refused(const regx_segment_name_t *name, regx_status_t expected)
{
    regx_shm_mapping_t mapping;

    assert_int_equal(regx_segment_map(name, &mapping), expected);
}

/* Its memory is there before it is touched, or the process that touched it last would be ended by
 * SIGBUS. */
FILE_TEST(all_of_a_file_is_set_aside)
{
    struct stat status;

    assert_int_equal(fstat(stage.segment.name.file.descriptor, &status), 0);
    assert_int_equal(status.st_size, stage.length);
    assert_int_equal(status.st_blocks * 512, stage.length);
    assert_int_equal(status.st_nlink, 0); /* nor has it a name that could be left behind */
}

UNIT_TEST(a_wrong_length_is_refused)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        stage_t stage = open_stage(kinds[i]);
        regx_segment_name_t name = stage.segment.name;
        const uint64_t wrong[] = {0,
                                  stage.length + 1,
                                  stage.length + stage.page,
                                  stage.length + (1u << 20),
                                  UINT64_C(1) << 40,
                                  (uint64_t)PTRDIFF_MAX + 1,
                                  UINT64_MAX - 4095,
                                  UINT64_MAX};

        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            name.length = wrong[k];
            refused(&name, REGX_INVALID);
        }
        close_stage(&stage);
    }
}

/* A process that touched it would be ended by SIGBUS. */
FILE_TEST(a_file_that_is_shorter_is_refused)
{
    assert_int_equal(
        ftruncate(stage.segment.name.file.descriptor, (off_t)(stage.length - stage.page)), 0);
    refused(&stage.segment.name, REGX_INVALID);
}

FILE_TEST(a_malformed_name_is_refused)
{
    const regx_segment_name_t right = stage.segment.name;
    regx_segment_name_t name = right;
    name.kind = 0;
    refused(&name, REGX_INVALID);
    name.kind = REGX_SEGMENT_NAMED + 1;
    refused(&name, REGX_INVALID);
    name = right;
    name.thread = 0;
    refused(&name, REGX_INVALID);
    name = right;
    name.file.descriptor = -1;
    refused(&name, REGX_INVALID);
    name = right;
    name.id = -1;
    refused(&name, REGX_INVALID);
}

/* What it names is no file that could be mapped: a pipe, a device. */
FILE_TEST(what_is_no_file_is_refused)
{
    const int null = open("/dev/null", O_RDWR);
    int ends[2];

    regx_segment_name_t name = stage.segment.name;
    assert_int_equal(pipe(ends), 0);
    assert_true(regx_shm_file_name(ends[0], &name.file));
    refused(&name, REGX_INVALID);
    assert_true(null >= 0 && regx_shm_file_name(null, &name.file));
    refused(&name, REGX_INVALID);
    close(null);
    close(ends[0]);
    close(ends[1]);
}

/* As where the program has closed a descriptor that it did not know, and the next file got its
 * number: here another segment, so that nothing but the file itself tells. */
UNIT_TEST(another_file_of_that_number_is_refused)
{
    regx_segment_t another;
    stage_t stage = open_stage(REGX_SEGMENT_POSIX);

    const int descriptor = stage.segment.name.file.descriptor;
    assert_int_equal(regx_segment_alloc(stage.kind, stage.length, &another), REGX_OK);
    assert_int_equal(dup2(another.name.file.descriptor, descriptor), descriptor);
    refused(&stage.segment.name, REGX_DENIED);
    close_stage(&stage);
    assert_int_not_equal(fcntl(descriptor, F_GETFD), -1); /* nor is that one closed */
    close(descriptor);
    regx_segment_free(&another);
}

static void assert_locked_for_others(int descriptor)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (process_in_child()) {
        _exit(fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 0 : 1);
    }
}

/* A process that closes a file loses its locks on it, by whatever descriptor it has them. */
UNIT_TEST(another_file_of_that_number_is_not_opened)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    stage_t stage = open_stage(REGX_SEGMENT_POSIX);
    const int descriptor = stage.segment.name.file.descriptor;
    const int another = memfd_create("the program's", MFD_CLOEXEC);

    assert_int_equal(ftruncate(another, (off_t)stage.length), 0);
    assert_int_equal(dup2(another, descriptor), descriptor);
    assert_int_equal(fcntl(another, F_SETLK, &lock), 0);
    refused(&stage.segment.name, REGX_DENIED);
    assert_locked_for_others(another);
    close_stage(&stage);
    close(descriptor);
    close(another);
}

/* A process into which others may not look has no file that they could open. */
FILE_TEST(one_that_is_not_dumpable_takes_no_file)
{
    regx_segment_t another;

    assert_int_equal(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    const regx_status_t later = regx_segment_alloc(stage.kind, stage.length, &another);
    assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
    assert_int_equal(later, REGX_DENIED); /* also if it was before */
}

UNIT_TEST(more_than_a_process_may_take_is_refused)
{
    regx_counters_t counters = {0};
    const regx_transport_config_t config = {.counters = &counters};
    regx_segment_t segment;

    assert_int_equal(
        regx_segment_open(&config, REGX_SEGMENT_POSIX, 1u << 17, (1u << 17) - 1, &segment),
        REGX_NO_MEMORY);
    assert_string_equal(counters.fallbacks[0].reason,
                        "posix: no shared memory of 131072 bytes within its part");
    assert_int_equal(regx_segment_open(&config, REGX_SEGMENT_POSIX, 1u << 17, 1u << 17, &segment),
                     REGX_OK);
    assert_int_equal(segment.name.length, 1u << 17);
    regx_segment_free(&segment);
}

UNIT_TEST(what_is_gone_cannot_be_mapped)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        stage_t stage = open_stage(kinds[i]);
        const regx_segment_name_t name = stage.segment.name;
        close_stage(&stage);
        refused(&name, REGX_UNREACHABLE);
    }
}

/* More than the process may write to a file is refused, and no signal ends the process. */
UNIT_TEST(the_limit_of_a_files_size_is_heeded)
{
    struct rlimit before;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    regx_segment_t segment;
    const regx_status_t status = regx_segment_alloc(REGX_SEGMENT_POSIX, 1u << 20, &segment);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, REGX_NO_MEMORY);
}

static bool shmctl_refused;

int __real_shmctl(int id, int command, struct shmid_ds *status);
int __wrap_shmctl(int id, int command, struct shmid_ds *status);
int __wrap_shmctl(int id, int command, struct shmid_ds *status)
{
    if (shmctl_refused) {
        errno = EPERM;
        return -1;
    }
    return __real_shmctl(id, command, status);
}

/* Segments that this process has made. */
static unsigned segments(void)
{
    FILE *list = fopen("/proc/sysvipc/shm", "re");
    char line[300];
    unsigned count = 0;
    int maker;

    assert_non_null(list);
    while (fgets(line, sizeof(line), list) != NULL) {
        count += sscanf(line, "%*d %*d %*o %*u %d", &maker) == 1 && maker == getpid();
    }
    fclose(list);
    return count;
}

UNIT_TEST(what_could_not_be_removed_is_not_made)
{
    const unsigned before = segments();
    regx_segment_t segment;
    void *held;

    shmctl_refused = true;
    const regx_status_t status = regx_segment_alloc(REGX_SEGMENT_SYSV, 1u << 17, &segment);
    const regx_life_t life = regx_life_begin(&held);
    shmctl_refused = false;
    assert_int_equal(segments(), before);
    assert_int_equal(status, REGX_NO_MEMORY);
    assert_int_equal(life.id, -1);
    regx_life_end(held);
}

static unsigned interruptions; /* to come */

UNIT_WRAP(int, fallocate, int file, int mode, off_t offset, off_t length)
{
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return __real_fallocate(file, mode, offset, length);
}

/* As up to Linux 6.1 the signals of a profiler do. */
UNIT_TEST(a_signal_does_not_end_it)
{
    interruptions = 5;
    stage_t stage = open_stage(REGX_SEGMENT_POSIX);
    assert_int_equal(interruptions, 0);
    close_stage(&stage);
}

/* ---- the kernel's copies between two processes do not reach a third ---- */

enum { LENGTH = 100000 };

/* At the same addresses in both. */
static regx_vm_cookie_t cookie = {{0x1234, 0x5678}};
static uint8_t memory[LENGTH];

/* The child shows another cookie from the first meeting on, as a process would that got the number
 * of one that has ended. It ends well if nothing was written to it after that. */
static void be_another(int end)
{
    pair_meet(end);
    cookie.words[1]++;
    unit_fill(memory, LENGTH, 2, 0);
    pair_meet(end);
    pair_meet(end);
    REQUIRE(unit_is_filled(memory, LENGTH, 2));
}

static void copy(regx_vm_peer_t *peer, regx_copy_direction_t way, void *local,
                 regx_status_t expected)
{
    size_t copied;

    assert_int_equal(regx_vm_copy(peer, way, local, (uintptr_t)memory, LENGTH, &copied), expected);
    assert_int_equal(copied, expected == REGX_OK ? LENGTH : 0);
}

UNIT_TEST(a_process_with_the_number_of_one_that_ended_is_not_written)
{
    static uint8_t local[LENGTH];
    int end;
    const pid_t child = pair_fork(&end);
    regx_vm_peer_t peer = {.pid = child,
                           .cookie_address = (uintptr_t)&cookie,
                           .cookie = cookie,
                           .life = {.id = -1, .pid = child}};

    if (in_child) {
        be_another(end);
        pair_join(child, end, false);
    }
    assert_int_equal(regx_vm_check(&peer), REGX_OK);
    copy(&peer, REGX_COPY_TO_PEER, local, REGX_OK);
    copy(&peer, REGX_COPY_FROM_PEER, local, REGX_OK);
    pair_meet(end);
    pair_meet(end);
    peer.looked -= REGX_VM_LOOK_NS; /* time goes by */
    copy(&peer, REGX_COPY_TO_PEER, local, REGX_FAILED);
    copy(&peer, REGX_COPY_FROM_PEER, local, REGX_FAILED);
    pair_meet(end);
    pair_join(child, end, false);
}

/* ---- whether a process lives ---- */

static void *stay(void *end)
{
    char byte;

    while (read(*(int *)end, &byte, 1) > 0) { /* until the parent has closed its own */
    }
    _exit(0);
}

/* Has a child, and its first thread ends. */
static void live_on(int end)
{
    static int kept;
    pthread_t thread;
    void *held;
    const regx_life_t life = regx_life_begin(&held);

    kept = end;
    if (fork() == 0) {
        stay(&kept);
    }
    REQUIRE(pthread_create(&thread, NULL, stay, &kept) == 0);
    pair_tell(end, &life, sizeof(life));
    pthread_exit(NULL);
}

static bool first_thread_has_ended(pid_t process)
{
    char path[32], text[512] = "";

    snprintf(path, sizeof(path), "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

/* Its first thread's end, and a child that lives longer, do not change that; nor that it is not
 * reaped. */
UNIT_TEST(a_process_lives_until_its_last_thread_has_ended)
{
    regx_life_t life;
    siginfo_t unused;
    int end;
    void *held;
    const pid_t child = pair_fork(&end);
    const regx_life_t own = regx_life_begin(&held);

    if (in_child) {
        live_on(end);
    }
    pair_hear(end, &life, sizeof(life));
    const regx_life_t by_number = {.id = -1, .pid = child};
    assert_true(life.id >= 0 && life.pid == child);
    await(first_thread_has_ended(child));
    assert_false(regx_life_is_over(&life, &own));
    assert_false(regx_life_is_over(&by_number, &own));
    life.made++; /* another segment has got its number */
    assert_true(regx_life_is_over(&life, &own));
    life.made--;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &unused, WEXITED | WNOWAIT), 0);
    assert_true(regx_life_is_over(&life, &own));
    assert_true(regx_life_is_over(&by_number, &own));
    pair_join(child, end, true);
    assert_true(regx_life_is_over(&by_number, &own));
    regx_life_end(held);
}

static bool may_leave(int space)
{
    int status;
    const pid_t child = fork();

    if (child == 0) {
        _exit(unshare(space) != 0);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

/* One whose end takes long has no memory any more, and no files, but the kernel does not say yet that it
 * has ended: it is the first of a PID namespace, and waits for another one of that, which only its parent,
 * outside, can reap. */
UNIT_TEST(a_process_without_memory_has_ended)
{
    const regx_life_t own = {.id = -1, .pid = getpid()};
    int end;

    unit_need(may_leave(CLONE_NEWPID), "no PID namespace");
    const int here = open("/proc/self/ns/pid", O_RDONLY);
    assert_int_equal(unshare(CLONE_NEWPID), 0);
    const pid_t first = pair_fork(&end);
    if (in_child) {
        stay(&end);
    }
    const pid_t second = fork();
    if (second == 0) {
        stay(&end);
    }
    assert_int_equal(setns(here, CLONE_NEWPID), 0);
    close(here);
    const regx_vm_peer_t peer = {.pid = first,
                                 .cookie_address = (uintptr_t)&cookie,
                                 .cookie = cookie,
                                 .life = {.id = -1, .pid = first},
                                 .own = own};
    assert_false(regx_vm_gone(&peer));
    assert_int_equal(kill(first, SIGKILL), 0);
    await(regx_vm_gone(&peer));
    assert_false(regx_life_is_over(&peer.life, &own)); /* so it seems still */
    assert_int_equal(waitpid(second, NULL, 0), second);
    pair_join(first, end, true);
}

/* A process that has moved to another IPC namespace sees no segment. */
UNIT_TEST(from_another_space_only_a_process_number_tells)
{
    int end;
    siginfo_t unused;
    regx_life_t life;
    void *held;
    unit_need(may_leave(CLONE_NEWIPC), "no IPC namespace");
    const pid_t child = pair_fork(&end);
    if (in_child) {
        life = regx_life_begin(&held);
        pair_tell(end, &life, sizeof(life));
        stay(&end);
    }
    pair_hear(end, &life, sizeof(life));
    const regx_life_t own = regx_life_begin(&held);
    const int here = open("/proc/self/ns/ipc", O_RDONLY);
    assert_int_equal(unshare(CLONE_NEWIPC), 0);
    assert_false(regx_life_is_over(&life, &own));
    const regx_life_t without_number = {.id = life.id, .made = life.made};
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &unused, WEXITED | WNOWAIT), 0);
    assert_true(regx_life_is_over(&life, &own));
    assert_false(regx_life_is_over(&without_number, &own));
    assert_int_equal(setns(here, CLONE_NEWIPC), 0);
    close(here);
    assert_true(regx_life_is_over(&without_number, &own));
    regx_life_end(held);
    pair_join(child, end, true);
}

/* ---- files with a name ---- */

static bool is_there(const regx_shm_file_t *file)
{
    char path[64];

    snprintf(path, sizeof(path), REGX_SHM_FOLDER "/regx.%016llx", (unsigned long long)file->name);
    return access(path, F_OK) == 0;
}

/* Has a child that lives longer, and closes all descriptors. */
static void publish_and_stay(int end)
{
    static int kept;
    regx_segment_t segment;

    kept = end;
    REQUIRE(regx_segment_alloc(REGX_SEGMENT_NAMED, 1u << 16, &segment) == REGX_OK);
    if (fork() == 0) {
        stay(&kept);
    }
    for (int descriptor = 3; descriptor < 200; descriptor++) {
        if (descriptor != end) {
            close(descriptor);
        }
    }
    pair_tell(end, &segment.name, sizeof(segment.name));
    stay(&kept);
}

/* It is seen to live as long as it maps its file, and then anybody may remove the name. */
UNIT_TEST(what_a_killed_process_has_named_is_removed)
{
    regx_segment_name_t name;
    regx_shm_mapping_t mapping;
    int end;
    const pid_t child = pair_fork(&end);

    if (in_child) {
        publish_and_stay(end);
    }
    pair_hear(end, &name, sizeof(name));
    assert_int_equal(regx_segment_map(&name, &mapping), REGX_OK);
    const regx_vm_peer_t peer = {.pid = child, .life = {.id = -1}, .file = mapping.file};
    regx_shm_files_clean();
    assert_true(is_there(&name.file));
    assert_false(regx_vm_gone(&peer));
    assert_int_equal(kill(child, SIGKILL), 0);
    await(regx_vm_gone(&peer));
    assert_true(is_there(&name.file));
    const char *others = REGX_SHM_FOLDER "/regx.of_the_program";
    close(open(others, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    regx_shm_files_clean();
    assert_false(is_there(&name.file));
    assert_int_equal(unlink(others), 0); /* it is not ours */
    refused(&name, REGX_UNREACHABLE);
    regx_segment_unmap(&mapping);
    pair_join(child, end, true);
}

/* As of a neighbour, where this process has given up the rights to look. */
UNIT_TEST(one_that_may_not_be_looked_at_lives)
{
    void *held, *held_too;

    unit_need(geteuid() == 0, "not root");
    const regx_life_t life = regx_life_begin(&held), kept = regx_life_begin(&held_too);
    assert_int_equal(seteuid(65534), 0);
    const bool over = regx_life_is_over(&life, &life);
    assert_int_equal(seteuid(0), 0);
    regx_life_end(held);
    assert_false(over);
    assert_true(regx_life_is_over(&life, &kept));
    regx_life_end(held_too);
}

/* Each neighbour maps it, too. */
UNIT_TEST(addresses_that_are_limited_are_room_that_is_limited)
{
    enum { LEFT = 64 << 20 };
    if (process_in_child()) {
        const bool unlimited = regx_segment_room(REGX_SEGMENT_SYSV) == SIZE_MAX;
        char line[64];

        regx_read_line(REGX_PROC "statm", line, sizeof(line));
        const struct rlimit limit = {strtoul(line, NULL, 10) * regx_page_size() + LEFT,
                                     RLIM_INFINITY};
        bool well = unlimited && setrlimit(RLIMIT_AS, &limit) == 0;
        for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            const size_t room = regx_segment_room(kinds[i]);

            well &= room <= LEFT && (kinds[i] != REGX_SEGMENT_SYSV || room > LEFT / 2);
        }
        _exit(well ? 0 : 1);
    }
}
