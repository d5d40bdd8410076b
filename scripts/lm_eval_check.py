#!/usr/bin/env python3
"""Compares EleutherAI's lm-evaluation-harness with `dllm eval` on the same items, by hand:

python3 -m venv build/harness && build/harness/bin/pip install 'lm-eval[api]==0.4.13' numpy
PYTHONPATH=build/release/python build/harness/bin/python scripts/lm_eval_check.py --limit 50

The harness runs our own backend (dllm.lm_eval), and local-chat-completions and local-completions against `dllm serve`.
Every answer must be the text of `dllm eval` (local-completions: of `dllm eval --raw`).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TASK = """task: dllm_items
dataset_path: json
dataset_kwargs:
  data_files:
    test: {items}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: []
  max_gen_toks: {length}
  do_sample: false
metric_list:
  - metric: exact_match
"""


def expected(options: argparse.Namespace, *flags: str) -> list[str]:
    command = [options.dllm, "eval", options.items, "--limit", str(options.limit), "--canvas-length", str(options.length)]
    result = subprocess.run([*command, "-o", "json", *flags], capture_output=True, text=True, check=True)
    return [record["text"] for record in json.loads(result.stdout)["records"]]


def harness(model: str, arguments: str, folder: str, options: argparse.Namespace, chat: bool) -> list[str]:
    import dllm.lm_eval  # noqa: F401  # registers the model
    import lm_eval
    import lm_eval.models  # noqa: F401  # registers the other two
    from lm_eval.tasks import TaskManager

    result = lm_eval.simple_evaluate(
        model,
        model_args=arguments,
        tasks=["dllm_items"],
        task_manager=TaskManager(include_path=folder, include_defaults=False),
        limit=options.limit,
        apply_chat_template=chat,
        batch_size=1,
    )
    samples = sorted(result["samples"]["dllm_items"], key=lambda sample: sample["doc_id"])
    return [sample["resps"][0][0] for sample in samples]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--items", default="research/lab/items/tiny-publish.jsonl")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()
    chat, raw = expected(options), expected(options, "--raw")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        items = pathlib.Path(options.items).resolve()
        pathlib.Path(folder, "items.yaml").write_text(TASK.format(items=items, length=options.length))
        command = [options.dllm, "serve", "--port", "0", "--canvas-length", str(options.length)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]  # "listening on http://127.0.0.1:8080"
            api = f"model=default,num_concurrent=1,tokenized_requests=False,tokenizer_backend=None,base_url={url}/v1"
            runs = [
                ("dllm, chat", chat, harness("dllm", f"length={options.length}", folder, options, True)),
                ("dllm, raw", raw, harness("dllm", f"length={options.length}", folder, options, False)),
                ("local-chat-completions", chat,
                 harness("local-chat-completions", f"{api}/chat/completions", folder, options, True)),
                ("local-completions", raw, harness("local-completions", f"{api}/completions", folder, options, False)),
            ]
        finally:
            server.terminate()
            server.wait()
    for name, want, got in runs:
        different = [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
        wrong += len(different) + abs(len(want) - len(got))
        print(f"{name}: {len(got) - len(different)} of {len(want)} answers equal those of dllm eval")
        for i in different[:3]:
            print(f"  item {i}: {want[i]!r} against {got[i]!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
