// The engine as a WebAssembly program (src/browser/exports.cpp): texts and bytes in, texts out. Uses nothing that a worker
// or node does not have.

import { systemImports } from "./system.js";
import type { System } from "./system.js";

interface Exports {
  readonly memory: WebAssembly.Memory;
  __wasm_call_ctors(): void;
  dllm_allocate(bytes: number): number;
  dllm_free(address: number): void;
  dllm_text_begin(): number;
  dllm_text_size(): number;
  dllm_load(
    gguf: number,
    bytes: number,
    name: number,
    nameSize: number,
    embedded: number,
    isa: number,
    isaSize: number,
  ): number;
  dllm_call(path: number, pathSize: number, body: number, bodySize: number): number;
  dllm_step(): number;
  dllm_cancel(): void;
}

export interface Reply {
  readonly status: number;
  readonly text: string;
}

/** Puts `count` bytes, from `offset` on, into `into`. */
export type ReadBytes = (offset: number, into: Uint8Array) => Promise<void>;

/** (module (func (result v128) (f32x4.relaxed_madd (zeros) (zeros) (zeros)))) */
function relaxedProbe(): Uint8Array<ArrayBuffer> {
  const zeros = [0xfd, 0x0c, ...new Array<number>(16).fill(0)];
  const body = [0, ...zeros, ...zeros, ...zeros, 0xfd, 0x85, 0x02, 0x0b];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0];
  return new Uint8Array([...header, 10, body.length + 2, 1, body.length, ...body]);
}

/** The program that this browser takes: relaxed SIMD is younger than the rest. */
export function programName(): string {
  return WebAssembly.validate(relaxedProbe()) ? "dllm-relaxed.wasm" : "dllm.wasm";
}

const PIECE = 16 << 20;

export class Engine {
  private constructor(
    private readonly exports: Exports,
    private readonly system: System,
  ) {}

  /** Each engine has a memory of its own, which goes when nothing refers to it. */
  static async start(program: WebAssembly.Module): Promise<Engine> {
    const system: System = { memory: null, stopped: "" };
    const instance = await WebAssembly.instantiate(program, systemImports(system));
    const exports = instance.exports as unknown as Exports;
    system.memory = exports.memory;
    exports.__wasm_call_ctors();
    return new Engine(exports, system);
  }

  /** Loads a GGUF of `size` bytes. The reply is that of `props`, or an error. `isa`: a kernel set; "": the fastest. */
  async load(name: string, size: number, read: ReadBytes, embedded: boolean, isa = ""): Promise<Reply> {
    const address = size < 2 ** 32 ? this.exports.dllm_allocate(Math.max(size, 1)) >>> 0 : 0;
    if (address === 0) {
      const message = `The file has ${(size / 2 ** 30).toFixed(1)} GiB, and the browser gives no memory for it.`;
      return { status: 500, text: JSON.stringify({ error: { message, param: null } }) };
    }
    for (let at = 0; at < size; at += PIECE) {
      // The memory's buffer is another one after it has grown.
      await read(at, new Uint8Array(this.exports.memory.buffer, address + at, Math.min(PIECE, size - at)));
    }
    return this.withTexts([name, isa], ([nameAt, nameSize, isaAt, isaSize]) =>
      this.exports.dllm_load(address, size, nameAt, nameSize, embedded ? 1 : 0, isaAt, isaSize),
    );
  }

  call(path: string, body: string): Reply {
    return this.withTexts([path, body], ([pathAt, pathSize, bodyAt, bodySize]) =>
      this.exports.dllm_call(pathAt, pathSize, bodyAt, bodySize),
    );
  }

  /** One pass of the answer under way. Status 1: more follow; 0: it has ended; else an error. */
  step(): Reply {
    return this.reply(() => this.exports.dllm_step());
  }

  cancel(): void {
    this.exports.dllm_cancel();
  }

  private withTexts(texts: readonly [string, string], use: (at: [number, number, number, number]) => number): Reply {
    const [first, second] = texts.map((text) => this.place(text));
    if (first === undefined || second === undefined) throw new Error("not reached");
    try {
      return this.reply(() => use([...first, ...second]));
    } finally {
      this.exports.dllm_free(first[0]);
      this.exports.dllm_free(second[0]);
    }
  }

  private place(text: string): [address: number, size: number] {
    const bytes = new TextEncoder().encode(text);
    const address = this.exports.dllm_allocate(bytes.length + 1) >>> 0;
    if (address === 0) throw new Error("the browser gives no more memory");
    new Uint8Array(this.exports.memory.buffer, address, bytes.length).set(bytes);
    return [address, bytes.length];
  }

  private reply(use: () => number): Reply {
    let status: number;
    try {
      status = use();
    } catch (error) {
      throw new Error(this.system.stopped === "" ? String(error) : this.system.stopped, { cause: error });
    }
    const begin = this.exports.dllm_text_begin() >>> 0;
    const text = new Uint8Array(this.exports.memory.buffer, begin, this.exports.dllm_text_size());
    return { status, text: new TextDecoder().decode(text) };
  }
}
