# SPDX-License-Identifier: BSD-3-Clause
"""regx-check over devices in memory, in place of libibverbs' own, and over an RDMA device: which uses of
which registrations it reports, whose functions it names, what it answers, and what it leaves alone."""
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import device
import skips
from launch import Build
from tools import stacks

DIFFERENT, SAME = "stale and different", "stale, same bytes"
REMOTE = "stale, remote access possible"

Done = subprocess.CompletedProcess[str]
Fault = dict[str, str | int]


class Check:
    """The command, over devices in memory (fake) or the machine's."""

    def __init__(self, build: Build, folder: Path, fake: bool) -> None:
        self.built = build.programs.parent / "check"
        self.command = build.programs.parent.parent / "component/check/regx-check"
        if not (self.built / "stale").exists():
            pytest.skip("built without rdma-core")
        self.json = folder / "found.json"
        self.environment = {**os.environ, **({"LD_LIBRARY_PATH": str(self.built / "fake")} if fake else {})}

    def plain(self, *words: object, **more: object) -> Done:
        self.done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120,
                                   check=False, env={**self.environment, **{name: str(value) for name, value in more.items()}})
        return self.done

    def run(self, *words: object) -> Done:
        """Options of the command, and what it is to run."""
        return self.plain(self.command, "--json", self.json, *words)

    def stale(self, *words: object) -> Done:
        done = self.run(self.built / "stale", *words)
        if "changes of memory are not reported, " in done.stderr or "bytes are not compared: " in done.stderr:
            pytest.skip(done.stderr.splitlines()[0].replace("regx-check", "registering"))
        return done

    def need(self) -> None:
        """Skips where it can find nothing."""
        if "so nothing can be found" in self.done.stderr or \
                (skips.userfaultfd_is_refused() and skips.io_uring_is_refused()):
            pytest.skip("neither userfaultfd nor io_uring")

    def found(self) -> dict[str, Any]:
        """What it has written, with names alone."""
        self.need()
        return json.loads(re.sub(r"\+0x[0-9a-f]+", "", self.json.read_text()))

    def faults(self) -> list[Fault]:
        """Those that were used: what peers may do is told beside them."""
        return [fault for fault in self.found()["faults"] if fault["verdict"] != REMOTE]


@pytest.fixture
def check(build: Build, tmp_path: Path) -> Check:
    return Check(build, tmp_path, fake=True)


@pytest.fixture
def over_device(build: Build, tmp_path: Path) -> Check:
    return Check(build, tmp_path, fake=False)


def found_once(check: Check, done: Done, verdict: str, call: str, use: str) -> None:
    (fault,) = check.faults()
    assert (done.returncode, done.stdout) == (3, "stale: done\n"), done.stderr
    assert fault["verdict"] == verdict, done.stderr
    assert fault["length"] == 4096
    assert " in planted_registration < planted_source <" in str(fault["registered"])
    assert re.match(f"{call} in .*\\bplanted_change <", str(fault["changed"]))
    assert str(fault["used"]).startswith(f"{use} in planted_use <")
    assert done.stderr.count(verdict) == 2  # at once, and in the sum


@pytest.mark.parametrize(("change", "call"), [
    ("munmap", "munmap"), ("raw", "munmap"), ("madvise", "madvise"), ("madvise-mmap", "madvise"), ("thread", "munmap")])
def test_changed_memory_is_found_and_the_call_is_named(check: Check, change: str, call: str) -> None:
    found_once(check, check.stale(change, "write"), DIFFERENT, call, "a write")


def test_a_thread_that_blocks_signals_has_none_that_waits(check: Check) -> None:
    """Else one would be added at each change, until nobody of that user may send any."""
    done = check.stale("blocked", "write")
    assert (done.returncode, done.stdout, check.faults()[0]["changed"]) == (3, "stale: done\n", "munmap"), done.stderr


@pytest.mark.parametrize(("change", "call"), [("remove", "madvise"), ("punch", "fallocate"), ("truncate", "ftruncate"), ("munmap", "munmap")])
def test_of_shared_memory_the_call_is_named(check: Check, change: str, call: str) -> None:
    found_once(check, check.stale(f"file-{change}", "write"), DIFFERENT, call, "a write")


