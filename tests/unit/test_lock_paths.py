"""Every path of every function of `ext` unlocks what it has locked."""

import re
import textwrap

import pytest

from tests.support.lock_contracts import CONTRACTS
from tests.support.lock_paths import faults_of
from tests.support.lock_tree import VIEW, Sources, functions_of, name_of
from tests.support.tree import files_with, text_of

pytestmark = pytest.mark.skipif(not VIEW.exists(), reason="not built in place: make build")

LOCKING = re.compile(r"\bpthread_(?:mutex|cond)_|\blog_lock_soon\b|\blarge_batch_")

PRELUDE = """\
from kbroker.ext.posix cimport (
    pthread_cond_t, pthread_cond_wait, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_trylock,
    pthread_mutex_unlock,
)
ctypedef struct Table:
    pthread_mutex_t lock
    pthread_cond_t changed
    int count
    Table* next
cdef int fails() except -1 nogil:
    raise ValueError
cdef void takes_gil() noexcept with gil:
    pass
cdef class Owner:
    cdef Table table
    cdef object name
"""

# Registry.registry_remove as it was while it unlocked only a topic that it had found.
OLD_REGISTRY_REMOVE = """\
cdef bint registry_remove(Table* registry, int length) noexcept nogil:
    cdef Table* topic
    pthread_mutex_lock(&registry.lock)
    topic = registry.next
    if topic != NULL:
        registry.count -= 1
        pthread_mutex_unlock(&registry.lock)
    if topic == NULL:
        return False
    return True
"""

