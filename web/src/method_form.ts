// The form of one method: preset, decoder, window, cache, and their options.

import { COMMON_KEYS, methodOf, methodOptions, PART_KEYS, requestFields, summary } from "./choice.js";
import { element, remember, remembered, setText } from "./dom.js";
import type { OptionInfo, OptionList } from "./server.js";
import type { OptionValue } from "./trace.js";

const PART_NAMES: Readonly<Record<string, string>> = {
  algorithm: "Decoder",
  window: "Window",
  cache: "Cache",
  suffix: "Suffix",
};

export class MethodForm {
  readonly node = element("details", { class: "method" });
  private readonly line = element("span", { class: "method-line" });
  private readonly meaning = element("p", { class: "meaning" });
  private readonly usual = element("div", { class: "fields" });
  private readonly own = element("div", { class: "fields" });
  private choice: Record<string, string>;

  constructor(
    readonly label: string,
    private readonly list: OptionList,
    private readonly defaults: Readonly<Record<string, OptionValue>>,
    start: Readonly<Record<string, string>>,
  ) {
    this.choice = { ...start, ...stored(label) };
    this.node.append(
      element("summary", {}, element("span", { class: "method-label" }, label), this.line),
      this.usual,
      this.meaning,
      this.own,
    );
    this.usual.append(
      this.select("preset", "Preset", [
        ["", "none"],
        ...list.presets.filter((one) => one.usable).map((one) => [one.name, one.name] as const),
      ]),
      ...PART_KEYS.flatMap((key) => {
        const part = list.parts.find((one) => one.key === key);
        if (part === undefined) return [];
        const names = part.methods.filter((one) => one.usable).map((one) => [one.name, one.name] as const);
        return [
          this.select(key, PART_NAMES[key] ?? key, [
            ["", `default (${String(defaults[key] ?? "the model's")})`],
            ...names,
          ]),
        ];
      }),
      ...COMMON_KEYS.flatMap((key) => {
        const info = list.common.find((one) => one.key === key);
        return info === undefined ? [] : [this.input(info, String(defaults[key] ?? ""))];
      }),
    );
    this.changed();
  }

  /** The fields of a request. */
  fields(): Record<string, OptionValue> {
    return requestFields(this.list, this.choice, this.defaults);
  }

  private set(key: string, value: string): void {
    this.choice[key] = value;
    remember(`method.${this.label}`, JSON.stringify(this.choice));
    this.changed();
  }

  private changed(): void {
    setText(this.line, summary(this.choice, this.fields(), this.defaults));
    const name = this.choice["algorithm"] || String(this.defaults["algorithm"] ?? "");
    setText(this.meaning, methodOf(this.list, "algorithm", name)?.meaning ?? "");
    const options = methodOptions(this.list, this.choice, this.defaults);
    const keys = options.map((one) => one.key).join();
    if (this.own.dataset["keys"] === keys) return; // keeps text that is being typed
    this.own.dataset["keys"] = keys;
    this.own.replaceChildren(...options.map((info) => this.input(info)));
  }

  private select(key: string, name: string, choices: readonly (readonly [string, string])[], hint = ""): HTMLElement {
    const box = element("select", { name: key });
    for (const [value, text] of choices) box.append(element("option", { value }, text));
    if (choices.some(([value]) => value === this.choice[key])) box.value = this.choice[key] ?? "";
    else delete this.choice[key];
    box.addEventListener("change", () => this.set(key, box.value));
    return element("label", { class: "field", title: hint === "" ? null : hint }, element("span", {}, name), box);
  }

  private input(info: OptionInfo, standard = info.default_text ?? String(info.default ?? "")): HTMLElement {
    const name = info.key.replace(/_/g, " ");
    const hint = [info.meaning, info.condition ?? "", info.unit === undefined ? "" : `unit: ${info.unit}`]
      .filter((one) => one !== "")
      .join("; ");
    if (info.type === "boolean" || info.type === "choice") {
      const values = info.type === "boolean" ? ["true", "false"] : (info.choices ?? []);
      return this.select(
        info.key,
        name,
        [["", standard === "" ? "default" : `default (${standard})`], ...values.map((one) => [one, one] as const)],
        hint,
      );
    }
    const box = element("input", {
      name: info.key,
      inputmode: info.type === "integer" ? "numeric" : "decimal",
      placeholder: standard,
      autocomplete: "off",
    });
    box.value = this.choice[info.key] ?? "";
    box.addEventListener("input", () => this.set(info.key, box.value));
    return element("label", { class: "field", title: hint }, element("span", {}, name), box);
  }
}

function stored(label: string): Record<string, string> {
  try {
    const value: unknown = JSON.parse(remembered(`method.${label}`) || "{}");
    if (typeof value !== "object" || value === null) return {};
    return Object.fromEntries(
      Object.entries(value).filter((one): one is [string, string] => typeof one[1] === "string"),
    );
  } catch {
    return {};
  }
}
