// Answers of the WebAssembly build in node: one JSON line per program, kernel set and prompt.
//   node answers.mjs SITE MODEL REPEATS SCALAR PROMPT...     SCALAR: "scalar" runs the slow reference set too, with the first
//                                                            prompt alone
// {"program", "isa", "prompt", "hash", "nfe", "text", "steps", "seconds"}: the least processor time of REPEATS answers, load
// excluded.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const [site, model, repeats, reference, ...prompts] = process.argv.slice(2);
const { Engine, programName } = await import(pathToFileURL(join(site, "page/wasm/engine.js")).href);
const bytes = readFileSync(model);
const read = (offset, into) => Promise.resolve(into.set(bytes.subarray(offset, offset + into.length)));

/** The events of an answer, as the page gets them. */
function events(engine, content) {
  const body = { messages: [{ role: "user", content }], stream: true, diffusion_events: true };
  const begun = engine.call("v1/chat/completions", JSON.stringify(body));
  if (begun.status !== 200) throw new Error(begun.text);
  let text = "";
  for (;;) {
    const step = engine.step();
    if (step.status > 1) throw new Error(step.text);
    text += step.text;
    if (step.status === 0) break;
  }
  const lines = text.split("\n\n").filter((one) => one.startsWith("data: {"));
  return lines.map((one) => JSON.parse(one.slice(6)));
}

const wanted = programName();
for (const program of wanted === "dllm.wasm" ? ["dllm.wasm"] : ["dllm.wasm", "dllm-relaxed.wasm"]) {
  const compiled = new WebAssembly.Module(readFileSync(join(site, program)));
  const sets = program === "dllm.wasm" ? ["simd128", ""] : ["relaxed", ""];
  for (const isa of program === "dllm.wasm" && reference === "scalar" ? ["scalar", ...sets] : sets) {
    const engine = await Engine.start(compiled);
    const loaded = await engine.load(basename(model), bytes.length, read, true, isa);
    if (loaded.status !== 200) throw new Error(`${program} ${isa}: ${loaded.text}`);
    const used = JSON.parse(loaded.text).isa;
    for (const prompt of isa === "scalar" ? prompts.slice(0, 1) : prompts) {
      let seconds = Infinity;
      let all = [];
      for (let i = 0; i < (isa === "scalar" ? 1 : Number(repeats)); ++i) {
        const start = process.cpuUsage();
        all = events(engine, prompt);
        seconds = Math.min(seconds, process.cpuUsage(start).user / 1e6);
      }
      const { result } = all.at(-1).diffusion;
      const steps = all.filter((one) => one.diffusion !== undefined && one.diffusion.final !== true).length;
      const { hash, nfe, text } = result;
      const said = all.map((one) => one.choices?.[0]?.delta?.content ?? "").join("");
      console.log(JSON.stringify({ program, isa: used, asked: isa, prompt, hash, nfe, text, said, steps, seconds }));
    }
    // Refusals are replies, and leave the engine as it was.
    const refused = [
      engine.call("v1/chat/completions", '{"messages": [{"role": "user", "content": "x"}], "threshold": 7}'),
      engine.call("v1/chat/completions", '{"messages": []}'),
      engine.call("v1/chat/completions", "no JSON"),
      engine.call("nothing", ""),
    ].map(({ status, text }) => [status, JSON.parse(text).error.param]);
    const damaged = bytes.subarray(0, 5000);
    const other = await Engine.start(compiled);
    const readDamaged = (offset, into) => Promise.resolve(into.set(damaged.subarray(offset, offset + into.length)));
    const broken = await other.load("broken.gguf", damaged.length, readDamaged, false, isa);
    console.log(JSON.stringify({ program, isa: used, refused, broken: [broken.status, JSON.parse(broken.text).error.message] }));
  }
}
