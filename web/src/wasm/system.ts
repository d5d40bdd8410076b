// What the program imports: memory that grows, a clock, random numbers, a place for messages. Files, processes and sockets
// of POSIX are there for the C library to ask for, and there are none.

export interface System {
  /** null: the program is not there yet. */
  memory: WebAssembly.Memory | null;
  /** The program's last line on its error output: why it has stopped. */
  stopped: string;
}

const PAGE = 65536;
const NO_FILE = 8; // EBADF of WASI, and of the C library

function grow(memory: WebAssembly.Memory, wanted: number): number {
  try {
    memory.grow(Math.ceil((wanted - memory.buffer.byteLength) / PAGE));
    return 1;
  } catch {
    return 0;
  }
}

export function systemImports(system: System): WebAssembly.Imports {
  const memory = (): WebAssembly.Memory => {
    if (system.memory === null) throw new Error("the program asks for something before it is there");
    return system.memory;
  };
  const view = (): DataView => new DataView(memory().buffer);
  const write = (file: number, pieces: number, count: number, written: number): number => {
    let text = "";
    let total = 0;
    for (let i = 0; i < count; ++i) {
      const size = view().getUint32(pieces + 8 * i + 4, true);
      text += new TextDecoder().decode(new Uint8Array(memory().buffer, view().getUint32(pieces + 8 * i, true), size));
      total += size;
    }
    if (file === 2 && text.trim() !== "") system.stopped = text.trim();
    if (text !== "") console.log(text.replace(/\n$/, ""));
    view().setUint32(written, total, true);
    return 0;
  };
  return {
    env: {
      emscripten_resize_heap: (bytes: number) => grow(memory(), bytes >>> 0),
      emscripten_memcpy_big: (to: number, from: number, count: number) => {
        new Uint8Array(memory().buffer).copyWithin(to >>> 0, from >>> 0, (from >>> 0) + (count >>> 0));
      },
      dllm_random: (to: number, count: number) => {
        crypto.getRandomValues(new Uint8Array(memory().buffer, to >>> 0, count >>> 0));
      },
      dllm_now: () => performance.now(),
      dllm_date: () => Date.now(),
    },
    wasi_snapshot_preview1: {
      fd_close: () => NO_FILE,
      fd_seek: () => NO_FILE,
      fd_pwrite: () => NO_FILE,
      proc_exit: (status: number) => {
        throw new Error(`the engine has ended with status ${status}`);
      },
      fd_read: () => NO_FILE,
      fd_sync: () => NO_FILE,
      fd_fdstat_get: () => NO_FILE,
      environ_get: () => 0,
      environ_sizes_get: (count: number, bytes: number) => {
        view().setUint32(count, 0, true);
        view().setUint32(bytes, 0, true);
        return 0;
      },
      fd_write: write,
    },
  };
}