def test_of_shared_memory_no_other_call_is_named(check: Check) -> None:
    done = check.stale("file-raw", "write")
    assert str(check.faults()[0]["changed"]).startswith("a call that was not seen, of memory that cannot be watched: truncate, shmdt, a system call"), done.stderr


@pytest.mark.parametrize(("kind", "use"), [("receive", "a receive"), ("iova", "a receive"), ("extended", "a request"), ("rereg", "a write")])
def test_each_way_to_post_is_followed(check: Check, kind: str, use: str) -> None:
    found_once(check, check.stale("munmap", kind), DIFFERENT, "munmap", use)


def test_what_was_read_is_in_the_pages_that_are_gone(check: Check) -> None:
    done = check.stale("munmap", "read")
    assert check.faults() and done.returncode == 3, done.stderr
    assert [(fault["verdict"], str(fault["used"]).partition(" in ")[0]) for fault in check.faults()] == \
        [(DIFFERENT, "a read"), (DIFFERENT, "a read that completed")]


@pytest.mark.parametrize(("change", "call"), [("zeros", "munmap"), ("back", "mremap")])
def test_memory_of_the_same_bytes_is_not_called_different(check: Check, change: str, call: str) -> None:
    found_once(check, check.stale(change, "write", 30), SAME, call, "a write")
    assert check.faults()[0]["times"] == 30


@pytest.mark.parametrize(("change", "call", "verdict"), [("back", "mremap", SAME), ("raw", "munmap", DIFFERENT), ("file-munmap", "munmap", DIFFERENT)])
def test_memory_that_changed_while_it_was_not_registered_is_witnessed_anew(check: Check, change: str, call: str, verdict: str) -> None:
    found_once(check, check.stale(change, "between"), verdict, call, "a write")


@pytest.mark.parametrize("change", ["none", "beside", "fork", "stack"])
def test_what_is_right_is_not_accused(check: Check, change: str) -> None:
    """beside: other pages of what is registered, and other memory."""
    done = check.stale(change, "write", 20)
    assert (done.returncode, check.faults()) == (0, []), done.stderr
    assert "21 registrations, 20 postings, 20 of 1 KiB or more; stale uses: 0 different, 0 same, 0 not compared" in done.stderr


@pytest.mark.parametrize("backend", ["none", "notifier"])
def test_a_cache_that_follows_changes_is_not_accused(check: Check, build: Build, backend: str) -> None:
    """With notifier the program watches its memory itself, so that bytes alone tell."""
    done = check.run(build.programs.parent / "registration/example", backend)
    if "cannot be used" in done.stderr or "are not" in done.stderr:
        pytest.skip("registering cannot be watched here")
    assert (done.returncode, check.faults()) == (0, []), done.stderr
    assert " 200 postings" in done.stderr and json.loads(check.json.read_text())["large"] == 200


@pytest.mark.parametrize(("words", "use"), [([], "many"), (["prlimit", f"--as={64 << 20}"], "write")], ids=["no-room", "no-memory"])
def test_registrations_that_are_not_followed_are_said_and_are_not_what_is_required(check: Check, words: list[str], use: str) -> None:
    done = check.run("--require", *words, check.built / "stale", "none", use, 2)
    assert (done.returncode, done.stdout) == (4, "stale: done\n"), done.stderr
    assert done.stderr.count("registrations that were not followed: 3, for want of memory") == 1, done.stderr
    assert skips.userfaultfd_is_refused() or "compared at each use" not in done.stderr


def test_a_call_that_made_memory_stale_is_told_once(check: Check) -> None:
    """At once and at the end: used from two places, and open to peers."""
    done = check.stale("munmap", "twice")
    assert [fault["times"] for fault in check.faults()] == [1, 1], done.stderr
    assert (done.stderr.count(DIFFERENT), done.stderr.count(REMOTE)) == (2, 0), done.stderr
    assert "regx-check: 2 times: " in done.stderr and REMOTE in check.json.read_text(), done.stderr


