# Runs in the machine that scripts/machines.sh makes: what waldo does there, a line each. The last says that all were seen.
install /share/waldo /usr/local/bin/waldo
install /share/serve.py /usr/local/bin/serve
install /share/ask.py /usr/local/bin/ask
echo "kernel $(uname -r), $(waldo version)"

# holds NAME WANTED COMMAND...: its output has the wanted pattern in it.
holds() {
	local name=$1 wanted=$2 said
	shift 2
	said=$(timeout 240 "$@" 2>&1)
	if grep -qE -- "$wanted" <<<"$said"; then
		echo "ok   $name"
	else
		printf 'FAIL %s: wanted %s, it said:\n%s\n' "$name" "$wanted" "$(cut -c1-300 <<<"$said" | head -60)"
	fi
}
as_user=(setpriv --reuid tester --regid tester --init-groups env -i HOME=/home/tester PATH=/usr/local/bin:/usr/bin:/bin)
in_session=(systemd-run -q --machine=tester@ --user --wait --pipe)
for look in $(cat /share/looks); do
	. "/share/$look.sh"
done
echo "all seen"
