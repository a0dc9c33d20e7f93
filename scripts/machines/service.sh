# What waldo does as a service of this machine's systemd: for the machine and for a user, started by its socket, with limits
# of a delegated control group, until nothing is left. scripts/machines/inside.sh reads it. With /share/waldo.deb, the
# program is that package's, and the package is removed.
program=/usr/local/bin/waldo
if [ -e /share/waldo.deb ]; then
	rm "$program" && hash -r
	program=/usr/bin/waldo
	holds "package: installed" 'Setting up waldo' dpkg -i /share/waldo.deb
fi
unit=(systemctl show waldo.service --value -p)
bytes='x = bytearray(500 << 20)'
forks=$'import os, time\nfor _ in range(40):\n  if not os.fork(): time.sleep(2); os._exit(0)'
burn=$'while True: pass'
said=$("$program" token ci 2>&1)
export TOKEN=$(grep -oE 'waldo_[a-z0-9]+' <<<"$said" | head -1)
mkdir -p /etc/waldo
configure() { # configure FILE: a configuration with one token and one contract
	{
		echo 'version: 1'
		grep -oE 'gateway: .*' <<<"$said"
		echo "capabilities:"
		echo "  run_python: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, approval: none, timeout_seconds: 200,"
		echo "    limits: {memory_mb: 64, pids: 10, cpu_seconds: 60}}"
	} >"$1"
}
configure /etc/waldo/waldo.yaml
cd /root

holds "service: not installed is said" '^waldo: the service is not installed' "$program" service status
holds "service: installed" '^waldo starts with the first connection to 127.0.0.1:7676' "$program" service install
holds "service: its socket waits, waldo does not run" '^socket +active 127.0.0.1:7676 \[::1\]:7676' "$program" service status
holds "service: it is not active" '^inactive$' systemctl is-active waldo.service
holds "service: the first connection starts it" '^200' ask 7676 /healthz
holds "service: ready" '^200' ask 7676 /readyz
holds "service: status says so" '^service +active' "$program" service status
holds "service: a program" "^200 ok None 42 \[\]" ask 7676 'print(6*7)'
holds "service: no token, no answer" '^401' env TOKEN= ask 7676 'print(6*7)'
holds "service: memory is the kernel's limit" '^200 oom memory' ask 7676 "$bytes"
holds "service: processes are the kernel's limit" '^200 failed pids' ask 7676 "$forks"
holds "service: processor time" '^200 [a-z]+ cpu' ask 7676 "$burn"
holds "service: its own user, without capabilities" '^waldo 0000000000000000$' bash -c 'p=$(systemctl show waldo.service --value -p MainPID); echo $(stat -c %U /proc/$p) $(awk "/CapEff/ {print \$2}" /proc/$p/status)'
holds "service: its group is delegated" '^yes$' "${unit[@]}" Delegate
holds "service: the groups of sandboxes lie below its own" 'memory' cat /sys/fs/cgroup/system.slice/waldo.service/cgroup.subtree_control
holds "service: the state belongs to it alone" '^waldo 700$' stat -c '%U %a' /var/lib/waldo
holds "service: reload" '^$' systemctl reload waldo.service
as_waldo=(setpriv --reuid waldo --regid waldo --init-groups env HOME=/var/lib/waldo WALDO_BACKUP_PASSPHRASE=a-long-passphrase)
holds "service: backed up while it runs" 'holds the state' "${as_waldo[@]}" "$program" --state /var/lib/waldo backup /tmp/waldo.backup
holds "service: restored elsewhere" 'sound' "${as_waldo[@]}" "$program" --config /etc/waldo/waldo.yaml --state /tmp/elsewhere restore /tmp/waldo.backup
kill -9 "$("${unit[@]}" MainPID)"
holds "service: killed, it comes again" "^200 ok None 7 \[\]" bash -c 'sleep 3; ask 7676 "print(7)"'
systemctl -q stop waldo.service 2>/dev/null
holds "service: stopped, the socket starts it again" '^200' ask 7676 /healthz
echo '# mine' >>/etc/systemd/system/waldo.service
holds "service: a changed unit is named" '^changed +/etc/systemd/system/waldo.service' "$program" service status
if [ -e /share/waldo.deb ]; then
	holds "package: removed" 'Removing waldo' dpkg --purge waldo
	holds "package: the configuration and the state stay, and nothing else" '^/etc/waldo /etc/waldo/waldo.yaml /var/lib/waldo$' bash -c \
		'echo $(find /etc /usr /var/lib -xdev -iname "*waldo*" -not -path "/var/lib/waldo/*" | sort)'
	dpkg -i /share/waldo.deb >/dev/null
	"$program" service install >/dev/null
fi
holds "service: uninstalled" '^removed /etc/systemd/system/waldo.socket' "$program" service uninstall
holds "service: it listens no more" 'not reached' ask 7676 /healthz
holds "service: the log stays" 'sound' "${as_waldo[@]}" "$program" --config /etc/waldo/waldo.yaml --state /var/lib/waldo log verify
"$program" service install >/dev/null
holds "service: purged" '^removed /var/lib/waldo' "$program" service uninstall --purge
holds "service: nothing is left" '^0 0 0 0$' bash -c 'echo $(find /etc/systemd /etc/sysusers.d /etc/waldo /var/lib/waldo -iname "*waldo*" 2>/dev/null | wc -l) $(grep -c ^waldo /etc/passwd) $(pgrep -c -u waldo 2>/dev/null || echo 0) $(find /sys/fs/cgroup -name "waldo*" | wc -l)'

loginctl enable-linger tester
until systemctl is-active -q user@"$(id -u tester)".service; do sleep 1; done
mkdir -p /home/tester/.config/waldo
configure /home/tester/.config/waldo/waldo.yaml
chown -R tester: /home/tester/.config
own=("${in_session[@]}" -E "TOKEN=$TOKEN")
holds "a user's service: installed" '^waldo starts with the first connection' "${own[@]}" "$program" service install
holds "a user's service: the first connection starts it" '^200' "${own[@]}" ask 7676 /healthz
holds "a user's service: status" '^service +active' "${own[@]}" "$program" service status
holds "a user's service: a program" "^200 ok None 42 \[\]" "${own[@]}" ask 7676 'print(6*7)'
holds "a user's service: memory is the kernel's limit" '^200 oom memory' "${own[@]}" ask 7676 "$bytes"
holds "a user's service: processes are the kernel's limit" '^200 failed pids' "${own[@]}" ask 7676 "$forks"
holds "a user's service: uninstalled" '^removed /home/tester/.config/systemd/user/waldo.socket' "${own[@]}" "$program" service uninstall
holds "a user's service: it listens no more" 'not reached' ask 7676 /healthz
loginctl disable-linger tester
