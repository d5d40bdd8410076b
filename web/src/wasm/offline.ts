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

const isProgram = (url: string): boolean => new URL(url).pathname.endsWith(".wasm");

async function others(): Promise<string[]> {
  return (await caches.keys()).filter((name) => name.startsWith("dllm-") && name !== CACHE);
}

/** From the server: a browser's own cache may still hold files of another build. */
async function keep(): Promise<void> {
  const cache = await caches.open(CACHE);
  await cache.addAll(["./", ...FILES].map((one) => new Request(one, { cache: "reload" })));
  // The programs that this browser uses are in the cache of the build before, which is about to be forgotten.
  for (const name of await others()) {
    for (const { url } of await (await caches.open(name)).keys()) {
      if (!isProgram(url)) continue;
      const response = await fetch(new Request(url, { cache: "reload" }));
      if (response.ok) await cache.put(url, response); // else the site has no such program any more
    }
  }
}

async function forget(): Promise<void> {
  for (const name of await others()) await caches.delete(name);
}

async function find(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request);
  if (kept !== undefined) return kept;
  const response = await fetch(request);
  if (response.ok && isProgram(request.url)) await cache.put(request, response.clone());
  return response;
}

self.addEventListener("install", (event) => (event as Extendable).waitUntil(keep()));
self.addEventListener("activate", (event) => (event as Extendable).waitUntil(forget()));
// The page asks for its program: on the first visit that was fetched before this worker saw what is.
self.addEventListener("message", (event) => {
  const { data } = event as MessageEvent<string>;
  (event as unknown as Extendable).waitUntil(find(new Request(data)));
});
self.addEventListener("fetch", (event) => {
  const { request, respondWith } = event as Fetching;
  if (request.method === "GET") respondWith.call(event, find(request));
});
