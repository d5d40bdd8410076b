#include "format/sealed_file.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/try.h"

namespace dllm {
namespace {

constexpr char kSealedMagic[8] = {'D', 'L', 'L', 'M', 'S', 'E', 'A', 'L'};
constexpr std::uint32_t kSealedVersion = 1, kSealedByteOrder = 0x01020304;

SealedHead head_of(std::uint64_t key) {
  SealedHead head{};
  std::memcpy(head.magic, kSealedMagic, sizeof kSealedMagic);
  head.version = kSealedVersion;
  head.byte_order = kSealedByteOrder;
  head.key = key;
  return head;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Expected<SealedWriter> SealedWriter::create(const std::string& path, std::uint64_t key) {
  DLLM_TRY(OutputFile file, OutputFile::create(path));
  SealedWriter writer(std::move(file));
  DLLM_CHECK_OK(writer.put(bytes_of(head_of(key))));
  return writer;
}

Expected<void> SealedWriter::put(std::span<const std::byte> bytes) {
  sum_.add(bytes);
  return file_.append(bytes.data(), bytes.size());
}

Expected<void> SealedWriter::append(std::span<const std::byte> bytes) {
  payload_ += bytes.size();
  return put(bytes);
}

Expected<void> SealedWriter::commit() {
  DLLM_CHECK_OK(put(bytes_of(payload_)));
  const std::uint64_t sum = sum_.value();
  DLLM_CHECK_OK(file_.append(&sum, sizeof sum));
  return file_.commit();
}

Expected<SealedFile> SealedFile::open(const std::string& path, std::uint64_t key) {
  SealedFile result;
  DLLM_TRY(result.file_, MappedFile::open(path));
  const std::span<const std::byte> bytes = result.file_->bytes();
  const auto damaged = [&](std::string what) { return Error{ErrorCode::kInvalidFile, std::move(what), path, ""}; };
  if (bytes.size() < sizeof(SealedHead) + sizeof(SealedEnd)) return damaged("the file is cut");
  SealedHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, kSealedMagic, sizeof kSealedMagic) != 0) return damaged("this is no file of dllm");
  SealedEnd end;
  std::memcpy(&end, bytes.data() + bytes.size() - sizeof end, sizeof end);
  result.payload_ = bytes.subspan(sizeof head, bytes.size() - sizeof head - sizeof end);
  if (end.payload_bytes != result.payload_.size())
    return damaged(fmt::format("the file has {} of its {} bytes", result.payload_.size(), end.payload_bytes));
  if (checksum_of(bytes.first(bytes.size() - sizeof end.checksum)) != end.checksum)
    return damaged("the file is damaged: its checksum is wrong");
  const SealedHead wanted = head_of(key);
  if (std::memcmp(&head, &wanted, sizeof head) != 0)
    return Error{ErrorCode::kMismatch, "the file is of another run, or of another version", path, ""};
  DLLM_CHECK_OK(result.file_->check());
  return result;
}

}  // namespace dllm
