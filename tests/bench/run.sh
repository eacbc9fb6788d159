#!/usr/bin/env bash
# Measures kafkafs against its peers, on this machine and in one run, and prints one table, each row as it is measured.
#   tests/bench/run.sh                       every row
#   tests/bench/run.sh --rows 1-2 --json     some rows; --help describes the options
# Installs what is missing: everything tests/setup.sh does, aiokafka, kcat. If a peer cannot be installed, its rows fail
# and the others are measured. Logs of about 9 GB are made once and kept in ~/.cache/kafkafs-bench until
# `tests/bench/run.sh --clean`. Nothing else should run meanwhile.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KAFKAFS_KERNELS=c # uncompiled kernels end the run, rather than being measured
unset PYTHONDONTWRITEBYTECODE # an installed kafkafs is not compiled anew by each command
venv=$(tests/setup.sh test)

lacks() { printf 'bench: %s cannot be installed; its rows will fail\n' "$1" >&2; }

install_kcat() {
    local root=
    [ "$(id -u)" = 0 ] || root=sudo
    $root apt-get update -qq >/dev/null || true
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat >/dev/null
}

"$venv/bin/python" -c 'import aiokafka' 2>/dev/null ||
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'aiokafka>=0.12' >&2 || lacks aiokafka
command -v kcat >/dev/null || install_kcat || lacks kcat
exec "$venv/bin/python" -m tests.bench "$@"
