"""`dllm serve` with several models: which one answers, and what is told about them.

    python3 serve_models_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import threading
import time
import unittest

from serve_case import QUESTION, Server
from serve_limits_test import wait_until
from serve_models_case import CHAT, MODEL, NAMES, ModelsCase, chat, facts, loaded, running


class Answers(ModelsCase):
    """One server that keeps two of three."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server("--models-dir", cls.folder, "--models-max", 2)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_answers_are_those_of_servers_with_one_model(self):
        alone = {}
        for name in NAMES:
            with Server("-m", self.folder / f"{name}.gguf") as one:
                alone[name] = facts(chat(one, "default", logprobs=True))
        self.assertEqual(len({str(one) for one in alone.values()}), 3, "the models cannot be told apart")
        for name in NAMES * 2:
            reply = chat(self.server, name, logprobs=True)
            self.assertEqual((reply.status, reply.json["model"]), (200, name), reply.body)
            self.assertEqual(facts(reply), alone[name])

    def test_every_api_answers_with_the_model_that_is_named(self):
        for name in NAMES:
            for path, body, field in (
                    ("/v1/completions", {"prompt": "3 + 4 =", "max_tokens": 4}, "model"),
                    ("/v1/messages", {"messages": QUESTION, "max_tokens": 8}, "model"),
                    ("/v1/responses", {"input": "3 + 4 =", "max_output_tokens": 8}, "model"),
                    ("/api/chat", {"messages": QUESTION, "stream": False}, "model"),
                    ("/api/generate", {"prompt": "3 + 4 =", "stream": False}, "model"),
                    ("/v1/score", {"context": "3 + 4 =", "continuation": " 7", "samples": 2}, None),
                    ("/infill", {"input_prefix": "3 + ", "input_suffix": " = 7", "n_predict": 1}, None),
                    ("/tokenize", {"content": "3 + 4"}, None)):
                reply = self.server.post(path, {"model": name, **body})
                self.assertEqual(reply.status, 200, (path, reply.body))
                if field:
                    self.assertEqual(reply.json[field], name, path)
            reply = self.server.get(f"/props?x=1&model={name.replace('/', '%2F')}")
            self.assertEqual((reply.status, reply.json["model_alias"]), (200, name))
            self.assertEqual(reply.json["model_path"], name.split("/")[-1] + ".gguf")

    def test_streams_and_structures_wait_for_the_load_too(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        for name in NAMES:
            events = self.server.events(CHAT, {"model": name, "messages": QUESTION})
            self.assertEqual(events[-1][1], "[DONE]")
            self.assertEqual(events[0][1]["model"], name)
            reply = chat(self.server, name, json_schema=schema)
            self.assertEqual(reply.status, 200, reply.body)
            json.loads(reply.json["choices"][0]["message"]["content"])

    def test_the_least_recently_used_one_makes_room(self):
        for name, left in (("a", None), ("b", ["a", "b"]), ("a", ["a", "b"]), ("inner/c", ["a", "inner/c"]),
                           ("b", ["b", "inner/c"])):
            self.assertEqual(chat(self.server, name).status, 200)
            if left:
                wait_until(lambda want=left: loaded(self.server) == want)
                self.assertEqual(running(self.server), [f"{one}:latest" for one in left])

    def test_names(self):
        listed = self.server.get("/v1/models").json
        self.assertEqual([one["id"] for one in listed["data"]], NAMES)
        self.assertEqual((listed["first_id"], listed["last_id"]), (NAMES[0], NAMES[-1]))
        for one in listed["data"]:
            self.assertEqual(one["meta"]["architecture"], "llada")
            self.assertEqual(one["max_model_len"], 512)
            found = self.server.get("/v1/models/" + one["id"])
            self.assertEqual({**found.json, "status": 0}, {**one, "status": 0})
        tags = self.server.get("/api/tags").json["models"]
        self.assertEqual([one["name"] for one in tags], [f"{name}:latest" for name in NAMES])
        self.assertEqual([one["details"]["quantization_level"] for one in tags], ["F32", "Q8_0", "Q4_0"])
        self.assertEqual(tags[0]["size"], MODEL.stat().st_size)
        for name in NAMES:
            shown = self.server.post("/api/show", {"model": f"{name}:latest"}).json
            self.assertEqual(shown["model_info"]["llada.context_length"], 512)
            self.assertIn("message", shown["template"])

    def test_without_a_name_the_first_answers(self):
        for body in ({}, {"model": "default"}, {"model": ""}):
            reply = self.server.post(CHAT, {"messages": QUESTION, **body})
            self.assertEqual((reply.status, reply.json["model"]), (200, "a"), reply.body)
        self.assertEqual(self.server.get("/props").json["model_alias"], "a")
        self.assertEqual(chat(self.server, "b.gguf").json["model"], "b.gguf")

    def test_unknown_names_are_told_what_there_is(self):
        for name in ("nobody", "inner", "c", "../a", "/etc/passwd", "A", "a:q8_0", "a" * 5000):
            reply = chat(self.server, name)
            self.assertEqual(reply.status, 404, reply.body)
            error = reply.json["error"]
            self.assertEqual((error["code"], error["param"]), ("model_not_found", "model"))
            if len(name) < 100:
                self.assertIn("'a', 'b', 'inner/c'", error["message"])
        reply = self.server.post("/v1/messages", {"model": "nobody", "messages": QUESTION, "max_tokens": 8})
        self.assertEqual((reply.status, reply.json["error"]["type"]), (404, "not_found_error"))
        for path in ("/api/chat", "/api/generate", "/api/show"):
            reply = self.server.post(path, {"model": "nobody", "messages": QUESTION, "prompt": "x"})
            self.assertEqual(reply.status, 404)
            self.assertIn("'inner/c'", reply.json["error"])
        for path in ("/v1/models/nobody", "/props?model=nobody"):
            reply = self.server.get(path)
            self.assertEqual(reply.status, 404)
            self.assertIn("'inner/c'", reply.json["error"]["message"])
        self.assertEqual(self.server.post(CHAT, {"messages": QUESTION, "model": 3}).status, 400)
        self.assertEqual(self.server.post("/api/chat", {"messages": QUESTION}).status, 400)

    def test_metrics_are_by_model(self):
        for name in ("a", "b"):
            self.assertEqual(chat(self.server, name).status, 200)
        before = self.finished("a")
        for name in ("a", "b", "inner/c", "a"):
            self.assertEqual(chat(self.server, name).status, 200)
        self.assertEqual(self.finished("a"), before + 2)
        chat(self.server, "b"), chat(self.server, "inner/c")  # a goes, and what it has counted stays
        self.assertEqual(self.finished("a"), before + 2)
        text = self.server.get("/metrics").body.decode()
        self.assertIn('dllm_step_seconds_count{model="b"}', text)
        self.assertIn('dllm_models_loaded 2', text)
        self.assertIn('dllm_model_events_total{event="unloaded",model="a"}', text)
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        self.assertEqual(len(names), len(set(names)))

    def finished(self, name):
        return self.server.metric(f'dllm_requests_finished_total{{model="{name}"}}')

    def test_slots_name_their_models(self):
        results = []
        threads = [threading.Thread(target=lambda name=name: results.append(
            chat(self.server, name, ignore_eos=True, max_tokens=400, length=400, threshold=1.0, algorithm="threshold")))
            for name in ("a", "b")]
        for one in threads:
            one.start()
        wait_until(lambda: {one["model"] for one in self.server.get("/slots").json} == {"a", "b"})
        for one in threads:
            one.join()
        self.assertEqual([one.status for one in results], [200, 200])


class Ollama(ModelsCase):
    def ask(self, server, name, **fields):
        reply = server.post("/api/generate", {"model": name, "stream": False, **fields})
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def test_models_are_loaded_and_unloaded(self):
        with self.serve() as server:
            self.assertEqual(running(server), [])
            self.assertEqual(self.ask(server, "a").json["done_reason"], "load")
            self.assertEqual(running(server), ["a:latest"])
            self.assertEqual(server.post("/api/chat", {"model": "b:latest", "messages": []}).json["done_reason"], "load")
            self.assertEqual(running(server), ["a:latest", "b:latest"])
            reply = self.ask(server, "a", keep_alive=0)
            self.assertEqual((reply.json["done_reason"], reply.json["model"]), ("unload", "a"))
            wait_until(lambda: running(server) == ["b:latest"])
            self.assertEqual(self.ask(server, "inner/c", keep_alive="0").json["done_reason"], "unload")
            self.assertEqual(running(server), ["b:latest"], "what is to be unloaded was loaded")

    def test_keep_alive(self):
        with self.serve("--models-idle", 600) as server:
            reply = self.ask(server, "a", prompt="3 + 4 =", keep_alive="300ms")
            self.assertNotIn("x-dllm-ignored", reply.headers)
            self.ask(server, "b", prompt="3 + 4 =", keep_alive=-1)
            self.ask(server, "inner/c", prompt="3 + 4 =")
            wait_until(lambda: running(server) == ["b:latest", "inner/c:latest"])
            ends = {one["name"]: one["expires_at"][:10] for one in server.get("/api/ps").json["models"]}
            self.assertEqual(ends["inner/c:latest"], time.strftime("%Y-%m-%d", time.gmtime(time.time() + 600)))
            self.assertGreater(ends["b:latest"], time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400 * 300)))
            self.ask(server, "b", prompt="3 + 4 =", keep_alive=0)
            wait_until(lambda: running(server) == ["inner/c:latest"])
            for wrong in ("soon", "5 m", [], {}, "", "1e3"):
                reply = server.post("/api/generate", {"model": "a", "prompt": "x", "keep_alive": wrong})
                self.assertEqual(reply.status, 400, wrong)
                self.assertIn("keep_alive", reply.json["error"])

    def test_a_server_with_one_model_ignores_it_by_name(self):
        with Server("-m", self.folder / "b.gguf") as server:
            reply = server.post("/api/generate", {"model": "default", "prompt": "3 + 4 =", "keep_alive": 0, "stream": False})
            self.assertEqual((reply.status, reply.headers.get("x-dllm-ignored")), (200, "keep_alive"))


if __name__ == "__main__":
    unittest.main()
