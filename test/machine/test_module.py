# SPDX-License-Identifier: BSD-3-Clause
"""The kernel module with one thing wrong: its tests in the emulated machine find it."""
import os
import subprocess
from pathlib import Path

import pytest

import module
from test_inside import PYTEST, RUN

TOP = Path(__file__).resolve().parents[2]
HEADERS = TOP / ".build/machine/headers-trixie-backports"
WRONG = {
    "a change is told when it has been made": [
        ("    if (tree_iter_first(&notifier->tree, range->start, range->end - 1))\n"
         "        tell(notifier, range->start, range->end);\n", ""),
        ("    if (!left && notifier->beyond)\n",
         "    if (tree_iter_first(&notifier->tree, range->start, range->end - 1))\n"
         "        tell(notifier, range->start, range->end);\n"
         "    if (!left && notifier->beyond)\n")],
    "a watch misses its last page": [
        ("    const struct watch of = {.first = first,",
         "    last -= last - first > PAGE_SIZE ? PAGE_SIZE : 0;\n    const struct watch of = {.first = first,")],
    "a child keeps the parent's": [("    if (current->mm != notifier->mm)\n        return -EPERM;\n", "")],
    "a watch does not wait": [
        ("wait_event_killable(notifier->ended, !under_way(notifier, &of, upto))",
         "false && under_way(notifier, &of, upto)")],
    "watches outlive their file": [("        kmem_cache_free(watch_cache, rb_entry(at, struct watch, node));\n", "")],
    "the tree loses a range": [
        ("        if (watch->subtree_last < new->last)\n            watch->subtree_last = new->last;\n", "")],
}

pytestmark = [pytest.mark.full,  # they change with the module alone
              pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the guest's root")]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_module_is_found(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([RUN, "--fetch"], stdin=subprocess.DEVNULL, check=True, timeout=3600)
    sources = []
    for source in module.SOURCES:
        text = source.read_text()
        if source.name == "regx_notify.c":
            for old, new in WRONG[wrong]:
                assert text.count(old) == 1, old
                text = text.replace(old, new)
        sources.append(tmp_path / source.name)
        sources[-1].write_text(text)
    monkeypatch.setattr(module, "SOURCES", sources)
    made = tmp_path / "made"
    made.mkdir()
    module.build(HEADERS, made)
    run = subprocess.run([RUN, "--timeout", "1800", "--module", made / module.FILE, "--", *PYTEST,
                          "test/registration/test_notify.py"], stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, errors="replace", check=False, timeout=2400)
    assert run.returncode == 1 and " failed" in run.stdout, f"status {run.returncode}\n{run.stdout}\n{run.stderr}"
