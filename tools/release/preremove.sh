#!/bin/sh
# Takes the service away with the package: dpkg calls it with "remove", rpm with 0. /etc/waldo and /var/lib/waldo stay.
case "$1" in
remove | 0) [ ! -e /etc/systemd/system/waldo.service ] || /usr/bin/waldo service uninstall --system ;;
esac
