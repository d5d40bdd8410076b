// What a person has chosen for a method: the fields of a request.
/** Fields that have a place of their own in the form, in its order. */
export const PART_KEYS = ["algorithm", "window", "cache", "suffix"];
export const COMMON_KEYS = ["length", "block_length", "temperature", "seed"];
export function methodOf(list, part, name) {
    return list.parts.find((one) => one.key === part)?.methods.find((one) => one.name === name);
}
/** Options of the methods that are chosen: those that the form shows below them. */
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
/** What a choice asks the server for. Values that belong to no option that is shown are left out: another method was
 *  chosen since. Numbers are checked by the server, which says what is wrong. */
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
    // Texts go as they are: the server reads numbers in them too, 64-bit seeds among them.
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
/** The options in which two runs differ, and those that name the method: what a person wants to read above a canvas. */
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
