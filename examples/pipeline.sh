#!/usr/bin/env bash
# Converts a broker's log directory to a Parquet table, by topic and date, and charts records per hour.
#   examples/pipeline.sh                  converts what a Kafka 4.3 broker left (from the test data); removes the table
#   examples/pipeline.sh LOG_DIRS TABLE   converts your own: one directory, several joined by commas, or wildcards
# The work is done by examples/pipeline.py on Spark, with all cores of this machine, or where the variable MASTER says
# (spark://HOST:7077, yarn …; see kafkafs/spark/README.md). Needs what `tests/setup.sh spark` installs, as root or
# through sudo; safe to repeat.
set -euo pipefail
case $# in 0 | 2) ;; *) echo "usage: $0 [LOG_DIRS TABLE]" >&2; exit 2 ;; esac
clone=$(cd "$(dirname "$0")/.." && pwd)

venv=$("$clone/tests/setup.sh" spark)
PATH=$venv/bin:$PATH
export PATH

master=${MASTER:-local[*]}
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$venv/bin/python} PYSPARK_DRIVER_PYTHON=$venv/bin/python
# A local Spark need not be reachable from outside, and the machine's name may not resolve.
case $master in local*) export SPARK_LOCAL_IP=127.0.0.1 ;; esac

# Prints the command as one would type it, then runs it.
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

pipeline() { run spark-submit --master "$master" --conf spark.log.level=ERROR "$@"; }

if [ $# = 2 ]; then
    pipeline "$clone/examples/pipeline.py" "$1" "$2"
    exit
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/kafkafs-pipeline.XXXXXX")
trap 'cd /; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tar -xzf "$clone/tests/data/corpora/kafka43-clean.tar.gz" -C "$work" --no-same-owner
mv "$work/kafka43-clean" "$work/broker"
ln -s "$clone/examples" "$work/examples"
cd "$work"
export LC_ALL=C.UTF-8

run ls broker
pipeline examples/pipeline.py broker table
run ls table table/topic=orders