def test_of_a_long_stack_the_middle_is_left_out_but_not_what_calls_mpi(check: Check, tmp_path: Path) -> None:
    copy = shutil.copy(check.built / "stale-without-names", tmp_path)
    subprocess.run(["objcopy", "--redefine-sym", "run=MPI_Run", copy], check=True)
    done = check.plain(check.command, "--json", check.json, copy, "munmap", "write", STALE_DEPTH=60)
    (fault,) = check.faults()
    assert re.search(r"( < run_below){15,} < \.\.\.( < run_below){15,}$", str(fault["changed"])), done.stderr
    for line in [r"registered at \S+ s in planted_registration\S+ < \.\.\. < MPI_Run\S+ < run_below\S+ < \.\.\.( < run_below\S+)+",
                 r"used by a write in planted_use\S+ < MPI_Run\S+ < run_below\S+ < \.\.\.( < run_below\S+)+",
                 r"(?=.{40,118}\n)made stale by munmap in \S+ \(libc.so\) < planted_change\S+ < .*\.\.\. < run_below\S+"]:
        assert re.search(f"\n  {line}\n", done.stderr), done.stderr


def test_a_function_of_a_library_is_told_with_it(check: Check, tmp_path: Path) -> None:
    source, library = tmp_path / "pool.c", tmp_path / "libpool.so.1"
    source.write_text("#include <sys/syscall.h>\n#include <unistd.h>\nint munmap(void *base, size_t length) { return (int)syscall(SYS_munmap, base, length); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    check.environment["LD_PRELOAD"] = str(library)
    done = check.stale("munmap", "write")
    assert check.faults()[0]["changed"] == "munmap in syscall (libc.so) < munmap (libpool.so) < planted_change < run", done.stderr
    assert re.search(r"made stale by munmap in syscall\S+ \(libc.so\) < munmap\+0x\w+ \(libpool.so\) < planted_change\+0x\w+ < run\+", done.stderr)


def test_it_may_lie_in_a_folder_whose_name_has_blanks_and_colons(check: Check, tmp_path: Path) -> None:
    """At which the loader divides its list of libraries."""
    folder = tmp_path / "a b:c"
    folder.mkdir()
    for name in check.command.name, "libregx-check.so":
        shutil.copy(check.command.with_name(name), folder / name)
    done = check.plain(folder / check.command.name, "--json", check.json, check.built / "stale", "munmap", "write")
    found_once(check, done, DIFFERENT, "munmap", "a write")


def test_a_limit_of_distinct_faults(check: Check) -> None:
    check.run("--limit", 1, check.built / "stale", "munmap", "write", 2)
    found = check.found()
    assert len(found["faults"]) == 1
    assert found["untold"] >= 1


def test_faults_of_a_stack_are_suppressed(check: Check, tmp_path: Path) -> None:
    patterns = tmp_path / "patterns"
    patterns.write_text("# known\nnothing*\n*planted_change*\n")
    done = check.run("--suppress", patterns, check.built / "stale", "munmap", "write")
    assert (done.returncode, check.faults()) == (0, []), done.stderr
    assert check.found()["suppressed"] >= 1
    patterns.write_text("*planted_no\n" * 1000)  # else of the last one, cut to a *, all faults would be
    done = check.run("--suppress", patterns, check.built / "stale", "munmap", "write")
    assert (done.returncode, done.stderr) == (2, f"regx-check: --suppress={patterns}: more than 8 KiB of patterns\n")


def test_it_stops_at_the_first(check: Check) -> None:
    for through in [[], ["sh", "-c", '"$@"; exit $?', "mpirun"]]:  # that ends with 134, as a shell does
        done = check.run("--stop", *through, check.built / "stale", "munmap", "write", 9)
        assert (done.returncode, done.stdout, [fault["times"] for fault in check.faults()]) == (3, "", [1]), done.stderr


def test_what_peers_may_have_used_is_told_at_the_end_and_is_no_fault(check: Check) -> None:
    """twice: it is registered still when something is used later."""
    for use, remote in [("write", 0), ("twice", 1)]:
        done = check.stale("beside", use, 3)
        assert (done.returncode, check.faults()) == (0, []), done.stderr
        assert done.stderr.count(f"{REMOTE}, no fault until a peer uses it: ") == remote


def test_what_is_offered_to_a_peer_is_a_use(check: Check) -> None:
    for use in ["offer", "offer-iova", "offer-extended"]:
        found_once(check, check.stale("munmap", use), DIFFERENT, "munmap", "an offer to a peer")
    for change, use in [("none", "offer"), ("munmap", "offer-without-key")]:
        done = check.stale(change, use, 3)
        assert (done.returncode, check.faults()) == (0, []), done.stderr
    done = check.run(check.built.parent / "mpi/deny", "userfaultfd", check.built / "stale", "munmap", "offer")
    assert [fault["verdict"] for fault in check.faults()] == [DIFFERENT], done.stderr  # by its bytes alone


@pytest.mark.parametrize(("use", "length"), [
    ("offer", 0), ("offer-of-a-page", 0), ("offer-of-pages", 8192), ("offer-of-pages-by-a-word-before", 8192), ("offer-of-two", 4096)])
def test_all_pages_of_an_offer_are_judged_and_no_other(check: Check, use: str, length: int) -> None:
    """The second page of what is registered has changed, and the offer begins at the first."""
    expected = [(DIFFERENT, length)] if length else []
    for deny in [[], [check.built.parent / "mpi/deny", "userfaultfd"]]:
        done = check.run(*deny, check.built / "stale", "beside", use)
        if not deny and "changes of memory are not reported, " in done.stderr:
            continue
        assert [(fault["verdict"], fault["length"]) for fault in check.faults()] == expected, done.stderr


def test_of_two_changes_that_one_is_named_whose_bytes_differ(check: Check) -> None:
    done = check.stale("two", "offer-of-pages")
    (fault,) = check.faults()
    assert (fault["verdict"], str(fault["changed"]).partition(" in ")[0]) == (DIFFERENT, "madvise"), done.stderr


def test_of_receives_of_one_number_the_first_is_judged_when_the_first_completes(check: Check) -> None:
    done = check.run(check.built.parent / "mpi/deny", "userfaultfd", check.built / "stale", "zeros", "receives")
    assert [(fault["verdict"], str(fault["used"]).partition(" in ")[0]) for fault in check.faults()] == \
        [(DIFFERENT, "a receive that completed")], done.stderr


@pytest.mark.parametrize("earlier", ["read-refused", "read-failed", "read-silent", "read-or-receive"])
def test_what_completes_is_not_taken_for_an_earlier_request_of_its_number(check: Check, earlier: str) -> None:
    """Whose memory has gone since."""
    done = check.stale("none", earlier)
    assert (done.returncode, check.faults()) == (0, []), done.stderr


def test_so_it_is_where_the_first_thread_has_ended(check: Check) -> None:
    """For the kernel the process's number then names a thread without memory."""
    done = check.plain(check.command, "--json", check.json, check.built / "stale", "munmap", "offer", STALE_ALONE=1)
    found_once(check, done, DIFFERENT, "munmap", "an offer to a peer")


def test_without_the_command_the_library_tells_and_another_file_in_the_place_of_the_sum_is_left_alone(check: Check, tmp_path: Path) -> None:
    """As a file of another process is, on another node, by the number of the command's process and descriptor."""
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 20))
    done = check.plain(check.built / "stale", "munmap", "write", REGX_CHECK_SUM=f"{other.stat().st_ino} {other}",
                       LD_PRELOAD=check.command.with_name("libregx-check.so"))
    check.need()
    assert (done.returncode, done.stdout) == (0, "stale: done\n")
    assert done.stderr.count(DIFFERENT) == 2, done.stderr
    assert other.read_bytes() == bytes(1 << 20)


