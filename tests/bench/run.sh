#!/usr/bin/env bash
# Measures kafkafs against its peers, on this machine and in one run, and prints one table.
#   tests/bench/run.sh                       every row
#   tests/bench/run.sh --rows 1-2 --json     some rows; --help tells the rest
# Installs what is missing: everything tests/setup.sh does, aiokafka, kcat. Logs of about 9 GB are made once and kept
# in ~/.cache/kafkafs-bench until `tests/bench/run.sh --clean`. Nothing else should run meanwhile.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=$(tests/setup.sh test)
"$venv/bin/python" -c 'import aiokafka' 2>/dev/null ||
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'aiokafka>=0.12' >&2
if ! command -v kcat >/dev/null; then
    root=; [ "$(id -u)" = 0 ] || root=sudo
    $root apt-get update -qq >/dev/null || true
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat >/dev/null
fi
exec "$venv/bin/python" -m tests.bench "$@"
