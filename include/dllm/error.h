#pragma once

#include <string>
#include <utility>
#include <variant>

namespace dllm {

/// The kind of failure that an `Error` describes. The command line maps each kind to one exit code.
enum class ErrorCode {
  kUsage,        ///< a flag, argument or option value is wrong
  kInvalidFile,  ///< a model, tokenizer, template or data file is damaged, contradictory or of an unknown kind
  kUnsupported,  ///< well formed, but this build does not run it (unknown operator, tensor type, architecture)
  kIo,           ///< the operating system refused to open, read, map or write
  kResource,     ///< out of memory, address space or another bounded resource
  kCancelled,    ///< the caller cancelled
  kMismatch,     ///< a verification found a difference
};

/// One failure caused by input, never by a bug: what went wrong, where, and how to fix it.
struct Error {
  ErrorCode code = ErrorCode::kUsage;
  std::string what;   ///< "tensor 'blk.0.attn_q.weight' ends 4096 bytes past the end of the file"
  std::string where;  ///< "model.gguf, offset 0x1f40"; empty if there is no place
  std::string hint;   ///< "the download is incomplete: fetch the file again"; empty: none

  /// "where: what (hint)", one line, without a trailing newline.
  std::string message() const {
    std::string text = where.empty() ? what : where + ": " + what;
    if (!hint.empty()) text += " (" + hint + ")";
    return text;
  }
};

/// A value or an `Error`: the subset of C++23's std::expected that the project uses. The installed headers use no
/// third-party types, and GCC 12 has std::expected only in C++23 mode.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// Precondition: has_value().
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  /// Precondition: !has_value().
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Expected<void> {
 public:
  Expected() = default;
  Expected(Error error) : error_(std::move(error)), failed_(true) {}

  bool has_value() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return has_value(); }
  Error& error() & { return error_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace dllm