def test_the_sum_of_another_command_is_left_alone(check: Check) -> None:
    """As one in another container is, by the same numbers of process and descriptor."""
    done = check.run("sh", "-c", f'REGX_CHECK_SUM="7 ${{REGX_CHECK_SUM#* }}" {check.built / "stale"} munmap write')
    assert (done.returncode, done.stdout, check.faults()) == (0, "stale: done\n", []), done.stderr
    assert done.stderr.count(DIFFERENT) == 2, done.stderr


# ---- what it runs is left as it is ----

@pytest.mark.parametrize(("options", "own", "status"), [([], 0, 0), ([], 5, 5), (["--require"], 0, 4), (["--require"], 5, 5)])
def test_a_program_without_devices_ends_as_without_it_unless_one_is_required(check: Check, options: list[str], own: int, status: int) -> None:
    done = check.run(*options, "sh", "-c", f"echo out; exit {own}")
    assert (done.returncode, done.stdout) == (status, "out\n")
    assert done.stderr.startswith("regx-check: nothing was followed, so nothing is known: ")
    assert ("there is no RDMA device here" in done.stderr) != Path("/dev/infiniband").exists()


def test_a_signal_that_ends_the_program_ends_the_command(check: Check) -> None:
    assert check.run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


@pytest.mark.parametrize("name", ["USR1", "ALRM"])
def test_a_signal_to_the_command_reaches_the_program(check: Check, name: str) -> None:
    done = check.run("sh", "-c", f'trap "echo told; exit 7" {name}; kill -{name} $PPID; while :; do :; done')
    assert (done.returncode, done.stdout) == (7, "told\n")


