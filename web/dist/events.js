// Server-sent events (HTML Living Standard, 9.2.6), only the parts that the server sends: "data:" lines and comments.
export class EventReader {
    rest = "";
    /** The data of the events that `piece` completes. */
    push(piece) {
        this.rest += piece;
        const blocks = this.rest.split(/\r?\n\r?\n/);
        this.rest = blocks.pop() ?? "";
        return blocks
            .map((block) => block
            .split(/\r?\n/)
            .filter((line) => line.startsWith("data:"))
            .map((line) => line.slice(line.startsWith("data: ") ? 6 : 5))
            .join("\n"))
            .filter((data) => data !== "");
    }
}
