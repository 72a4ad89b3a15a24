#!/usr/bin/env bash
# Entry of the training images: trains the demo, with metrics for whoever reaches the container. Arguments are the demo's.
#   HEADSCOPE_BIN          folder of the programs (/opt/headscope/bin)
#   HEADSCOPE_RUNS         folder of the runs (/runs)
#   HEADSCOPE_RUN          name of this run (demo)
#   HEADSCOPE_LISTEN       HOST:PORT (0.0.0.0:9464)
#   HEADSCOPE_CORPUS       text to train on (the one that the programs were built with)
#   HEADSCOPE_PUSHGATEWAY  http://HOST:PORT: the run's end is pushed there
set -euo pipefail

bin=${HEADSCOPE_BIN:-/opt/headscope/bin}
name=${HEADSCOPE_RUN:-demo}
run_dir=${HEADSCOPE_RUNS:-/runs}/$name
command=("$bin/attention_only_lm" --listen "${HEADSCOPE_LISTEN:-0.0.0.0:9464}" --run-dir "$run_dir")
[ -z "${HEADSCOPE_CORPUS:-}" ] || command+=(--corpus "$HEADSCOPE_CORPUS")
command+=("$@")

# The trainer takes the container's signals itself.
[ -n "${HEADSCOPE_PUSHGATEWAY:-}" ] || exec "${command[@]}"

trainer='' stopped=''
trap 'stopped=1; [ -z "$trainer" ] || kill -TERM "$trainer"' TERM INT
"${command[@]}" &
trainer=$!
[ -z "$stopped" ] || kill -TERM "$trainer"
status=0
wait "$trainer" || status=$?
# A signal ends the first wait, not the trainer.
while kill -0 "$trainer" 2>/dev/null; do
  status=0
  wait "$trainer" || status=$?
done
"$bin/headscope" metrics "$run_dir" |
  curl --silent --show-error --fail --max-time 10 --data-binary @- \
    "$HEADSCOPE_PUSHGATEWAY/metrics/job/headscope/instance/$name" ||
  echo "demo.sh: the run's end could not be pushed" >&2
exit "$status"