def test_closed_descriptors_do_not_matter(check: Check) -> None:
    done = check.run("sh", "-c", f"exec {check.built / 'stale'} munmap write 2>&- <&-")
    assert len(check.faults()) == 1
    assert done.returncode == 3


def test_descriptors_that_the_program_closes_are_missed_in_one_line(check: Check) -> None:
    done = check.stale("closed", "write", 20)
    assert done.stdout == "stale: done\n"
    assert done.stderr.count("changes of memory are not reported any more") == 1, done.stderr


def test_a_file_in_the_place_of_standard_error_is_the_programs(check: Check, tmp_path: Path) -> None:
    check.environment["STALE_ERRORS"] = str(tmp_path / "errors")
    done = check.stale("munmap", "write")
    assert len(check.faults()) == 1
    assert done.returncode == 3
    assert (tmp_path / "errors").read_text() == ""


def test_a_child_that_opens_the_device_is_followed(check: Check) -> None:
    check.environment["STALE_CHILD"] = "1"
    found_once(check, check.stale("munmap", "write"), DIFFERENT, "munmap", "a write")


def test_threads_that_register_use_and_change_are_not_accused(check: Check) -> None:
    done = check.stale("none", "threads")
    assert (done.returncode, check.faults()) == (0, []), done.stderr
    assert "3001 registrations, 3000 postings" in done.stderr


def test_an_ftruncate_in_a_handler_does_not_wait_for_what_it_interrupts(check: Check) -> None:
    assert check.run(check.built / "stale", "file-copied", "interrupted", 2000).returncode == 0


def test_a_hole_in_a_file_is_none_in_private_memory(check: Check) -> None:
    """Also where bytes cannot be compared: what is registered are the program's own pages."""
    done = check.run(check.built.parent / "mpi/deny", "io_uring", check.built / "stale", "file-copied", "write")
    assert done.returncode == 0 and done.stdout == "stale: done\n", done.stderr


@pytest.mark.parametrize(("refused", "change", "verdict", "call"), [
    ("userfaultfd", "munmap", DIFFERENT, "a call that was not seen"), ("userfaultfd", "file-punch", DIFFERENT, "fallocate in "),
    ("io_uring", "munmap", "stale, bytes not compared", "munmap in "), ("io_uring", "file-punch", "stale, bytes not compared", "fallocate in ")])
def test_without_one_of_its_means_the_other_one_finds(check: Check, refused: str, change: str, verdict: str, call: str) -> None:
    done = check.run(check.built.parent / "mpi/deny", refused, check.built / "stale", change, "write")
    assert check.faults() and done.returncode == 3, done.stderr
    (fault,) = check.faults()
    assert fault["verdict"] == verdict
    assert str(fault["changed"]).startswith(call)


def test_where_both_means_are_missing_it_says_that_nothing_can_be_found(check: Check) -> None:
    deny = check.built.parent / "mpi/deny"
    done = check.run(deny, "userfaultfd", deny, "io_uring", check.built / "stale", "munmap", "write")
    assert (done.returncode, done.stdout, json.loads(check.json.read_text())["faults"]) == (0, "stale: done\n", [])
    assert done.stderr.count("so nothing can be found (a container may allow it") == 1, done.stderr


