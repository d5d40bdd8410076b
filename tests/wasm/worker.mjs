// The page's worker with a stand-in for the engine, whose answers are the bytes of its model:
//   node worker.mjs FOLDER
// FOLDER has the site's worker.js; this writes engine.js beside it, and prints the texts of two answers. Between them the
// visitor gives another file of the same name, while the first one is being read.

import { File } from "node:buffer";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
writeFileSync(join(folder, "engine.js"), `
export const programName = () => "dllm.wasm";
export class Engine {
  static start() { return Promise.resolve(new Engine()); }
  async load(name, size, read) {
    const bytes = new Uint8Array(size);
    globalThis.loading();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await read(0, bytes);
    this.text = new TextDecoder().decode(bytes);
    return { status: 200, text: '{"architecture":"none"}' };
  }
  call() { return { status: 200, text: this.text }; }
}`);

const EMPTY_PROGRAM = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
globalThis.fetch = () => Promise.resolve(new Response(EMPTY_PROGRAM));
const texts = [];
globalThis.self = {
  postMessage: ({ text }) => {
    texts.push(text);
    if (texts.length === 2) console.log(JSON.stringify(texts));
  },
};
await import(pathToFileURL(join(folder, "worker.js")));
const send = (data) => globalThis.self.onmessage({ data });
const ask = (id) => send({ kind: "call", id, path: "props?model=own", body: "" });

globalThis.loading = () => {
  globalThis.loading = () => undefined;
  send({ kind: "model", file: new File(["second"], "own") });
  ask(2);
};
send({ kind: "model", file: new File(["first"], "own") });
ask(1);
