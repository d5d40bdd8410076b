// Families of files: models, recordings, items, programs and descriptions of the NPU, caches.
#include <cstdint>

#include "families-inl.h"

namespace dllm::fuzz {
namespace {

// --- model files

template <class T>
void put(string& text, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) text += static_cast<char>(value >> (8 * i));
}
void put(string& text, const string& word) {
  put(text, std::uint64_t{word.size()});
  text += word;
}

string gguf_head(std::size_t tensors, std::size_t keys) {
  string text = "GGUF";
  put(text, std::uint32_t{3});
  put(text, std::uint64_t{tensors});
  put(text, std::uint64_t{keys});
  return text;
}

constexpr std::uint32_t kGgufU32 = 4, kGgufString = 8, kGgufArray = 9;

string gguf_keys(std::size_t n) {
  string text = gguf_head(0, n);
  for (std::size_t i = 0; i < n; ++i) {
    put(text, "key." + number(i));
    put(text, kGgufU32);
    put(text, std::uint32_t{7});
  }
  return text;
}

/// Key and header of an array; `n` elements follow.
string gguf_array(const string& key, std::uint32_t element, std::size_t n) {
  string text;
  put(text, key);
  put(text, kGgufArray);
  put(text, element);
  put(text, std::uint64_t{n});
  return text;
}

string gguf_strings(std::size_t n) {
  string text = gguf_head(0, 1) + gguf_array("words", kGgufString, n);
  for (std::size_t i = 0; i < n; ++i) put(text, "word" + number(i));
  return text;
}

string gguf_nested(std::size_t n) {
  string text = gguf_head(0, 1) + gguf_array("nested", kGgufArray, 1);
  for (std::size_t i = 0; i < n; ++i) {
    put(text, kGgufArray);
    put(text, std::uint64_t{1});
  }
  return text;
}

string gguf_tensors(std::size_t n) {
  string text = gguf_head(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    put(text, "blk." + number(i) + ".weight");
    put(text, std::uint32_t{1});
    put(text, std::uint64_t{8});
    put(text, std::uint32_t{0});
    put(text, std::uint64_t{32 * i});
  }
  text.resize((text.size() + 31) / 32 * 32 + 32 * n);
  return text;
}

/// A model of an architecture that is known, whose vocabulary has n tokens and as many merges.
string gguf_vocabulary(std::size_t n) {
  string text = gguf_head(0, 5);
  for (const auto& [key, value] :
       {std::pair("general.architecture", "llada"), std::pair("tokenizer.ggml.model", "gpt2"),
        std::pair("tokenizer.ggml.pre", "gpt-2")}) {
    put(text, string(key));
    put(text, kGgufString);
    put(text, string(value));
  }
  text += gguf_array("tokenizer.ggml.tokens", kGgufString, n);
  for (std::size_t i = 0; i < n; ++i) put(text, "t" + number(i));
  text += gguf_array("tokenizer.ggml.merges", kGgufString, n);
  for (std::size_t i = 0; i < n; ++i) put(text, "t " + number(i));
  return text;
}

Make safetensors(Make header, std::size_t bytes_per_part) {
  return [=](std::size_t n) {
    const string json = header(n);
    string text;
    put(text, std::uint64_t{json.size()});
    return text + json + string(bytes_per_part * n, '\0');
  };
}

string safetensors_header(std::size_t n) {
  string text = "{";
  for (std::size_t i = 0; i < n; ++i)
    text += (i > 0 ? "," : "") + ("\"blk." + number(i)) + R"(.weight":{"dtype":"F32","shape":[1],"data_offsets":[)" +
            number(4 * i) + "," + number(4 * i + 4) + "]}";
  return text + "}";
}

std::vector<Family> model_files() {
  return {
      {"gguf", "keys", gguf_keys},
      {"gguf", "strings of an array", gguf_strings},
      {"gguf", "arrays in arrays", gguf_nested},
      {"gguf", "tensors", gguf_tensors},
      {"model", "keys", gguf_keys},
      {"model", "tensors", gguf_tensors},
      {"model", "vocabulary", gguf_vocabulary},
      {"safetensors", "tensors", safetensors(safetensors_header, 4)},
      {"safetensors", "metadata",
       safetensors(list(R"({"__metadata__":{)", R"("key_of_many_that_begin_alike_#":"v")", ",", "}}"), 0)},
      {"safetensors", "one name repeated",
       safetensors(list("{", R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})", ",", "}"), 0)},
      {"safetensors", "levels", safetensors(nest("{\"a\":", "[", "", "]", "}"), 0)},
      {"safetensors", "dimensions",
       safetensors(list(R"({"a":{"dtype":"F32","shape":[)", "1", ",", R"(],"data_offsets":[0,4]}})"), 0)},
      {"safetensors", "files of an index",
       list(R"({"weight_map":{)", R"("blk.#.weight":"m-#.safetensors")", ",", "}}")},
      {"config", "keys", list("{", "\"key_of_many_that_begin_alike_#\": #", ",", "}")},
      {"config", "one key repeated", list("{", "\"k\": #", ",", "}")},
      {"config", "levels", nest("{\"a\": ", "[", "1", "]", "}")},
      {"config", "items", list(R"({"architectures": [)", "\"a#\"", ",", "]}")},
  };
}

/// A pixel of VP8L, without loss.
string webp_chunks(std::size_t n) {
  const string picture("WEBPVP8L\x0e\0\0\0\x2f\0\0\0\0\x07\x10\x11\xfd\x0f\x44\x44\xff\x03", 26);
  string text = "RIFF";
  put(text, static_cast<std::uint32_t>(picture.size() + 8 * n));
  return text + picture + several(n, std::string_view("EXTR\0\0\0\0", 8));
}

/// Pictures that end before their pixels, which is told after what is before them. JPEG's orientation is looked for
/// when the frame and the first scan have begun.
std::vector<Family> images() {
  const string png("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55", 33);
  const string text("\0\0\0\x03tEXta\0b\xdc\x49\xa2\x3b", 15);
  const string frame("\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0\xff\xd9", 25);
  return {
      {"image", "chunks of PNG", list(png, text, "", "")},
      {"image", "EXIF markers of JPEG", list("\xff\xd8", string("\xff\xe1\0\x02", 4), "", frame)},
      {"image", "comments of JPEG", list("\xff\xd8", string("\xff\xfe\0\x02", 4), "", frame)},
      {"image", "chunks of WebP", webp_chunks},
  };
}

/// The header has a length in front, which `list` cannot write.
string npy_shape(std::size_t n) {
  string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + several(n, "1,") + "), }\n";
  string text = "\x93NUMPY";
  text += '\x02';
  text += '\0';
  put(text, static_cast<std::uint32_t>(header.size()));
  return text + header + string(4, '\0');
}

/// Importance matrices of the older format: `n` of `columns` columns.
string importance(std::size_t n, std::size_t columns) {
  string text;
  put(text, static_cast<std::uint32_t>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const string name = "blk." + number(i) + ".attn_q.weight";
    put(text, static_cast<std::uint32_t>(name.size()));
    text += name;
    put(text, std::uint32_t{2});
    put(text, static_cast<std::uint32_t>(columns));
    text += string(4 * columns, '\0');
  }
  return text;
}

// --- what evaluations and the NPU read

string recording(std::size_t answers, std::size_t length) {
  const string n = number(length);
  return R"({"format": "dllm-recording", "version": 1, "recorded": {"program": "dllm 1", "command": "dllm eval",)"
         R"( "model": "m", "items": 2, "correct": 1}, "length": )" +
         n + R"(, "block_length": )" + n + R"(, "options": {"preset": "balanced"}, "answers": [)" +
         several(
             answers,
             R"({"prompt_tokens": 3, "answer_tokens": )" + n + R"(, "finish": "length", "nfe": )" + n +
                 R"(, "rows_forwarded": )" + n + R"(, "rows_scored": )" + n + R"(, "commit_step": [)" +
                 [&] {
                   string steps;
                   for (std::size_t i = 0; i < length; ++i) steps += (i > 0 ? "," : "") + number(i);
                   return steps;
                 }() +
                 "]}",
             ",") +
         "]}";
}

std::vector<Family> npu() {
  const string report = R"({"key":"key","version":2,"checksum":"0","report":{"total_cycles":1,"instructions":1,)";
  return {
      {"npu_assembler", "instructions", list("", "S_ADDI_INT gp1, gp0, 1\n", "", "C_BREAK\n")},
      {"npu_assembler", "labels",
       list("", "label_of_many_that_begin_alike_#: C_BNZ gp1, label_of_many_that_begin_alike_#\n", "", "")},
      {"npu_assembler", "constants", list("", ".const key_of_many_that_begin_alike_# = #\n", "", "C_BREAK\n")},
      {"npu_assembler", "constants of constants",
       list(".const k0 = 1\n", ".const key_of_many_that_begin_alike_+ = key_of_many_that_begin_alike_# + 1\n", "",
            "C_BREAK\n")},
      {"npu_assembler", "macros", list("", ".macro m#\nC_FENCE 1\n.endm\nm#\n", "", "")},
      {"npu_assembler", "macros of macros",
       list(".macro m0\nC_FENCE 1\n.endm\n", ".macro m+\nm#\nm#\n.endm\n", "", "m8\n")},
      {"npu_assembler", "nested repetitions", nest("", ".rep 2\n", "C_FENCE 1\n", ".endr\n", "")},
      {"npu_assembler", "repetition", [](std::size_t n) { return ".rep " + number(n) + "\nC_FENCE 1\n.endr\n"; }},
      {"npu_assembler", "parentheses", nest(".const x = ", "(", "1", ")", "\n")},
      {"npu_assembler", "terms", list(".const x = ", "1", " + ", "\n")},
      {"npu_assembler", "comments", list("", "; word\n", "", "C_BREAK\n")},
      {"npu_toml", "keys", list("", "key_of_many_that_begin_alike_# = #\n", "", "")},
      {"npu_toml", "tables", list("", "[t#]\na = 1\n", "", "")},
      {"npu_toml", "tensors", list("", "[[tensor]]\nname = \"t#\"\nbytes = 1000\n", "", "")},
      {"npu_toml", "operators",
       list("[[tensor]]\nname = \"t\"\nbytes = 1000\n",
            "[[operator]]\nname = \"o#\"\nus = 1\nreads = [\"t\"]\nwrites = []\n", "", "")},
      {"npu_toml", "requests", list("", "R 0x40 64 #\n", "", "")},
      {"npu_toml", "parts of a key", list("", "a", ".", " = 1\n")},
      {"npu_toml", "parts of a header", list("[", "a", ".", "]\nb = 1\n")},
      {"npu_toml", "levels", nest("a = ", "[", "1", "]", "\n")},
      {"npu_toml", "values of a sweep",
       list("name = \"t\"\nmodel = \"llada-8b\"\n[device]\nbase = \"dart-2048\"\n"
            "\"memory.stacks\" = [",
            "#", ", ", "]\n")},
      {"timing_cache", "engines",
       list(report + R"("engines":{)", R"("e#":{"busy_cycles":1,"busy_share":1,"stall_cycles":{}})", ",", "}}}")},
      {"timing_cache", "regions", list(report + R"("regions":[)", R"({"name":"r#","cycles":1})", ",", "]}}")},
      {"timing_cache", "levels", nest(report + "\"a\":", "[", "", "]", "}}")},
  };
}

/// A network whose list of operators, inputs or outputs has n entries; the tensors are the target's.
std::vector<Family> networks() {
  const auto text = [](const string& ops, const string& inputs, const string& outputs, const string& scored) {
    return R"({"version":1,"name":"n","source":"s","rows":65536,"visible":1,"causal":false,"fixed":[],"scored":[)" +
           scored + "],\"inputs\":[" + inputs + "],\"outputs\":[" + outputs + "],\"ops\":[" + ops + "]}";
  };
  const string in = R"({"name":"t","kind":"tokens","shape":[65536]})",
               out = R"({"name":"y","shape":[8],"tensor":"all"})",
               embed = R"({"op":"embed","weight":"table","out":"v0"})";
  const auto of_ops = [=](const string& one) {
    return [=](std::size_t n) {
      return text(embed + "," + several(n, one, ",") + R"(,{"op":"output","x":"v)" + number(n) + "\"}", in, out, "");
    };
  };
  return {
      {"network", "sums", of_ops(R"({"op":"add","x":"v#","y":"v0","out":"v+"})")},
      {"network", "products", of_ops(R"({"op":"linear","x":"v#","weight":"w","bias":"b","out":"v+"})")},
      {"network", "attention",
       of_ops(R"({"op":"attention","x":"v#","y":"v0","z":"v0","heads":2,"kv_heads":1,"head_dim":2,"out":"v+"})")},
      {"network", "results",
       [=](std::size_t n) { return text(embed + several(n, R"(,{"op":"output","x":"v0"})"), in, out, ""); }},
      {"network", "inputs",
       [=](std::size_t n) {
         return text(embed, several(n, R"({"name":"i#","kind":"tokens","shape":[1]})", ","), out, "");
       }},
      {"network", "outputs",
       [=](std::size_t n) {
         return text(embed, in, several(n, R"({"name":"o#","shape":[8],"tensor":"all"})", ","), "");
       }},
      {"network", "gathered rows", [=](std::size_t n) { return text(embed, in, out, several(n, "#", ",")); }},
      {"network", "dimensions",
       [=](std::size_t n) {
         return text(embed, R"({"name":"t","kind":"tokens","shape":[)" + several(n, "1", ",") + "]}", out, "");
       }},
      {"network", "levels", nest("{\"ops\":", "[", "", "]", "}")},
  };
}

std::vector<Family> evaluations() {
  return {
      {"eval_set", "items", list("", R"({"prompt":"2+2=","answer":"4","task":"sum"})", "\n", "\n")},
      {"eval_set", "set in an answer",
       list(R"({"code":"def f(a):\n    return a","input":"1","output":"{)", "#", ", ", "}\"}\n")},
      {"eval_set", "numbers in an answer", list(R"({"question":"q","answer":")", "# ", "", "#### 4\"}\n")},
      {"eval_set", "keys",
       list(R"({"prompt":"p","answer":"4","task":"sum",)", "\"key_of_many_that_begin_alike_#\":0", ",", "}\n")},
      {"recording", "answers", [](std::size_t n) { return recording(n, 4); }},
      {"recording", "positions", [](std::size_t n) { return recording(1, n); }},
      {"compare_spec", "configurations",
       list("items = \"i\"\n", "[[configuration]]\nname = \"c#\"\noptions = \"-n 4\"\n", "", "")},
      {"compare_spec", "words", list("a: ", "-n 4", " ", "")},
      {"compare_spec", "quotes", list("a: ", "'b'\"c\"", "", "")},
      {"caches", "points",
       [](std::size_t n) {
         return R"({"format":1,"key":{},"points":[)" + several(n, "[+,1.5]", ",") + R"(],"ms_per_pair":0})";
       }},
      {"caches", "keys",
       list(R"({"format":1,"points":[[1,1]],"ms_per_pair":0,"key":{)", "\"key_of_many_that_begin_alike_#\":0", ",",
            "}}")},
      {"npy", "dimensions", npy_shape},
      {"importance", "matrices", [](std::size_t n) { return importance(n, 4); }},
      {"importance", "columns", [](std::size_t n) { return importance(1, n); }},
  };
}

}  // namespace

std::vector<Family> families_of_files() {
  std::vector<Family> all;
  for (const auto& some : {model_files(), images(), npu(), networks(), evaluations()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace dllm::fuzz
