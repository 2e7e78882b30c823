"""The files of a partition's folder (see log_files.pxd)."""
from libc.errno cimport ELOOP, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, qsort, realloc, strtoll
from libc.string cimport memset, strcmp, strlen

from kbroker.ext.posix cimport (
    DIR,
    ENOENT,
    ENOMEM,
    O_CLOEXEC,
    O_RDONLY,
    close,
    closedir,
    dirent_t,
    fstat,
    open,
    opendir,
    readdir,
    rename,
    snprintf,
    stat_t,
    unlink,
)
from kbroker.ext.snapshots cimport Snapshots, snapshots_add, snapshots_free
from kbroker.ext.walk cimport WALK_BATCH, WALK_ERROR, Walk, walk_free, walk_init, walk_next

cdef extern from "<dirent.h>" nogil:
    ctypedef struct typed_dirent "struct dirent":
        unsigned char d_type
    enum:
        DT_LNK

cdef enum:
    PATH_BYTES = 4096
    DIGITS = 20

ctypedef struct Swaps:
    int64_t cleaned_from        # least base offset of a .cleaned file
    int64_t first               # range of offsets that .swap segments cover
    int64_t end
    bint any

# What a pass does with a file: (folder, name, its offset, what follows the digits, context).
ctypedef int (*Visit)(const char* dir, const char* name, int64_t offset, const char* suffix,
                      void* context) noexcept nogil


cdef bint ends_with(const char* text, const char* end) noexcept nogil:
    cdef size_t n = strlen(text)
    cdef size_t m = strlen(end)
    return n >= m and strcmp(text + n - m, end) == 0


cdef bint parse(const char* name, int64_t* offset, const char** suffix) noexcept nogil:
    cdef int i
    for i in range(DIGITS):
        if not c"0" <= name[i] <= c"9":
            return False
    if name[DIGITS] != c".":
        return False
    offset[0] = strtoll(name, NULL, 10)
    suffix[0] = name + DIGITS
    return True


cdef extern from * nogil:
    """
    static void clear_errno(void) { errno = 0; }
    """
    void clear_errno()


cdef int each_file(const char* dir, Visit visit, void* context) noexcept nogil:
    """Call `visit` for each file whose name is an offset. Return 0 or an errno: ELOOP for a
    symbolic link, which no broker makes. A folder that cannot be read to its end is an error: files
    that a listing lacks would be lost."""
    cdef dirent_t* entry
    cdef int64_t offset
    cdef const char* suffix
    cdef int error = 0
    cdef DIR* folder = opendir(dir)
    if folder == NULL:
        return errno
    while error == 0:
        clear_errno()
        entry = readdir(folder)
        if entry == NULL:
            error = errno
            break
        if parse(entry.d_name, &offset, &suffix):
            if (<typed_dirent*> entry).d_type == DT_LNK:
                error = ELOOP
                break
            error = visit(dir, entry.d_name, offset, suffix, context)
    closedir(folder)
    return error


cdef int remove_file(const char* dir, const char* name) noexcept nogil:
    cdef char path[PATH_BYTES]
    snprintf(path, PATH_BYTES, "%s/%s", dir, name)
    return 0 if unlink(path) == 0 or errno == ENOENT else errno


# ---- what interrupted work left

cdef int visit_left_behind(const char* dir, const char* name, int64_t offset, const char* suffix,
                           void* context) noexcept nogil:
    cdef Swaps* swaps = <Swaps*> context
    if ends_with(suffix, ".cleaned"):
        swaps.cleaned_from = min(swaps.cleaned_from, offset)
    if ends_with(suffix, ".deleted"):
        return remove_file(dir, name)
    if ends_with(suffix, ".swap"):
        swaps.any = True
    return 0


cdef int visit_cleaned(const char* dir, const char* name, int64_t offset, const char* suffix,
                       void* context) noexcept nogil:
    return remove_file(dir, name) if ends_with(suffix, ".cleaned") else 0


