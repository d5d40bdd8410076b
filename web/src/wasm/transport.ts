// Replaces web/src/transport.ts in the page that has the engine inside: its server is a worker of the same browser.

import { programName } from "./engine.js";
import { watchFiles } from "./files.js";
import type { FromWorker, ToWorker } from "./messages.js";

interface Waiting {
  resolve(response: Response): void;
  reject(error: unknown): void;
  stream: ReadableStreamDefaultController<Uint8Array> | null;
}

const JSON_TYPE = { headers: { "Content-Type": "application/json" } };
const waiting = new Map<number, Waiting>();
let last = 0;

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });

function tell(message: ToWorker): void {
  worker.postMessage(message);
}

function begin(one: Waiting): void {
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      one.stream = controller;
    },
  });
  one.resolve(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
}

function hear(message: FromWorker): void {
  const one = waiting.get(message.id);
  if (one === undefined) return; // the page has stopped it
  const encoder = new TextEncoder();
  if (message.kind === "begin") return begin(one);
  if (message.kind === "more") return one.stream?.enqueue(encoder.encode(message.text));
  waiting.delete(message.id);
  if (message.kind === "whole") {
    one.resolve(new Response(message.text, { status: message.status, ...JSON_TYPE }));
  } else if (message.kind === "end") {
    one.stream?.close();
  } else if (one.stream === null) {
    one.resolve(new Response(message.text, { status: 500, ...JSON_TYPE }));
  } else {
    one.stream.enqueue(encoder.encode(`data: ${message.text}\n\n`));
    one.stream.close();
  }
}

worker.onmessage = ({ data }: MessageEvent<FromWorker>) => hear(data);
// Not what a call throws, which the worker reports itself: the worker could not be started.
let stopped: Error | null = null;
worker.onerror = () => {
  stopped = new Error("the worker has stopped");
  for (const one of waiting.values()) {
    one.stream?.error(stopped);
    one.reject(stopped);
  }
  waiting.clear();
};

export function send(path: string, init: RequestInit): Promise<Response> {
  const id = ++last;
  const signal = init.signal ?? null;
  const aborted = new DOMException("stopped by the page", "AbortError");
  if (signal?.aborted === true) return Promise.reject(aborted);
  if (stopped !== null) return Promise.reject(stopped);
  return new Promise((resolve, reject) => {
    const one: Waiting = { resolve, reject, stream: null };
    waiting.set(id, one);
    signal?.addEventListener("abort", () => {
      if (!waiting.delete(id)) return;
      tell({ kind: "abort", id });
      one.stream?.error(aborted);
      reject(aborted);
    });
    tell({ kind: "call", id, path, body: typeof init.body === "string" ? init.body : "" });
  });
}

watchFiles((file) => tell({ kind: "model", file }));
// Browsers have service workers on secure sites only, and on this machine's own.
if ("serviceWorker" in navigator) {
  navigator.serviceWorker
    .register(new URL("../../offline.js", import.meta.url))
    .then(() => navigator.serviceWorker.ready)
    .then(({ active }) => active?.postMessage(new URL(`../../${programName()}`, import.meta.url).href))
    .catch(() => undefined);
}
