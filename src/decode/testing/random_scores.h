#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "decode/decoder/decoder.h"

namespace dllm::test {

using LogitRow = std::vector<float>;

/// Logits for which `token` has probability c and one other token the rest.
inline LogitRow prediction(TokenId token, double c, std::size_t vocab = 12) {
  LogitRow z(vocab, -100.f);
  z[static_cast<std::size_t>(token)] = static_cast<float>(std::log(c));
  z[static_cast<std::size_t>(token == 0 ? 1 : 0)] = static_cast<float>(std::log(1 - c));
  return z;
}

/// The prediction of a row as backends define it for arg-max requests, implemented directly. `mask` is never chosen;
/// -1: none.
inline Candidate reduce(Position position, const LogitRow& z, TokenId mask) {
  std::vector<double> p;
  double total = 0;
  const double largest = static_cast<double>(*std::max_element(z.begin(), z.end()));
  for (float logit : z) total += std::exp(static_cast<double>(logit) - largest);
  for (float logit : z) p.push_back(std::exp(static_cast<double>(logit) - largest) / total);
  Candidate c;
  c.position = position;
  for (std::size_t t = 0; t < z.size(); ++t) {
    if (p[t] > 0) c.entropy -= p[t] * std::log(p[t]);
    if (static_cast<TokenId>(t) == mask) continue;
    if (c.token < 0 || z[t] > z[static_cast<std::size_t>(c.token)]) c.token = static_cast<TokenId>(t);
  }
  const auto token = static_cast<std::size_t>(c.token);
  double others = 0;
  for (std::size_t t = 0; t < z.size(); ++t) others += t == token ? 0 : p[t];
  c.logit = z[token];
  c.confidence = p[token];
  c.log_odds = std::log(p[token] / others);
  const auto masked = static_cast<std::size_t>(mask);
  c.eligible = mask < 0 || masked >= z.size() || z[masked] <= z[token];
  std::sort(p.begin(), p.end(), std::greater<>());
  c.margin = p[0] - p[1];
  return c;
}

/// Logits whose spread differs from row to row, so that certain and uncertain predictions are mixed; some rows prefer
/// the mask, the last token.
inline LogitRow random_row(std::mt19937_64& random, std::size_t vocab) {
  std::normal_distribution<float> normal;
  const float scale = std::uniform_real_distribution<float>(0.2f, 5.f)(random);
  LogitRow z(vocab);
  for (float& logit : z) logit = scale * normal(random);
  return z;
}

inline std::vector<LogitRow> random_rows(std::mt19937_64& random, std::size_t rows, std::size_t vocab) {
  std::vector<LogitRow> result;
  for (std::size_t i = 0; i < rows; ++i) result.push_back(random_row(random, vocab));
  return result;
}

/// The `count` best tokens of a row.
inline std::vector<TopToken> top_tokens(const LogitRow& z, std::int32_t count) {
  std::vector<TopToken> top;
  for (std::size_t t = 0; t < z.size(); ++t) top.push_back({static_cast<TokenId>(t), z[t]});
  std::ranges::stable_sort(top, std::greater<>(), &TopToken::logit);
  top.resize(std::min(top.size(), static_cast<std::size_t>(count)));
  return top;
}

/// One decode over rows[p] for the positions p of a window [0, rows.size()), with queries, lists of tokens and shadow
/// rows answered from the rows; of shadow rows from `shadows` if they are given; of variants from the rows of other
/// positions.
inline std::vector<Edit> decode_rows(Decoder& decoder, const Canvas& canvas, const std::vector<LogitRow>& rows,
                                     std::int32_t step, Position masks_at_start,
                                     const std::vector<LogitRow>& shadows = {}) {
  const auto n = static_cast<Position>(rows.size());
  DecodeContext context{canvas, {0, n}, step, masks_at_start, static_cast<std::uint32_t>(step), {1, 0}};
  ScoreRequest request;
  decoder.configure(request);
  context.request = &request;
  if (const std::vector<Edit> drafts = decoder.drafts(context); !drafts.empty()) {
    std::vector<Candidate> read;
    std::vector<float> drafted;
    for (const Edit& draft : drafts)
      drafted.push_back(rows[static_cast<std::size_t>(draft.position)][static_cast<std::size_t>(draft.token)]);
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      read.push_back(reduce(drafts[i].position, rows[static_cast<std::size_t>(drafts[i].position)], canvas.mask()));
      read.back().queried = std::span(drafted).subspan(i, 1);
    }
    return decoder.checked(context, read);
  }
  const std::vector<Position> wanted = decoder.wanted(context);
  const std::vector<TokenQuery> queries = decoder.queries(context);
  std::vector<float> queried;
  for (const TokenQuery& query : queries)
    queried.push_back(rows[static_cast<std::size_t>(query.position)][static_cast<std::size_t>(query.token)]);
  std::vector<Candidate> candidates, judged;
  std::vector<std::vector<TopToken>> tops(rows.size());
  std::vector<float> own(rows.size());  // of the canvas's tokens, by shadow rows
  for (Position p : decoder.shadowed(context)) {
    const auto at = static_cast<std::size_t>(p);
    const LogitRow& z = shadows.empty() ? rows[at] : shadows[at];
    own[at] = z[static_cast<std::size_t>(canvas.token(p))];
    judged.push_back(reduce(p, z, canvas.mask()));
    judged.back().queried = std::span(own).subspan(at, 1);
  }
  context.shadows = judged;
  std::vector<std::vector<Candidate>> variants;
  std::deque<std::vector<TopToken>> variant_tops;
  for (const std::vector<Edit>& edits : decoder.variants(context)) {
    Canvas other = canvas;
    for (const Edit& edit : edits) other.apply(edit);
    std::vector<Candidate>& told = variants.emplace_back();
    for (Position p = 0; p < n; ++p) {
      if (!other.masked(p)) continue;
      const LogitRow& z = rows[(static_cast<std::size_t>(p) + variants.size()) % rows.size()];
      told.push_back(reduce(p, z, canvas.mask()));
      told.back().top = variant_tops.emplace_back(top_tokens(z, request.top_tokens));
    }
  }
  context.variants = variants;
  std::size_t next = 0;
  for (Position p : wanted) {
    candidates.push_back(reduce(p, rows[static_cast<std::size_t>(p)], canvas.mask()));
    const std::size_t first = next;
    while (next < queries.size() && queries[next].position == p) ++next;
    candidates.back().queried = std::span(queried).subspan(first, next - first);
    auto& top = tops[static_cast<std::size_t>(p)] = top_tokens(rows[static_cast<std::size_t>(p)], request.top_tokens);
    candidates.back().top = top;
  }
  return decoder.decode(context, candidates);
}

}  // namespace dllm::test
