#include "cpu/page_memory.h"

#include <limits>
#include <new>

#include "base/os_memory.h"

namespace dllm::cpu {

PageMemory::PageMemory(std::uint64_t bytes) : size_(static_cast<std::size_t>(bytes)) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();  // 32-bit addresses
  void* address = map_memory(size_);
  if (address == nullptr) throw std::bad_alloc();
  // Small models would only waste memory by rounding.
  if (bytes >= (std::size_t{4} << 20)) prefer_large_pages(address, size_);
  data_ = static_cast<std::byte*>(address);
}

PageMemory::~PageMemory() {
  if (data_ != nullptr) unmap_memory(data_, size_);
}

}  // namespace dllm::cpu
