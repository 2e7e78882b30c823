#!/bin/sh
# `packaging/deb.sh [FOLDER]`: the Debian package for the release that this runs on, into dist/ or
# FOLDER. Needs what packaging/debian/control names as Build-Depends, dpkg-dev, and PyPI.
# KBROKER_WHEEL=FILE: with a wheel that is there, of the release's Python, instead of compiling.
set -eu
[ -z "${KBROKER_WHEEL:-}" ] || KBROKER_WHEEL=$(realpath "$KBROKER_WHEEL")
cd "$(dirname "$0")/.."
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
tree=build/deb/kbroker
rm -rf build/deb
mkdir -p "$tree"
# shellcheck disable=SC2046 # a list of folders
tar -cf - --exclude='*.so' --exclude='*.cpp' --exclude=__pycache__ --exclude='ext/testing*' \
    $(sed -n 's/^graft //p' MANIFEST.in) setup.py pyproject.toml MANIFEST.in LICENSE README.md \
    CHANGELOG.md | tar -C "$tree" -xf -
mv "$tree/packaging/debian" "$tree/debian"
# One version for every release, later releases later: 0.1.0+deb12, 0.1.0+deb13.
release=$(. /etc/os-release && echo "${ID#ian}${VERSION_ID:-0}" | sed 's/^debian/deb/; s/[^a-z0-9.]//g')
sed -i "1s/)/+$release)/" "$tree/debian/changelog"
(cd "$tree" && dpkg-buildpackage --build=binary --unsigned-changes)
mv build/deb/kbroker_*.deb build/deb/kbroker_*.changes build/deb/kbroker_*.buildinfo "$out"
ls "$out"/kbroker_*.deb
