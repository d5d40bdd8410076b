// The site's service worker: what was loaded once is there without a network. A new build of the site has another digest,
// and so another cache.

interface Extendable extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface Fetching extends Event {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}

const CACHE = "dllm-unnamed";
const FILES: string[] = []; // scripts/wasm_site.py

/** From the server: a browser's own cache may still hold files of another build. */
async function keep(): Promise<void> {
  const files = ["./", ...FILES].map((one) => new Request(one, { cache: "reload" }));
  await (await caches.open(CACHE)).addAll(files);
}

async function forget(): Promise<void> {
  for (const name of await caches.keys()) if (name.startsWith("dllm-") && name !== CACHE) await caches.delete(name);
}

async function find(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request);
  if (kept !== undefined) return kept;
  const response = await fetch(request);
  if (response.ok && new URL(request.url).pathname.endsWith(".wasm")) await cache.put(request, response.clone());
  return response;
}

self.addEventListener("install", (event) => (event as Extendable).waitUntil(keep()));
self.addEventListener("activate", (event) => (event as Extendable).waitUntil(forget()));
self.addEventListener("fetch", (event) => {
  const { request, respondWith } = event as Fetching;
  if (request.method === "GET") respondWith.call(event, find(request));
});