# (source, what is wrong with it; nothing where the text is empty)
SNIPPETS = {
    "old_registry_remove": (OLD_REGISTRY_REMOVE, "returns with registry.lock locked"),
    "both_branches": ("""\
        cdef int f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            if t.count == 0:
                pthread_mutex_unlock(&t.lock)
                return 0
            else:
                t.count -= 1
            pthread_mutex_unlock(&t.lock)
            return 1
        """, ""),
    "early_return": ("""\
        cdef int f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            if t.count == 0:
                return 0
            pthread_mutex_unlock(&t.lock)
            return 1
        """, "returns with t.lock locked"),
    "fall_through": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            if t.count == 0:
                pthread_mutex_unlock(&t.lock)
        """, "ends with t.lock locked"),
    "break_out_of_a_loop": ("""\
        cdef void f(Table* t) noexcept nogil:
            while True:
                pthread_mutex_lock(&t.lock)
                if t.count == 0:
                    break
                t.count -= 1
                pthread_mutex_unlock(&t.lock)
        """, "ends with t.lock locked"),
    "continue_in_a_loop": ("""\
        cdef void f(Table* t) noexcept nogil:
            cdef int i
            for i in range(3):
                pthread_mutex_lock(&t.lock)
                if t.count == i:
                    continue
                pthread_mutex_unlock(&t.lock)
        """, "pthread_mutex_lock locks t.lock, which is locked already"),
    "loop_that_unlocks_meanwhile": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            while t.count > 0:
                pthread_mutex_unlock(&t.lock)
                pthread_mutex_lock(&t.lock)
                if t.count == 7:
                    break
            pthread_mutex_unlock(&t.lock)
        """, ""),
    "unlocked_twice": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            if t.count == 0:
                pthread_mutex_unlock(&t.lock)
            pthread_mutex_unlock(&t.lock)
        """, "pthread_mutex_unlock needs t.lock, which is not locked"),
    "another_mutex": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            pthread_mutex_unlock(&t.next.lock)
        """, "pthread_mutex_unlock needs t.next.lock, which is not locked"),
    "pointer_that_moves_on": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            t = t.next
            pthread_mutex_unlock(&t.lock)
        """, "t changes while t.lock is locked"),
    "trylock": ("""\
        cdef bint f(Table* t) noexcept nogil:
            if pthread_mutex_trylock(&t.lock) != 0:
                return False
            pthread_mutex_unlock(&t.lock)
            return True
        """, ""),
    "trylock_the_wrong_way": ("""\
        cdef void f(Table* t) noexcept nogil:
            if pthread_mutex_trylock(&t.lock):
                pthread_mutex_unlock(&t.lock)
        """, "ends with t.lock locked"),
    "trylock_in_and": ("""\
        cdef void f(Table* t) noexcept nogil:
            if t.count > 0 and pthread_mutex_trylock(&t.lock) == 0:
                pthread_mutex_unlock(&t.lock)
        """, ""),
    "wait_without_the_mutex": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_cond_wait(&t.changed, &t.lock)
        """, "pthread_cond_wait needs t.lock, which is not locked"),
    "call_that_raises": ("""\
        cdef int f(Table* t) except -1 nogil:
            pthread_mutex_lock(&t.lock)
            fails()
            pthread_mutex_unlock(&t.lock)
            return 0
        """, "may raise with t.lock locked"),
    "raise_between": ("""\
        cdef int f(Table* t) except -1:
            with nogil:
                pthread_mutex_lock(&t.lock)
            raise ValueError
        """, "may raise with t.lock locked"),
    "conversion_of_an_argument": ("""\
        def f(Owner owner not None, count: int):
            pthread_mutex_lock(&owner.table.lock)
            owner.table.count = count
            pthread_mutex_unlock(&owner.table.lock)
        """, "runs Python with owner.table.lock locked"),
    "object_built_in_try": ("""\
        def f(Owner owner not None):
            with nogil:
                pthread_mutex_lock(&owner.table.lock)
            try:
                return (owner.table.count, 1)
            finally:
                pthread_mutex_unlock(&owner.table.lock)
        """, "runs Python with owner.table.lock locked"),
    "return_through_finally": ("""\
        cdef int f(Table* t) except -1 nogil:
            fails()
            pthread_mutex_lock(&t.lock)
            try:
                return t.count
            finally:
                pthread_mutex_unlock(&t.lock)
        """, ""),
    "object_replaced": ("""\
        cdef void f(Owner owner):
            with nogil:
                pthread_mutex_lock(&owner.table.lock)
            owner.name = None
            pthread_mutex_unlock(&owner.table.lock)
        """, "runs Python with owner.table.lock locked"),
    "truth_of_an_object": ("""\
        cdef void f(Owner owner, object flag):
            with nogil:
                pthread_mutex_lock(&owner.table.lock)
            if not flag:
                owner.table.count += 1
            pthread_mutex_unlock(&owner.table.lock)
        """, "runs Python with owner.table.lock locked"),
    "wait_with_the_gil": ("""\
        def f(Owner owner not None):
            pthread_mutex_lock(&owner.table.lock)
            pthread_mutex_unlock(&owner.table.lock)
        """, "pthread_mutex_lock waits for owner.table.lock with the GIL"),
    "gil_taken_with_the_mutex": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            with gil:
                t.count += 1
            pthread_mutex_unlock(&t.lock)
        """, "runs Python with t.lock locked"),
    "call_that_takes_the_gil": ("""\
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&t.lock)
            takes_gil()
            pthread_mutex_unlock(&t.lock)
        """, "runs Python with t.lock locked"),
    "mutex_without_a_name": ("""\
        cdef Table* g(Table* t) noexcept nogil:
            return t.next
        cdef void f(Table* t) noexcept nogil:
            pthread_mutex_lock(&g(t).lock)
            pthread_mutex_unlock(&g(t).lock)
        """, "pthread_mutex_lock: give the mutex ?.lock a name"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources():
    return Sources()


@pytest.mark.parametrize("name", SNIPPETS)
def test_lock_paths_of_a_snippet_are_judged(sources, tmp_path, name):
    text, wrong = SNIPPETS[name]
    path = tmp_path / f"{name}.pyx"
    path.write_text(PRELUDE + textwrap.dedent(text))
    tree = sources.module(path)
    found = {fault.text for function in functions_of(tree) for fault in faults_of(function)}
    assert (wrong in found) if wrong else not found, found


def test_source_that_does_not_compile_is_an_error(sources, tmp_path):
    path = tmp_path / "broken.pyx"
    path.write_text("cdef int32_t unknown_type = 0\n")
    with pytest.raises(SyntaxError):
        sources.module(path)


def test_every_function_of_ext_keeps_its_lock_contract(sources):
    faults = []
    names = set()
    for path in files_with(".pyx"):
        if LOCKING.search(text_of(path)):
            for function in functions_of(sources.module(path)):
                names.add(name_of(function.entry))
                faults += [
                    f"{path}:{line}: {name}: {text}"
                    for line, name, text in sorted(faults_of(function))
                ]
    assert not faults, "\n".join(faults)
    assert {name for name in CONTRACTS if "." in name} <= names, "contracts of no function"


def test_headers_lock_nothing():
    """The analysis reads `.pyx` files only."""
    locking = re.compile(r"\bpthread_(?:mutex_(?:\w*lock)|cond_\w*wait)\s*\(")
    found = [
        str(path) for path in files_with(".pxd", ".h")
        if path.parts[0] == "ext" and path.name != "posix.pxd" and locking.search(text_of(path))
    ]  # fmt: skip
    assert not found
