#!/usr/bin/env bash
# Runs a worker on this machine as the controller does in a pod, and prints its report.
#
#   NODE_NAME=my-node ./examples/run-worker-local.sh [CONFIG_FILE]
#
# It uses your kubeconfig, and changes nothing in the cluster.
set -euo pipefail
cd "$(dirname "$0")/.."

report="$(mktemp)"
trap 'rm -f "$report"' EXIT

code=0
LOG_FORMAT="${LOG_FORMAT:-console}" NODE_NAME="${NODE_NAME:-$(hostname)}" \
  cargo run --quiet --locked -p kube-node-ready -- worker --termination-log "$report" ${1:+--config "$1"} || code=$?

echo
echo "exit code $code, report of $(wc -c <"$report") bytes:"
cat "$report"
echo
exit "$code"
