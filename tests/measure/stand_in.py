"""Stand-ins for what loading a server needs: a server that tells what one of vLLM would, and a load generator."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ANSWERS = {
    "/v1/models": json.dumps({"data": [{"id": "served", "root": "meta-llama/Llama-2-7b-hf"}]}),
    "/version": '{"version": "0.11.0"}',
    "/metrics": "# HELP x\nvllm:cache_config_info{enable_prefix_caching=\"False\","
                "block_size=\"32\",gpu_memory_utilization=\"0.85\"} 1\n"
                "vllm:num_preemptions_total 3\n",
}  # fmt: skip
REPORT = Path(__file__).parent / "data" / "guidellm-0.8.1.json"
GENERATOR = """#!{python}
import json, re, sys, time
words = " ".join(sys.argv)
streams = int(re.search(r"streams=(\\d+)", words)[1])
time.sleep({pause})
if streams == 4:
    sys.exit("it broke")
found = json.load(open({report!r}))
found["benchmarks"][0]["config"]["strategy"].update(streams=streams, max_concurrency=streams)
json.dump(found, open(re.search(r"kind=json,path=(\\S+)", words)[1], "w"))
"""


class Handler(BaseHTTPRequestHandler):
    """Answers as a server of vLLM would."""

    def do_GET(self) -> None:
        text = ANSWERS.get(self.path, "")
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET  # noqa: N815 (the name that http.server calls)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that runs until the end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}/v1"
        made.shutdown()


def generator_in(folder: Path, pause: float = 0.0) -> None:
    """A load generator called guidellm in a folder; four clients break it. pause: s that a level takes."""
    folder.mkdir()
    text = GENERATOR.format(python=sys.executable, report=str(REPORT), pause=pause)
    (folder / "guidellm").write_text(text, encoding="utf-8")
    (folder / "guidellm").chmod(0o755)
