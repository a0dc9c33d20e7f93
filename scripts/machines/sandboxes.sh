# What waldo's sandboxes do on this machine. scripts/machines/inside.sh reads it.
run=(waldo run --timeout 200s --cpu-seconds 200) # an emulated processor is slow
prints=("${run[@]}" -c 'print("seven", 7)')
bomb=("${run[@]}" --json --memory-mb 64 -c 'x = bytearray(500 << 20)')
confined='^seven 7' # or a refusal, of a kernel whose Landlock cannot hold it
[ "$(printf '6.12\n%s\n' "$(uname -r)" | sort -V | head -1)" = 6.12 ] || confined='Linux 6.12 or later'
cd /root
holds "root: a script" '^seven 7' "${prints[@]}"
holds "root: memory of version 2" '"status": "oom"' "${bomb[@]}"
holds "root: a storm of forks" '"limit": "pids"' "${run[@]}" --json --pids 10 -c $'import os\nwhile True: os.fork()'
holds "root: gVisor" '^seven 7' "${run[@]}" --isolation gvisor -c 'print("seven", 7)'
holds "root: confined" "$confined" "${run[@]}" --isolation confined -c 'print("seven", 7)'
holds "root: Node" '^7' "${run[@]}" --lang javascript -c 'console.log(7)'
holds "root: serve, forked sandboxes" '^3 ok 42 namespace warm' serve 20
holds "a user without a group: a script" 'no memory cgroup' "${as_user[@]}" "${run[@]}" --json -c 'print(7)'
holds "a user without a group: memory" 'MemoryError' "${as_user[@]}" "${bomb[@]}"
holds "a user without a group: gVisor" '^seven 7' "${as_user[@]}" "${run[@]}" --isolation gvisor -c 'print("seven", 7)'
holds "a user without a group: serve" '^3 ok 42 namespace warm' "${as_user[@]}" serve 20
loginctl enable-linger tester
sleep 15
holds "a user's session: memory of version 2" '"status": "oom"' "${in_session[@]}" "${bomb[@]}"
holds "a user's session: serve" '^3 ok 42 namespace warm' "${in_session[@]}" serve 20
holds "a delegated group: share of a processor" 'ok   cgroup cpu' "${in_session[@]}" -p Delegate=yes waldo doctor

sysctl -q kernel.unprivileged_userns_clone=0
holds "user namespaces for root alone: a user is told what to set" 'hint: .*kernel.unprivileged_userns_clone' "${as_user[@]}" "${prints[@]}"
holds "user namespaces for root alone: confined" "$confined" "${as_user[@]}" "${run[@]}" --isolation confined -c 'print("seven", 7)'
sysctl -q kernel.unprivileged_userns_clone=1
sysctl -q user.max_user_namespaces=0
holds "no user namespaces: told what to set" 'hint: .*user.max_user_namespaces' "${prints[@]}"
sysctl -q user.max_user_namespaces=20000
holds "left behind: no group, process, mount" '^0 0 0$' bash -c 'echo $(find /sys/fs/cgroup -name "waldo*" | wc -l) $(pgrep -c waldo) $(grep -c waldo /proc/mounts)'

# Docker as Debian packages it; the image is the machine's own /usr.
modprobe -a overlay
dockerd --iptables=false --bridge=none >/var/log/docker 2>&1 &
until docker info >/dev/null 2>&1; do sleep 1; done
image=$(mktemp -d) && chmod 755 "$image"
mkdir -p "$image"/{etc,tmp,root,proc,sys,dev,var,run,usr,home/tester}
for l in bin sbin lib lib64; do ln -s "usr/$l" "$image/$l"; done
chmod 1777 "$image/tmp" && chown tester "$image/home/tester"
cp -r /etc/passwd /etc/group /etc/alternatives "$image/etc/"
tar -C "$image" -c . | docker import - own >/dev/null
docker=(docker run --rm --network none -v /usr:/usr:ro)
holds "Docker: a sandbox is refused with the way out" 'hint: .*seccomp=unconfined' "${docker[@]}" own "${prints[@]}"
holds "Docker: gVisor is refused with the way out" 'hint: .*seccomp=unconfined' "${docker[@]}" own "${run[@]}" --isolation gvisor -c 'print(7)'
holds "Docker: confined" "$confined" "${docker[@]}" own "${run[@]}" --isolation confined -c 'print("seven", 7)'
holds "Docker: confined, as a user" "$confined" "${docker[@]}" -u tester -e HOME=/home/tester own "${run[@]}" --isolation confined -c 'print("seven", 7)'
unconfined=("${docker[@]}" --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined)
holds "Docker, unconfined: a script" '^seven 7' "${unconfined[@]}" own "${prints[@]}"
holds "Docker, unconfined: gVisor" '^seven 7' "${unconfined[@]}" own "${run[@]}" --isolation gvisor -c 'print("seven", 7)'
holds "Docker, unconfined: a user's script" '^seven 7' "${unconfined[@]}" -u tester -e HOME=/home/tester own "${prints[@]}"
holds "Docker, unconfined: serve" '^3 ok 42 namespace' "${unconfined[@]}" own serve 20
covered=("${docker[@]}" --security-opt seccomp=unconfined --security-opt apparmor=unconfined)
holds "Docker, /proc covered: a script, without /proc" 'mount /proc: operation not permitted' "${covered[@]}" own "${prints[@]}"
holds "Docker, /proc covered: gVisor is refused with the way out" 'hint: .*systempaths=unconfined' "${covered[@]}" own "${run[@]}" --isolation gvisor -c 'print(7)'
holds "Docker, privileged: a script" '^seven 7' "${docker[@]}" --privileged own "${prints[@]}"