cdef int end_of(const char* dir, const char* name, int64_t* end) noexcept nogil:
    """Raise `end` to one beyond the last offset in a segment file. 0 or an errno."""
    cdef char path[PATH_BYTES]
    cdef stat_t status
    cdef Walk w
    cdef int code = WALK_BATCH
    cdef int error = 0
    snprintf(path, PATH_BYTES, "%s/%s", dir, name)
    cdef int fd = open(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return errno
    if fstat(fd, &status) != 0:
        error = errno
    elif walk_init(&w, fd, 0, status.st_size, 0) != 0:
        error = ENOMEM
    else:
        while code == WALK_BATCH:
            code = walk_next(&w)
            if code == WALK_BATCH:
                end[0] = max(end[0], w.info.base_offset + w.info.last_offset_delta + 1)
        error = w.error if code == WALK_ERROR else 0
        walk_free(&w)
    close(fd)
    return error


cdef int visit_swap(const char* dir, const char* name, int64_t offset, const char* suffix,
                    void* context) noexcept nogil:
    cdef Swaps* swaps = <Swaps*> context
    if not ends_with(suffix, ".swap"):
        return 0
    if offset >= swaps.cleaned_from:
        return remove_file(dir, name)
    if strcmp(suffix, ".log.swap") == 0:
        swaps.first = min(swaps.first, offset)
        # At least its own name: nothing of the old segment, a transaction index say, is its.
        swaps.end = max(swaps.end, offset + 1)
        return end_of(dir, name, &swaps.end)
    return 0


cdef int visit_covered(const char* dir, const char* name, int64_t offset, const char* suffix,
                       void* context) noexcept nogil:
    cdef Swaps* swaps = <Swaps*> context
    if ends_with(suffix, ".swap") or not swaps.first <= offset < swaps.end:
        return 0
    return remove_file(dir, name)


cdef int visit_rename(const char* dir, const char* name, int64_t offset, const char* suffix,
                      void* context) noexcept nogil:
    cdef char old[PATH_BYTES]
    cdef char new[PATH_BYTES]
    if not ends_with(suffix, ".swap"):
        return 0
    snprintf(old, PATH_BYTES, "%s/%s", dir, name)
    snprintf(new, PATH_BYTES, "%s/%.*s", dir, <int> (strlen(name) - strlen(".swap")), name)
    return 0 if rename(old, new) == 0 else errno


cdef int visit_rename_log(const char* dir, const char* name, int64_t offset, const char* suffix,
                          void* context) noexcept nogil:
    if strcmp(suffix, ".log.swap") != 0:
        return 0
    return visit_rename(dir, name, offset, suffix, context)


cdef int tidy(const char* dir) noexcept nogil:
    cdef Swaps swaps
    cdef int error
    memset(&swaps, 0, sizeof(Swaps))
    swaps.cleaned_from = INT64_MAX
    swaps.first = INT64_MAX
    error = each_file(dir, visit_left_behind, &swaps)
    if swaps.any:
        error = error or each_file(dir, visit_swap, &swaps)
    if swaps.cleaned_from < INT64_MAX:
        # After the .swap files that they make void: a crash in between must not make those valid.
        error = error or each_file(dir, visit_cleaned, &swaps)
    if swaps.any:
        error = error or each_file(dir, visit_covered, &swaps)
        # As long as there is a .log.swap, what it covers is removed: its indexes come after it.
        error = error or each_file(dir, visit_rename_log, &swaps)
        error = error or each_file(dir, visit_rename, &swaps)
    return error


# ---- listing

cdef int32_t kind_of(const char* suffix) noexcept nogil:
    if strcmp(suffix, ".log") == 0:
        return FILE_LOG
    if strcmp(suffix, ".index") == 0:
        return FILE_OFFSETS
    if strcmp(suffix, ".timeindex") == 0:
        return FILE_TIMES
    return FILE_ABORTED if strcmp(suffix, ".txnindex") == 0 else 0


cdef int visit_list(const char* dir, const char* name, int64_t offset, const char* suffix,
                    void* context) noexcept nogil:
    cdef Listing* list = <Listing*> context
    cdef int32_t kind = kind_of(suffix)
    cdef int32_t capacity
    cdef void* larger
    if strcmp(suffix, ".snapshot") == 0:
        return snapshots_add(&list.snapshots, offset)
    if kind == 0:
        return 0
    if list.count == list.capacity:
        capacity = max(16, 2 * list.capacity)
        larger = realloc(list.sets, capacity * sizeof(FileSet))
        if larger == NULL:
            return ENOMEM
        list.sets = <FileSet*> larger
        list.capacity = capacity
    list.sets[list.count].base_offset = offset
    list.sets[list.count].kinds = kind
    list.count += 1
    return 0


cdef int by_offset(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const FileSet*> a).base_offset
    cdef int64_t y = (<const FileSet*> b).base_offset
    return (x > y) - (x < y)


cdef void merge(Listing* list) noexcept nogil:
    """One set for each base offset, out of one for each file."""
    cdef int32_t i
    cdef int32_t kept = 0
    for i in range(list.count):
        if kept > 0 and list.sets[kept - 1].base_offset == list.sets[i].base_offset:
            list.sets[kept - 1].kinds |= list.sets[i].kinds
        else:
            list.sets[kept] = list.sets[i]
            kept += 1
    list.count = kept


cdef void drop_orphans(const char* dir, Listing* list) noexcept nogil:
    cdef char name[64]
    cdef int32_t i
    cdef int32_t kept = 0
    cdef int64_t base
    for i in range(list.count):
        if list.sets[i].kinds & FILE_LOG:
            list.sets[kept] = list.sets[i]
            kept += 1
            continue
        base = list.sets[i].base_offset
        snprintf(name, 64, "%020lld.index", <long long> base)
        remove_file(dir, name)
        snprintf(name, 64, "%020lld.timeindex", <long long> base)
        remove_file(dir, name)
        snprintf(name, 64, "%020lld.txnindex", <long long> base)
        remove_file(dir, name)
    list.count = kept


cdef int files_list(const char* dir, Listing* out) noexcept nogil:
    cdef int error
    memset(out, 0, sizeof(Listing))
    error = tidy(dir) or each_file(dir, visit_list, out)
    if error:
        return error
    if out.count > 0:
        qsort(out.sets, out.count, sizeof(FileSet), by_offset)
    merge(out)
    drop_orphans(dir, out)
    return 0


cdef void listing_free(Listing* list) noexcept nogil:
    free(list.sets)
    list.sets = NULL
    list.count = 0
    list.capacity = 0
    snapshots_free(&list.snapshots)


cdef int visit_snapshot(const char* dir, const char* name, int64_t offset, const char* suffix,
                        void* context) noexcept nogil:
    if strcmp(suffix, ".snapshot") == 0:
        return snapshots_add(<Snapshots*> context, offset)
    return 0


cdef int files_snapshots(const char* dir, Snapshots* out) noexcept nogil:
    memset(out, 0, sizeof(Snapshots))
    return each_file(dir, visit_snapshot, out)
