#!/usr/bin/env bash
# Finds a Chromium or Chrome for the browser tests, or installs Debian's where the system allows it.
# Without one the browser tests say why they did not run; in CI (CI=true) that is a failure.
set -euo pipefail

find_browser() {
  local name
  if [[ -n "${PAGEWALK_BROWSER:-}" ]]; then command -v "$PAGEWALK_BROWSER" && return 0; fi
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" && return 0
  done
  for name in "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
              "/Applications/Chromium.app/Contents/MacOS/Chromium"; do
    if [[ -x "$name" ]]; then echo "$name"; return 0; fi
  done
  return 1
}

give_up() {
  echo "browser tests: $1" >&2
  if [[ "${CI:-}" == "true" ]]; then exit 1; fi
  echo "browser tests: they will be skipped. Install Chromium, or name one: PAGEWALK_BROWSER=/path/to/chrome" >&2
  exit 0
}

if found="$(find_browser)"; then echo "browser: $found"; exit 0; fi
command -v apt-get >/dev/null || give_up "no Chromium or Chrome found, and this system has no apt-get to install one."
[[ "$(id -u)" == 0 ]] || give_up "no Chromium or Chrome found, and installing one needs root (apt-get install chromium)."

echo "browser: none found, installing Debian's chromium"
export DEBIAN_FRONTEND=noninteractive
# A fresh machine may have no package lists at all.
apt-get update -q || give_up "apt-get update failed."
apt-get install -q -y --no-install-recommends chromium || give_up "apt-get install chromium failed."
found="$(find_browser)" || give_up "apt-get installed chromium, but it is not on PATH."
echo "browser: $found"
