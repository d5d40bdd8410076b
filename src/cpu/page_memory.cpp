#include "cpu/page_memory.h"

#include <sys/mman.h>

#include <limits>
#include <new>

namespace dllm::cpu {

PageMemory::PageMemory(std::uint64_t bytes) : size_(static_cast<std::size_t>(bytes)) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();  // 32-bit addresses
  void* address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Small models would only waste memory by rounding; if the system refuses, only speed is lost.
  if (bytes >= (std::size_t{4} << 20)) ::madvise(address, bytes, MADV_HUGEPAGE);
#endif
  data_ = static_cast<std::byte*>(address);
}

PageMemory::~PageMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace dllm::cpu
