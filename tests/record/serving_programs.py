"""Servers as vLLM and SGLang start them: ``serving_programs.py KIND FILE DEVICE``; the file gets port and pid.

Of both: a process that talks HTTP and computes nothing, an engine in a spawned one, requests over queues; a request is
a prefill and a few tokens, every token a step: the model, its logits, the sampler. vLLM's full graphs replay the
model's kernels without its module. vLLM starts the worker from the engine, in a third process; SGLang a detokenizer
beside it. Torch is imported where it computes alone: it takes longest.
"""

from __future__ import annotations

import http.server
import json
import multiprocessing as mp
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

#: Shapes for which a server runs its model before it takes requests.
WARM_UPS = 12
PROMPT, TOKENS = 2, 8


class Runner:
    """Runs the model as the engines do: three modules a step, of which a graph leaves out the first."""

    def __init__(self, graphs: bool, where: str) -> None:
        import torch

        self.torch, self.where, self.graphs = torch, where, graphs
        if where != "cpu":
            torch.npu.set_device(where)
        linear = torch.nn.Linear(16, 16)
        self.model = torch.nn.Sequential(linear, torch.nn.ReLU()).to(where)
        self.weight = linear.weight.detach().T
        self.logits, self.sampler = torch.nn.Linear(16, 16).to(where), torch.nn.Softmax(-1)
        for _ in range(WARM_UPS):
            self.model(torch.ones(4, 16, device=where))

    def token(self, tokens: list[int]) -> int:
        seen = [*tokens, *[0] * 16][:16]
        state = self.torch.tensor([seen], dtype=self.torch.float32).to(self.where)
        # A graph that was captured is replayed: no module is called.
        hidden = (state @ self.weight).relu() if self.graphs and len(tokens) > PROMPT else self.model(state)
        self.sampler(self.logits(hidden))
        return (sum(tokens) * 31 + len(tokens)) % 97

    def answer(self, tokens: list[int]) -> list[int]:
        for _ in range(TOKENS):
            tokens = [*tokens, self.token(tokens)]
        return tokens


def serve(requests: Any, answers: Any, graphs: bool, where: str) -> None:
    runner = Runner(graphs, where)
    answers.put("ready")
    for tokens in iter(requests.get, None):
        answers.put(runner.answer(tokens))


def engine_core(requests: Any, answers: Any, where: str) -> None:
    """vLLM's: schedules; the worker of the only rank computes."""
    inner: tuple[Any, Any] = mp.Queue(), mp.Queue()
    worker = mp.Process(target=serve, args=(*inner, True, where), name="Worker_TP0")
    worker.start()
    answers.put(inner[1].get())
    for tokens in iter(requests.get, None):
        inner[0].put(tokens)
        answers.put(inner[1].get())
    inner[0].put(None)
    worker.join()


def detokenizer(plain: Any, words: Any) -> None:
    """SGLang's: has torch, and no step."""
    for tokens in iter(plain.get, None):
        words.put(" ".join(map(str, tokens)))


class Api(http.server.BaseHTTPRequestHandler):
    lock = threading.Lock()
    ask: Any = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            answer = self.ask(json.loads(body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def main(kind: str, port: Path, where: str) -> None:
    mp.set_start_method("spawn")
    requests, tokens = mp.Queue(), mp.Queue()
    plain, words = mp.Queue(), mp.Queue()
    if kind == "vllm":
        children = [mp.Process(target=engine_core, args=(requests, tokens, where), name="EngineCore")]
    else:
        children = [mp.Process(target=serve, args=(requests, tokens, False, where), name="sglang::scheduler"),
                    mp.Process(target=detokenizer, args=(plain, words), name="sglang::detokenizer")]  # fmt: skip
    for child in children:
        child.start()
    assert tokens.get() == "ready"

    def ask(asked: list[int]) -> str:
        requests.put(asked)
        found = tokens.get()
        if kind == "vllm":
            return " ".join(map(str, found))
        plain.put(found)
        return str(words.get())

    Api.ask = staticmethod(ask)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    port.with_suffix(".part").write_text(f"{server.server_port} {os.getpid()}")
    port.with_suffix(".part").rename(port)
    server.serve_forever()
    with Api.lock:
        for queue in (requests, plain):
            queue.put(None)
    for child in children:
        child.join()
    print("served", [child.exitcode for child in children])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