@pytest.mark.parametrize("strip", ["", "strip", "objcopy --redefine-sym planted_change={0} --redefine-sym planted_change.localalias={0}.".format(
    160 * "x"), "objcopy --redefine-sym main=planted_change --redefine-sym planted_target=planted_change.localalias"], ids=["named", "stripped", "long", "twice"])
def test_of_what_the_dynamic_linker_does_not_know_addr2line_finds_the_line(check: Check, tmp_path: Path, strip: str) -> None:
    """Of one that is stripped, or whose name is too long, or there twice, by the place in the file."""
    program = check.built / "stale-without-names"
    copy = shutil.copy(program, tmp_path)
    subprocess.run([*strip.split(), copy] if strip else ["true"], check=True)
    done = check.run(copy, "munmap", "write")
    assert check.faults() and done.returncode == 3, done.stderr
    place = json.loads(check.json.read_text())["faults"][0]["changed"].split(" < ")[1]
    assert place.startswith(f"{program.name}+0x" if strip else "planted_change"), done.stderr
    named = subprocess.run(["addr2line", "-e", program, place.rpartition("+")[2] if strip else place], capture_output=True, text=True, check=True)
    file, line = named.stdout.partition(" (discriminator")[0].strip().rsplit(":", 1)
    assert Path(file).read_text().splitlines()[int(line) - 1] == "        munmap(base, LENGTH);"


