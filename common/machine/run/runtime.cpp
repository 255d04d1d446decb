// CUDA's runtime for plain .cu files (include/cuda_runtime_api.h): memory, errors, properties, streams and events.
#include "common/machine/engine/device_memory.hpp"
#include "common/machine/engine/limits.hpp"
#include "common/machine/host_memory.hpp"
#include "common/machine/run/program.hpp"

struct flash_stream {};
struct flash_event {
  double at;
};

namespace flash::plain {
namespace {

cudaError_t wrong(RuleId rule, const std::string& text, Site site, cudaError_t error = cudaErrorInvalidValue) {
  report_at_exit();
  const std::string line = machine::words(site);
  add(state().of_host, {name_of(rule), text + " at " + line, {line}});
  state().error = error;
  return error;
}

/// What holds this address, or held it; nothing if it is the host's.
std::optional<machine::Allocation> find_memory(const void* inside) {
  return machine::origin_near(reinterpret_cast<std::uintptr_t>(inside), 0);
}

/// Does the host's call stay in the memory that it names? `device`: it must be a kernel's memory.
cudaError_t check(const void* at, std::size_t bytes, bool device, const char* does, const char* call, Site site) {
  const auto memory = find_memory(at);
  if (!memory) {
    if (!device) return cudaSuccess;
    return wrong(RuleId::foreign_memory, std::string(call) + does + "memory of the host where the device's is expected", site);
  }
  if (memory->freed)
    return wrong(
        RuleId::use_after_free,
        std::string(call) + does + name_of(*memory->origin) + ", which was freed at " + machine::words(*memory->freed) + ",",
        site);
  if (const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(at) + bytes; end > memory->end)
    return wrong(RuleId::out_of_bounds,
                 std::string(call) + does + number(end - memory->end) + " bytes past the end of the " +
                     number(memory->end - memory->begin) + " bytes of " + name_of(*memory->origin) + ",",
                 site);
  return cudaSuccess;
}

}  // namespace

cudaError_t allocate(void** p, std::size_t bytes, const char* call, bool managed, Site site) {
  prepare();
  try {
    *p = bytes == 0 ? nullptr : allocate_memory(bytes, {managed ? MemoryKind::managed : MemoryKind::device, call, site});
  } catch (const DeviceError&) {
    *p = nullptr;
    return state().error = cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}
cudaError_t release(void* p, const char* call, Site site) {
  if (p == nullptr) return last_error();
  if (free_memory(p, site)) return last_error();
  const auto memory = find_memory(p);
  if (memory && memory->freed)
    return wrong(RuleId::use_after_free,
                 std::string(call) + " of " + name_of(*memory->origin) + ", which was freed before at " +
                     machine::words(*memory->freed) + ",",
                 site);
  return wrong(RuleId::bad_argument, std::string(call) + " of what no allocation begins with,", site);
}
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const char* call, Site site) {
  prepare();
  if (bytes == 0) return last_error();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (const cudaError_t error = check(to, bytes, to_device, " writes ", call, site)) return error;
  if (const cudaError_t error = check(from, bytes, from_device, " reads ", call, site)) return error;
  const auto target = find_memory(to);
  if (state().died.empty() && !(target && target->origin->kind == MemoryKind::device)) {
    const std::string unwritten = unwritten_words(from, bytes), line = machine::words(site);
    const auto here = [&](const Finding& f) { return f.rule == name_of(RuleId::unwritten_read) && f.lines[0] == line; };
    if (!unwritten.empty() && std::ranges::none_of(state().of_host, here)) {
      report_at_exit();
      add(state().of_host,
          {name_of(RuleId::unwritten_read), std::string(call) + " reads " + unwritten + ", at " + line, {line}});
    }
  }
  std::memmove(to, from, bytes);
  filled_by_host(to, bytes);
  return last_error();
}
cudaError_t fill(void* to, int value, std::size_t bytes, const char* call, Site site) {
  prepare();
  if (bytes == 0) return last_error();
  if (const cudaError_t error = check(to, bytes, true, " writes ", call, site)) return error;
  std::memset(to, value, bytes);
  filled_by_host(to, bytes);
  return last_error();
}
cudaError_t last_error() { return state().error; }

}  // namespace flash::plain

// ---- the runtime's functions -------------------------------------------------------------------------------------------------------------

using flash::plain::state;

