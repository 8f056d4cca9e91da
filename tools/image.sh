#!/usr/bin/env bash
# recipes/ci/Dockerfile, built and tried without a registry and without a daemon: by buildah, over Debian's Python 3.11, with no network.
# After: make wheels; make wheelhouse PYTHONS=3.11. usage: image.sh DIST; needs root, debootstrap and buildah
set -euo pipefail
dist=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
buildah() { unshare -n buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }
debootstrap --variant=minbase --include=python3-minimal,python3-pip bookworm "$work/root" >"$work/log" ||
  { tail -n 3 "$work/log"; exit 1; }
rm -r "$work"/root/usr/lib/python3*/EXTERNALLY-MANAGED "$work/root/var/cache/apt" # as in images of Python
container=$(buildah from scratch)
buildah copy -q "$container" "$work/root" / >"$work/log"
rm -r "$work/root"
buildah commit -q --rm "$container" base >"$work/log"
buildah bud -q --isolation chroot --build-arg BASE=localhost/base -t npuperf \
  -f "$here/recipes/ci/Dockerfile" "$dist" >"$work/log"
container=$(buildah from --pull-never localhost/npuperf)
buildah copy -q "$container" "$here/samples/micro_batch_ascend_pt" /recording >"$work/log"
for words in "--version" "analyze /recording --brief"; do
  buildah run --isolation chroot "$container" -- npuperf $words
done
