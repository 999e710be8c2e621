/* A CUDA runtime without a card: what torch calls, answered on the CPU.

Memory is addresses that nobody may touch; kernels and copies do nothing, and what comes back to the host is zero. What is
asked of the device is counted. The environment says what card there is, and is read when a process first asks for one:

    NULL_CUDA_DEVICES     how many cards (1)
    NULL_CUDA_MEMORY      bytes of each (80 GiB)
    NULL_CUDA_CAPABILITY  7.5, 8.0 or 9.0 (9.0)
    NULL_CUDA_FAULT       N: the N-th launch ends in an error that stays, as a device-side assert does

CUDA_VISIBLE_DEVICES chooses among the cards. Functions without a meaning here are generated, see build.py. */

#define _GNU_SOURCE
#include <driver_types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_DEVICES = 16, MAX_BLOCKS = 1 << 16 };

struct counts {
    long launches;       /* kernels that the host starts, a graph counting as one */
    long graph_kernels;  /* kernels that graphs have run */
    long waits;          /* of the host for the device */
    long to_device, to_host, on_device; /* copies */
    long allocations;    /* of device memory, by cudaMalloc */
} null_cuda_counts;

/* The card. */

static int num_devices, major, minor;
static int physical[MAX_DEVICES]; /* number of each visible card */
static size_t memory;
static long fault_at; /* launches until the fault; 0 for none */
static cudaError_t fault;
static __thread int device;

static const char *setting(const char *name, const char *usual)
{
    const char *value = getenv(name);
    return value ? value : usual;
}

static void read_environment(void)
{
    static int is_read;
    if (is_read)
        return;
    is_read = 1;
    int cards = atoi(setting("NULL_CUDA_DEVICES", "1"));
    memory = strtoull(setting("NULL_CUDA_MEMORY", "85899345920"), NULL, 10);
    sscanf(setting("NULL_CUDA_CAPABILITY", "9.0"), "%d.%d", &major, &minor);
    fault_at = atol(setting("NULL_CUDA_FAULT", "0"));
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible == NULL) {
        for (; num_devices < cards && num_devices < MAX_DEVICES; num_devices++)
            physical[num_devices] = num_devices;
        return;
    }
    char *end;
    for (long card = strtol(visible, &end, 10); end != visible; card = strtol(visible, &end, 10)) {
        if (card < 0 || card >= cards || num_devices == MAX_DEVICES)
            return; /* as CUDA: the first wrong number ends the list */
        physical[num_devices++] = card;
        visible = *end == ',' ? end + 1 : end;
    }
}

cudaError_t cudaGetDeviceCount(int *count)
{
    read_environment();
    *count = num_devices;
    return num_devices ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *which)
{
    *which = device;
    return fault;
}

cudaError_t cudaSetDevice(int which)
{
    read_environment();
    if (which < 0 || which >= num_devices)
        return cudaErrorInvalidDevice;
    device = which;
    return fault;
}

