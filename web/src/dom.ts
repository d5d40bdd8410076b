// The only code of the page that creates elements: texts become text nodes, never markup.

type Child = Node | string | null;
interface Attributes {
  readonly [name: string]: string | number | boolean | null;
}

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null) made.append(child);
  return made;
}

/** An element of the page's HTML. */
export function find<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no #${id}`);
  return found;
}

/** Changes the text only if it differs, so that a screen reader does not read it again. */
export function setText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function button(label: string, attributes: Attributes, onClick: () => void): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", onClick);
  return made;
}

export function prefersLessMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** The page's value in the browser's storage; nothing if storage is disabled. */
export function remembered(key: string, session = false): string {
  try {
    return (session ? sessionStorage : localStorage).getItem(`dllm.${key}`) ?? "";
  } catch {
    return "";
  }
}

export function remember(key: string, value: string, session = false): void {
  try {
    (session ? sessionStorage : localStorage).setItem(`dllm.${key}`, value);
  } catch {
    // Storage is disabled: the value is not kept.
  }
}
