"""Builds the sdist and the wheels of a release from the last commit, and uploads nothing.

    .ci/release                          all of them, in dist/
    .ci/release --check                  the same; each is installed in a bare Debian and tried
    .ci/release --without 3.14 aarch64   all but these

The wheels are one for each Python of PYTHONS on x86-64 and aarch64, tagged manylinux_2_28 by
auditwheel, and one for all other platforms (py3-none-any), whose kernels run uncompiled. What this
machine cannot build or check is an error, unless --without leaves it out.

A Python is taken from the PATH or from pyenv; if neither has it, from the Debian suite that does.
aarch64 is cross-compiled by Debian's gcc-aarch64-linux-gnu with the headers of the x86-64 Python:
both platforms have the same sizes and byte order, and no public header uses the macros in which
their pyconfig.h differ. --check runs these wheels in QEMU.

With CFLAGS=-O0 the same is tried in half the time, but such wheels are slow.

Needs Debian's packages gcc, mmdebstrap, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and, for
--check, qemu-user-static; --check needs root, for chroot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "release"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # and Debian's name
POLICY = "manylinux_2_28"
#: The Debian suite that has a Python.
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}
PURE = "any"
CORPUS = ROOT / "tests" / "data" / "corpora" / "kafka43-clean.tar.gz"
#: A library that manylinux wheels may expect of every machine, and numpy does.
RUNTIME = "libstdc++6"
#: What a bare root must not have.
COMPILERS = ("gcc", "cc", "clang", "x86_64-linux-gnu-gcc")


class Missing(Exception):
    """This machine lacks what a wheel needs."""


def run(*command: object, env: Mapping[str, str] | None = None) -> str:
    """Runs a command and returns its output. Exits with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )
    if done.returncode != 0:
        sys.exit(f"release: failed: {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    print(f"release: {text}", file=sys.stderr, flush=True)


# -- interpreters ---------------------------------------------------------------------------------


def bare_root(version: str, machine: str, *more: str) -> Path:
    """Returns a directory with what Debian's Python `version` needs to run, and `more` packages;
    nothing else. Raises Missing if no suite has it."""
    if version not in SUITES or shutil.which("mmdebstrap") is None:
        raise Missing(f"Python {version} for {machine}: neither here nor in Debian by mmdebstrap")
    root = WORK / "-".join(["root", version, machine, *more])
    if not root.exists():
        say(f"{root.name}: from Debian {SUITES[version]}")
        packages = [f"python{version}", f"python{version}-venv", *more]
        # Snapshots of a registry may be older than a suite's Release file allows.
        fresh = 'Acquire::Check-Valid-Until "false"'
        made = root.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        run(
            *("mmdebstrap", "--quiet", "--variant=extract", f"--aptopt={fresh}"),
            *(f"--architectures={MACHINES[machine]}", f"--include={','.join(packages)}"),
            *(SUITES[version], made),
        )
        for name in ("bin", "lib", "lib64", "sbin"):
            if (made / "usr" / name).exists() and not (made / name).exists():
                (made / name).symlink_to(f"usr/{name}")
        made.rename(root)
    return root


def debian_python(version: str) -> Path:
    """Returns Debian's Python, made to run here: with the C library of its own suite."""
    root = bare_root(version, "x86_64", f"libpython{version}-dev")
    python = root / "usr" / "bin" / f"python{version}"
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    loader = libraries / "ld-linux-x86-64.so.2"
    if run("patchelf", "--print-interpreter", python).strip() != str(loader):
        # Debian's pyconfig.h includes that of the machine from /usr/include.
        headers = root / "usr" / "include"
        of_machine = headers / "x86_64-linux-gnu" / f"python{version}" / "pyconfig.h"
        shutil.copy(of_machine, headers / f"python{version}")
        run("patchelf", "--force-rpath", "--set-rpath", libraries, python)
        run("patchelf", "--set-interpreter", loader, python)
    return python


def find_python(version: str) -> Path:
    """Returns a Python with headers. Raises Missing."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python3"))]
    show = (
        "import sys, sysconfig; print(*sys.version_info[:2], sep='.', end=' ');"
        "print(sysconfig.get_path('include'))"
    )
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", show], capture_output=True, text=True, check=False)
        found, _, headers = done.stdout.strip().partition(" ")
        if found == version and Path(headers, "Python.h").exists():
            return Path(candidate)
    return debian_python(version)


# -- wheels ---------------------------------------------------------------------------------------


def build_sdist(target: Path) -> Path:
    """Builds the sdist of the last commit."""
    tree, archive = WORK / "tree", WORK / "tree.tar"
    shutil.rmtree(tree, ignore_errors=True)
    run("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as committed:
        committed.extractall(tree, filter="data")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", target, tree)
    [sdist] = target.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, python: Path, env: Mapping[str, str]) -> Path:
    """Builds a wheel of the sdist in an environment of its own, as `pip install` would."""
    venv = WORK / f"venv-{python.name}-{abs(hash(python))}"
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    run(sys.executable, "-m", "virtualenv", "--quiet", "--clear", "--python", python, venv)
    run(venv / "bin/python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", raw, sdist, env=env)
    shutil.rmtree(venv)
    [wheel] = raw.glob("*.whl")
    return wheel


def cross_environment(version: str) -> dict[str, str]:
    """Returns the environment in which setuptools compiles for aarch64. Raises Missing."""
    compiler = "aarch64-linux-gnu-gcc"
    if shutil.which(compiler) is None:
        raise Missing(f"{compiler}: install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross")
    tag = version.replace(".", "")
    return {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        # Not those of the x86-64 Python, some of which are options of its processor.
        "CFLAGS": os.environ.get("CFLAGS", "-O3 -g0 -fwrapv -DNDEBUG"),
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{tag}-aarch64-linux-gnu.so",
    }


def build_manylinux(sdist: Path, version: str, machine: str, target: Path) -> Path:
    """Builds a compiled wheel and has auditwheel check and tag it. Raises Missing."""
    python = find_python(version)
    env = {"KAFKAFS_KERNELS": "c"}
    if machine != "x86_64":
        env |= cross_environment(version)
    raw = build_wheel(sdist, python, env)
    platform = f"{POLICY}_{machine}"
    # auditwheel judges wheels of any machine, but its command line offers only this one's.
    auditwheel = (
        "from auditwheel.architecture import Architecture; from auditwheel.main import main;"
        f"Architecture.detect = staticmethod(lambda **_: Architecture.{machine}); main()"
    )
    repair = ["repair", "--only-plat", "--plat", platform, "--wheel-dir", target, raw]
    run(sys.executable, "-c", auditwheel, *repair)
    tag = "cp" + version.replace(".", "")
    [wheel] = target.glob(f"*-{tag}-{tag}-{platform}.whl")
    return wheel


def build_pure(sdist: Path, target: Path) -> Path:
    """Builds the wheel for the platforms that have no other."""
    wheel = build_wheel(sdist, Path(sys.executable), {"KAFKAFS_KERNELS": "python"})
    return Path(shutil.copy(wheel, target))


# -- checks ---------------------------------------------------------------------------------------


def download(wheel: Path, version: str, machine: str) -> Path:
    """Downloads the wheels that the wheel depends on; source distributions do not count."""
    target = WORK / f"wheels-{version}-{machine}"
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in (28, 27, 24, 17)]
    platforms += [f"--platform=manylinux2014_{machine}"]
    only = ["--only-binary=:all:", f"--python-version={version}", "--implementation=cp"]
    run(sys.executable, "-m", "pip", "download", "--quiet", *only, *platforms, "-d", target, wheel)
    return target


def read_corpus(kafkafs: Sequence[object], corpus: Path, env: Mapping[str, str]) -> str:
    """Reads a log directory with an installed `kafkafs`; returns what its --version reports."""
    value = run(*kafkafs, "cat", corpus, "orders/0/offset/600", env=env)
    assert value.startswith('{"order":1780,'), value
    checked = run(*kafkafs, "verify", corpus, env=env)
    assert checked.endswith("nothing is wrong\n"), checked
    return run(*kafkafs, "--version", env=env)


def unpack_corpus(target: Path) -> None:
    with tarfile.open(CORPUS) as archive:
        archive.extractall(target, filter="data")


def check_in_chroot(wheel: Path, version: str, form: str) -> str:
    """Installs the wheel in a bare root of this machine's kind by pip, and reads a corpus."""
    root = WORK / "root-check"
    shutil.rmtree(root, ignore_errors=True)
    suite_version = version if version in SUITES else "3.11"
    run("cp", "-a", bare_root(suite_version, "x86_64", RUNTIME), root)
    python = Path(f"/usr/bin/python{version}")
    if suite_version != version:
        python = copy_without_headers(find_python(version), root)
    present = [name for name in COMPILERS if (root / "usr/bin" / name).exists()]
    present += map(str, root.rglob("Python.h"))
    assert not present, f"not a bare root: {present}"
    run("cp", "-a", download(wheel, version, "x86_64"), root / "wheels")
    shutil.copy(wheel, root / "wheels")
    unpack_corpus(root)
    # Debian's pip reads the certificates at every start.
    certificates = Path("etc/ssl/certs/ca-certificates.crt")
    (root / certificates).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy("/" / certificates, root / certificates)
    chroot = ["env", "-i", "PATH=/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8", "chroot", root]
    run(*chroot, python, "-m", "venv", "/venv")
    pip = ["/venv/bin/python", "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    run(*chroot, *pip, "--no-index", "--find-links=/wheels", f"/wheels/{wheel.name}")
    report = read_corpus([*chroot, "/venv/bin/kafkafs"], Path("/kafka43-clean"), {})
    assert f"kernels: {form}\n" in report, report
    shutil.rmtree(root)
    return report


def copy_without_headers(python: Path, root: Path) -> Path:
    """Copies a Python of this machine into the root, to the same path; returns its path there."""
    prefix = Path(run(python, "-c", "import sys; print(sys.base_prefix)").strip())
    target = root / prefix.relative_to("/")
    leave_out = shutil.ignore_patterns("include", "test", "__pycache__", "config-3*")
    shutil.copytree(prefix, target, symlinks=True, ignore=leave_out)
    return prefix / "bin" / "python3"


def check_in_qemu(wheel: Path, version: str) -> str:
    """Unpacks the wheel and those it depends on beside an aarch64 Debian's Python, and reads a
    corpus in QEMU. Raises Missing if there is no such Python."""
    if shutil.which("qemu-aarch64-static") is None:
        raise Missing("qemu-aarch64-static: install qemu-user-static")
    root = bare_root(version, "aarch64", RUNTIME)
    site = WORK / "site-aarch64"
    shutil.rmtree(site, ignore_errors=True)
    wheels = download(wheel, version, "aarch64")
    for each in {*wheels.glob("*.whl"), wheel}:
        shutil.unpack_archive(each, site, "zip")
    corpus = WORK / "corpus"
    unpack_corpus(corpus)
    python = ["qemu-aarch64-static", "-L", root, root / f"usr/bin/python{version}"]
    # -P: not the kafkafs of the current directory
    python += ["-P", "-m", "kafkafs"]
    env = {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": str(site)}
    report = read_corpus(python, corpus / "kafka43-clean", env)
    assert "kernels: compiled\n" in report, report
    return report


def check(wheel: Path, version: str, machine: str) -> str:
    if machine == "aarch64":
        return check_in_qemu(wheel, version)
    return check_in_chroot(wheel, version, "uncompiled" if machine == PURE else "compiled")


# -- the release ----------------------------------------------------------------------------------


def selected(without: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (version of Python, machine) of each wheel to build."""
    for machine in MACHINES:
        for version in PYTHONS:
            if version not in without and machine not in without:
                yield version, machine


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="install and try each wheel")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--without", nargs="+", default=[], choices=[*PYTHONS, *MACHINES])
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for old in options.output.glob("kafkafs-*"):
        old.unlink()
    sdist = build_sdist(options.output)
    wheels = {(PYTHONS[0], PURE): build_pure(sdist, options.output)}
    failures = []
    for version, machine in selected(options.without):
        try:
            wheels[version, machine] = build_manylinux(sdist, version, machine, options.output)
            say(f"built {wheels[version, machine].name}")
        except Missing as missing:
            failures.append(f"not built: Python {version} on {machine}: {missing}")
    for (version, machine), wheel in wheels.items() if options.check else ():
        try:
            report = check(wheel, version, machine)
            say(f"{wheel.name} works: {', '.join(report.splitlines()[1:4])}")
        except Missing as missing:
            failures.append(f"not tried: {wheel.name}: {missing}")
    for failure in failures:
        say(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
