# Starts git ($0) with the filters and text conversions of the repository's own configuration replaced by ones that
# change nothing. Git has a setting for each name alone, so the names are read first: git config runs no program.
set -f
IFS='
'
keys=$("$0" --no-pager -c 'safe.directory=*' -c safe.bareRepository=explicit config --name-only --get-regexp \
  '^(filter\..*\.(clean|smudge|process|required)|diff\..*\.textconv)$') || [ $? = 1 ] || exit 125
n=0
for key in $keys; do
  value=
  case $key in *.textconv) value=cat ;; esac
  export "GIT_CONFIG_KEY_$n=$key" "GIT_CONFIG_VALUE_$n=$value"
  n=$((n + 1))
done
export GIT_CONFIG_COUNT=$n
exec "$0" "$@"
