#!/bin/bash
# Installs the Debian packages kvbench needs and that are missing, and says which. `setup.sh fuzz` adds clang's fuzzer.
set -euo pipefail
need=(gcc g++ make git libjansson-dev libsqlite3-dev libpcre2-dev libutf8proc-dev libssl-dev libcmocka-dev libcurl4-openssl-dev libzip-dev python3-jieba)
[ "${1:-}" = fuzz ] && need+=(clang libclang-rt-14-dev)
missing=()
for p in "${need[@]}"; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "setup: installing ${missing[*]}" >&2
as_root=; [ "$(id -u)" -eq 0 ] || as_root=sudo
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
