#include "cpu/weight_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/checksum.h"
#include "base/hash.h"
#include "base/os_memory.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/try.h"
#include "format/byte_cursor.h"

// Layout of the file, little-endian: Header, then per tensor a Record and its name, then zeros up to a page boundary,
// then the payload: the panels of every tensor at the offset of its record. Every number except `regular` and the
// checksums is known from the model before the file is opened.

namespace dllm::cpu {
namespace {

/// Version of the panels' layout (kernels/packed.h) and of this file. A test compares it with a hash of packed panels.
constexpr std::uint32_t kLayoutVersion = 2;
constexpr char kMagic[8] = {'D', 'L', 'L', 'M', 'P', 'A', 'C', 'K'};
/// Differs on a machine with the other byte order, whose caches this code cannot use.
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::uint64_t kPage = 4096;
constexpr const char* kAgain = "it is written again";

struct Header {
  char magic[8];
  std::uint32_t layout_version;
  std::uint32_t byte_order;
  std::uint64_t file_size;
  std::uint64_t source_size;
  std::uint64_t source_stamp;
  std::uint64_t source_fingerprint;
  std::uint64_t tensors;
  std::uint64_t payload_offset;
  std::uint64_t checksum;  ///< of header (with 0 here) and records
};
static_assert(sizeof(Header) == 72 && std::is_trivially_copyable_v<Header>);

struct Record {
  std::uint64_t name_bytes;
  std::uint32_t type;
  std::uint32_t regular;
  std::int64_t k;
  std::int64_t n;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t checksum;  ///< of the panels
};
static_assert(sizeof(Record) == 56 && std::is_trivially_copyable_v<Record>);

std::uint64_t mix_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  return mix64(Fnv1a(hash).add(bytes).value(), bytes.size());
}

template <class T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint64_t payload_bytes(std::span<const CachedTensor> tensors) {
  return tensors.empty() ? 0 : tensors.back().offset + tensors.back().bytes;
}

/// Everything before the payload; the header contains the file size.
std::string header_of(const WeightCacheOptions& options, std::span<const CachedTensor> tensors,
                      const std::vector<bool>& regular, const std::vector<std::uint64_t>& checksums) {
  std::string records;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const CachedTensor& t = tensors[i];
    append(records, Record{t.name.size(), static_cast<std::uint32_t>(t.type), regular[i] ? 1u : 0u, t.k, t.n, t.offset,
                           t.bytes, checksums[i]});
    records += t.name;
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.layout_version = kLayoutVersion;
  header.byte_order = kByteOrder;
  header.payload_offset = (sizeof header + records.size() + kPage - 1) / kPage * kPage;
  header.file_size = header.payload_offset + payload_bytes(tensors);
  header.source_size = options.source_size;
  header.source_stamp = options.source_stamp;
  header.source_fingerprint = source_fingerprint(tensors);
  header.tensors = tensors.size();
  std::string text;
  append(text, header);
  text += records;
  header.checksum = mix_bytes(0, std::as_bytes(std::span(text)));
  text.replace(0, sizeof header, reinterpret_cast<const char*>(&header), sizeof header);
  text.resize(header.payload_offset, '\0');
  return text;
}

std::vector<std::uint64_t> checksums_of(std::span<const CachedTensor> tensors, std::span<const std::byte> payload,
                                        ThreadPool& pool) {
  std::vector<std::uint64_t> sums(tensors.size());
  parallel(pool, static_cast<std::int64_t>(tensors.size()), [&](std::int64_t i, int) {
    const CachedTensor& t = tensors[static_cast<std::size_t>(i)];
    sums[static_cast<std::size_t>(i)] = checksum_of(payload.subspan(t.offset, t.bytes));
  });
  return sums;
}

/// Whether the path names a file that this code has not written and must not replace.
bool foreign(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return false;
  auto file = MappedFile::open(path);
  if (!file) return true;
  const auto bytes = (*file)->bytes();
  return bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0;
}

Error damaged(std::string what, const std::string& path) {
  return {ErrorCode::kInvalidFile, std::move(what), path, kAgain};
}

Error stale(std::string what, const std::string& path) { return {ErrorCode::kMismatch, std::move(what), path, kAgain}; }

Expected<Header> read_header(ByteCursor& cursor, const WeightCacheOptions& options, std::uint64_t file_size) {
  const auto read = cursor.read<Header>("the header");
  if (!read) return damaged("the weight cache ends within its header", options.path);
  if (std::memcmp(read->magic, kMagic, sizeof kMagic) != 0)
    return Error{ErrorCode::kInvalidFile, "this is not a weight cache", options.path, ""};
  const Header& header = *read;
  if (header.layout_version != kLayoutVersion || header.byte_order != kByteOrder)
    return stale("the weight cache was written by another version, or on another kind of machine", options.path);
  if (header.file_size != file_size)
    return damaged(fmt::format("the weight cache has {} of its {} bytes", file_size, header.file_size), options.path);
  if (header.source_size != options.source_size || header.source_stamp != options.source_stamp)
    return stale("the model was written after its weight cache, or is a different one", options.path);
  return header;
}

}  // namespace

