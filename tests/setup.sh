#!/usr/bin/env bash
# Gets a Debian machine ready, and is quick when it is: packages, a virtual environment in .venv, kafkafs in it.
#   tests/setup.sh mount   what mounting and examples/quickstart.sh need
#   tests/setup.sh spark   what examples/pipeline.sh needs: PySpark, Java
#   tests/setup.sh test    both, and what the tests need: linters, the jars of a Kafka broker and of Spark's Kafka source
# Installs packages as root, or through sudo. Says on stderr what it does, and on stdout where the environment is.
# A machine that cannot have what is needed is refused with one line that says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-test}
python=${PYTHON:-python3}
venv=.venv

say() { printf 'setup: %s\n' "$*" >&2; }
refuse() { say "cannot go on: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif have sudo; then sudo "$@"
    else refuse "'$*' needs root: run this as root, or install sudo"
    fi
}

# The Debian packages that are missing, told by what they bring and not by their names: any JDK or compiler will do.
missing_packages() {
    have "$python" || echo python3
    have gcc || echo gcc libc6-dev
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    "$python" -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null || echo python3-dev
    if [ "$what" = spark ]; then
        have java || echo default-jre-headless
        return
    fi
    # pyfuse3 exists only as source
    have pkg-config || echo pkg-config
    pkg-config --exists fuse3 2>/dev/null || echo libfuse3-dev
    have jq || echo jq
    have getfattr || echo attr
    have fusermount3 || echo fuse3
    if [ "$what" = test ]; then
        have javac || echo default-jdk-headless
        have mvn || echo maven
    fi
}

# The Debian packages of the programs that only the tests call.
missing_test_programs() {
    have vim || have vim.tiny || echo vim-tiny
    have nano || echo nano
    have perl || echo perl
    have less || echo less
    have rg || echo ripgrep
    have rsync || echo rsync
    have sqlite3 || echo sqlite3
    have zip || echo zip
    have man || echo man-db
    have mandoc || echo mandoc
    have systemd-analyze || echo systemd
    have chromium || echo chromium
    have chromedriver || echo chromium-driver
}

# install_packages MISSING: what the function MISSING prints.
install_packages() {
    local packages
    packages=$("$1" | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    have apt-get || refuse "this machine has no apt-get; install what the Debian packages $packages bring"
    say "installing $packages"
    as_root apt-get update -qq >/dev/null || say "apt-get update failed; trying with the lists that are there"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
        refuse "apt-get could not install $packages"
    packages=$("$1" | tr '\n' ' ')
    [ -z "$packages" ] || refuse "still missing after installing: $packages"
}

check_python() {
    have "$python" || refuse "there is no $python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        refuse "$("$python" --version) is too old: kafkafs needs Python 3.11"
}

check_fuse() {
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || refuse "there is no /dev/fuse: FUSE cannot be used here (a container needs --device /dev/fuse --cap-add SYS_ADMIN)"
    (exec 3<>/dev/fuse) 2>/dev/null || refuse "/dev/fuse cannot be opened by $(id -un)"
    if [ "$(id -u)" = 0 ]; then
        local capabilities
        capabilities=$(sed -n 's/^CapEff:\s*//p' /proc/self/status)
        # bit 21 is CAP_SYS_ADMIN, without which the mount system call is refused
        [ $((0x$capabilities >> 21 & 1)) = 1 ] || refuse "root may not mount here: the container needs --cap-add SYS_ADMIN"
    fi
}

check_java() {
    "$1" -version >/dev/null 2>&1 || refuse "there is no Java: $1 does not run"
}

# pip_option NAME VARIABLE: what pip is configured with, under the name that uv knows; uv reads no configuration of pip.
pip_option() {
    local value
    value=$("$venv/bin/python" -m pip config list 2>/dev/null | sed -n "s/^[^=]*\\.$1='\\(.*\\)'\$/\\1/p" | head -n 1)
    [ -z "$value" ] || export "$2=$value"
}

# uv resolves, fetches and builds side by side: half of pip's processor time, a third of its time. pip takes its place on
# a machine for which there is no uv, or where uv fails, which says why: it knows less of what pip is configured with.
# install_python_packages REQUIREMENT
install_python_packages() {
    # 400 MB of jars need not be compressed, only to be unpacked
    printf '[bdist_wheel]\ncompression = stored\n' >"$venv/build.cfg"
    # KAFKAFS_KERNELS=c: the build fails if it cannot compile the kernels
    export KAFKAFS_KERNELS=c DIST_EXTRA_CONFIG=$PWD/$venv/build.cfg PIP_DISABLE_PIP_VERSION_CHECK=1
    if "$venv/bin/python" -m pip install --quiet --only-binary uv 'uv>=0.11' >&2; then
        export UV_SYSTEM_CERTS=true # as pip does
        pip_option find-links UV_FIND_LINKS
        pip_option cert SSL_CERT_FILE
        # else each module is compiled when it is first imported: most of the tests' 14,000 never are
        [ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || export UV_COMPILE_BYTECODE=1
        "$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --editable "$1" >&2 && return
    fi
    say "uv could not install kafkafs (see above): pip tries it"
    "$venv/bin/python" -m pip install --quiet --editable "$1" >&2
}

# Packages are installed only when what would be installed has changed: the declarations, the kernels' sources, Python
# itself, which is the same one in an active environment.
# install_kafkafs SET_UP EXTRAS
install_kafkafs() {
    local extras=$2 stamp wanted
    stamp=$venv/kafkafs-$1.stamp
    wanted=$({ "$python" -c 'import sys; print(sys.base_prefix, sys.version)'; pwd; cat pyproject.toml setup.py storage/format/kernels/*.py; } | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    say "installing .$extras"
    (install_python_packages ".$extras") || refuse "neither uv nor pip could install kafkafs"
    rm -f "$venv"/kafkafs-*.stamp
    printf '%s\n' "$wanted" >"$stamp"
}

case $what in mount | spark | test) ;; *) refuse "no such set-up: $what (mount, spark or test)" ;; esac
install_packages missing_packages
check_python
[ "$what" = spark ] || check_fuse
case $what in spark) check_java java ;; test) check_java javac ;; esac
# Beside the Python packages, with a Python that has none.
beside=()
if [ "$what" = test ]; then
    install_packages missing_test_programs >/dev/null &
    beside+=($!)
    {
        "$python" -m tests.broker.set_up || refuse "the jars of a Kafka broker could not be had (the lines above say why)"
        "$python" -m tests.spark.kafka_source || refuse "the jars of Spark's Kafka source could not be had (the lines above say why)"
    } >/dev/null &
    beside+=($!)
fi
# An environment that has more than is asked for is kept as it is.
if [ "$what" = test ] || [ -e "$venv/kafkafs-test.stamp" ]; then
    install_kafkafs test '[test]'
elif [ "$what" = spark ] || [ -e "$venv/kafkafs-spark.stamp" ]; then
    install_kafkafs spark '[spark]'
else
    install_kafkafs mount '[mount]'
fi
for each in "${beside[@]}"; do wait "$each" || exit 1; done # which has said why
printf '%s\n' "$PWD/$venv"