static int attribute(int name)
{
    switch (name) {
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 232448;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 233472;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrComputeCapabilityMajor: return major;
    case cudaDevAttrComputeCapabilityMinor: return minor;
    default: return 1;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int which)
{
    (void)which;
    read_environment();
    *value = attribute(name);
    return fault;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *card, int which)
{
    const char *names[] = {"Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"};
    read_environment();
    if (which < 0 || which >= num_devices)
        return cudaErrorInvalidDevice;
    memset(card, 0, sizeof *card);
    strcpy(card->name, names[major >= 9 ? 2 : major >= 8 ? 1 : 0]);
    memset(card->uuid.bytes, 1 + physical[which], sizeof card->uuid.bytes);
    card->totalGlobalMem = memory;
    card->major = major;
    card->minor = minor;
    card->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    card->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
    card->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    card->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
    card->warpSize = attribute(cudaDevAttrWarpSize);
    card->sharedMemPerBlock = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
    card->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    card->sharedMemPerMultiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    card->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
    card->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
    card->l2CacheSize = 50 << 20;
    card->textureAlignment = 512;
    for (int i = 0; i < 3; i++) {
        card->maxGridSize[i] = attribute(cudaDevAttrMaxGridDimX + i);
        card->maxThreadsDim[i] = i < 2 ? 1024 : 64;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int which)
{
    snprintf(text, length, "0000:%02x:00.0", physical[which]);
    return fault;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other)
{
    *can = one != other;
    return fault;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION_OF_TORCH;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION_OF_TORCH;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorAssert: return "device-side assert triggered";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "error of the null device";
    }
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}

cudaError_t cudaGetLastError(void) { return fault; }
cudaError_t cudaPeekAtLastError(void) { return fault; }

/* Streams, events and graphs. */

struct graph {
    long kernels;
};

static struct {
    void *stream; /* that is captured */
    int active;
    unsigned long long id;
    long kernels;
} capture;

static cudaError_t new_object(void *at)
{
    *(void **)at = calloc(1, 64);
    return fault;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return new_object(stream); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    return new_object(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    return new_object(stream);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    (void)stream;
    *priority = 0;
    return fault;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return fault;
}

static __thread enum cudaStreamCaptureMode thread_mode; /* relaxed: may wait for streams that are not captured */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return fault;
}

static cudaError_t wait_unless(int is_refused)
{
    if (capture.active && is_refused)
        return cudaErrorStreamCaptureUnsupported;
    null_cuda_counts.waits++;
    return fault;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return wait_unless(stream == capture.stream || thread_mode != cudaStreamCaptureModeRelaxed);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return wait_unless(thread_mode != cudaStreamCaptureModeRelaxed);
}

cudaError_t cudaDeviceSynchronize(void) { return wait_unless(1); }

cudaError_t cudaEventCreate(cudaEvent_t *event) { return new_object(event); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return new_object(event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, (struct timespec *)event);
    return fault;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(event, stream);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    struct timespec *a = (struct timespec *)from, *b = (struct timespec *)to;
    *milliseconds = (b->tv_sec - a->tv_sec) * 1e3f + (b->tv_nsec - a->tv_nsec) * 1e-6f;
    return fault;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    capture.stream = stream;
    capture.active = 1;
    capture.kernels = 0;
    capture.id++;
    return fault;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void)stream;
    struct graph *made = calloc(1, sizeof *made);
    made->kernels = capture.kernels;
    *graph = (cudaGraph_t)made;
    capture.active = 0;
    return fault;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    int is_captured = capture.active && stream == capture.stream;
    *status = is_captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return fault;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, void **edges, size_t *count)
{
    if (id)
        *id = capture.id;
    if (graph)
        *graph = NULL;
    if (nodes)
        *nodes = NULL;
    if (edges)
        *edges = NULL;
    if (count)
        *count = 0;
    return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    (void)nodes;
    *count = ((struct graph *)graph)->kernels;
    return fault;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    struct graph *made = calloc(1, sizeof *made);
    *made = *(struct graph *)graph;
    *executable = (cudaGraphExec_t)made;
    return fault;
}

/* Kernels. */

cudaError_t null_cuda_launch(void)
{
    read_environment();
    if (capture.active) {
        capture.kernels++;
        return fault;
    }
    null_cuda_counts.launches++;
    if (fault_at && --fault_at == 0)
        fault = cudaErrorAssert;
    return fault;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    (void)stream;
    null_cuda_counts.graph_kernels += ((struct graph *)executable)->kernels;
    return null_cuda_launch();
}

cudaError_t cudaLaunchKernel(const void *function) { return (void)function, null_cuda_launch(); }
cudaError_t cudaLaunchKernelExC(const void *config) { return (void)config, null_cuda_launch(); }
cudaError_t __cudaLaunchKernel(void *kernel) { return (void)kernel, null_cuda_launch(); }

cudaError_t __cudaGetKernel(void **kernel, const void *function)
{
    *kernel = (void *)function;
    return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle[8];
    (void)binary;
    return handle;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    (void)function;
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = 10 * major + minor;
    return fault;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks)
{
    *blocks = 2;
    return fault;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
    static char memory_of_all_symbols[1 << 20];
    (void)symbol;
    *address = memory_of_all_symbols;
    return fault;
}

static int driver_function(void) { return 0; }

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, int *status)
{
    (void)name, (void)version, (void)flags;
    *function = (void *)driver_function;
    if (status)
        *status = 0;
    return cudaSuccess;
}

/* Memory. */

static struct block {
    char *start;
    size_t bytes;
    int device;
} blocks[MAX_BLOCKS];
static int num_blocks;
static size_t used[MAX_DEVICES];