@pytest.mark.parametrize("told_by", ["OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_a_rank_names_itself_in_each_line(check: Check, told_by: str) -> None:
    done = check.plain(check.command, check.built / "stale", "munmap", "write", **{told_by: 3})
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    assert lines
    assert all(line.startswith("regx-check: rank 3: ") and line.count("rank") == 1 for line in lines), done.stderr


def test_each_rank_has_a_file_of_its_own_and_they_share_what_is_none(check: Check) -> None:
    for rank in range(2):
        check.plain(check.command, "--json", check.json, check.built / "stale", "none", "write", OMPI_COMM_WORLD_RANK=rank)
    for job in [1436614658, "prterun-node-1234@3"]:  # of Open MPI 4.1 and 5, as they are in a program that was spawned
        check.plain(check.command, "--json", check.json, "true", OMPI_COMM_WORLD_RANK=0, PMIX_NAMESPACE=job, OMPI_PARENT_PORT="a.0")
    check.plain(check.command, "--json", check.json, "true", PMI_RANK=0, PMI_SIZE=1)  # in a shell of Slurm's (srun --pty)
    assert sorted(path.name for path in check.json.parent.iterdir()) == [f"found.json{end}" for end in ["", ".0", ".1", ".2.0", ".3.0"]]
    done = check.plain(check.command, "--json", "/dev/stdout", check.built / "stale", "none", "write", OMPI_COMM_WORLD_RANK=1)
    assert done.returncode == 0 and '"registrations"' in done.stdout, done.stdout + done.stderr


def test_where_nothing_was_followed_the_last_line_says_so(check: Check) -> None:
    for words in [["env", "-u", "LD_PRELOAD"], []], [[], ["nothing"]], [[], ["offer-of-a-page", 30]]:
        done = check.run("--require", *words[0], check.built / "stale", "none", *words[1])
        assert done.returncode == 4 and done.stderr.splitlines()[-1].startswith("regx-check: nothing was followed"), done.stderr
        assert (" registrations, " in done.stderr) == (words[1][-1:] == [30])
    for ending, said in [("exit 7", "the command ended with status 7\n"), ("kill -9 $$", "the command ended by signal 9\n"),
                         ("true", "messages go another way (within a node by a device with --mca pml ucx -x UCX_TLS=rc_verbs,ud_verbs,self, or "
                                  "--mca pml ob1 --mca btl regx,self --mca btl_regx_transport verbs), ")]:
        done = check.run("sh", "-c", f"{check.built / 'stale'} none nothing; {ending}")
        assert said in done.stderr.partition("so nothing is known: ")[2], done.stderr
    assert check.run("--require", check.built / "stale", "none", "write").returncode == 0


# ---- bad input ----

def test_where_its_library_is_not_there_that_is_named(check: Check, tmp_path: Path) -> None:
    moved = Path(shutil.copy(check.command, tmp_path))
    moved.write_bytes(moved.read_bytes().replace(b"/libregx-check.so", b"/libregx-moved.so"))
    done = check.plain(moved, "echo", "out")
    assert (done.returncode, done.stdout) == (126, ""), done.stderr
    assert done.stderr.endswith("/libregx-moved.so: No such file or directory\n") and done.stderr.count("\n") == 1


def test_a_static_program_is_named(check: Check, tmp_path: Path) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text("int main(void) { return 4; }\n")
    subprocess.run(["cc", "-static", "-o", program, source], check=True)
    done = check.run(program)
    assert done.returncode == 4
    assert "no process loaded libregx-check.so" in done.stderr


@pytest.mark.parametrize(("words", "status", "said"), [(["no-such-command"], 127, "no-such-command: No such file or directory"),
    (["--limit", "0", "true"], 2, "--limit=0: allowed: 1 to 256"), (["--limit", "many", "true"], 2, "--limit=many: allowed: 1 to 256"),
    (["--suppress", "/no/file", "true"], 2, "--suppress=/no/file: No such file or directory"),
    (["--suppress", "/", "true"], 2, "--suppress=/: Is a directory"),
    (["--json", "/no/file", "true"], 2, "--json=/no/file: No such file or directory"),
    (["--help", "true"], 0, "usage: regx-check "), ([], 2, "usage: regx-check ")])
def test_bad_input_is_named(check: Check, words: list[str], status: int, said: str) -> None:
    done = check.plain(check.command, *words)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"regx-check: {said}")


# ---- over an RDMA device ----

@device.needed
@pytest.mark.core
def test_where_memlock_is_short_the_program_gets_what_it_would_without_the_witness(over_device: Check) -> None:
    """Registered are 128 KiB, and the witness would be charged for as much again."""
    done = over_device.run("prlimit", f"--memlock={192 << 10}", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock",
                           over_device.built / "stale", "munmap", "write", 3)
    assert (done.returncode, done.stdout) == (3, "stale: done\n"), done.stderr
    assert "bytes are not compared any more" in done.stderr
    assert {fault["verdict"] for fault in over_device.faults()} == {"stale, bytes not compared"}


@device.needed
@pytest.mark.core
def test_over_a_device_wrong_data_is_found_and_right_data_is_not(over_device: Check) -> None:
    for change in ["munmap", "raw", "madvise"]:
        found_once(over_device, over_device.stale(change, "write"), DIFFERENT, "madvise" if change == "madvise" else "munmap", "a write")
    test_what_was_read_is_in_the_pages_that_are_gone(over_device)
    for change, use in [("none", "write"), ("beside", "write"), ("fork", "write"), ("none", "written")]:
        done = over_device.stale(change, use, 20)
        assert (done.returncode, over_device.faults()) == (0, []), done.stderr
    # The peer writes to what was the same when it was offered.
    found_once(over_device, over_device.stale("hole", "written"), DIFFERENT, "fallocate", "a peer that wrote to what it was offered")


@device.needed
@pytest.mark.core
@pytest.mark.parametrize(("stack", "wrong"), [("pml/ucx", 2 * stacks.ROUNDS - 2), ("regx notifier", 0)])
@pytest.mark.parametrize("side", ["send", "receive"])
def test_of_rounds_with_wrong_bytes_each_is_reported_and_no_other(over_device: Check, stack: str, wrong: int, side: str) -> None:
    """Also where nothing of the process whose memory it is posts it: the peer reads what it was offered."""
    raw, rounds = "munmap, mmap by the system call", 2 * stacks.ROUNDS
    assert over_device.command.exists()
    assert stacks.job(stack, side, raw, "none") == {raw: f"{wrong} 0 0 {rounds}", "none": f"0 0 0 {rounds}"}


def test_the_table_of_stacks_is_what_its_program_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, columns = stacks.FILE.read_text(), stacks.read()
    monkeypatch.setattr(stacks, "FILE", tmp_path / "stale.md")
    stacks.write(columns)
    assert stacks.FILE.read_text() == text
    assert all(cell == "0" for stack, column in columns.items() if stack in ("regx none", "regx notifier", "regx kernel")
               for row, cell in column.items() if (stack, row) != ("regx notifier", "shmat SHM_REMAP over it"))
