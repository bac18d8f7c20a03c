# SPDX-License-Identifier: BSD-3-Clause
"""A stock kernel of Debian, as QEMU boots it fastest: an ELF image, and an initrd that only finds
the disk and brings the modules for Soft-RoCE.
"""
import lzma
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from packages import Packages, output
from trouble import Trouble

PACKAGE = "linux-image-amd64"
# What is loaded, in this order, each behind what it depends on. Kernels differ in how they cut
# checksums into modules; there they may be absent.
MODULES = ["virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "ext4", "dummy", "veth",
           "rdma_rxe", "ib_uverbs", "rdma_ucm"]
IF_THERE = ["crc32c_generic", "crc32_generic", "crc32c_intel", "crc32_pclmul"]
INIT = Path(__file__).with_name("initrd-init")


def zstd(data: bytes) -> bytes:
    # It complains of what follows the stream; whether the result is right is seen from its start.
    return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False).stdout


UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x28\xb5\x2f\xfd": zstd,
    b"\xfd7zXZ\0": lambda data: lzma.LZMADecompressor().decompress(data),
    b"\x1f\x8b\x08": lambda data: zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data),
}


def elf_image(image: bytes) -> bytes:
    """The kernel that a bzImage unpacks at its start: under emulation that takes long."""
    for magic, unpack in UNPACK.items():
        at = image.find(magic)
        while at >= 0:
            try:
                kernel = unpack(image[at:])
            except (lzma.LZMAError, zlib.error):
                kernel = b""
            if kernel.startswith(b"\x7fELF"):
                return kernel
            at = image.find(magic, at + 1)
    raise Trouble("the kernel's image is packed in a way that is not known here")


def load_order(folder: Path) -> list[Path]:
    """The files of the wanted modules, each behind those that it needs."""
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        file, _, others = line.partition(":")
        needs[folder / file] = [folder / other for other in others.split()]
    named = {file.name.split(".")[0].replace("-", "_"): file for file in needs}
    built_in = {Path(line).stem.replace("-", "_")
                for line in (folder / "modules.builtin").read_text().splitlines()}
    order: list[Path] = []

    def add(file: Path) -> None:
        for other in needs[file]:
            add(other)
        if file not in order:
            order.append(file)

    for name in IF_THERE + MODULES:
        if name in named:
            add(named[name])
        elif name not in IF_THERE and name not in built_in:
            raise Trouble(f"this kernel has no module {name}")
    return order


def initrd(folder: Path, to: Path) -> None:
    """Writes an initrd with the modules of the unpacked kernel in `folder`."""
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to("usr/lib")
    modules, = (folder / "lib/modules").iterdir()
    for packed in modules.rglob("*.ko.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()
    output(["depmod", "-b", folder, modules.name])
    tree = folder / "initrd"
    for part in ("bin", "modules", "dev", "proc", "new"):
        (tree / part).mkdir(parents=True)
    shutil.copy(INIT, tree / "init")
    shutil.copy(shutil.which("busybox") or "busybox", tree / "bin/busybox")
    order = load_order(modules)
    for module in order:
        shutil.copy(module, tree / "modules")
    (tree / "modules/order").write_text("".join(f"{module.name}\n" for module in order))
    output(["sh", "-c", f"cd '{tree}' && find . | cpio --quiet -o -H newc >'{to}'"])


def fetch(suite: str, cache: Path) -> None:
    """Puts `vmlinux` and `initrd` of that suite's kernel into an empty folder."""
    with tempfile.TemporaryDirectory(dir=cache) as name:
        packages = Packages(suite, Path(name) / "apt")
        folder = Path(name) / "unpacked"
        wanted = [PACKAGE]
        for package in wanted:  # since 7.x a kernel comes in several packages
            wanted += [other for other in packages.depends(package) if other not in wanted and
                       other.startswith(("linux-image-", "linux-base-", "linux-binary-",
                                         "linux-modules-"))]
            packages.download(package, folder)
        images = [path for path in folder.glob("**/vmlinuz*") if path.is_file()]
        if len(images) != 1:
            raise Trouble(f"{suite}: {len(images)} kernels in {', '.join(wanted)}")
        (cache / "vmlinux").write_bytes(elf_image(images[0].read_bytes()))
        initrd(folder, cache / "initrd")