static struct block *block_of(const void *address)
{
    const char *at = address;
    for (int i = num_blocks - 1; i >= 0; i--)
        if (blocks[i].start && at >= blocks[i].start && at < blocks[i].start + blocks[i].bytes)
            return &blocks[i];
    return NULL;
}

cudaError_t cudaMalloc(void **address, size_t bytes)
{
    read_environment();
    *address = NULL;
    if (fault)
        return fault;
    if (used[device] + bytes > memory || num_blocks == MAX_BLOCKS)
        return cudaErrorMemoryAllocation;
    bytes = bytes ? bytes : 1;
    *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*address == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    blocks[num_blocks++] = (struct block){*address, bytes, device};
    used[device] += bytes;
    null_cuda_counts.allocations++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *address)
{
    struct block *block = address ? block_of(address) : NULL;
    if (block) {
        munmap(block->start, block->bytes);
        used[block->device] -= block->bytes;
        block->start = NULL;
        while (num_blocks && !blocks[num_blocks - 1].start)
            num_blocks--;
    }
    return fault;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = memory - used[device];
    *total = memory;
    return fault;
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    *address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return fault;
}

cudaError_t cudaFreeHost(void *address)
{
    free(address);
    return fault;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    struct block *block = block_of(address);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = block ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->device = block ? block->device : -1;
    attributes->devicePointer = (void *)address;
    return fault;
}

static cudaError_t copied(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    struct block *target = block_of(to), *source = block_of(from);
    if (capture.active && stream == capture.stream) {
        capture.kernels++;
        return target ? fault : cudaErrorStreamCaptureUnsupported;
    }
    if (target && source)
        null_cuda_counts.on_device++;
    else if (target)
        null_cuda_counts.to_device++;
    else
        null_cuda_counts.to_host++;
    if (!target)
        memset(to, 0, bytes);
    return fault;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    cudaError_t error = wait_unless(1);
    return error ? error : copied(to, from, bytes, NULL);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return copied(to, from, bytes, stream);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int target, const void *from, int source, size_t bytes, cudaStream_t stream)
{
    (void)target, (void)source;
    return copied(to, from, bytes, stream);
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    (void)at, (void)value, (void)bytes;
    return null_cuda_launch();
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(at, value, bytes);
}

/* CUDA's libraries: those functions that give something back; all others are generated. */

int cufftXtMakePlanMany(int plan, int rank, void *sizes, void *in, long in_stride, long in_distance, int in_type,
                        void *out, long out_stride, long out_distance, int out_type, long batch, size_t *workspace)
{
    *workspace = 0;
    return 0;
}

int cusolverDnDgesvdj_bufferSize(void *handle, int job, int economy, int rows, int columns, void *a, int lda, void *s,
                                 void *u, int ldu, void *v, int ldv, int *workspace, void *parameters)
{
    *workspace = 0;
    return 0;
}

int cublasGetMathMode(void *handle, int *mode)
{
    (void)handle;
    *mode = 0;
    return 0;
}

int cublasGetPointerMode_v2(void *handle, int *mode) { return cublasGetMathMode(handle, mode); }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c, void *d, void *preference,
                                   int most, char *results, int *count)
{
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)most;
    memset(results, 0, 96); /* a cublasLtMatmulHeuristicResult_t: no workspace, status "success" */
    *count = 1;
    return 0;
}

/* The driver, which torch and Triton open as libcuda.so.1. */

static void *const CONTEXT = &num_devices;

int cuCtxGetCurrent(void **context)
{
    *context = CONTEXT;
    return 0;
}

int cuDevicePrimaryCtxGetState(int which, unsigned *flags, int *is_active)
{
    (void)which;
    *flags = 0;
    *is_active = 1;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context) { return cuCtxGetCurrent(context); }

int cuDeviceGet(int *found, int which)
{
    *found = which;
    return 0;
}

int cuDeviceGetAttribute(int *value, int name, int which) { return cudaDeviceGetAttribute(value, name, which); }

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "error of the null device";
    return 0;
}

int cuPointerGetAttribute(void **value, int name, void *address)
{
    (void)name;
    *value = address;
    return 0;
}

int cuModuleLoadData(void **module) { return new_object(module); }
int cuModuleGetFunction(void **function) { return new_object(function); }

int cuFuncGetAttribute(int *value)
{
    *value = 32;
    return 0;
}

int cuLaunchKernel(void) { return null_cuda_launch(); }
