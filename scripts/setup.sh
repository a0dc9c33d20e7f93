#!/usr/bin/env bash
# Installs what waldo's demo (--runtime) or tests need on a fresh Debian or Ubuntu machine that has Go.
# Says what it does; installs nothing that is already there.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
[ -x /usr/bin/python3 ] || missing+=(python3)
if [ "${1:-}" != --runtime ]; then
  command -v gcc >/dev/null || missing+=(gcc)
  command -v git >/dev/null || missing+=(git)
  command -v curl >/dev/null || missing+=(curl)
  [ -x /usr/bin/node ] || [ -x /usr/local/bin/node ] || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
  compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
  command -v psql >/dev/null || missing+=(postgresql-client)
  command -v dbus-run-session >/dev/null || missing+=(dbus)
  command -v gnome-keyring-daemon >/dev/null || missing+=(gnome-keyring) # a keyring to read secrets from
  command -v secret-tool >/dev/null || missing+=(libsecret-tools)
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
[ ! -x scripts/setup-npm.sh ] || scripts/setup-npm.sh
# The console's pages are tested in a real browser where Debian's packages are; elsewhere those tests say that they skip.
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  scripts/setup-chromium.sh && scripts/setup-npm.sh npm-axe || echo "setup: no Chromium: the console's browser tests will skip" >&2
fi
echo "setup: ready"