std::uint64_t source_fingerprint(std::span<const CachedTensor> tensors) {
  constexpr std::size_t kSamples = 4, kSample = 64;
  std::uint64_t hash = mix64(0, tensors.size());
  for (const CachedTensor& t : tensors) {
    hash = mix_bytes(hash, std::as_bytes(std::span(t.name)));
    if (t.arithmetic != PackedFor::kExact) hash = mix64(hash, static_cast<std::uint64_t>(t.arithmetic));
    for (const auto value : {static_cast<std::uint64_t>(t.type), static_cast<std::uint64_t>(t.k),
                             static_cast<std::uint64_t>(t.n), t.offset, t.bytes})
      hash = mix64(hash, value);
    const std::size_t length = std::min(kSample, t.source.size());
    for (std::size_t s = 0; s < kSamples; ++s)
      hash = mix_bytes(hash, t.source.subspan((t.source.size() - length) / (kSamples - 1) * s, length));
  }
  return hash;
}

Expected<LoadedPanels> load_panels(const WeightCacheOptions& options, std::span<const CachedTensor> tensors,
                                   ThreadPool& pool) {
  DLLM_TRY(auto file, MappedFile::open(options.path));
  const auto bytes = file->bytes();
  // What is not yet in memory is then read into large pages, if the file system has them (ext4 since Linux 6.16).
  prefer_large_pages(const_cast<std::byte*>(bytes.data()), bytes.size());
  ByteCursor cursor(bytes, options.path);
  DLLM_TRY(const Header header, read_header(cursor, options, bytes.size()));
  std::vector<bool> regular;
  std::vector<std::uint64_t> checksums;
  for (const CachedTensor& t : tensors) {
    const auto record = cursor.read<Record>("a tensor's record");
    if (!record || record->name_bytes != t.name.size() || record->regular > 1)
      return stale("the weight cache lists other tensors than the model", options.path);
    const auto name = cursor.take(record->name_bytes, "a tensor's name");
    if (!name || std::memcmp(name->data(), t.name.data(), t.name.size()) != 0)
      return stale("the weight cache lists other tensors than the model", options.path);
    regular.push_back(record->regular != 0);
    checksums.push_back(record->checksum);
  }
  // The expected header, given the two fields that only the file knows: all other fields are compared at once.
  const std::string expected = header_of(options, tensors, regular, checksums);
  if (header.source_fingerprint != source_fingerprint(tensors))
    return stale("the weight cache holds another model's weights, or these for another arithmetic", options.path);
  if (expected.size() > bytes.size() || std::memcmp(expected.data(), bytes.data(), expected.size()) != 0 ||
      expected.size() + payload_bytes(tensors) != bytes.size())
    return damaged("the weight cache's header is damaged", options.path);
  const auto payload = bytes.subspan(expected.size());
  const auto found = checksums_of(tensors, payload, pool);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (found[i] != checksums[i])
      return damaged(fmt::format("the weight cache's copy of tensor '{}' is damaged", tensors[i].name), options.path);
  return LoadedPanels{std::move(file), payload, std::move(regular)};
}

Expected<void> store_panels(const WeightCacheOptions& options, std::span<const CachedTensor> tensors,
                            const std::vector<bool>& regular, std::span<const std::byte> payload, ThreadPool& pool) {
  if (foreign(options.path))
    return Error{ErrorCode::kUsage, "a file that is not a weight cache is in its place", options.path,
                 "remove it, or name another file"};
  const std::string header = header_of(options, tensors, regular, checksums_of(tensors, payload, pool));
  DLLM_TRY(OutputFile file, OutputFile::create(options.path, {.check = options.check_source}));
  DLLM_CHECK_OK(file.append(header.data(), header.size()));
  DLLM_CHECK_OK(file.append(payload.data(), payload_bytes(tensors)));
  return file.commit();
}

}  // namespace dllm::cpu
