/* A double of SageMaker's FastFile mode, for LD_PRELOAD. Files below FASTFILE_FOLDER are slow and can't be mapped, like
 * those of a FUSE mount that bypasses the kernel's page cache. The path of each opened file is written to FASTFILE_LOG.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_below(const char *path) {
    const char *folder = getenv("FASTFILE_FOLDER");
    return folder && !strncmp(path, folder, strlen(folder));
}

static int is_ours(int descriptor) {
    char link[64], path[PATH_MAX];
    struct stat status;
    int saved_errno = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int regular = !fstat(descriptor, &status) && S_ISREG(status.st_mode);
    errno = saved_errno;
    if (length < 0 || !regular)
        return 0;
    path[length] = 0;
    return is_below(path);
}

static void *next_of(const char *name) { return dlsym(RTLD_NEXT, name); }

static int opened(int descriptor) {
    const char *log = getenv("FASTFILE_LOG");
    if (descriptor >= 0 && log && is_ours(descriptor)) {
        char link[64], line[PATH_MAX + 1];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, line, PATH_MAX);
        FILE *file = length < 0 ? NULL : fopen(log, "a");
        if (file) {
            fprintf(file, "%.*s\n", (int)length, line);
            fclose(file);
        }
    }
    return descriptor;
}

#define OPEN(NAME)                                                                                                     \
    int NAME(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;                                      \
        va_end(more);                                                                                                  \
        return opened(((int (*)(const char *, int, ...))next_of(#NAME))(path, flags, mode));                           \
    }
OPEN(open)
OPEN(open64)

#define MAP(NAME)                                                                                                      \
    void *NAME(void *at, size_t size, int protection, int flags, int descriptor, off_t offset) {                       \
        if (descriptor >= 0 && is_ours(descriptor)) {                                                                  \
            errno = ENODEV;                                                                                            \
            return MAP_FAILED;                                                                                         \
        }                                                                                                              \
        return ((void *(*)(void *, size_t, int, int, int, off_t))next_of(#NAME))(at, size, protection, flags,          \
                                                                                 descriptor, offset);                  \
    }
MAP(mmap)
MAP(mmap64)

static void wait_for(int descriptor) {
    if (is_ours(descriptor))
        usleep(2000);
}

ssize_t read(int descriptor, void *to, size_t size) {
    wait_for(descriptor);
    return ((ssize_t(*)(int, void *, size_t))next_of("read"))(descriptor, to, size);
}

ssize_t pread64(int descriptor, void *to, size_t size, off_t offset) {
    wait_for(descriptor);
    return ((ssize_t(*)(int, void *, size_t, off_t))next_of("pread64"))(descriptor, to, size, offset);
}
