#!/usr/bin/env bash
# Health check of the training images: asks the run's own server, at the address that the run has published.
set -euo pipefail
endpoint=$(cat "${HEADSCOPE_RUNS:-/runs}/${HEADSCOPE_RUN:-demo}/endpoint")
exec curl --silent --fail --insecure --max-time 2 --output /dev/null "$endpoint/-/healthy"
