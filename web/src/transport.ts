// How the page reaches its server. The page that has the engine inside replaces this file (web/src/wasm/transport.ts).

export function send(path: string, init: RequestInit): Promise<Response> {
  return fetch(path, { ...init, credentials: "omit" });
}
