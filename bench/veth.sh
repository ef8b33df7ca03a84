#!/usr/bin/env bash
# Measures the transport over one veth pair between two namespaces, two real daemons: a WRITE stream, small SENDs and
# the half round trip, at MTU 1500 and 9000. Five rounds each; prints median, minimum and maximum.
# Needs what `weftctl lab` needs (root or user namespaces). Usage: bench/veth.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
cargo build --quiet --release -p weft-daemon -p weft-ctl
weftctl=${CARGO_TARGET_DIR:-target}/release/weftctl
lab=bench-$$
trap '"$weftctl" lab down $lab >/dev/null 2>&1 || true; rm -f "/tmp/$lab.yaml"' EXIT

# The number behind "key": in JSON on standard input.
field() { grep -o "\"$1\": *[0-9.]*" | head -1 | grep -o '[0-9.]*$'; }

# Median, minimum and maximum of the numbers on standard input, scaled.
spread() { sort -g | awk -v scale="$1" '{ v[NR] = $1 * scale } END { printf "%10.2f %10.2f %10.2f\n", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

# row LABEL KEY SCALE BENCH-ARGUMENTS...
row() {
  local label=$1 key=$2 scale=$3; shift 3
  printf '%-46s' "$label"
  for _ in $(seq "$rounds"); do "$weftctl" lab exec $lab a "$weftctl" bench "$@" --to b --json | field "$key"; done | spread "$scale"
}

echo "machine: $(nproc) processors, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), Linux $(uname -r)"
for mtu in 1500 9000; do
  sed "s/^name: .*/name: $lab/; s/mtu: [0-9]*/mtu: $mtu/" deploy/labs/two-hosts.yaml > "/tmp/$lab.yaml"
  "$weftctl" lab up "/tmp/$lab.yaml" >/dev/null
  "$weftctl" lab exec $lab b "$weftctl" serve >/dev/null 2>&1 &
  sleep 1
  printf '%-46s%10s %10s %10s\n' "MTU $mtu" median min max
  row "WRITE 1 MiB, 8 deep, Gbit/s" goodput_bps 1e-9 write --size 1MiB --count 1000 --depth 8
  row "  sender's weftd, ns of processor per byte" daemon_cpu_ns_per_byte 1 write --size 1MiB --count 1000 --depth 8
  row "SEND 64 B, 64 deep, thousand messages/s" messages_per_second 1e-3 send --size 64 --count 200000 --depth 64
  row "half round trip 64 B, median, us" p50_us 1 latency --size 64 --count 10000
  row "half round trip 64 B, 99th percentile, us" p99_us 1 latency --size 64 --count 10000
  "$weftctl" lab down $lab >/dev/null
done