cudaError_t cudaPeekAtLastError() { return state().error; }
cudaError_t cudaGetLastError() { return std::exchange(state().error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
#define FLASH_EACH(name, number, text) \
  if (error == number) return #name;
  FLASH_ERRORS(FLASH_EACH)
#undef FLASH_EACH
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
#define FLASH_EACH(name, number, text) \
  if (error == number) return text;
  FLASH_ERRORS(FLASH_EACH)
#undef FLASH_EACH
  return cudaGetErrorName(error);
}

cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned, flash::Site site) {
  flash::register_memory(p, bytes, {flash::MemoryKind::managed, "cudaHostRegister", site});
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p, flash::Site site) {
  return flash::unregister_memory(p, site) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  const auto memory = flash::plain::find_memory(p);
  const bool managed = memory && memory->origin->kind == flash::MemoryKind::managed;
  void* const at = const_cast<void*>(p);
  *attributes = {memory ? managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0,
                 memory ? at : nullptr, memory && !managed ? nullptr : at};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const double bytes = flash::available_host_memory();
  *free = *total = bytes < 8e10 ? static_cast<std::size_t>(bytes) : std::size_t{80} << 30;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int number) {
  if (number != 0) return cudaErrorInvalidDevice;
  const int sm = flash::options().target_sm;
  const flash::DeviceLimits limits = flash::machine::limits_of(sm);
  *device = {};
  std::snprintf(device->name, sizeof device->name, "a simulated GPU of sm_%d", sm);
  device->major = sm / 10;
  device->minor = sm % 10;
  device->warpSize = 32;
  device->multiProcessorCount = flash::machine::simulated_sms;
  device->maxThreadsPerBlock = 1024;
  device->maxThreadsPerMultiProcessor = 2048;
  device->maxBlocksPerMultiProcessor = 32;
  device->regsPerBlock = device->regsPerMultiprocessor = 65536;
  device->totalGlobalMem = std::size_t{80} << 30;
  device->sharedMemPerBlock = 48 << 10;
  device->sharedMemPerBlockOptin = limits.shared_bytes;
  device->sharedMemPerMultiprocessor = limits.shared_bytes_sm;
  device->reservedSharedMemPerBlock = 1024;
  device->totalConstMem = 65536;
  device->memPitch = 2147483647;
  device->textureAlignment = 512;
  device->l2CacheSize = 50 << 20;
  device->memoryBusWidth = 5120;
  device->clockRate = 1'000'000;
  device->memoryClockRate = 1'000'000;
  device->cooperativeLaunch = device->concurrentKernels = device->unifiedAddressing = device->canMapHostMemory =
      device->managedMemory = 1;
  device->concurrentManagedAccess = device->asyncEngineCount = device->deviceOverlap = 1;
  device->maxThreadsDim[0] = device->maxThreadsDim[1] = 1024;
  device->maxThreadsDim[2] = 64;
  device->maxGridSize[0] = 2147483647;
  device->maxGridSize[1] = device->maxGridSize[2] = 65535;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  cudaDeviceProp device;
  if (const cudaError_t error = cudaGetDeviceProperties(&device, number)) return error;
  *value = 0;
#define FLASH_EACH(name, number, member) \
  if (attribute == number) *value = static_cast<int>(device.member);
  FLASH_ATTRIBUTES(FLASH_EACH)
#undef FLASH_EACH
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = new flash_stream, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new flash_event{0}, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = flash::plain::now();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  *ms = static_cast<float>((stop->at - start->at) * 1e3);
  return cudaSuccess;
}
cudaError_t flash_allow_shared(int bytes) {
  flash::plain::State& s = flash::plain::state();
  if (bytes < 0 || static_cast<std::size_t>(bytes) > flash::machine::shared_bytes_limit(flash::options().target_sm))
    return s.error = cudaErrorInvalidValue;
  s.shared_allowed = std::max(s.shared_allowed, static_cast<std::size_t>(bytes));
  return cudaSuccess;
}

int flash_blocks_per_sm(int threads, std::size_t shared_bytes) {
  return static_cast<int>(
      flash::machine::blocks_per_sm(static_cast<unsigned>(threads), shared_bytes, flash::options().target_sm));
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* memory,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const auto refuse = [](const std::string& what) {
    flash::plain::unsupported("cuTensorMapEncodeTiled with " + what +
                                  ", which asks for other boxes than of 64 columns of 16 bits, swizzled by 128 bytes,",
                              {"cuTensorMapEncodeTiled", 0});
  };
  if (type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
      type != CU_TENSOR_MAP_DATA_TYPE_UINT16)
    refuse("elements that are not 16 bits wide");
  if (rank < 2 || rank > 4) refuse(std::to_string(rank) + " dimensions");
  if (swizzle != CU_TENSOR_MAP_SWIZZLE_128B || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    refuse("another layout");
  if (box[0] != flash::tensor_map_cols || box[1] < 1 || box[1] > 256)
    refuse("a box of " + std::to_string(box[0]) + " x " + std::to_string(box[1]));
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (steps[i] != 1 || (i > 1 && box[i] != 1)) refuse("steps or a box in more than two dimensions");
    if (extents[i] < 1 || (i > 0 && strides[i - 1] % 16 != 0)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  static auto& names = *new std::list<std::string>;
  const auto origin = flash::plain::find_memory(memory);
  const std::string& name = names.emplace_back(origin ? flash::name_of(*origin->origin) : "memory of the host");
  map->map = {static_cast<std::byte*>(memory), name.c_str(), flash::traffic_id(name.c_str()), {1, 1, 1, 1}, {0, 0, 0},
              static_cast<int>(box[1])};
  for (cuuint32_t i = 0; i < rank; ++i) {
    map->map.extents[i] = static_cast<std::int64_t>(extents[i]);
    if (i > 0) map->map.strides[i - 1] = static_cast<std::int64_t>(strides[i - 1]);
  }
  map->mark = flash_map_mark;
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  const bool known = std::string(name) == "cuTensorMapEncodeTiled";
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (result != nullptr) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
