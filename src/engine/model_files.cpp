#include "engine/model_files.h"

#include <algorithm>

#include "engine/language_model_impl.h"

namespace dllm {

ModelFiles::ModelFiles(const LanguageModel& model) : files_(model.impl_->model->all_files()) {
  const auto& others = model.impl_->running.files;
  files_.insert(files_.end(), others.begin(), others.end());
  std::erase_if(files_, [](const auto& file) { return !file->mapped(); });
}

MappedFile::State ModelFiles::state() const {
  MappedFile::State worst = MappedFile::State::kSame;
  for (const auto& file : files_) worst = std::max(worst, file->state());
  return worst;
}

bool ModelFiles::record(const std::stop_token& stop) {
  digests_.clear();
  for (const auto& file : files_) {
    const auto digest = file->digest(stop);
    // Unchanged afterwards: the digest is of the bytes that were loaded.
    if (!digest || file->state() != MappedFile::State::kSame) return false;
    digests_.push_back(*digest);
  }
  return true;
}

bool ModelFiles::verify(const std::stop_token& stop) const {
  if (digests_.size() != files_.size()) return false;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const MappedFile& file = *files_[i];
    if (file.state() == MappedFile::State::kSame) continue;
    // The time is taken first: a write during the reading makes it another one.
    const std::int64_t modified = file.modified();
    if (file.digest(stop) != digests_[i] || file.state() == MappedFile::State::kChanged) return false;
    file.accept(modified);
  }
  return true;
}

std::vector<std::string> ModelFiles::replaced() const {
  std::vector<std::string> paths;
  for (const auto& file : files_)
    if (file->replaced()) paths.push_back(file->name());
  return paths;
}

}  // namespace dllm
