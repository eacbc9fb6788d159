#!/usr/bin/env bash
# Mounts two Kafka log directories, reads and changes them as files, and prints each command before it runs.
#   examples/quickstart.sh
# One directory was left by a Kafka 4.3 broker when it stopped (from the test data); the other holds the topic
# `textbook` (examples/textbook.py). Both are copies in a temporary directory, which is removed at the end. First
# installs what is missing (tests/setup.sh mount), as root or with sudo; safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
clone=$PWD

venv=$(tests/setup.sh mount)
PATH=$venv/bin:$PATH
export PATH

work=$(mktemp -d "${TMPDIR:-/tmp}/kafkafs-quickstart.XXXXXX")
# shellcheck disable=SC2317  # called by the trap
clean_up() {
    cd /
    if mountpoint -q "$work/mnt"; then kafkafs umount "$work/mnt" || umount --lazy "$work/mnt"; fi
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

title() { printf '\n\n# %s\n' "$*"; }

# Prints the command as one would type it, then runs it.
run() {
    printf '\n$ %s\n' "$1"
    eval "$1"
}

tar -xzf tests/data/corpora/kafka43-clean.tar.gz -C "$work" --no-same-owner
mv "$work/kafka43-clean" "$work/broker"
python -m examples.textbook "$work/textbook"
mkdir "$work/mnt"
cd "$work"
export TZ=UTC LC_ALL=C.UTF-8

find broker textbook -type f -exec sha256sum {} + >before.sha256

title 'Topics are directories, partitions too, and every record is a file'
run 'kafkafs mount broker,textbook mnt'
run 'ls mnt'
run 'ls mnt/textbook'
run 'ls mnt/textbook/0 | xargs'
run "ls -U mnt/textbook/0/offset | sed -n '1,5p;\$p'"

title 'A value, byte for byte; the rest of the record as JSON, in stat and in extended attributes'
run 'cat mnt/orders/0/offset/600; echo'
run "jq 'del(.value)' mnt/orders/0/offset/600.json"
run 'ls -gG --full-time mnt/orders/0/offset/600'
run 'getfattr -d mnt/orders/0/offset/600'

title 'A partition as one stream'
run "jq -r '.value | fromjson | select(.total > 999) | [.order, .customer, .total] | @tsv' mnt/orders/0/records.jsonl"
run 'grep -c willow mnt/orders/*/values'
run 'grep -l candles mnt/textbook/0/offset/60?'
run "tail -n1 mnt/textbook/0/values | jq -c '[.order, .customer, .item]'"

title 'As Arrow'
run "python - <<'END'
import pyarrow as pa

with pa.input_stream('mnt/orders/1/records.arrow') as file:
    table = pa.ipc.open_stream(file).read_all()
print(table.schema.names)
print(table.num_rows, 'records,', len(table['key'].unique()), 'customers')
END"

title 'Any range of offsets as files of known size, for every program'
run 'ls mnt/textbook/0/range'
run 'ls mnt/textbook/0/range/600-607'
run "stat -c '%s %n' mnt/textbook/0/range/600-607/{keys,values,records.jsonl}"
run "python -c 'import pyarrow.parquet as p; print(p.read_table(\"mnt/orders/0/range/600-699/records.parquet\").num_rows)'"

title 'By time: the first record at or after it; the files of a few milliseconds'
run 'cat mnt/textbook/1/time/1526384718288; echo'
run 'readlink mnt/textbook/1/time/2018-05-15T11:45:18.288Z'
run "find mnt/textbook/1/offset -newermt 2018-05-15T11:45:18.28 ! -newermt 2018-05-15T11:45:19 -printf '%f  %TT\n' | sort"

title 'What log compaction would remove, and why'
set +o pipefail # diff exits with 1 because there are differences
run "diff <(cat mnt/orders/0/records.jsonl) <(cat mnt/orders/0/compacted/records.jsonl) | grep -c '^<'"
set -o pipefail
run "jq -c '.records, .gone, .bound' mnt/orders/0/compacted/summary.json"
run 'kafkafs why --at 2026-11-22 broker compacted/0 | tail -n+3 | cut -c1-14,92-'

title 'How a record is found: index entries and batches, step by step'
run 'kafkafs explain broker,textbook textbook/0/offset/600'
run 'kafkafs explain broker,textbook textbook/1/time/1526384718288'

title 'The bytes themselves, as kafka-dump-log prints them'
run 'kafkafs dump broker/txn-0/00000000000000000000.log | cut -d" " -f 1-6,11-12,17-18,23-24,27-28,35-'
run 'kafkafs dump --print-data-log textbook/textbook-1/*251.log | grep -o "offset: 284 .*" | cut -d" " -f1-8,13-'
run 'kafkafs dump --offsets-decoder broker/__consumer_offsets-1/*.log | grep -o "\"group\":.*\"offset\":[0-9]*"'

title 'The same tree without a mount; and the log directories are as they were'
run 'kafkafs umount mnt'
run 'kafkafs cat broker,textbook textbook/1/offset/268; echo'
run 'sha256sum --check --quiet before.sha256 && echo unchanged'

title 'A writable mount: JSON lines become records of a new topic'
run 'kafkafs mount --rw -o unregistered broker,textbook mnt'
run 'mkdir mnt/large'
run "jq -c 'select((.value | fromjson).total > 998)' mnt/orders/0/records.jsonl >> mnt/large/0/append.jsonl"
run 'cut -c1-60 mnt/large/0/values'

title 'Keys and configs are files; the cleaner discards superseded records'
run 'mkdir mnt/drinks'
run "printf 'cleanup.policy=compact\nsegment.ms=1\n' > mnt/drinks/config.properties"
run 'for drink in tea coffee cocoa; do echo $drink > mnt/drinks/0/key/karin; sleep 0.01; done'
run 'cat mnt/drinks/0/key/karin; ls mnt/drinks/0/offset'
run 'kafkafs compact --force broker,textbook drinks | cut -c1-64'
run 'ls mnt/drinks/0/offset'
run "sed -i s/=compact/=shrink/ mnt/drinks/config.properties 2> errors || tail -n1 mnt/.kafkafs/log | cut -d' ' -f4-"

title 'rm deletes from the front of a log; for a minute, the deletion can be undone'
run 'rm mnt/textbook/1/time/2018-05-15T11:45:18.288Z'
run 'ls -U mnt/textbook/1/offset | sed -n 3p'
run "sleep 1; ls mnt/textbook/1/segments | grep '[.]log'"
run "kafkafs undelete broker,textbook textbook/1 | sed 's/ (.*//'"
run 'ls -U mnt/textbook/1/offset | sed -n 3p'
run 'kafkafs umount mnt; kafkafs verify broker,textbook'
