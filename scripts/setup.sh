#!/usr/bin/env bash
# Installs what waldo's demo (--runtime) or tests need on a fresh Debian or Ubuntu machine that has Go.
# Says what it does; installs nothing that is already there.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # need PACKAGE TEST...: the package is missing where the test fails
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}
need python3 test -x /usr/bin/python3
if [ "${1:-}" != --runtime ]; then
  need gcc command -v gcc
  need libc6-dev test -e /usr/include/stdio.h
  need git command -v git
  need curl command -v curl
  need nodejs test -x /usr/bin/node -o -x /usr/local/bin/node
  need npm command -v npm
  need python3-pip /usr/bin/python3 -m pip --version
  need iproute2 command -v ip
  need groff-base command -v groff
  need postgresql compgen -G "/usr/lib/postgresql/*/bin/initdb"
  need postgresql-client command -v psql
  need dbus command -v dbus-run-session
  need gnome-keyring command -v gnome-keyring-daemon # a keyring to read secrets from
  need libsecret-tools command -v secret-tool
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "setup: please install: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  get() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
  apt-get update -qq
  if [[ " ${missing[*]} " == *" postgresql "* ]]; then # the tests make a database of their own; none is started for the machine
    get postgresql-common
    sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
  fi
  get "${missing[@]}"
fi
[ "${1:-}" = --runtime ] && exit 0
scripts/setup-npm.sh
scripts/setup-npm.sh npm-a2a
scripts/setup-npm.sh npm-e2b
scripts/setup-npm.sh npm-git
scripts/setup-npm.sh types
scripts/setup-types.sh || echo "setup: no mypy: tests of generated Python types will skip" >&2
scripts/setup-judges.sh || echo "setup: no judges of the log: their tests will skip" >&2
# The console's pages are tested in a real browser where Debian's packages are; elsewhere those tests say that they skip.
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  scripts/setup-chromium.sh && scripts/setup-npm.sh npm-axe || echo "setup: no Chromium: the console's browser tests will skip" >&2
fi
echo "setup: ready"
