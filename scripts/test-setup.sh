#!/usr/bin/env bash
# Installs what the tests need and the machine lacks: MariaDB, libfaketime, Redis, Chromium with a font
# that has Chinese, and a C compiler for the race detector. It needs Debian or
# Ubuntu; elsewhere it says what to install and ends with 1 if something is missing.
set -euo pipefail
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

missing=()
have() { command -v "$1" >/dev/null; }
have mariadbd || missing+=(mariadb-server)
have redis-server || missing+=(redis-server)
have chromium || [ -x "${AX_CHROMIUM:-/nonexistent}" ] || missing+=(chromium)
have fc-list && fc-list 2>/dev/null | grep -qi 'noto.*cjk' || missing+=(fonts-noto-cjk)
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || missing+=(libfaketime)
have gcc || have cc || missing+=(gcc libc6-dev)

for tool in go git make; do
  have $tool || { echo "setup: $tool is not installed" >&2; exit 1; }
done
if ! have npm || [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
  echo "setup: Node 20 or newer with npm is needed for the console's tests" >&2
  exit 1
fi

if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: nothing is missing"
  exit 0
fi
if ! have apt-get; then
  echo "setup: not installed: ${missing[*]} (Debian's names). Install what your system calls them:" >&2
  echo "setup: MariaDB 10.6 or newer, libfaketime, Redis, Chromium (or AX_CHROMIUM=/path/to/chrome), Noto Sans CJK, a C compiler." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! have sudo; then
    echo "setup: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -q "$@"; }
# The package would start a server of its own; the tests start theirs. A policy of the
# machine's owner is left alone.
if [ ! -e /usr/sbin/policy-rc.d ] && [ "$(id -u)" = 0 ]; then
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod +x /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt update || echo "setup: the package lists could not be renewed; trying with those that are there"
apt install -y --no-install-recommends "${missing[@]}"
