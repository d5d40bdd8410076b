// What page and worker tell each other.

export type ToWorker =
  | { readonly kind: "call"; readonly id: number; readonly path: string; readonly body: string }
  | { readonly kind: "abort"; readonly id: number }
  | { readonly kind: "model"; readonly file: File };

export type FromWorker =
  /** A reply at once. */
  | { readonly kind: "whole"; readonly id: number; readonly status: number; readonly text: string }
  /** A stream of server-sent events. */
  | { readonly kind: "begin"; readonly id: number }
  | { readonly kind: "more"; readonly id: number; readonly text: string }
  | { readonly kind: "end"; readonly id: number }
  /** The engine has stopped; it starts anew with the next call. */
  | { readonly kind: "failed"; readonly id: number; readonly text: string };
