#include "base/os_memory.h"

#if defined(_WIN32)
#include <windows.h>
// Its types are those of the header above.
#include <psapi.h>
#else
#include <sys/mman.h>
#endif

#include <cstring>

namespace dllm {

#if defined(_WIN32)

// Committed pages count against memory and paging file at once. Reserved ones are committed by a handler of their first
// access, in pieces.
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

LONG CALLBACK commit_reserved(EXCEPTION_POINTERS* fault) {
  const EXCEPTION_RECORD& record = *fault->ExceptionRecord;
  if (record.ExceptionCode != EXCEPTION_ACCESS_VIOLATION || record.NumberParameters < 2)
    return EXCEPTION_CONTINUE_SEARCH;
  MEMORY_BASIC_INFORMATION found{};
  auto* const address = reinterpret_cast<char*>(record.ExceptionInformation[1]);
  if (::VirtualQuery(address, &found, sizeof found) == 0 || found.State != MEM_RESERVE || found.Type != MEM_PRIVATE ||
      found.AllocationProtect != PAGE_READWRITE)
    return EXCEPTION_CONTINUE_SEARCH;
  auto* const base = static_cast<char*>(found.BaseAddress);
  const std::size_t left = static_cast<std::size_t>(base + found.RegionSize - address);
  return ::VirtualAlloc(address, left < kPiece ? left : kPiece, MEM_COMMIT, PAGE_READWRITE) != nullptr
             ? EXCEPTION_CONTINUE_EXECUTION
             : EXCEPTION_CONTINUE_SEARCH;
}

}  // namespace

void* map_memory(std::size_t bytes, bool reserved) {
  if (reserved) [[maybe_unused]]
    static const void* const handler = ::AddVectoredExceptionHandler(1, &commit_reserved);
  return ::VirtualAlloc(nullptr, bytes, reserved ? MEM_RESERVE : MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_memory(void* memory, std::size_t /*bytes*/) { ::VirtualFree(memory, 0, MEM_RELEASE); }

void prefer_large_pages(void* /*memory*/, std::size_t /*bytes*/) {}  // they need a privilege that users do not have

std::optional<std::int64_t> available_memory() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  if (::GlobalMemoryStatusEx(&status) == 0) return std::nullopt;
  return static_cast<std::int64_t>(status.ullAvailPhys);
}

std::int64_t peak_resident_memory() {
  PROCESS_MEMORY_COUNTERS counters{};
  if (::K32GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof counters) == 0) return 0;
  return static_cast<std::int64_t>(counters.PeakWorkingSetSize);
}

#else

void* map_memory(std::size_t bytes, bool reserved) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | (reserved ? MAP_NORESERVE : 0), -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_memory(void* memory, std::size_t bytes) { ::munmap(memory, bytes); }

void prefer_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  ::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

std::optional<std::int64_t> available_memory() { return std::nullopt; }

std::int64_t peak_resident_memory() { return 0; }

#endif

void* grow_memory(void* memory, std::size_t bytes, std::size_t grown) {
#if defined(__linux__)
  void* const moved = ::mremap(memory, bytes, grown, MREMAP_MAYMOVE);
  return moved == MAP_FAILED ? nullptr : moved;
#else
  void* const fresh = map_memory(grown, true);
  if (fresh == nullptr) return nullptr;
  std::memcpy(fresh, memory, bytes);
  unmap_memory(memory, bytes);
  return fresh;
#endif
}

}  // namespace dllm
