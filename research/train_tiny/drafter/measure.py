"""What a drafter brings: tokens per round, and tokens per second beside the same model without it, in pairs.

    python3 -m train_tiny.drafter.measure --dllm PATH --model FILE --drafter FILE --held NAME=FILE.jsonl:KEY ...
        [--items N] [--skip N] [--tokens N] [--flags "--draft-cut 0.3"] [--out FILE.json]

Each item is answered twice, with `--mode ar` and with drafts, in alternating order, so that whatever else the machine
does meets both. The words have to be equal; the numbers of differing answers are printed.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys


def answer(o, prompt, flags):
    command = [o.dllm, "run", "-m", o.model, "-n", str(o.tokens), "-t", str(o.threads), "-o", "json", *flags, prompt]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command[:-1])}: {done.stderr}")
    found = json.loads(done.stdout)
    return [i for i in found["ids"] if i >= 0], found["stats"]


def items_of(named, skip, count):
    """(name, prompts) of NAME=FILE.jsonl:KEY; evenly spread over the file."""
    name, _, rest = named.partition("=")
    path, _, key = rest.rpartition(":")
    with open(path, encoding="utf-8") as f:
        all_items = [json.loads(line)[key] for line in f]
    all_items = all_items[skip:]
    return name, all_items[::max(1, len(all_items) // count)][:count]


def measure(o, prompts):
    pairs, differ = [], 0
    for i, prompt in enumerate(prompts):
        modes = [("drafts", ["--draft-model", o.drafter, *shlex.split(o.flags)]), ("ar", ["--mode", "ar"])]
        found = {mode: answer(o, prompt, flags) for mode, flags in (modes if i % 2 else modes[::-1])}
        differ += found["ar"][0] != found["drafts"][0]
        pairs.append({mode: stats for mode, (_, stats) in found.items()})
    drafts, ar = ([pair[mode] for pair in pairs] for mode in ("drafts", "ar"))
    rounds = sum(one["rounds"] for one in drafts)
    tokens = sum(one["answer_tokens"] for one in drafts)
    return {"items": len(pairs), "differ": differ, "answer_tokens": tokens,
            "tokens_per_round": round(sum(one["round_tokens"] for one in drafts) / max(1, rounds), 3),
            "median_ratio": round(statistics.median(d["tokens_per_second"] / a["tokens_per_second"]
                                                    for d, a in zip(drafts, ar)), 3),
            "ratio_of_sums": round(sum(one["seconds"] for one in ar) / sum(one["seconds"] for one in drafts), 3),
            "ar_tokens_per_second": round(tokens / sum(one["seconds"] for one in ar), 1),
            "tokens_per_second": round(tokens / sum(one["seconds"] for one in drafts), 1)}


def main(args=None):
    parser = argparse.ArgumentParser(prog="train_tiny.drafter.measure", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default="dllm")
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--held", action="append", required=True)
    parser.add_argument("--items", type=int, default=20, help="of each set")
    parser.add_argument("--skip", type=int, default=0, help="items at the beginning of each file")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flags", default="", help="further flags of the runs with drafts")
    parser.add_argument("--out")
    o = parser.parse_args(args)
    found = {}
    for named in o.held:
        name, prompts = items_of(named, o.skip, o.items)
        found[name] = measure(o, prompts)
        print(name, json.dumps(found[name]), flush=True)
    if o.out:
        with open(o.out, "w", encoding="utf-8") as f:
            json.dump(found, f, indent=1)
    return int(any(one["differ"] for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
