#!/usr/bin/env bash
# aarch64 on another machine: npuperf's wheel, what it needs and Debian's Python, unpacked below a folder, for qemu.
# usage: aarch64.sh FOLDER PYTHON (of the tools); needs root and debootstrap
set -euo pipefail
folder=$1 python=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder"
"$python" "$here/wheelhouse.py" --machines aarch64 --pythons 3.11 --into "$folder/wheels"
for wheel in "$folder"/wheels/*.whl; do
  "$python" -m zipfile -e "$wheel" "$folder/site"
done
debootstrap --foreign --arch=arm64 --variant=minbase --include=libpython3.11-stdlib,python3.11-minimal bookworm \
  "$folder/root" >"$folder/debootstrap.log"
for package in "$folder"/root/var/cache/apt/archives/*.deb; do
  dpkg-deb -x "$package" "$folder/root"
done
rm -r "$folder/root/var/cache/apt" "$folder/wheels"
touch "$folder/made"
