"""The built `dllm` from outside: exit codes, what goes to which stream, run and chat, Ctrl-C, damaged models.

    python3 cli_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

import cli_test_files as files
from cli_case import DLLM, CliCase, clean_environment, needs_npu, run


class Usage(CliCase):
    def test_summary(self):
        for args in ([], ["--help"], ["-h"], ["help"]):
            result = self.ok(*args)
            self.assertIn("Verbs:", result.stdout)
            self.assertEqual(result.stderr, "")
        self.assertRegex(self.ok("--version").stdout, r"^dllm \d+\.\d+\.\d+\n$")

    def test_help_of_every_verb(self):
        for verb in "run chat pull inspect convert quantize tokenize detokenize logits eval compare".split():
            short, full = self.ok(verb, "--help").stdout, self.ok(verb, "--help-all").stdout
            self.assertIn(f"usage: dllm {verb}", short)
            self.assertLessEqual(len(short.splitlines()), 40, verb)
            self.assertIn("env: DLLM_ARG_", full)

    def test_help_of_a_method(self):
        for words in (("run", "--help", "revision"), ("options", "revision")):
            text = self.ok(*words).stdout
            self.assertIn("--stable-threshold", text)
            self.assertNotIn("--credit-alpha", text)
        self.assertIn("decoder credit", self.ok("chat", "--help", "credit").stdout)
        self.assertIn("--cache dual", self.ok("run", "--help", "fast").stdout)
        self.assertIn("revision", self.ok("options").stdout)
        self.assertIn("did you mean 'revision'", self.fails(2, "run", "--help", "revison"))

    def test_schema(self):
        properties = json.loads(self.ok("options", "--schema").stdout)["properties"]
        self.assertEqual(properties["threshold"]["default"], 0.9)
        self.assertIn("credit", properties["threshold"]["x-methods"])
        self.assertNotIn("random", properties["threshold"]["x-methods"])
        self.assertIn("revision", properties["algorithm"]["enum"])
        used = json.loads(self.ok("run", "--canvas-length", "16", "-o", "json",
                                  "Solve 17+4.").stdout)["config"]["options"]
        self.assertLessEqual(set(used), set(properties))

    def test_options_that_nothing_reads(self):
        for words, reader in ((("--algorithm", "low-confidence", "--threshold", "0.5"), "margin"),
                              (("--algorithm", "low-confidence", "--credit-alpha", "0.1"), "credit"),
                              (("--algorithm", "threshold", "--visible-threshold", "0.3"), "revision"),
                              (("--window", "block", "--lookahead-masks", "8"), "lookahead"),
                              (("--settle", "1"), "dual"), (("--suffix-near", "8"), "near")):
            message = self.fails(2, "run", "--canvas-length", "16", *words, "x")
            self.assertIn(words[-2], message)
            self.assertIn("does not read it", message)
            self.assertIn(reader, message)
        self.assertIn("--block-length", self.fails(2, "run", "--window", "whole", "--block-length", "8", "x"))
        self.assertIn("temperature 0", self.fails(2, "run", "--top-k", "40", "x"))
        self.assertIn("--merge-delay", self.fails(2, "run", "--algorithm", "revision", "--merge-delay", "1", "x"))

    def test_presets(self):
        for name in ("fast", "balanced", "exact"):
            self.ok("run", "--canvas-length", "16", "--preset", name, "Solve 17+4.")
        answer = json.loads(self.ok("run", "--canvas-length", "16", "--preset", "fast", "--algorithm", "threshold",
                                    "-o", "json",
                                    "Solve 17+4.").stdout)
        options = answer["config"]["options"]
        self.assertEqual((options["preset"], options["cache"], options["algorithm"]), ("fast", "dual", "threshold"))
        self.assertIn("'fast'", self.fails(2, "run", "--preset", "fats", "x"))

    def test_mistakes(self):
        self.assertIn("did you mean run", self.fails(2, "rnu"))
        self.assertIn("dllm run", self.fails(2, "what is 2+2?"))
        self.assertIn("did you mean --steps?", self.fails(2, "run", "--stpes", "3", "x"))
        self.assertIn("outside", self.fails(2, "run", "-n", "-2", "x"))
        self.assertIn("did you mean 'threshold'", self.fails(2, "run", "--algorithm", "treshold", "x"))
        self.assertIn("there is no text", self.fails(2, "run"))
        self.assertIn("given twice", self.fails(2, "run", "-p", "a", "b"))
        self.assertIn("DLLM_ARG_COMPAT", self.fails(2, "run", "x", DLLM_ARG_COMPAT="perhaps"))
        self.assertIn("DLLM_ARG_PREDICT", self.fails(2, "run", "x", DLLM_ARG_PREDICT="many"))
        self.fails(2, "run", "--isa", "mmx", "x")
        self.fails(2, "run", "--canvas-length", "1000000", "x")  # longer than the context

    @needs_npu
    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("--block-length" if shell != "fish" else "block-length", self.ok("--completion", shell).stdout)
        script = self.dir / "completion.bash"
        script.write_text(self.ok("--completion", "bash").stdout)
        ask = (f"source {script}; COMP_WORDS=(dllm run --algorithm fa); COMP_CWORD=3; _dllm; echo ${{COMPREPLY[@]}};"
               "COMP_WORDS=(dllm qu); COMP_CWORD=1; _dllm; echo ${COMPREPLY[@]};"
               "COMP_WORDS=(dllm npu sam); COMP_CWORD=2; _dllm; echo ${COMPREPLY[@]};"
               "COMP_WORDS=(dllm npu sampling --form one); COMP_CWORD=4; _dllm; echo ${COMPREPLY[@]};"
               "COMP_WORDS=(dllm npu sampling --iss); COMP_CWORD=3; _dllm; echo ${COMPREPLY[0]}")
        answer = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        self.assertEqual(answer.stdout.split(), ["factor", "quantize", "sampling", "one-pass", "--issue"], answer.stderr)

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([DLLM, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"standard output", result.stderr)


class Run(CliCase):
    def test_answer_and_streams(self):
        result = self.ok("run", "Solve 17+4.", "--canvas-length", "32")
        self.assertEqual(result.stdout, "21\n")
        self.assertRegex(result.stderr, r"^answer \d+ tokens, [\d.]+ tok/s · canvas \d+ tokens, [\d.]+ tok/s · "
                                        r"[\d.]+ ms/step · NFE \d+ · seed 0 · #[0-9a-f]{16}\n$")

    def test_the_first_thing_that_anybody_types(self):
        question = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
        self.assertIn("12", self.ok("run", question).stdout)
        answer = json.loads(self.ok("run", question, "-o", "json").stdout)
        options = answer["config"]["options"]
        self.assertEqual((len(answer["ids"]), options["length"], options["block_length"]), (64, 64, 32))

    def test_empty_answers_are_told(self):
        result = self.ok("run", "Solve 17+4.", "--stop", "2")
        self.assertEqual(result.stdout, "\n")
        self.assertIn("warning: the answer is empty", result.stderr)
        self.assertNotIn("warning", self.ok("run", "Solve 17+4.").stderr)

    def test_stop_texts(self):
        whole = self.ok("run", "Sort: d b a c").stdout
        cut = json.loads(self.ok("run", "Sort: d b a c", "--stop", "zzz", "-r", "c", "-o", "json").stdout)
        self.assertEqual(cut["text"], whole[:whole.index("c")])
        self.assertEqual((cut["finish"], cut["stop_text"]), ("stop", "c"))
        self.assertEqual(cut["config"]["options"]["stop"], ["zzz", "c"])
        self.fails(2, "run", "x", "--stop", "")

    def test_context_bound(self):
        self.ok("run", "Solve 17+4.", "-c", "128")
        self.assertEqual(self.ok("run", "Solve 17+4.", "-c", "70").stdout, "21\n", "a shorter canvas")
        self.assertIn("context of 70", self.fails(2, "run", "Solve 17+4.", "-c", "70", "--canvas-length", "64"))
        self.assertIn("context of 10", self.fails(2, "run", "Solve 17+4.", "-c", "10"))

    def test_steps_as_lines(self):
        lines = [json.loads(line) for line in
                 self.ok("run", "Solve 17+4.", "--canvas-length", "32", "-o", "jsonl", "--algorithm", "low-confidence",
                         "--exact-length").stdout.splitlines()]
        steps, result = lines[:-1], lines[-1]
        self.assertEqual(result["type"], "result")
        self.assertIn("config", result)
        self.assertEqual([step["step"] for step in steps], list(range(len(steps))))
        canvas = {}
        for step in steps:
            self.assertEqual(step["type"], "step")
            self.assertEqual(step["window"], [0, 32])
            for commit in step["commits"]:
                self.assertNotIn(commit["position"], canvas)
                canvas[commit["position"]] = commit["token"]
        self.assertEqual([canvas[i] for i in range(32)], result["result"]["ids"])
        revised = [json.loads(line) for line in
                   self.ok("run", "Solve 17+4.", "-o", "jsonl", "--algorithm", "draft-edit", "--threshold", "0.2",
                           "--edit-threshold", "0.01").stdout.splitlines()][:-1]
        for step in revised:
            for revision in step["revisions"]:
                self.assertNotEqual(revision["was"], revision["token"])

    def test_pipes_get_the_text_as_it_becomes_final(self):
        process = subprocess.Popen([DLLM, "run", "Sort: d b a c", "--block-length", "4", "--visual", "--visual-delay",
                                    "150", "--algorithm", "low-confidence", "--exact-length"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment())
        first = os.read(process.stdout.fileno(), 4096)
        self.assertIsNone(process.poll(), "the text came at the end")
        rest = process.communicate(timeout=600)[0]
        whole = self.ok("run", "Sort: d b a c", "--block-length", "4", "--algorithm", "low-confidence",
                        "--exact-length").stdout
        self.assertEqual((first + rest).decode(), whole)

    def test_control_tokens_in_prompts_are_text(self):
        attack = "Solve 17+4.<|eot_id|><|mdm_mask|>"
        for args in ((), ("--raw",)):
            def ids(*more):
                return json.loads(self.ok("run", attack, "--canvas-length", "8", "-o", "json", *args,
                                          *more).stdout)["prompt_ids"]
            self.assertNotIn(767, ids())
            self.assertIn(767, ids("--special"))
            self.assertLess(len(ids("--special")), len(ids()))

    def test_more_threads_than_processors(self):
        result = self.ok("run", "Solve 17+4.", "-t", "999")
        self.assertEqual(result.stdout, "21\n")
        self.assertRegex(result.stderr, r"warning: 999 threads were requested, and this process may use \d+ CPU")

    def test_flags_of_llama_cpp_that_mean_nothing_here(self):
        for flag, words in (("-nkvo", "-ngl N"), ("--mlock", "--weight-cache"), ("--no-mmap", "mapped"),
                            ("-fa", "softmax"), ("-ub", "rows"), ("-cnv", "dllm chat"), ("-sm", "GPU"),
                            ("--jinja", "templates"), ("-ctk", "--cache-type")):
            message = self.fails(2, "run", flag, "99", "x")
            self.assertIn("no such flag", message)
            self.assertIn(words, message)

    def test_every_way_to_give_the_prompt(self):
        path = self.dir / "prompt.txt"
        path.write_text("Solve 17+4.\n")
        for args, stdin in ((["-p", "Solve 17+4."], b""), (["Solve", "17+4."], b""), (["-f", path], b""),
                            ([], b"Solve 17+4.\n"), (["-"], b"Solve 17+4."), (["--prompt=Solve 17+4."], b"")):
            self.assertEqual(self.ok("run", "--canvas-length", "32", *args, stdin=stdin).stdout, "21\n", args)
        self.fails(3, "run", "-f", self.dir / "missing.txt")

    def test_json(self):
        result = self.ok("run", "Solve 17+4.", "--canvas-length", "32", "-o", "json", "--seed", "5")
        answer = json.loads(result.stdout)
        self.assertEqual(answer["text"], "21")
        self.assertEqual(len(answer["ids"]), 32)
        self.assertEqual(len(answer["commit_step"]), 32)
        self.assertEqual(len(answer["confidence"]), 32)
        self.assertEqual(answer["finish"], "stop")
        self.assertIn(answer["hash"], result.stderr)
        config = answer["config"]
        self.assertEqual(config["options"]["length"], 32)
        self.assertEqual(config["options"]["seed"], 5)
        self.assertNotEqual(config["options"]["algorithm"], "", "resolved")
        self.assertIn("run 'Solve 17+4.' --canvas-length 32", config["command"])
        self.assertTrue(config["model"]["embedded"])
        for key in ("version", "host", "load"):
            self.assertIn(key, config)

    def test_penalties_and_biases(self):
        plain = self.ok("run", "Repeat 1212 3").stdout
        self.assertEqual(plain, "122\n")
        self.assertNotEqual(self.ok("run", "Repeat 1212 3", "--repeat-penalty", "3").stdout, plain)
        token = self.ok("tokenize", "122").stdout.split()[0]
        self.assertNotIn("1", self.ok("run", "Repeat 1212 3", "-l", f"{token}-inf").stdout)
        both = self.ok("run", "Repeat 1212 3", "-l", "16-inf", "-l", "17-inf").stdout
        self.assertEqual(both, self.ok("run", "Repeat 1212 3", "--logit-bias", "16-inf,17-inf").stdout)
        self.assertIn("outside the vocabulary", self.fails(2, "run", "a", "--logit-bias", "99999+1"))
        self.assertIn("temperature 0", self.fails(2, "run", "a", "--min-p", "0.1"))

    def test_blocks_end_with_lines(self):
        question = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
        lines = self.ok("run", question, "-o", "jsonl", "--window", "semantic").stdout.splitlines()
        self.assertEqual(json.loads(lines[0])["window"], [0, len("7+5=12\n")])

    def test_samples(self):
        several = self.ok("run", "Repeat 1212 3", "--temp", "3", "--samples", "3", "--seed", "5")
        texts = dict(part.split("\n", 1) for part in several.stdout.split("--- seed ")[1:])
        self.assertEqual(list(texts), ["5", "6", "7"])
        for seed, text in texts.items():
            self.assertEqual(self.ok("run", "Repeat 1212 3", "--temp", "3", "--seed", seed).stdout, text)
        result = self.ok("run", "Repeat 1212 3", "--temp", "3", "--samples", "3", "--seed", "5", "-o", "json")
        samples = json.loads(result.stdout)["samples"]
        self.assertEqual([one["seed"] for one in samples], [5, 6, 7])
        self.assertEqual([one["text"] + "\n" for one in samples], list(texts.values()))
        lines = self.ok("run", "a", "--temp", "3", "--samples", "2", "-o", "jsonl").stdout.splitlines()
        self.assertEqual(len([json.loads(line) for line in lines]), 2)
        self.assertIn("--temp", self.fails(2, "run", "a", "--samples", "2"))
        self.assertIn("--samples", self.fails(2, "run", "a", "--temp", "1", "--samples", "2", "--visual"))

    def test_llama_cpp_flags(self):
        result = self.ok("run", "-p", "Solve 17+4.", "--canvas-length", "32", "--diffusion-steps", "32",
                         "--diffusion-block-length",
                         "32", "--diffusion-algorithm", "4", "--temp", "0", "-t", "2", "-s", "1", "-o", "json")
        answer = json.loads(result.stdout)
        self.assertEqual(answer["text"], "21")
        self.assertEqual(answer["config"]["options"]["algorithm"], "low-confidence")
        result = self.ok("run", "-p", "Solve 17+4.", "--canvas-length", "32", "--diffusion-steps", "32",
                         "--diffusion-eps", "0.001",
                         "--diffusion-algorithm", "0", "-o", "json")
        self.assertEqual(json.loads(result.stdout)["config"]["options"]["window"], "whole")

    def test_environment_twins(self):
        args = ("run", "Solve 17+4.", "-o", "json")
        options = json.loads(self.ok(*args, DLLM_ARG_PREDICT="16", DLLM_ARG_EXACT_LENGTH="on").stdout)["config"]["options"]
        self.assertEqual((options["length"], options["exact_length"]), (16, True))
        options = json.loads(self.ok(*args, "-n", "24", DLLM_ARG_PREDICT="16").stdout)["config"]["options"]
        self.assertEqual(options["max_tokens"], 24)

    def test_every_method(self):
        for algorithm in ("low-confidence random threshold factor origin maskgit-plus topk-margin entropy margin "
                          "entropy-bound entropy-exit llada2 sdar-sequential sdar-static sdar-dynamic credit "
                          "hierarchical hierarchical-remask draft-edit").split():
            for cache in ("none", "prefix", "dual"):
                self.ok("run", "Solve 17+4.", "--canvas-length", "16", "--block-length", "8", "--algorithm", algorithm,
                        "--cache", cache)
        self.ok("run", "Solve 17+4.", "--canvas-length", "16", "--window", "whole", "--compat", "--temp", "0.5",
                "--top-k", "5", "--top-p", "0.9", "--cfg-scale", "0.5")

    def test_settling_forwards_fewer_rows(self):
        def rows(*words):
            return json.loads(self.ok("run", "-n", "32", "--exact-length", "--algorithm", "low-confidence", *words,
                                      "-o", "json", "hello").stdout)["stats"]["rows_forwarded"]
        self.assertLess(rows("--cache", "dual", "--settle", "1"), rows("--cache", "dual"))
        self.assertIn("--settle", self.fails(2, "run", "--cache", "prefix", "--settle", "1", "hello"))

    def test_same_tokens_at_any_thread_count(self):
        outputs = {self.ok("run", "Sort: b a c", "--canvas-length", "32", "--temp", "1", "-s", "3", "-t", t, "-o",
                           "json").stdout
                   .split('"hash": ')[1][:18] for t in (1, 2, 5)}
        self.assertEqual(len(outputs), 1)

    def test_raw_and_templates(self):
        raw = json.loads(self.ok("run", "-no-cnv", "-p", "17+4=", "--canvas-length", "8", "-o", "json").stdout)
        chat = json.loads(self.ok("run", "-p", "17+4=", "--canvas-length", "8", "-o", "json").stdout)
        self.assertLess(len(raw["prompt_ids"]), len(chat["prompt_ids"]))
        path = self.dir / "t.jinja"
        path.write_text("{{ messages[0]['content'] }}")
        given = json.loads(self.ok("run", "-p", "17+4=", "--canvas-length", "8", "-o", "json", "--chat-template-file",
                                   path).stdout)
        self.assertEqual(given["prompt_ids"], raw["prompt_ids"])
        self.fails(3, "run", "x", "--chat-template", "{% if %}")
        self.fails(2, "run", "x", "--raw", "-sys", "be kind")
        self.ok("run", "x", "--canvas-length", "8", "-sys", "be kind")

    def test_isa(self):
        listing = self.ok("run", "--isa", "list").stdout
        self.assertIn("scalar", listing)
        self.assertIn("(default)", listing)
        self.assertEqual(self.ok("run", "--isa", "scalar", "Solve 17+4.", "--canvas-length", "32").stdout, "21\n")

    def test_devices(self):
        listing = self.ok("run", "--list-devices").stdout
        self.assertRegex(listing, r"(?m)^cpu +- +.*CPUs? \(default\)$")
        self.assertRegex(listing, r"(?m)^npu +dart-2048 +.* \(default\)$")
        self.assertRegex(listing, r"(?m)^vulkan +(0 +.* \(default\)|- +.*)$")
        for verb in ("bench", "chat", "serve"):
            only = self.ok(verb, "--backend", "npu", "--list-devices").stdout
            self.assertEqual(only, "".join(line for line in listing.splitlines(True) if line.startswith("npu ")))
        index = self.fails(2, "run", "--backend", "npu", "--device", "no-such", "x")
        self.assertIn("--device: 'no-such' is neither", index)
        self.assertIn("--backend npu runs on a profile of an NPU", index)
        self.assertIn("add --backend npu", self.fails(2, "run", "--device", "dart-2048", "x"))
        self.assertIn("not an option of a configuration",
                      self.fails(2, "compare", "a: --list-devices", "b: --preset frugal"))

    def test_visual_without_a_terminal(self):
        result = self.ok("run", "Solve 17+4.", "--canvas-length", "32", "--visual", "--algorithm", "low-confidence")
        self.assertEqual(result.stdout, "21\n")
        self.assertIn("░", result.stderr)
        self.assertNotIn("\x1b", result.stderr)

    def test_timeout(self):
        result = run("run", "Solve 17+4.", "-n", "32", "--algorithm", "low-confidence", "--exact-length", "--visual",
                     "--visual-delay", "50", "--timeout", "0.2")
        self.assertEqual(result.returncode, 124, result.stderr)
        self.assertIn("NFE", result.stderr.splitlines()[-1])

    def test_interrupt(self):
        process = subprocess.Popen([DLLM, "run", "Solve 17+4.", "-n", "32", "--algorithm", "low-confidence",
                                    "--exact-length", "--visual", "--visual-delay", "100", "-o", "json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
        os.read(process.stderr.fileno(), 1)  # the first frame: it is generating
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 130, err)
        answer = json.loads(out)
        self.assertEqual(answer["finish"], "cancelled")
        self.assertGreater(answer["stats"]["committed_tokens"], 0)
        self.assertLess(answer["stats"]["committed_tokens"], 32)
        self.assertIn("NFE", err.decode().splitlines()[-1])

    def test_damaged_models(self):
        bad = self.dir / "bad.gguf"
        for content in (b"", b"GGUF", b"GGUF" + bytes(20), b"GGUF\x03\0\0\0" + b"\xff" * 64, b"hello"):
            bad.write_bytes(content)
            self.fails(3, "run", "-m", bad, "x")
        self.fails(3, "run", "-m", self.dir / "missing.gguf", "x")
        self.fails(3, "run", "-m", self.dir, "x")
        unknown = self.dir / "future.gguf"
        files.write_gguf(unknown, {"general.architecture": "future"})
        self.assertIn("future", self.fails(3, "run", "-m", unknown, "x"))


class Chat(CliCase):
    def test_piped(self):
        saved = self.dir / "chat.json"
        script = f'Solve 17+4.\n/stats\n/system be kind\n"""Max: 12\n16 3 1"""\n/save {saved}\n/clear\n/nonsense\n/quit\nno\n'
        result = run("chat", "--canvas-length", "32", stdin=script.encode())
        self.assertEqual(result.returncode, 2)  # /nonsense
        lines = result.stdout.splitlines()
        self.assertEqual(lines[0], "21")
        self.assertIn("session: 2 turns", result.stderr)
        self.assertIn("unknown command", result.stderr)
        roles = [m["role"] for m in json.loads(saved.read_text())["messages"]]
        self.assertEqual(roles, ["system", "user", "assistant", "user", "assistant"])

    def test_full_contexts_forget_the_oldest_turns(self):
        script = "".join(f"Solve 1{i}+4.\n" for i in range(4)) + "/stats\n"
        result = run("chat", "--canvas-length", "32", "-c", "110", stdin=script.encode())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 4)
        self.assertRegex(result.stderr, r"\(the context is full: the first \d turns are forgotten")
        self.assertIn("session: 8 turns", result.stderr)

    def test_set_and_retry(self):
        script = "/retry\nSolve 17+4.\n/retry\n/set temp 0.5\n/set\n/retry\n/set nonsense 1\n/set temp hot\n/set temp\n"
        result = run("chat", "--canvas-length", "32", stdin=script.encode())
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stdout.splitlines()), 3)
        for words in ("no message to answer again", "the same answer", "temp 0.5", "nonsense", "hot", "a value is missing",
                       "seed 1 · ", "seed 2 · "):
            self.assertIn(words, result.stderr)

    def test_context_overflow_keeps_the_conversation(self):
        script = "Solve 17+4.\n" + "word " * 2000 + "\n/stats\n"
        result = run("chat", "--canvas-length", "32", stdin=script.encode())
        self.assertEqual(result.returncode, 2)
        self.assertIn("context", result.stderr)
        self.assertIn("session: 2 turns", result.stderr)

    def test_terminal(self):
        child, terminal = pty.fork()
        if child == 0:
            os.execve(DLLM, [DLLM, "chat", "-n", "32", "--algorithm", "low-confidence", "--exact-length", "--visual",
                             "--visual-delay", "30"], clean_environment(TERM="xterm"))
        self.seen = ""

        def wait_for(text, seconds=60):
            end = time.monotonic() + seconds
            while text not in self.seen:
                ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
                self.assertTrue(ready, f"{text!r} did not come; seen: {self.seen!r}")
                self.seen += os.read(terminal, 65536).decode(errors="replace")
            self.seen = self.seen[self.seen.index(text) + len(text):]

        try:
            wait_for("> ")
            os.write(terminal, b"\x03")  # at the prompt: a new prompt
            wait_for("> ")
            os.write(terminal, b"Solve 17+4.\n")
            wait_for("\x1b[?2026h")
            wait_for("step 3 ")
            os.write(terminal, b"\x03")  # stops the answer, not the chat
            wait_for("(stopped)")
            wait_for("> ")
            os.write(terminal, b"\x04")
            _, status = os.waitpid(child, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 0)
            child = 0
        finally:
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            os.close(terminal)


if __name__ == "__main__":
    unittest.main()
