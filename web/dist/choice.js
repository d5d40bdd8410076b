// The user's choices for a method: the fields of a request.
/** Fields with a fixed place in the form, in the form's order. */
export const PART_KEYS = ["algorithm", "window", "cache", "suffix"];
export const COMMON_KEYS = ["length", "max_tokens", "block_length", "temperature", "seed"];
export function methodOf(list, part, name) {
    return list.parts.find((one) => one.key === part)?.methods.find((one) => one.name === name);
}
/** Options of the chosen methods: those that the form shows below them. */
export function methodOptions(list, choice, defaults) {
    const found = [];
    for (const part of PART_KEYS) {
        const name = choice[part] || String(defaults[part] ?? "");
        for (const info of methodOf(list, part, name)?.options ?? []) {
            if (!found.some((one) => one.key === info.key))
                found.push(info);
        }
    }
    return found;
}
/** The request fields of a choice. Values of options that are no longer shown, because another method was chosen, are
 *  left out. The server checks numbers and reports errors. */
export function requestFields(list, choice, defaults) {
    const fields = {};
    const preset = choice["preset"] ?? "";
    if (preset !== "")
        fields["preset"] = preset;
    for (const key of PART_KEYS)
        if (choice[key])
            fields[key] = choice[key];
    const common = list.common.filter((info) => COMMON_KEYS.includes(info.key));
    for (const info of [...common, ...methodOptions(list, choice, defaults)]) {
        const text = (choice[info.key] ?? "").trim();
        if (text !== "")
            fields[info.key] = valueOf(info, text);
    }
    return fields;
}
function valueOf(info, text) {
    if (info.type === "boolean")
        return text === "true";
    // Texts are sent unchanged: the server reads numbers from them too, including 64-bit seeds.
    return text;
}
/** "threshold · dual · threshold 0.8": a choice in one line. */
export function summary(choice, fields, defaults) {
    const parts = [
        String(choice["algorithm"] ||
            (fields["preset"] ? `preset ${String(fields["preset"])}` : (defaults["algorithm"] ?? "default"))),
    ];
    for (const [key, value] of Object.entries(fields)) {
        if (key !== "algorithm" && key !== "preset")
            parts.push(`${key.replace(/_/g, " ")} ${String(value)}`);
    }
    return parts.join(" \u00b7 ");
}
/** The options that name the method, and those in which two runs differ: the title above a canvas. */
export function runTitle(options, other) {
    const title = [String(options["algorithm"] ?? "answer")];
    for (const [key, plain] of [
        ["window", "block"],
        ["cache", "none"],
    ]) {
        const value = options[key];
        if (value !== undefined && value !== plain)
            title.push(`${key} ${String(value)}`);
    }
    for (const [key, value] of Object.entries(other === undefined ? {} : options)) {
        if (["algorithm", "window", "cache", "seed"].includes(key))
            continue;
        if (other !== undefined && key in other && String(other[key]) !== String(value))
            title.push(`${key.replace(/_/g, " ")} ${String(value)}`);
    }
    return title.join(" \u00b7 ");
}
