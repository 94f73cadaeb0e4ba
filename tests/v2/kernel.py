"""Debian's own kernel, taken apart: the package goes into a cache folder, nothing is installed.

What the cache holds afterwards, in a folder named after the kernel package:
  vmlinux      the ELF image inside the package's bzImage. QEMU starts it directly (PVH), which saves
               the seconds that an emulated processor needs to unpack xz. If there is none, `vmlinuz`.
  modules/     the modules the guest needs, flat.
  order        their names, one a line, each after those it depends on.

Dependencies are read from the modules themselves (the `depends=` entry of .modinfo), so neither
kmod nor a modules.dep is needed.
"""

import lzma
import os
import re
import shutil
import subprocess
import tarfile
import tempfile

META_PACKAGE = "linux-image-amd64"

# crc32c_generic is nobody's dependency by name: ext4 asks the crypto layer for an algorithm, and the
# crypto layer would ask modprobe, which an initramfs of this size does not have.
WANTED = ["virtio_pci", "virtio_blk", "virtio_console", "virtio_rng", "9pnet_virtio", "9p",
          "crc32c_generic", "ext4", "loop", "overlay"]

XZ_MAGIC = b"\xfd7zXZ\x00"


class KernelError(Exception):
    """The sentence says what is missing and what to do."""


class Kernel:
    def __init__(self, folder):
        self.folder = folder
        plain = os.path.join(folder, "vmlinux")
        self.image = plain if os.path.exists(plain) else os.path.join(folder, "vmlinuz")
        with open(os.path.join(folder, "order"), encoding="ascii") as f:
            self.modules = [os.path.join(folder, "modules", name) for name in f.read().split()]


def _run(argv, **kwargs):
    try:
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, **kwargs).stdout
    except FileNotFoundError:
        raise KernelError(f"{argv[0]} is not installed, and the kernel package cannot be had without it")
    except subprocess.CalledProcessError as e:
        raise KernelError(f"{' '.join(argv)} failed: {e.stderr.strip()}\n"
                          "Try `apt-get update` first; the kernel comes from the Debian archive.")


def _package_name():
    """The real package behind the meta package, as linux-image-6.1.0-44-amd64."""
    for line in _run(["apt-cache", "depends", META_PACKAGE]).splitlines():
        found = re.match(r"\s*\|?Depends: (linux-image-\d\S+)", line)
        if found:
            return found.group(1)
    raise KernelError(f"apt-cache knows no kernel behind {META_PACKAGE}; run `apt-get update`")


def _module_name(file_name):
    return os.path.basename(file_name)[:-len(".ko")].replace("-", "_")


def _depends(blob):
    found = re.search(rb"\0depends=([^\0]*)\0", blob)
    return [n.replace("-", "_") for n in found.group(1).decode().split(",") if n] if found else []


def _load_order(modules, builtin):
    """Names in the order in which insmod must see them. modules: name -> bytes."""
    order = []

    def visit(name):
        if name in order or name in builtin:
            return
        if name not in modules:
            raise KernelError(f"the kernel package has no module {name}")
        for dependency in _depends(modules[name]):
            visit(dependency)
        order.append(name)

    for name in WANTED:
        visit(name)
    return order


def _read_package(deb):
    """One pass over the package's files: (vmlinuz, {module name: bytes}, {names built in})."""
    vmlinuz, modules, builtin = None, {}, set()
    rooms = re.compile(r"/kernel/(fs|net/9p|drivers/(virtio|block|char)|crypto|lib|arch/x86/crypto)/")
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as unpack:
        with tarfile.open(fileobj=unpack.stdout, mode="r|") as tar:
            for member in tar:
                if not member.isfile():
                    continue
                if "/boot/vmlinuz-" in member.name:
                    vmlinuz = tar.extractfile(member).read()
                elif member.name.endswith("/modules.builtin"):
                    lines = tar.extractfile(member).read().decode().split()
                    builtin = {_module_name(line) for line in lines}
                elif member.name.endswith(".ko") and rooms.search(member.name):
                    modules[_module_name(member.name)] = tar.extractfile(member).read()
    if unpack.returncode or vmlinuz is None:
        raise KernelError(f"{os.path.basename(deb)} does not hold a kernel; remove it and try again")
    return vmlinuz, modules, builtin


def _plain_image(vmlinuz):
    """The ELF image packed inside a bzImage, or None when it is not packed with xz."""
    start = vmlinuz.find(XZ_MAGIC)
    if start < 0:
        return None
    try:
        image = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(vmlinuz[start:])
    except lzma.LZMAError:
        return None
    return image if image.startswith(b"\x7fELF") else None


def _write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def prepare(cache):
    """Makes sure the cache holds a kernel and returns it. The newest one the package lists name is
    fetched; without package lists or network the one in the cache does."""
    os.makedirs(cache, exist_ok=True)
    try:
        name = _package_name()
    except KernelError:
        kept = sorted(d for d in os.listdir(cache) if d.startswith("linux-image-"))
        if not kept:
            raise
        name = kept[-1]
    folder = os.path.join(cache, name)
    if os.path.exists(os.path.join(folder, "order")):
        return Kernel(folder)

    with tempfile.TemporaryDirectory(dir=cache) as work:
        # apt's own unprivileged user cannot write here, and needs not: the archive is signed.
        _run(["apt-get", "download", "-o", f"APT::Sandbox::User={_user_name()}", name], cwd=work)
        deb = next(os.path.join(work, f) for f in os.listdir(work) if f.endswith(".deb"))
        vmlinuz, modules, builtin = _read_package(deb)
        order = _load_order(modules, builtin)

        new = os.path.join(work, "new")
        os.makedirs(os.path.join(new, "modules"))
        for module in order:
            _write(os.path.join(new, "modules", module + ".ko"), modules[module])
        image = _plain_image(vmlinuz)
        _write(os.path.join(new, "vmlinux" if image else "vmlinuz"), image or vmlinuz)
        _write(os.path.join(new, "order"), "".join(m + ".ko\n" for m in order).encode())
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(new, folder)
    return Kernel(folder)


def _user_name():
    import pwd
    return pwd.getpwuid(os.geteuid()).pw_name
