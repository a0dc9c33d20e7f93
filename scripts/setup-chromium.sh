#!/usr/bin/env bash
# Unpacks Debian's chromium-headless-shell and all that it needs but the C library into .cache/chromium, whatever is
# installed here, without installing anything. Does nothing when it is there as this script makes it.
set -euo pipefail
cd "$(dirname "$0")/.."

final=.cache/chromium
cmp -s scripts/setup-chromium.sh "$final/installed" && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "setup: Chromium comes from Debian's packages, and apt is not here" >&2; exit 1; }
echo "setup: unpacking Chromium into $final"
mkdir -p .cache
to=$(mktemp -d "$PWD/.cache/chromium.XXXXXX")
trap 'rm -rf "$to"' EXIT
mkdir "$to/debs"
fetch() {
  local packages
  packages=$(apt-get install --simulate --no-install-recommends -o Dir::State::status=/dev/null chromium-headless-shell \
    fonts-liberation 2>/dev/null | awk '/^Inst/ && $2 != "libc6" {print $2}')
  [ -n "$packages" ] && (cd "$to/debs" && apt-get download -qq -o APT::Sandbox::User=root $packages)
}
fetch || { [ "$(id -u)" = 0 ] && apt-get update -qq && fetch; } || { # the machine's lists may be missing or old
  echo "setup: apt offers no chromium-headless-shell: Ubuntu has none; on Debian, run apt-get update as root first" >&2
  exit 1
}
for deb in "$to"/debs/*.deb; do dpkg-deb -x "$deb" "$to"; done
rm -rf "$to/debs"
cat >"$to/fonts.conf" <<'END'
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias binding="same"><family>monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
  <alias binding="same"><family>ui-monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
  <match target="pattern"><edit name="family" mode="append_last"><string>Liberation Sans</string></edit></match>
</fontconfig>
END
cat >"$to/chrome" <<'END'
#!/bin/sh
# Starts the unpacked Chromium, wherever its folder is.
here=$(dirname "$0")
export LD_LIBRARY_PATH=$here/usr/lib/$(uname -m)-linux-gnu:$here/lib/$(uname -m)-linux-gnu:$here/usr/lib/$(uname -m)-linux-gnu/pulseaudio FONTCONFIG_FILE=$here/fonts.conf
exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
END
chmod +x "$to/chrome"
"$to/chrome" --version >/dev/null || { echo "setup: the unpacked Chromium does not start" >&2; exit 1; }
cp scripts/setup-chromium.sh "$to/installed"
chmod 755 "$to"
rm -rf "$final" && mv "$to" "$final"
