#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# redis.sh: a Redis server of which a part is hot, for `pageferry compare`.
#
#   redis.sh [KEYS [REQUESTS]]
#
# The script fills a server with values of 1 KiB under KEYS random keys (default
# 65536). Then 50 clients send REQUESTS requests (default 100000): they read the
# first tenth of the keys, or write it. The script prints what redis-benchmark says
# about these requests. Debian has the programs in redis-server.
set -eu
keys=${1:-65536}
requests=${2:-100000}
command -v redis-server >/dev/null ||
	{ echo "redis.sh: no redis-server: apt-get install redis-server" >&2; exit 3; }
folder=$(mktemp -d)
socket=$folder/socket
redis-server --port 0 --unixsocket "$socket" --dir "$folder" --save '' \
	>"$folder/log" 2>&1 &
server=$!
trap 'kill $server; wait $server || true; rm -r "$folder"' EXIT
until redis-cli -s "$socket" ping >"$folder/answer" 2>&1; do
	kill -0 "$server"
	sleep 0.1
done
# Several requests in a packet: filling is not what counts.
redis-benchmark -s "$socket" -q -t set -d 1024 -r "$keys" -n $((2 * keys)) -P 16 \
	>"$folder/answer"
redis-benchmark -s "$socket" --csv -t set,get -d 1024 -r $((keys / 10)) \
	-n $((requests / 2))
