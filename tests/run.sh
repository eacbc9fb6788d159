#!/usr/bin/env bash
# Sets the machine up (tests/setup.sh) and runs every test. Safe to repeat, and quick the second time.
#   tests/run.sh                 all: linters, types, quick tests, the kernels uncompiled, slow ones and a real broker, Spark
#   tests/run.sh --fast          only the quick tests
#   tests/run.sh [--fast] ARGS   ARGS go to pytest: tests/run.sh --fast tests/storage -k index
set -euo pipefail
cd "$(dirname "$0")/.."
fast=
if [ "${1:-}" = --fast ]; then fast=1; shift; fi
chosen=$#
if [ $chosen = 0 ]; then set -- tests; fi

SECONDS=0
report=
# step NAME COMMAND…: runs it and notes its seconds; the first that fails ends the run
step() {
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" || { printf '\nFAILED: %s, after %d s\n' "$name" $((SECONDS - start)) >&2; exit 1; }
    report+=$(printf '%6d s  %s' $((SECONDS - start)) "$name")$'\n'
}

# Arguments that choose tests may choose none of one step's; without arguments that is an error.
tests() {
    local status=0
    python -m pytest -q --numprocesses auto --maxprocesses 4 --dist worksteal "$@" || status=$?
    [ $status = 0 ] || { [ $status = 5 ] && [ "$chosen" != 0 ]; }
}

uncompiled() {
    [ "$chosen" != 0 ] || set -- "${@:1:2}" tests/storage
    KAFKAFS_KERNELS=python tests "$@"
}

lint() {
    ruff check .
    # TID251: a layer imported by another name than its installed one, seen where the layers are installed
    ruff check --select TID251 kafkafs/storage kafkafs/mount
    ruff format --check .
}

step 'set-up' tests/setup.sh test
PATH=$PWD/.venv/bin:$PATH
export PATH
if [ -z "$fast" ]; then
    step 'ruff' lint
    step 'mypy' mypy kafkafs tests examples
fi
step 'quick tests' tests -m 'not slow and not broker and not spark' "$@"
if [ -z "$fast" ]; then
    step 'quick tests of storage, kernels uncompiled' uncompiled -m 'not slow and not broker and not spark' "$@"
    # one process more than quick ones have: many of these wait, for brokers and for kills
    step 'slow tests, real broker' tests --numprocesses "$(($(nproc) < 4 ? $(nproc) + 1 : 4))" -m '(slow or broker) and not spark' "$@"
    # by files, in no more processes than need be: each starts a Spark of its own, and a file's tests share what it starts
    step 'Spark' tests --numprocesses 2 --dist loadfile -m spark "$@"
fi
printf '\nAll passed:\n%s%6d s  together\n' "$report" $SECONDS
