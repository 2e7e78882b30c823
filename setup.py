"""Compile every `.pyx` under `ext/` as `kbroker.ext.*`; metadata is in pyproject.toml.

Environment:
    KBROKER_DEBUG=1          bounds assertions and object counters (macro KBROKER_DEBUG)
    KBROKER_COUNT=1          object counters alone, in what is a release otherwise
    KBROKER_SANITIZE=1       AddressSanitizer and UBSan, implies KBROKER_DEBUG
    KBROKER_SANITIZE=thread  ThreadSanitizer, implies KBROKER_DEBUG
    KBROKER_TEST=1           also compile `ext/testing*.pyx`, which are never shipped
    KBROKER_BUILD_JOBS=N     compilers at a time, one for each processor unless told
"""

import gc
import os
import platform
import runpy
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
VIEW = ROOT / "build" / "view"
ROOMS = {
    "kbroker": "kbroker",
    "kbroker.ext": "ext",
    "kbroker.cli": "cli",
    "kbroker.locust": "perf/locust",
    "pyspark_kbroker": "pyspark_kbroker",
}

# Variant and compiler flags by the value of KBROKER_SANITIZE.
SANITIZERS = {
    "1": ("asan", ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]),
    "thread": ("tsan", ["-fsanitize=thread"]),
}
SANITIZE = SANITIZERS.get(os.environ.get("KBROKER_SANITIZE", ""))
DEBUG = bool(SANITIZE) or os.environ.get("KBROKER_DEBUG") == "1"
COUNT = os.environ.get("KBROKER_COUNT") == "1"
TEST = os.environ.get("KBROKER_TEST") == "1"
JOBS = int(os.environ.get("KBROKER_BUILD_JOBS", "0")) or len(os.sched_getaffinity(0))

# The oldest processor of each architecture; faster instructions are picked at run time.
BASELINE = {"x86_64": "-march=x86-64", "aarch64": "-march=armv8-a"}

# Faces to Python, where the interpreter takes the time and nothing of the data plane is: half the
# compiler's work will do there.
FACES = {
    "appending", "cleaner", "control", "debug", "engine", "journal_reader", "journal_recovery",
    "offsets_rows", "records", "tls_context", "wire",
}  # fmt: skip

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "auto_pickle": False,
}


def make_view() -> None:
    """Link the rooms together under their import names.

    Cython, mypy and stubtest look for `kbroker.ext.x` in a folder `kbroker/ext`, which the tree
    does not have: `ext` and `cli` are folders beside `kbroker`.
    """
    package = VIEW / "kbroker"
    package.mkdir(parents=True, exist_ok=True)
    wanted = {path.name: path for path in (ROOT / "kbroker").iterdir() if path.name[0] not in "_."}
    wanted |= {path.name: path for path in (ROOT / "kbroker").glob("__*__.py*")}
    wanted |= {"ext": ROOT / "ext", "cli": ROOT / "cli"}
    for link in package.iterdir():
        if link.name not in wanted:
            link.unlink()
    for name, target in wanted.items():
        link = package / name
        relative = os.path.relpath(target, package)
        if not link.is_symlink():
            link.symlink_to(relative)
        elif os.readlink(link) != relative:
            link.unlink()
            link.symlink_to(relative)


def packages() -> list[str]:
    """Every folder with an `__init__.py`, under its import name."""
    found = []
    for name, folder in ROOMS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            below = init.parent.relative_to(ROOT / folder).parts
            found.append(".".join((name, *below)))
    return sorted(found)


def compiler_flags() -> tuple[list[str], list[str]]:
    """Flags for the compiler and for the linker."""
    compile_args = ["-std=c++17", "-fvisibility=hidden", "-fno-plt", "-pthread", "-Wno-unused"]
    link_args = ["-pthread"]
    if platform.machine() in BASELINE:
        compile_args.append(BASELINE[platform.machine()])
    if SANITIZE:
        compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZE[1]]
        link_args += SANITIZE[1]
    else:
        # Line tables and warnings in generated code take a tenth of the compiler's time each.
        compile_args += ["-O3", "-g1"] if DEBUG else ["-O3", "-g0", "-w"]
    return compile_args, link_args


