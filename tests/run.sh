#!/usr/bin/env bash
# Sets the machine up (tests/setup.sh) and runs every test. Safe to repeat, and quick the second time.
#   tests/run.sh                 all: linters, types, quick tests, the kernels uncompiled, slow ones, real brokers, Spark
#   tests/run.sh --fast          only the quick tests
#   tests/run.sh --all           all, and at every point what else is sampled; takes hours. It sets, unless they are set,
#                                  KAFKAFS_CRASH_MOMENTS=all     cuts the power after every operation, not every n-th
#                                  KAFKAFS_HYPOTHESIS=thorough   300 examples of each property, not 50
#                                  KAFKAFS_SOAK_SECONDS=600      beside a broker under load, not 20
#                                  KAFKAFS_SPARK=all             on YARN and in spark-sql, too
#                                KAFKAFS_STORES=all, which needs fake-gcs-server and azurite-blob, also reads gs:// and abfs://,
#                                and it repeats the builds that passed with the same kernels, and all of storage uncompiled.
#   tests/run.sh [--fast|--all] ARGS   ARGS go to pytest: tests/run.sh --fast tests/storage -k index
set -euo pipefail
cd "$(dirname "$0")/.."
fast=
all=
case ${1:-} in
    --fast) fast=1; shift ;;
    --all) all=1; shift ;;
esac
if [ -n "$all" ]; then
    export KAFKAFS_CRASH_MOMENTS=${KAFKAFS_CRASH_MOMENTS:-all}
    export KAFKAFS_HYPOTHESIS=${KAFKAFS_HYPOTHESIS:-thorough}
    export KAFKAFS_SOAK_SECONDS=${KAFKAFS_SOAK_SECONDS:-600}
    export KAFKAFS_SPARK=${KAFKAFS_SPARK:-all}
    rm -f build/proven-*
fi
chosen=$#
if [ $chosen = 0 ]; then set -- tests; fi

SECONDS=0
report=
# step NAME COMMAND…: runs it and notes its seconds; the first that fails ends the run.
# In a COMMAND that is a function, `set -e` has no effect.
step() {
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" || { printf '\nFAILED: %s, after %d s\n' "$name" $((SECONDS - start)) >&2; exit 1; }
    report+=$(printf '%6d s  %s' $((SECONDS - start)) "$name")$'\n'
}

# tests MORE ARGUMENTS: runs pytest in MORE processes than there are processors, since tests wait for daemons and brokers.
# Arguments that choose tests may choose none of one step's; without arguments that is an error.
tests() {
    local status=0 processes=$(($(nproc) + $1))
    shift
    python -m pytest -q --numprocesses $((processes < 6 ? processes : 6)) "$@" || status=$?
    [ $status = 0 ] || { [ $status = 5 ] && [ "$chosen" != 0 ]; }
}

# Whether the kernels' sources run uncompiled is a question for the tests of what calls them.
uncompiled() {
    if [ "$chosen" = 0 ]; then
        set -- "${@:1:$(($# - 1))}" $(if [ -n "$all" ]; then echo tests/storage; else python -m tests.kernel_callers; fi)
    fi
    KAFKAFS_KERNELS=python tests 1 "$@"
}

lint() {
    ruff check . &&
        # TID251: a layer imported by another name than its installed one, seen where the layers are installed
        ruff check --select TID251 kafkafs/storage kafkafs/mount &&
        ruff format --check .
}

# mypy keeps one processor busy; meanwhile another collects the tests, so that the next step finds them compiled.
types() {
    local collecting status=0
    python -m pytest -q --collect-only "$@" >/dev/null 2>&1 &
    collecting=$!
    mypy kafkafs tests examples || status=$?
    wait $collecting || true # the next step says what is wrong
    return $status
}

# Two processes collect the tests, so that the next step finds them compiled.
compile() {
    python -m pytest -q --collect-only --ignore tests/storage tests >/dev/null 2>&1 &
    python -m pytest -q --collect-only tests/storage >/dev/null 2>&1 || true # the next step says what is wrong
    wait $! || true
}

# Otherwise every process would compile all modules, and pytest rewrite all assertions, which takes 8 s in each.
unset PYTHONDONTWRITEBYTECODE
# The threads of numpy's linear algebra, which nothing here uses, are started in each process.
export OPENBLAS_NUM_THREADS=1
step 'set-up' tests/setup.sh test
PATH=$PWD/.venv/bin:$PATH
export PATH
archiving=
if [ -z "$fast" ]; then
    if [ $chosen = 0 ]; then # beside the other steps, for the last one
        python -m tests.spark.class_data >/dev/null 2>&1 &
        archiving=$!
    fi
    step 'ruff' lint
    step 'mypy' types "$@"
elif [ $chosen = 0 ]; then
    step 'compiling the tests' compile
fi
quick='not slow and not broker and not spark'
step 'quick tests' tests 2 --dist worksteal -m "$quick" "$@"
if [ -z "$fast" ]; then
    step 'quick tests of what calls kernels, kernels uncompiled' uncompiled --dist worksteal -m "$quick" "$@"
    [ -z "$archiving" ] || wait $archiving || true # without an archive the tests take longer
    # In the order of tests/conftest.py: brokers wait while Spark and the compilers work.
    step 'slow tests, real brokers, Spark' tests 3 --dist loadgroup --no-loadscope-reorder -m 'slow or broker or spark' "$@"
fi
printf '\nAll passed:\n%s%6d s  together\n' "$report" $SECONDS
