#!/usr/bin/env bash
# Unpacks Debian's chromium-headless-shell and what it needs beyond this machine into .cache/chromium,
# without installing anything. Does nothing when it is there as this script makes it.
set -euo pipefail
cd "$(dirname "$0")/.."

to=.cache/chromium
cmp -s scripts/setup-chromium.sh "$to/installed" && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "setup: Chromium comes from Debian's packages, and apt is not here" >&2; exit 1; }
echo "setup: unpacking Chromium into $to"
rm -rf "$to" && mkdir -p "$to/debs"
fetch() {
  local packages
  packages=$(apt-get install --simulate --no-install-recommends chromium-headless-shell fonts-liberation 2>/dev/null | awk '/^Inst/{print $2}')
  [ -n "$packages" ] && (cd "$to/debs" && apt-get download -qq -o APT::Sandbox::User=root $packages)
}
fetch || { apt-get update -qq && fetch; } # the machine's lists may be missing or old
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
cp scripts/setup-chromium.sh "$to/installed"