def macros() -> list[tuple[str, str | None]]:
    """What ext/c/debug.h asks for."""
    wanted = {"KBROKER_DEBUG": DEBUG, "KBROKER_COUNT": COUNT}
    return [(name, "1") for name, is_wanted in wanted.items() if is_wanted]


def extensions() -> list[Extension]:
    """One extension per `.pyx`, all in C++; BuildExt has them translated."""
    compile_args, link_args = compiler_flags()
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "ext" / "c").glob("*.h"))
    depends = [*headers, "setup.py"]  # the flags are there
    modules = []
    for source in sorted((ROOT / "ext").rglob("*.pyx")):
        if source.stem.startswith("testing") and not TEST:
            continue
        path = source.relative_to(ROOT)
        modules.append(
            Extension(
                ".".join(("kbroker", *path.with_suffix("").parts)),
                [str(path)],
                language="c++",
                include_dirs=["ext/c"],
                depends=depends,
                define_macros=macros(),
                extra_compile_args=compile_args + (["-O1"] if path.stem in FACES else []),
                extra_link_args=link_args,
            )
        )
    return modules


class BuildExt(build_ext):
    """Translate to C++ only where it is compiled, and keep the variants apart.

    pip runs setup.py three times for an install, and compiles in one of them.

    What one variant compiled must never be linked into another.

    In place, `pip install -e` and `build_ext --inplace` alike, each variant has its own folder for
    what it compiled, from which it is copied into the tree: so neither does what the other has
    done, and going back to a variant costs a copy. setuptools has an editable install compile
    everything in a temporary folder, every time.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        unsanitized = "debug" if DEBUG else "counted" if COUNT else "release"
        variant = SANITIZE[0] if SANITIZE else unsanitized
        self.parallel = JOBS
        self.build_temp = os.path.join(self.build_temp, variant)
        if self.inplace or self.editable_mode:
            kept = ROOT / "build" / f"{sys.implementation.cache_tag}-{variant}"
            self.build_lib, self.build_temp = str(kept), str(kept / "objects")

    def run(self) -> None:
        self.refuse_without_a_compiler()
        # A syntax tree is all live objects: collecting them a hundred times takes a third of the
        # time, and finds nothing.
        gc.set_threshold(300_000)
        translated = cythonize(
            self.extensions,
            include_path=[str(VIEW)],
            compiler_directives=DIRECTIVES,
            nthreads=JOBS,
            quiet=True,
        )
        for extension, result in zip(self.extensions, translated, strict=True):
            extension.sources = result.sources
        super().run()

    def build_extensions(self) -> None:
        """With CPython's headers read once: a sixth of the compiler's time.

        A compiler to which the precompiled header means nothing reads the one beside it. ccache
        keeps nothing that was compiled with one.
        """
        compiler = self.compiler.compiler_so_cxx
        if not any("ccache" in word for word in compiler):
            header = Path(self.build_temp) / "python.h"
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text('#define PY_SSIZE_T_CLEAN\n#include "Python.h"\n')
            flags = [f"-I{folder}" for folder in self.compiler.include_dirs]
            target = ["-x", "c++-header", str(header), "-o", f"{header}.gch"]
            self.spawn([*compiler, *flags, *compiler_flags()[0], *target])
            for extension in self.extensions:
                extension.extra_compile_args += ["-include", str(header)]
        super().build_extensions()

    def refuse_without_a_compiler(self) -> None:
        """Before a minute of translating. What was compiled before may need nothing any more."""
        if all(Path(self.get_ext_fullpath(one.name)).exists() for one in self.extensions):
            return
        missing = runpy.run_path(str(ROOT / "packaging" / "needs.py"))["missing"]()
        if missing:
            sys.exit(missing)

    def copy_extensions_to_source(self) -> None:
        """As setuptools, but an extension of another variant is replaced though it is younger."""
        force, self.force = self.force, True
        super().copy_extensions_to_source()
        self.force = force


os.chdir(ROOT)
make_view()
setup(
    packages=packages(),
    package_dir=ROOMS,
    package_data={"": ["py.typed", "*.pyi"]},
    exclude_package_data={"kbroker.ext": ["testing*"]},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExt},
)
