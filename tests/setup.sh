#!/bin/bash
# Installs the Debian packages kvbench needs and that are missing, and says which. `setup.sh fuzz` adds clang's fuzzer. Starts on a system that has nothing but apt.
set -euo pipefail
need=(gcc g++ make git bc ca-certificates libjansson-dev libsqlite3-dev libpcre2-dev libutf8proc-dev libssl-dev libcmocka-dev libcurl4-openssl-dev libzip-dev python3-jieba)
[ "${1:-}" = fuzz ] && need+=(clang libclang-rt-dev)
missing=()
for p in "${need[@]}"; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || { echo "setup: run as root, there is no sudo here: apt-get install ${missing[*]}" >&2; exit 1; }
	as_root=sudo
fi
echo "setup: installing ${missing[*]}" >&2
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
