/* A double of NVIDIA's driver library, libcuda.so.1, which no machine of these tests has: the seven functions that
 * berth.runtime.gpu.driver calls. Environment variables set the answers. Their prefix is PREFIX, because a test may need
 * two doubles: the driver's own library and cuda-compat's.
 *
 *   FAKE_CUDA_VERSION  what cuDriverGetVersion answers: 12020 for CUDA 12.2
 *   FAKE_CUDA_INIT     what cuInit answers: 0, or an error's number; `crash` and `hang` do that
 *   FAKE_CUDA_DEVICES  name:capability, joined by commas: "Tesla V100-SXM2-16GB:7.0,Tesla T4:7.5"
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PREFIX
#define PREFIX "FAKE_CUDA_"
#endif

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int device(int index, char *name, int *major, int *minor) {
    char all[4096], *rest = all, *one = NULL;
    snprintf(all, sizeof all, "%s", variable(PREFIX "DEVICES"));
    for (; index >= 0; index--)
        if (!(one = strsep(&rest, ",")) || !*one) return 0;
    return sscanf(one, "%255[^:]:%d.%d", name, major, minor) == 3;
}

int cuDriverGetVersion(int *version) {
    *version = atoi(variable(PREFIX "VERSION"));
    return 0;
}

int cuInit(unsigned flags) {
    const char *answer = variable(PREFIX "INIT");
    if (!strcmp(answer, "crash")) abort();
    if (!strcmp(answer, "hang")) sleep(3600);
    return flags ? 1 : atoi(answer);
}

int cuDeviceGetCount(int *count) {
    char name[256];
    int major, minor;
    for (*count = 0; device(*count, name, &major, &minor);) (*count)++;
    return 0;
}

int cuDeviceGet(int *handle, int index) {
    *handle = index;
    return 0;
}

int cuDeviceGetName(char *name, int length, int handle) {
    char found[256];
    int major, minor;
    if (!device(handle, found, &major, &minor)) return 101;
    snprintf(name, length, "%s", found);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int handle) {
    char name[256];
    int major, minor;
    if (!device(handle, name, &major, &minor)) return 101;
    *value = attribute == 75 ? major : attribute == 76 ? minor : -1;
    return 0;
}

int cuGetErrorName(int code, const char **name) {
    static const struct { int code; const char *name; } known[] = {
        {100, "CUDA_ERROR_NO_DEVICE"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}, {999, "CUDA_ERROR_UNKNOWN"}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code) return *name = known[i].name, 0;
    return *name = NULL, 1;
}
