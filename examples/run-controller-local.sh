#!/usr/bin/env bash
# Builds the controller from this checkout and runs it on this machine, against the cluster of your current kubeconfig.
#
#   ./examples/run-controller-local.sh
#   CONFIG_FILE=/path/to/config.yaml ./examples/run-controller-local.sh
#   DRY_RUN=1 ./examples/run-controller-local.sh
#
# With DRY_RUN=1 it reports what it would do, and changes nothing in the cluster. Otherwise the service account and the permissions
# of the workers must exist: `kube-node-ready manifests rbac | kubectl apply -f -`. Additional arguments are passed to the
# controller. Ctrl-C stops it.
set -euo pipefail

config="$(realpath "${CONFIG_FILE:-"$(dirname "$0")/controller-config.yaml"}")"
cd "$(dirname "$0")/.."

arguments=(controller --config "$config")
case "${DRY_RUN:-}" in
"" | 0 | false) ;;
*) arguments+=(--dry-run) ;;
esac

export LOG_FORMAT="${LOG_FORMAT:-console}"
exec cargo run --quiet --locked -p kube-node-ready -- "${arguments[@]}" "$@"
