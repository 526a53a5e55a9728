#!/bin/sh
# journal.sh - makes the seed of t/fuzz_journal.c: how a journal begins that a short fit writes
#
#     t/corpus/journal.sh build/paceline
#
# To be made again when messages change: of those that are others now readers pass over what is in the file.
set -e
paceline=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PACELINE_PLUGIN_PATH="$(dirname "$paceline")/examples/.libs"
"$paceline" fit "$here/../../examples/mixture-gan.json" --set trainer.max_steps=2 \
    --set trainer.default_root_dir="$work" --journal "$work/journal" >/dev/null
head -c 9000 "$work/journal" >"$here/journal/begin"
