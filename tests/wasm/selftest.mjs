// Runs a WebAssembly program that has main(): node selftest.mjs SITE PROGRAM

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [site, program] = process.argv.slice(2);
const { systemImports } = await import(pathToFileURL(join(site, "page/wasm/system.js")).href);
const system = { memory: null, stopped: "" };
const instance = await WebAssembly.instantiate(new WebAssembly.Module(readFileSync(program)), systemImports(system));
system.memory = instance.exports.memory;
instance.exports.__wasm_call_ctors();
process.exitCode = instance.exports.main(0, 0);
