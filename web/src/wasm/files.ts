// Models of the visitor's own: a button, and files that are dropped on the page. They do not leave the browser.

import { button, element, find } from "../dom.js";

export function watchFiles(add: (file: File) => void): void {
  const take = (file: File): void => {
    add(file);
    document.dispatchEvent(new CustomEvent("dllm-model", { detail: file.name }));
  };
  const input = element("input", { type: "file", accept: ".gguf", hidden: true, id: "model-file" });
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    if (file !== undefined) take(file);
    input.value = "";
  });
  const open = button("Open model", { class: "quiet", id: "open-model" }, () => input.click());
  find("new", HTMLButtonElement).after(open, input);
  // Before the page takes it for a trace.
  document.addEventListener(
    "drop",
    (event) => {
      const file = event.dataTransfer?.files[0];
      if (file === undefined || !file.name.endsWith(".gguf")) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      document.body.classList.remove("dropping");
      take(file);
    },
    true,
  );
}
