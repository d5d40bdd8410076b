// The engine's thread: the page stays responsive while it computes, and between two passes it hears the page. Threads of
// its own would need shared memory, which a browser gives only to sites that set two headers; there are none.

import { Engine, programName } from "./engine.js";
import type { ReadBytes } from "./engine.js";
import type { FromWorker, ToWorker } from "./messages.js";

interface Model {
  readonly name: string;
  readonly size: number;
  readonly read: ReadBytes;
  readonly embedded: boolean;
}

const port = self as unknown as {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
  postMessage(message: FromWorker): void;
};
const EMBEDDED = "tiny-llada";
const models = new Map<string, Model | null>([[EMBEDDED, null]]);
const aborted = new Set<number>();
let program: Promise<WebAssembly.Module> | null = null;
let engine: { readonly name: string; readonly engine: Engine } | null = null;
let architecture = "";
let queue: Promise<void> = Promise.resolve();

async function get(path: string): Promise<Response> {
  const response = await fetch(new URL(`../../${path}`, import.meta.url));
  if (!response.ok) throw new Error(`${path}: the site answered with status ${response.status}`);
  return response;
}

async function fetchProgram(): Promise<WebAssembly.Module> {
  const response = await get(programName());
  return WebAssembly.compile(await response.arrayBuffer());
}

async function embedded(): Promise<Model> {
  const bytes = new Uint8Array(await (await get("tiny-llada-f32.gguf")).arrayBuffer());
  const read: ReadBytes = (offset, into) => {
    into.set(bytes.subarray(offset, offset + into.length));
    return Promise.resolve();
  };
  return { name: EMBEDDED, size: bytes.length, read, embedded: true };
}

function ofFile(file: File): Model {
  const read: ReadBytes = async (offset, into) => {
    into.set(new Uint8Array(await file.slice(offset, offset + into.length).arrayBuffer()));
  };
  return { name: file.name, size: file.size, read, embedded: false };
}

/** The engine with this model ("": the one there is, or the site's); a text: why there is none. */
async function engineWith(wanted: string): Promise<Engine | string> {
  const name = wanted === "" ? (engine?.name ?? EMBEDDED) : wanted;
  if (engine !== null && engine.name === name) return engine.engine;
  if (!models.has(name)) return JSON.stringify({ error: { message: `there is no model '${name}'`, param: "model" } });
  const model = models.get(name) ?? (await embedded());
  models.set(name, model);
  engine = null; // its memory is wanted
  const fresh = await Engine.start(await (program ??= fetchProgram()));
  const reply = await fresh.load(model.name, model.size, model.read, model.embedded);
  if (reply.status !== 200) return reply.text;
  architecture = String((JSON.parse(reply.text) as { architecture: string }).architecture);
  engine = { name, engine: fresh };
  return fresh;
}

function list(): string {
  const data = [...models.keys()].map((id) => {
    const loaded = engine === null ? id === EMBEDDED : engine.name === id;
    return {
      id,
      meta: { architecture: engine?.name === id ? architecture : "" },
      status: { value: loaded ? "loaded" : "unloaded" },
    };
  });
  return JSON.stringify({ object: "list", data });
}

/** Lets messages in. */
function breathe(): Promise<void> {
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      resolve();
    };
    channel.port2.postMessage(0);
  });
}

async function stream(id: number, running: Engine): Promise<void> {
  for (;;) {
    if (aborted.has(id)) return running.cancel();
    const { status, text } = running.step();
    if (status > 1) throw new Error((JSON.parse(text) as { error: { message: string } }).error.message);
    port.postMessage({ id, kind: "more", text });
    if (status === 0) return;
    await breathe();
  }
}

async function answer(id: number, path: string, body: string): Promise<void> {
  const url = new URL(path, "http://page/");
  const route = url.pathname.slice(1);
  const streams = route === "v1/chat/completions";
  if (route === "v1/models") return port.postMessage({ id, kind: "whole", status: 200, text: list() });
  const fromBody = streams ? (JSON.parse(body) as { model?: string }).model : undefined;
  const running = await engineWith(fromBody ?? url.searchParams.get("model") ?? "");
  if (typeof running === "string") return port.postMessage({ id, kind: "whole", status: 400, text: running });
  const { status, text } = running.call(route, body);
  if (status !== 200 || !streams) return port.postMessage({ id, kind: "whole", status, text });
  port.postMessage({ id, kind: "begin" });
  await stream(id, running);
  port.postMessage({ id, kind: "end" });
}

async function serve(id: number, path: string, body: string): Promise<void> {
  try {
    if (!aborted.has(id)) await answer(id, path, body);
  } catch (error) {
    engine = null; // whatever stopped it, its state is not to be trusted
    const message = error instanceof Error ? error.message : String(error);
    port.postMessage({ id, kind: "failed", text: JSON.stringify({ error: { message, param: null } }) });
  }
  aborted.delete(id);
}

function take(file: File): void {
  if (engine?.name === file.name) engine = null;
  models.set(file.name, ofFile(file));
}

port.onmessage = ({ data }) => {
  if (data.kind === "abort") return void aborted.add(data.id);
  // In turn: an answer that is being made goes on with the model that it began with.
  if (data.kind === "model") return void (queue = queue.then(() => take(data.file)));
  queue = queue.then(() => serve(data.id, data.path, data.body));
};
