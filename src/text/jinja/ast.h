#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace dllm::jinja {

/// Where a token begins in the template, counted from 1.
struct Place {
  std::uint32_t line = 1, column = 1;
};

/// Sets `where` to "line 3, column 7" unless the error already has a place.
Error at_place(Error error, Place place);

/// No real template nests deeper; the limit bounds recursion over the tree, including its destruction.
constexpr int kMaxTreeHeight = 200;

enum class ExprKind : std::uint8_t {
  kLiteral,      ///< literal
  kName,         ///< text
  kList,         ///< args
  kTuple,        ///< args
  kDict,         ///< args: key, value, key, value, ...
  kNot,          ///< args[0]
  kNegate,       ///< args[0]
  kPlus,         ///< args[0]
  kBinary,       ///< text: + - * / // % **; args[0], args[1]
  kAnd,          ///< args[0], args[1]
  kOr,           ///< args[0], args[1]
  kConcat,       ///< args, two or more
  kCompare,      ///< args[0] op[0] args[1] op[1] args[2] ...; names holds the operators
  kConditional,  ///< args[0] if args[1] else args[2]; without else, args has two
  kAttribute,    ///< args[0].text
  kItem,         ///< args[0][args[1]]
  kSlice,        ///< args[0][args[1]:args[2]:args[3]], each may be null
  kCall,         ///< args[0](args[1...], named)
  kFilter,       ///< args[0]|text(args[1...], named); args[0] is null in {% filter %}
  kTest,         ///< args[0] is text(args[1...], named)
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  Place place;
  int height = 1;
  std::string text;
  Value literal;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr unpacked, unpacked_named;  ///< f(*unpacked, **unpacked_named); may be null
  std::vector<std::string> names;
};

enum class StmtKind : std::uint8_t {
  kText,        ///< text
  kPrint,       ///< exprs[0]
  kIf,          ///< exprs[i] guards bodies[i]; one body more for else
  kFor,         ///< target in exprs[0], if exprs[1] (may be null): bodies[0], else bodies[1]
  kSet,         ///< target = exprs[0]
  kSetBlock,    ///< target = text of bodies[0], through the filter exprs[0] (may be null)
  kMacro,       ///< text(params): bodies[0]; defaults in exprs, right-aligned
  kCall,        ///< exprs[0] is called with bodies[0] as caller(params)
  kFilter,      ///< text of bodies[0] through the filter exprs[0]
  kWith,        ///< names[i] = exprs[i] in bodies[0]
  kGeneration,  ///< bodies[0]; marks the assistant's text for training, transparent here
  kBreak,
  kContinue,
};

struct Stmt;
using Block = std::vector<Stmt>;

/// `a`, with `attribute` the namespace attribute `a.attribute`, or with `unpack` the tuple of `parts`.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
  bool unpack = false;
};

/// Special variables that the body of a macro reads: without them, arguments beyond its parameters are errors.
struct MacroUses {
  bool varargs = false, kwargs = false, caller = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  Place place;
  std::string text;
  Target target;
  std::vector<std::string> params;
  MacroUses uses;  ///< of a macro or a call block
  std::vector<ExprPtr> exprs;
  std::vector<Block> bodies;
};

}  // namespace dllm::jinja
