#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

// What differs between systems about whole pages of memory.

namespace dllm {

/// Zeros, in pages of their own. `reserved`: memory is taken page by page on first access, so that a size larger than
/// the machine's memory is no error. nullptr: the system has none.
void* map_memory(std::size_t bytes, bool reserved = false);

/// The same content at another address if need be, then zeros; the old address is void. nullptr: as before.
void* grow_memory(void* memory, std::size_t bytes, std::size_t grown);

void unmap_memory(void* memory, std::size_t bytes);

/// Asks for large pages, which cost fewer TLB misses. If the system has none, only speed is lost.
void prefer_large_pages(void* memory, std::size_t bytes);

/// Bytes of main memory that are free; nullopt: the system has files that tell (free_memory.h), or does not tell.
std::optional<std::int64_t> available_memory();

/// The most main memory that this process ever had, in bytes; 0: as above.
std::int64_t peak_resident_memory();

}  // namespace dllm
